//! Checkpoints as a person meets them: a run that is stopped, killed, moved or short of disk goes on with
//! the bits of the unbroken one, and whatever is no checkpoint of it is refused in one line.

mod common;
#[path = "common/runs.rs"]
mod runs;

use common::{Csv, fresh, isobit, repo, stderr, stdout};
use runs::{CONFIG, FILES, digest_of, start, write_config};
use std::path::Path;

/// Runs and expects success; returns what it printed.
fn done(dir: &Path, args: &[&str]) -> String {
    let o = isobit(dir, args);
    assert!(o.status.success(), "{args:?}: {}{}", stderr(&o), stdout(&o));
    stdout(&o)
}

/// Runs and expects code 2 with one line that holds every one of `says`, and every file as it was.
fn refused(dir: &Path, args: &[&str], says: &[&str]) {
    let before = runs::contents(dir);
    let o = isobit(dir, args);
    let text = stderr(&o);
    assert_eq!(o.status.code(), Some(2), "{args:?}: {text}{}", stdout(&o));
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    assert!(
        !text.contains("panicked") && !text.contains("internal fault"),
        "{text}"
    );
    for s in says {
        assert!(text.contains(s), "{args:?}: {text:?} does not say {s:?}");
    }
    assert!(runs::contents(dir) == before, "{args:?} changed a file");
}

/// The run's files but for the summary, whose times differ.
fn same_files(a: &Path, b: &Path) {
    for name in FILES {
        let read = |d: &Path| std::fs::read_to_string(d.join(name)).unwrap_or_default();
        assert!(!read(a).is_empty(), "{name} is there");
        assert_eq!(read(a), read(b), "{name}");
    }
}

/// Every scheme.
const ALL: &str = "fp32,mixed,bf16,bf16-sr,bf16-kahan,fp16";

/// Case 24 of the public bug reports, for every scheme: 10 steps against 5 + resume + 5 at another
/// thread count, every file included.
#[test]
fn ten_steps_are_five_and_resume_and_five() {
    let dir = fresh("checkpoint-exact");
    write_config(&dir);
    let whole = done(
        &dir,
        &[
            &CONFIG[..],
            &["--outdir", "a", "--threads", "2", "--schemes", ALL],
        ]
        .concat(),
    );
    let half = [
        "--outdir",
        "b",
        "--threads",
        "1",
        "--stop-after",
        "5",
        "--schemes",
        ALL,
    ];
    let text = done(&dir, &[&CONFIG[..], &half].concat());
    assert!(
        text.contains("stopped after 5 steps") && text.contains("--resume b"),
        "{text}"
    );
    let rest = done(&dir, &["train", "--resume", "b", "--threads", "2"]);
    assert!(rest.contains("goes on: step 5 of 10"), "{rest}");
    for scheme in ALL.split(',') {
        assert_eq!(
            digest_of(&whole, scheme),
            digest_of(&rest, scheme),
            "{scheme}"
        );
    }
    same_files(&dir.join("a"), &dir.join("b"));
    for scheme in ALL.split(',') {
        for kind in ["steps", "curve", "curve_fp32eval", "scaler"] {
            let name = format!("{kind}_{scheme}.csv");
            let read = |d: &str| std::fs::read_to_string(dir.join(d).join(&name)).ok();
            assert_eq!(read("a"), read("b"), "{name}");
            let there = match kind {
                "scaler" => scheme == "fp16",
                "curve_fp32eval" => scheme != "fp32",
                _ => true,
            };
            assert_eq!(read("a").is_some(), there, "{name}");
        }
    }
    // The checkpoints are the same too, but for times.
    let again = done(&dir, &["train", "--resume", "b"]);
    assert!(
        again.contains("done before: step 10 of 10") && !again.contains("done after"),
        "{again}"
    );
    same_files(&dir.join("a"), &dir.join("b"));
    // In the midst of the schemes, and from another folder.
    let half = ["--outdir", "c", "--stop-after", "7", "--schemes", "fp32"];
    done(&dir, &[&CONFIG[..], &half].concat());
    let sub = dir.join("elsewhere");
    std::fs::create_dir(&sub).expect("a folder");
    let all = ["train", "--resume", "../c", "--schemes", ALL];
    let rest = done(&sub, &all);
    assert!(
        digest_of(&rest, "mixed") == digest_of(&whole, "mixed"),
        "{rest}"
    );
    same_files(&dir.join("a"), &dir.join("c"));
}

/// Replayed batches and PyTorch's weights: the digests are those of the recorded runs.
#[test]
fn replayed_batches_go_on_in_their_row() {
    let dir = fresh("checkpoint-replay");
    let config = repo("tests/data/two-layer/config.toml");
    let start = [
        "train",
        "--config",
        config.to_str().expect("a path"),
        "--outdir",
        "r",
        "--schemes",
        "mixed",
    ];
    done(&dir, &[&start[..], &["--stop-after", "29"]].concat());
    let text = done(&dir, &["train", "--resume", "r/checkpoints/mixed"]);
    assert_eq!(
        digest_of(&text, "mixed"),
        "e3783b7932ec3754",
        "the unbroken run's digest"
    );
    let histogram = Csv::read(&dir.join("r/gradhist.csv"));
    assert!(
        histogram.rows.len() == 56,
        "taken at step 30, after the break"
    );
}

#[test]
fn one_scheme_that_goes_on_leaves_the_others_in_the_summary() {
    let dir = fresh("checkpoint-summary");
    write_config(&dir);
    let both = [
        "--schemes",
        "fp32,mixed",
        "--outdir",
        "s",
        "--stop-after",
        "5",
    ];
    done(&dir, &[&CONFIG[..], &both].concat());
    done(&dir, &["train", "--resume", "s/checkpoints/mixed"]);
    let summary = Csv::read(&dir.join("s/summary.csv"));
    let schemes: Vec<&str> = (0..summary.rows.len())
        .map(|i| summary.text(i, "scheme"))
        .collect();
    assert_eq!(schemes, ["fp32", "mixed"]);
}

#[cfg(unix)]
#[test]
fn signals_leave_a_checkpoint() {
    let dir = fresh("checkpoint-signal");
    write_config(&dir);
    let config = std::fs::read_to_string(dir.join("train.toml")).expect("the config");
    let longer = config
        .replace("eval_interval = 3", "eval_interval = 200")
        .replace("steps = 10", "steps = 1000");
    std::fs::write(dir.join("train.toml"), longer).expect("a config");
    let whole = done(
        &dir,
        &[&CONFIG[..], &["--schemes", "fp32", "--outdir", "a"]].concat(),
    );
    for signal in ["-INT", "-TERM"] {
        let out = format!("b{signal}");
        let mut child = start(&dir, &["--schemes", "fp32", "--outdir", &out]);
        runs::wait_for(&dir.join(&out).join("curve_fp32.csv"));
        runs::kill(&child, signal);
        let code = child.wait().expect("it ends").code();
        let last = dir.join(&out).join("checkpoints/fp32");
        let names: Vec<_> = runs::contents(&last).into_keys().collect();
        assert!(
            code == Some(130) && names.iter().any(|n| n.contains("step-")),
            "{code:?} {names:?}"
        );
        let rest = done(&dir, &["train", "--resume", &out]);
        assert_eq!(
            digest_of(&rest, "fp32"),
            digest_of(&whole, "fp32"),
            "{rest}"
        );
    }
}

#[test]
fn old_checkpoints_go_and_the_best_one_stays() {
    let dir = fresh("checkpoint-keep");
    write_config(&dir);
    let every = [
        "--schemes",
        "bf16",
        "--outdir",
        "a",
        "--checkpoint-every",
        "2",
        "--keep",
        "3",
    ];
    done(&dir, &[&CONFIG[..], &every].concat());
    let names: Vec<_> = runs::contents(&dir.join("a/checkpoints/bf16"))
        .into_keys()
        .collect();
    assert_eq!(
        names,
        [
            "best.safetensors",
            "step-00000006.safetensors",
            "step-00000008.safetensors",
            "step-00000010.safetensors"
        ]
    );
    // The best one is that of the lowest loss in the fp32 curve.
    let curve = Csv::read(&dir.join("a/curve_fp32eval_bf16.csv"));
    let own = Csv::read(&dir.join("a/curve_bf16.csv"));
    assert_eq!(curve.rows.len(), own.rows.len());
    assert_ne!(
        curve.rows, own.rows,
        "fp32 evaluation of bf16 weights is another number"
    );
    let lowest = (0..curve.rows.len()).min_by(|a, b| {
        curve
            .number(*a, "val_loss")
            .total_cmp(&curve.number(*b, "val_loss"))
    });
    let step = curve.text(lowest.expect("rows"), "step").to_string();
    let text = done(&dir, &["inspect", "a", "--best"]);
    assert!(text.contains(&format!("after step {step} of 10")), "{text}");
    // No checkpoints where none are wanted; one at the end where none are due.
    done(
        &dir,
        &[
            &CONFIG[..],
            &["--schemes", "fp32", "--outdir", "n", "--no-checkpoints"],
        ]
        .concat(),
    );
    assert!(!dir.join("n/checkpoints").exists());
    done(
        &dir,
        &[
            &CONFIG[..],
            &[
                "--schemes",
                "fp32",
                "--outdir",
                "z",
                "--checkpoint-every",
                "0",
            ],
        ]
        .concat(),
    );
    assert!(
        dir.join("z/checkpoints/fp32/step-00000010.safetensors")
            .exists()
    );
}

#[test]
fn another_scheme_goes_on_and_says_what_it_loses() {
    let dir = fresh("checkpoint-as");
    write_config(&dir);
    let half = [
        "--schemes",
        "fp32,bf16",
        "--outdir",
        "a",
        "--stop-after",
        "5",
    ];
    done(&dir, &[&CONFIG[..], &half].concat());
    let as_mixed = [
        "train",
        "--resume",
        "a/checkpoints/fp32",
        "--resume-as",
        "mixed",
    ];
    let text = done(&dir, &as_mixed);
    assert!(
        text.contains("0 of") && text.contains("loses 0 significant bits"),
        "{text}"
    );
    let steps = Csv::read(&dir.join("a/steps_mixed.csv"));
    assert_eq!(
        (steps.rows.len(), steps.text(0, "step")),
        (5, "6"),
        "the ledger of mixed starts at its first step"
    );
    // To bf16 most elements lose bits; in a folder of its own, because `a` has a bf16 run.
    let as_bf16 = [
        "train",
        "--resume",
        "a/checkpoints/fp32",
        "--resume-as",
        "bf16",
    ];
    refused(&dir, &as_bf16, &["bf16", "--outdir"]);
    let text = done(&dir, &[&as_bf16[..], &["--outdir", "b"]].concat());
    let line = text
        .lines()
        .find(|l| l.starts_with("fp32 to bf16"))
        .expect("what is lost");
    let numbers: Vec<u64> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    // "fp32 to bf16, from step 5: R of W weights and R of M moments are rounded, which loses B significant bits"
    let [_, _, _, rounded, weights, ..] = numbers[..] else {
        panic!("{line}")
    };
    assert!(rounded > weights / 2 && rounded <= weights, "{line}");
    assert!(numbers.last() > Some(&weights), "{line}");
    let resumed = done(&dir, &["train", "--resume", "b"]);
    assert!(resumed.contains("done before: step 10 of 10"), "{resumed}");
    refused(
        &dir,
        &[
            "train",
            "--resume",
            "a/checkpoints/bf16",
            "--resume-as",
            "bf16",
        ],
        &["bf16 already"],
    );
    refused(
        &dir,
        &[
            "train",
            "--resume",
            "a/checkpoints/bf16",
            "--resume-as",
            "fp7",
        ],
        &["fp7", "fp32"],
    );
    refused(
        &dir,
        &["train", "--resume", "a", "--resume-as", "fp32"],
        &["fp32, mixed, bf16", "--schemes"],
    );
    refused(&dir, &["train", "--resume-as", "fp32"], &["--resume"]);
}

#[test]
fn what_is_no_checkpoint_of_the_run_is_refused() {
    let dir = fresh("checkpoint-refused");
    write_config(&dir);
    let half = [
        "--schemes",
        "fp32",
        "--outdir",
        "a",
        "--stop-after",
        "5",
        "--checkpoint-every",
        "1",
    ];
    done(&dir, &[&CONFIG[..], &half].concat());
    let good = std::fs::read(dir.join("a/checkpoints/fp32/step-00000005.safetensors"))
        .expect("a checkpoint");
    let resume = |more: &[&'static str]| [&["train", "--resume", "a"][..], more].concat();
    // Other settings, data, vocabulary.
    refused(&dir, &resume(&["--lr", "0.5"]), &["lr = 0.5", "0.001"]);
    refused(
        &dir,
        &resume(&["--steps", "20"]),
        &["steps = 20", "10", "learning rate"],
    );
    refused(&dir, &resume(&["--batch", "4"]), &["batch = 4"]);
    refused(&dir, &resume(&["--seed", "3"]), &["seed = 3"]);
    refused(
        &dir,
        &resume(&["--preset", "tiny"]),
        &["--preset", "--resume"],
    );
    refused(
        &dir,
        &resume(&["--schemes", "bf16"]),
        &["fp32", "--schemes"],
    );
    refused(&dir, &resume(&["--tag", "_y"]), &["_y"]);
    refused(
        &dir,
        &resume(&["--dump-grads", "4", "g.safetensors"]),
        &["--dump-grads 4", "past"],
    );
    let text = std::fs::read_to_string(dir.join("text.txt")).expect("the text");
    std::fs::write(dir.join("other.txt"), text.replacen('a', "e", 1)).expect("a text");
    refused(
        &dir,
        &resume(&["--data", "other.txt"]),
        &["other text", "SHA-256"],
    );
    std::fs::write(dir.join("chars.txt"), text + "ß").expect("a text");
    refused(
        &dir,
        &resume(&["--data", "chars.txt"]),
        &["other characters", "vocabulary"],
    );
    let config = std::fs::read_to_string(dir.join("train.toml")).expect("the config");
    let deeper = config.replace("n_layer = 1", "n_layer = 2");
    std::fs::write(dir.join("deeper.toml"), deeper).expect("a config");
    refused(
        &dir,
        &resume(&["--config", "deeper.toml"]),
        &["n_layer = 2", "has 1"],
    );
    done(&dir, &resume(&["--config", "train.toml", "--dry-run"]));
    // A new run does not write over the old one's checkpoints, unless told to.
    let fresh_run = [&CONFIG[..], &["--schemes", "fp32", "--outdir", "a"]].concat();
    refused(&dir, &fresh_run, &["step 5", "--resume a", "--overwrite"]);
    // Damage.
    let put = |bytes: &[u8]| {
        std::fs::write(
            dir.join("a/checkpoints/fp32/step-00000005.safetensors"),
            bytes,
        )
        .expect("a file");
    };
    put(&good[..good.len() - 1]);
    refused(
        &dir,
        &resume(&[]),
        &["step-00000005.safetensors", "damaged", "step-00000004"],
    );
    put(&good[..5]);
    refused(&dir, &resume(&[]), &["5 bytes"]);
    put(b"");
    refused(&dir, &resume(&[]), &["step-00000005.safetensors"]);
    put(&[0xff; 64]);
    refused(&dir, &resume(&[]), &["header"]);
    let mut flipped = good.clone();
    *flipped.last_mut().expect("bytes") ^= 1;
    put(&flipped);
    refused(&dir, &resume(&[]), &["SHA-256"]);
    let format = b"\\\"format\\\":";
    let at = good.windows(format.len()).position(|w| w == format);
    let at = at.expect("the format's number") + format.len();
    assert_eq!(good[at..at + 2], *b"1,");
    let mut newer = good.clone();
    newer[at] = b'7';
    put(&newer);
    refused(&dir, &resume(&[]), &["format 7", "newer isobit"]);
    std::fs::copy(
        repo("tests/data/two-layer/init.safetensors"),
        dir.join("w.safetensors"),
    )
    .expect("copied");
    refused(
        &dir,
        &["train", "--resume", "w.safetensors"],
        &["no checkpoint of isobit"],
    );
    refused(&dir, &["train", "--resume", "nothing"], &["nothing"]);
    refused(
        &dir,
        &["train", "--resume", "a/checkpoints/lock"],
        &["lock"],
    );
    std::fs::create_dir(dir.join("empty")).expect("a folder");
    refused(&dir, &["train", "--resume", "empty"], &["no checkpoint"]);
    // A lone file says where its run was, not where this one's files go.
    put(&good);
    std::fs::write(dir.join("moved.safetensors"), &good).expect("a file");
    refused(
        &dir,
        &["train", "--resume", "moved.safetensors"],
        &["--outdir"],
    );
    let moved = done(
        &dir,
        &["train", "--resume", "moved.safetensors", "--outdir", "m"],
    );
    let here = done(&dir, &resume(&[]));
    assert_eq!(digest_of(&moved, "fp32"), digest_of(&here, "fp32"));
    // A finished run that is asked for again is shown, and left as it is; not one with other settings.
    let newest = dir.join("a/checkpoints/fp32/step-00000010.safetensors");
    let kept = std::fs::metadata(&newest).and_then(|m| m.modified());
    let again = done(&dir, &fresh_run);
    let shown = again.contains("there already, finished");
    assert!(
        shown && again.contains(&digest_of(&here, "fp32")),
        "{again}"
    );
    let after = std::fs::metadata(&newest).and_then(|m| m.modified());
    assert_eq!(after.expect("there"), kept.expect("there"));
    let other = [&fresh_run[..], &["--seed", "8"]].concat();
    refused(&dir, &other, &["earlier run", "--overwrite"]);
    let anew = done(&dir, &[&fresh_run[..], &["--overwrite"]].concat());
    assert_eq!(digest_of(&anew, "fp32"), digest_of(&here, "fp32"));
    refused(
        &dir,
        &[&CONFIG[..], &["--keep", "0"]].concat(),
        &["--keep 0"],
    );
    refused(
        &dir,
        &[&CONFIG[..], &["--checkpoint-every", "-1"]].concat(),
        &["--checkpoint-every -1"],
    );
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let dir = fresh("checkpoint-lock");
    write_config(&dir);
    let mut child = start(
        &dir,
        &["--schemes", "fp32", "--steps", "100000", "--outdir", "a"],
    );
    runs::wait_for(&dir.join("a/curve_fp32.csv"));
    let o = isobit(
        &dir,
        &[&CONFIG[..], &["--schemes", "mixed", "--outdir", "a"]].concat(),
    );
    let text = stderr(&o);
    child.kill().expect("killed");
    child.wait().expect("it ends");
    assert!(
        o.status.code() == Some(2) && text.contains("another isobit"),
        "{text}"
    );
}

#[test]
fn inspect_shows_checkpoints_and_any_safetensors_file() {
    let dir = fresh("checkpoint-inspect");
    write_config(&dir);
    let run = done(
        &dir,
        &[&CONFIG[..], &["--schemes", "bf16", "--outdir", "a"]].concat(),
    );
    let text = done(&dir, &["inspect", "a"]);
    for s in [
        "bf16, stored in bf16, after step 10 of 10",
        "blocks.0.attn.weight.m",
        "BF16",
        "96x32",
        "1e-2 to 1e-1",
    ] {
        assert!(text.contains(s), "{text} does not say {s:?}");
    }
    assert!(text.contains(&digest_of(&run, "bf16")), "{text}");
    let json = done(&dir, &["inspect", "--json", "a"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["checkpoint"]["step"], 10);
    let init = repo("tests/data/two-layer/init.safetensors");
    let text = done(&dir, &["inspect", init.to_str().expect("a path")]);
    assert!(
        text.contains("tok.weight") && text.contains("59x32") && text.contains("all"),
        "{text}"
    );
    // A gain of 32 ones has the norm of their root.
    let ln = text
        .lines()
        .find(|l| l.starts_with("ln_f.weight"))
        .expect("a row");
    assert!(ln.contains("5.6569e0") && ln.contains("1.0000e0"), "{ln}");
    refused(&dir, &["inspect", "train.toml"], &["safetensors"]);
    let newest = dir.join("a/checkpoints/bf16/step-00000010.safetensors");
    let mut bytes = std::fs::read(&newest).expect("a checkpoint");
    *bytes.last_mut().expect("bytes") ^= 1;
    std::fs::write(&newest, bytes).expect("a file");
    refused(&dir, &["inspect", "a"], &["damaged", "SHA-256"]);
}
