//! The command line as a person meets it: the default run, files, and one clear line with exit code 2
//! for whatever cannot be used.

mod common;

use common::{Csv, fresh, isobit, repo, stderr, stdout};
use std::path::Path;

/// Arguments of a run that takes a moment.
const QUICK: [&str; 6] = ["train", "--steps", "3", "--batch", "2", "--outdir"];

fn quick(dir: &Path, extra: &[&str]) -> std::process::Output {
    let mut args = QUICK.to_vec();
    args.push("out");
    args.extend(extra);
    isobit(dir, &args)
}

/// Runs, and checks that it ends with code 2, one line that holds every one of `says`, and no file.
fn refused(dir: &Path, args: &[&str], says: &[&str]) {
    let before = listing(dir);
    let o = isobit(dir, args);
    let text = stderr(&o);
    assert_eq!(o.status.code(), Some(2), "{args:?}: {text}\n{}", stdout(&o));
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    let steers = text.trim_end().chars().any(char::is_control);
    assert!(!steers, "{args:?}: {text:?} has control characters");
    assert!(
        !text.contains("panicked") && !text.contains("internal fault"),
        "{args:?}: {text}"
    );
    for s in says {
        assert!(text.contains(s), "{args:?}: {text:?} does not say {s:?}");
    }
    assert_eq!(listing(dir), before, "{args:?} left something behind");
}

fn listing(dir: &Path) -> Vec<String> {
    let mut out: Vec<String> = std::fs::read_dir(dir)
        .expect("the folder")
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    out.sort();
    out
}

#[test]
fn a_run_leaves_the_documented_files() {
    let dir = fresh("cli-files");
    let o = quick(&dir, &["--tag", "_x"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let text = stdout(&o);
    assert!(
        text.contains("made by the program itself") && text.contains("--data FILE"),
        "{text}"
    );
    assert!(text.contains("too short"), "{text}");
    assert_eq!(
        listing(&dir.join("out")),
        [
            "checkpoints",
            "cost_x.csv",
            "curve_bf16_x.csv",
            "curve_fp32_x.csv",
            "curve_fp32eval_bf16_x.csv",
            "curve_fp32eval_mixed_x.csv",
            "curve_mixed_x.csv",
            "env.json",
            "memory_x.csv",
            "plots",
            "policy_x.csv",
            "report.html",
            "steps_bf16_x.csv",
            "steps_fp32_x.csv",
            "steps_mixed_x.csv",
            "summary_x.csv"
        ]
    );
    let curve = Csv::read(&dir.join("out/curve_fp32_x.csv"));
    assert_eq!(
        (
            curve.rows.len(),
            curve.text(0, "step"),
            curve.text(1, "step")
        ),
        (2, "1", "3")
    );
    let steps = Csv::read(&dir.join("out/steps_fp32_x.csv"));
    assert_eq!(steps.rows.len(), 3);
    assert_eq!(steps.text(0, "digest").len(), 16);
    assert!(steps.text(1, "digest").is_empty() && steps.text(2, "digest").len() == 16);
    let summary = Csv::read(&dir.join("out/summary_x.csv"));
    assert_eq!(summary.text(0, "step_ms"), "");
    assert!(summary.number(0, "peak_mem_gib") > 0.0 && summary.number(0, "final_val_loss") > 0.0);
    let env = std::fs::read_to_string(dir.join("out/env.json")).expect("env.json");
    for key in [
        "\"device\"",
        "\"sha256\"",
        "\"version\"",
        "\"config\"",
        "\"plans\"",
    ] {
        assert!(env.contains(key), "{env}");
    }
}

#[test]
fn dry_runs_write_nothing_and_help_teaches() {
    let dir = fresh("cli-dry");
    let o = isobit(&dir, &["--preset", "seed", "--batch", "2", "--dry-run"]);
    assert!(
        o.status.success() && stdout(&o).contains("dry run"),
        "{}",
        stderr(&o)
    );
    assert!(listing(&dir).is_empty());
    let help = stdout(&isobit(&dir, &["--help"]));
    assert!(
        help.contains("Examples:") && help.contains("--backend"),
        "{help}"
    );
    assert!(stdout(&isobit(&dir, &["train", "--help"])).contains("--dump-grads"));
}

#[test]
fn bad_flags() {
    let dir = fresh("cli-flags");
    let r = |args: &[&str], says: &[&str]| refused(&dir, args, says);
    r(&["--backend", "abacus"], &["abacus", "cpu", "vulkan"]);
    r(&["--backend", "cpu", "--adapter", "RTX"], &["RTX"]);
    r(&["--preset", "giant"], &["giant", "tiny", "seed"]);
    r(
        &["train", "--ledger", "fulll"],
        &["fulll", "(see `isobit --help`)"],
    );
    r(&["--schemes", "fp32,int4"], &["int4", "fp32"]);
    r(&["--schemes", ""], &["fp32"]);
    r(&["--frobnicate"], &["--frobnicate"]);
    r(&["evaluate"], &["evaluate"]);
    r(&["--steps", "0"], &["steps = 0", "at least 1"]);
    r(&["--steps", "-4"], &["-4"]);
    r(&["--steps", "lots"], &["lots"]);
    r(
        &["--steps", "99999999999999999999"],
        &["99999999999999999999"],
    );
    r(&["--lr", "nan"], &["lr = NaN"]);
    r(&["--lr", "-1"], &["lr = -1"]);
    r(&["--lr", "0"], &["lr = 0"]);
    r(&["--lr", "inf"], &["lr = inf"]);
    r(&["--min-lr", "1"], &["min_lr = 1"]);
    r(&["--batch", "0"], &["batch = 0"]);
    r(&["--batch", "1000000"], &["batch = 1000000"]);
    r(&["--seed", "-1"], &["-1"]);
    r(&["--threads", "0"], &["--threads 0"]);
    r(&["--threads", "-2"], &["--threads -2"]);
    r(&["--tag", "a/b"], &["--tag"]);
    r(&["--dump-grads", "0", "g"], &["--dump-grads 0"]);
    r(
        &["--dump-grads", "7", "g", "--steps", "6"],
        &["--dump-grads 7"],
    );
    r(&["--dump-grads", "7"], &["--dump-grads"]);
    r(
        &["--preset", "seed", "--batch", "65536"],
        &["of memory", "batch"],
    );
}

#[test]
fn bad_files() {
    let dir = fresh("cli-bad-files");
    let put =
        |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).expect("a test file");
    put("empty.txt", b"");
    put("binary.txt", &[b'a', 0xff, 0xfe]);
    put("short.txt", b"to be or not to be");
    put("notdir", b"x");
    std::fs::create_dir(dir.join("folder")).expect("a folder");
    let r = |args: &[&str], says: &[&str]| refused(&dir, args, says);
    r(&["--data", "missing.txt"], &["missing.txt"]);
    r(&["--data", "empty.txt"], &["empty.txt", "empty"]);
    r(&["--data", "binary.txt"], &["binary.txt", "UTF-8"]);
    r(&["--data", "short.txt"], &["short.txt", "block"]);
    r(&["--data", "folder"], &["folder"]);
    r(&["--config", "missing.toml"], &["missing.toml"]);
    r(&["--init", "missing.safetensors"], &["missing.safetensors"]);
    r(&["--outdir", "notdir/out"], &["notdir/out"]);
    let one = ["--schemes", "fp32", "--steps", "3"];
    let with = |more: &[&'static str]| [&one[..], more].concat();
    r(&with(&["--save", "folder"]), &["folder", "no regular file"]);
    r(
        &with(&["--save", "x", "--dump-grads", "1", "./x"]),
        &["two files"],
    );
    let long = "a rose is a rose ".repeat(200);
    put("rose.txt", long.as_bytes());
    r(
        &with(&["--data", "rose.txt", "--save", "rose.txt"]),
        &["rose.txt", "reads it"],
    );
    for (outdir, save) in [
        ("new", "new/env.json"),
        ("new", "./folder/../new/summary.csv"),
        ("folder/../new", "new/curve_fp32.csv"),
        ("x/../new", "y/../new/steps_fp32.csv"),
        ("new", "new/checkpoints/w.safetensors"),
    ] {
        let args = with(&["--outdir", outdir, "--save", save]);
        r(&args, &[save, "a run's own files are there"]);
    }
    #[cfg(unix)]
    {
        let made = std::process::Command::new("mkfifo")
            .arg(dir.join("pipe"))
            .status();
        assert!(made.expect("mkfifo").success());
        r(&["--data", "pipe"], &["pipe", "no regular file"]);
        r(&["--data", "/dev/zero"], &["/dev/zero", "no regular file"]);
    }
    r(&["--config", "folder"], &["folder"]);
    r(
        &["--outdir", "folder/ok", "--save", "no/such/file"],
        &["no/such/file"],
    );
}

#[test]
fn bad_configs() {
    let dir = fresh("cli-configs");
    let two = repo("tests/data/two-layer");
    let good = std::fs::read_to_string(two.join("config.toml")).expect("the config");
    let link = |text: String| {
        let abs = |name: &str| format!("\"{}\"", two.join(name).display());
        [
            "init.safetensors",
            "text.txt",
            "train_offsets.csv",
            "val_offsets.csv",
        ]
        .iter()
        .fold(text, |t, n| t.replace(&format!("\"{n}\""), &abs(n)))
    };
    let r = |from: &str, to: &str, says: &[&str]| {
        assert!(good.contains(from), "{from}");
        std::fs::write(dir.join("c.toml"), link(good.replace(from, to))).expect("a config");
        refused(&dir, &["--config", "c.toml"], says);
    };
    r("n_layer = 2", "n_layers = 2", &["c.toml", "n_layers"]);
    r("[ledger]", "[leger]", &["leger"]);
    let many = good.replace("[train]", "[train]\neval_iters = 1000000");
    std::fs::write(dir.join("c.toml"), link(many)).expect("a config");
    refused(
        &dir,
        &["--config", "c.toml", "--batch", "65536"],
        &["eval_iters 1000000", "2^28"],
    );
    r("n_layer = 2", "n_layer = \"two\"", &["c.toml", "line"]);
    r("n_layer = 2", "n_layer = 0", &["n_layer = 0"]);
    r("n_layer = 2", "n_layer = -1", &["n_layer = -1"]);
    r(
        "n_layer = 2",
        "n_layer = 1000000000",
        &["n_layer = 1000000000"],
    );
    r("n_layer = 2", "n_layer =", &["c.toml"]);
    r(
        "n_layer = 2",
        "n_layer = 3",
        &["init.safetensors", "blocks.2"],
    );
    r("n_head = 2", "n_head = 5", &["n_head = 5", "n_embd = 32"]);
    r("n_embd = 32", "n_embd = 64", &["init.safetensors", "shape"]);
    r("kind = \"char-gpt\"", "kind = \"resnet\"", &["resnet"]);
    r(
        "precision = \"fp32\"",
        "precision = \"fp7\"",
        &["fp7", "fp32"],
    );
    r(
        "precision = \"fp32\"",
        "precision = \"\\u001b[2J\"",
        &["\\u{1b}[2J"],
    );
    #[cfg(unix)]
    r(
        "val_offsets = \"val_offsets.csv\"",
        "val_offsets = \"/dev/zero\"",
        &["/dev/zero", "no regular file"],
    );
    r("betas = [0.9, 0.95]", "betas = [0.9, 1.0]", &["betas[1]"]);
    r("eps = 1e-8", "eps = -1.0", &["eps"]);
    r(
        "weight_decay = 0.1",
        "weight_decay = nan",
        &["weight_decay"],
    );
    r("clip = 0.0", "clip = -1.0", &["clip"]);
    r(
        "eval_interval = 20",
        "eval_interval = 0",
        &["eval_interval"],
    );
    r("init_scale = 65536.0", "init_scale = 0.0", &["init_scale"]);
    r("steps = 60", "steps = 61", &["train_offsets.csv", "60"]);
    r("batch = 4", "batch = 5", &["offsets.csv", "line 1"]);
    r(
        "block = 16",
        "block = 4000",
        &["train_offsets.csv", "block 4000"],
    );
    std::fs::write(dir.join("c.toml"), [0xff, 0xfe, 0x00]).expect("a config");
    refused(&dir, &["--config", "c.toml"], &["c.toml"]);
}

/// A tensor of a weights file: name, type, shape, bytes.
type Entry = (String, safetensors::Dtype, Vec<usize>, Vec<u8>);

#[test]
fn bad_weights() {
    use safetensors::{Dtype, tensor::TensorView};
    let dir = fresh("cli-weights");
    let two = repo("tests/data/two-layer");
    let good = std::fs::read(two.join("init.safetensors")).expect("weights");
    let config = two.join("config.toml");
    let r = |bytes: &[u8], says: &[&str]| {
        std::fs::write(dir.join("w.safetensors"), bytes).expect("weights");
        refused(
            &dir,
            &[
                "--config",
                config.to_str().unwrap(),
                "--init",
                "w.safetensors",
            ],
            says,
        );
    };
    r(&good[..good.len() - 1], &["w.safetensors"]);
    r(&good[..100], &["w.safetensors"]);
    r(&[], &["w.safetensors"]);
    r(&[0xff; 64], &["w.safetensors"]);
    let mut header = good.clone();
    header[20] ^= 0xff;
    r(&header, &["w.safetensors"]);
    let st = safetensors::SafeTensors::deserialize(&good).expect("good weights");
    let changed = |name: &str, f: &dyn Fn(&TensorView) -> Option<Entry>| {
        let all: Vec<_> = st
            .iter()
            .filter_map(|(n, t)| {
                let same = (
                    n.to_string(),
                    t.dtype(),
                    t.shape().to_vec(),
                    t.data().to_vec(),
                );
                if n == name { f(&t) } else { Some(same) }
            })
            .collect();
        let views = all
            .iter()
            .map(|(n, d, s, b)| (n, TensorView::new(*d, s.clone(), b).expect("a view")));
        safetensors::serialize(views, None).expect("a file")
    };
    let ln = "ln_f.weight";
    r(&changed(ln, &|_| None), &["no tensor ln_f.weight"]);
    r(
        &changed(ln, &|t| {
            Some((
                "norm.weight".into(),
                t.dtype(),
                t.shape().to_vec(),
                t.data().to_vec(),
            ))
        }),
        &["norm.weight"],
    );
    r(
        &changed(ln, &|t| {
            Some((ln.into(), t.dtype(), vec![16, 2], t.data().to_vec()))
        }),
        &["shape"],
    );
    r(
        &changed(ln, &|t| {
            Some((ln.into(), Dtype::I32, t.shape().to_vec(), t.data().to_vec()))
        }),
        &["I32"],
    );
    r(
        &changed(ln, &|t| {
            Some((
                ln.into(),
                Dtype::F32,
                vec![32],
                f32::NAN.to_le_bytes().repeat(t.shape()[0]),
            ))
        }),
        &["NaN"],
    );
}

#[test]
fn a_loss_that_is_no_number_names_step_and_operation() {
    let dir = fresh("cli-nonfinite");
    let o = isobit(
        &dir,
        &[
            "--lr", "1e6", "--warmup", "0", "--steps", "40", "--batch", "2", "--outdir", "out",
        ],
    );
    let text = stderr(&o);
    assert_eq!(o.status.code(), Some(2), "{text}{}", stdout(&o));
    assert!(
        text.contains("step ") && text.contains("first non-finite value comes from"),
        "{text}"
    );
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    // What was measured before is on disk.
    assert!(!Csv::read(&dir.join("out/steps_fp32.csv")).rows.is_empty());
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_cleanly_with_what_was_measured() {
    use std::process::{Command, Stdio};
    let dir = fresh("cli-interrupt");
    let mut child = Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args([
            "--steps",
            "100000",
            "--outdir",
            "out",
            "--save",
            "w.safetensors",
        ])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let curve = dir.join("out/curve_fp32.csv");
    let start = std::time::Instant::now();
    while !curve.exists() && start.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill");
    assert!(kill.success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let steps = Csv::read(&dir.join("out/steps_fp32.csv"));
    let last = steps.rows.len() - 1;
    assert_eq!(
        steps.text(last, "digest").len(),
        16,
        "the last step done has its digest"
    );
    assert!(Csv::read(&dir.join("out/summary.csv")).number(0, "final_val_loss") > 0.0);
    assert!(dir.join("w_fp32.safetensors").exists());
}

/// Standard error that is full stops nothing; a reader that goes away ends a run with a checkpoint.
#[cfg(unix)]
#[test]
fn a_terminal_that_is_gone() {
    use std::process::{Command, Stdio};
    let full = || std::fs::File::options().write(true).open("/dev/full");
    let Ok(full) = full() else {
        println!("skipped: there is no /dev/full");
        return;
    };
    let dir = fresh("gone");
    let bad = Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(["sample", "--from", "nosuch"])
        .current_dir(&dir)
        .stderr(full)
        .status();
    assert_eq!(bad.expect("runs").code(), Some(2));
    let mut run = Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(["--backend", "cpu", "--preset", "tiny", "--schemes", "fp32"])
        .args(["--steps", "100000", "--outdir", "out"])
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut out = std::io::BufReader::new(run.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("step 1:") {
        line.clear();
        let n = std::io::BufRead::read_line(&mut out, &mut line).expect("reads");
        assert!(n > 0, "the run begins");
    }
    drop(out);
    let code = run.wait().expect("ends").code();
    assert_eq!(code, Some(141));
    let kept = std::fs::read_dir(dir.join("out/checkpoints/fp32")).expect("checkpoints");
    let names: Vec<_> = kept.map(|e| e.expect("a file").file_name()).collect();
    assert!(
        names
            .iter()
            .any(|n| n.to_string_lossy().starts_with("step-")),
        "{names:?}"
    );
}

#[test]
fn doctor_names_mistakes_and_train_repeats_the_warnings() {
    let dir = fresh("doctor");
    let text = "to be or not to be, that is the question. ".repeat(60);
    std::fs::write(dir.join("a.txt"), text).expect("a text");
    let config = "[model]\nn_layer = 1\nn_head = 1\nn_embd = 15\nblock = 16\n[data]\ntext = \"a.txt\"\n\
                  [train]\nprecision = \"bf16\"\nbatch = 2\nsteps = 4\nwarmup = 1\nlr = 1e-5\nmin_lr = 1e-6\neval_iters = 1\n";
    std::fs::write(dir.join("run.toml"), config).expect("a config");
    let o = isobit(&dir, &["doctor", "run.toml"]);
    let said = stdout(&o);
    assert_eq!(o.status.code(), Some(1), "{said}{}", stderr(&o));
    let mistakes = [
        "bf16: at lr = 1.0e-5 about 9",
        "batch 2 x block 16 is 32 characters a step",
        "n_embd 15 is odd: narrow rows are padded to 16, 6.2%",
    ];
    for part in mistakes {
        let line = said.lines().find(|l| l.contains(part));
        assert!(
            line.is_some_and(|l| l.starts_with("warning  ")),
            "{part}: {said}"
        );
    }
    assert!(
        said.contains("note     bf16: narrow types are emulated"),
        "{said}"
    );
    let o = isobit(&dir, &["train", "--config", "run.toml", "--backend", "cpu"]);
    let said = stdout(&o);
    assert!(o.status.success(), "{}", stderr(&o));
    for part in mistakes {
        let line = said.lines().find(|l| l.contains(part));
        assert!(
            line.is_some_and(|l| l.starts_with("warning: ")),
            "{part}: {said}"
        );
    }
    assert!(!said.contains("note "), "{said}");
    let o = isobit(&dir, &["doctor", "run.toml", "--schemes", "fp32"]);
    let said = stdout(&o);
    assert!(
        !said.contains("odd") && said.contains("1 warning (fp32)"),
        "{said}"
    );
    let o = isobit(&dir, &["doctor", "none.toml"]);
    assert_eq!((o.status.code(), stderr(&o).lines().count()), (Some(2), 1));
}

/// Several seeds of one run: files of each, and what they have in common.
#[test]
fn seeds_have_a_mean_and_a_spread() {
    let dir = fresh("cli-seeds");
    let args = ["--schemes", "fp32,bf16-sr", "--seeds", "3", "--seed", "5"];
    let o = quick(&dir, &args);
    assert!(o.status.success(), "{}", stderr(&o));
    let last = |file: &str| {
        let c = Csv::read(&dir.join("out").join(file));
        c.number(c.rows.len() - 1, "val_loss")
    };
    let rows = Csv::read(&dir.join("out/seeds.csv"));
    for (i, scheme) in ["fp32", "bf16-sr"].into_iter().enumerate() {
        let x = ["", "_seed6", "_seed7"].map(|tag| last(&format!("curve_{scheme}{tag}.csv")));
        let mean = x.iter().sum::<f64>() / 3.0;
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0;
        assert_eq!(rows.text(i, "scheme"), scheme);
        assert_eq!(rows.text(i, "seeds"), "3");
        assert!((rows.number(i, "val_loss_mean") - mean).abs() < 1e-6);
        assert!((rows.number(i, "val_loss_std") - var.sqrt()).abs() < 1e-6 && var > 0.0);
        let ends = [
            rows.number(i, "val_loss_min"),
            rows.number(i, "val_loss_max"),
        ];
        assert!(x.iter().all(|&x| (ends[0]..=ends[1]).contains(&x)));
    }
    assert!(
        stdout(&o).contains("over the seeds from 5 on"),
        "{}",
        stdout(&o)
    );
    // Asked again, it shows the finished runs and gives the same table.
    let again = quick(&dir, &args);
    assert!(again.status.success() && stdout(&again).contains("there already"));
    for (bad, says) in [
        (&["--seeds", "0"][..], "at least 1"),
        (&["--seeds", "2", "--stop-after", "1"], "whole runs"),
        (&["--seeds", "2", "--save", "w.safetensors"], "no one file"),
    ] {
        let o = quick(&dir, bad);
        assert_eq!(o.status.code(), Some(2), "{bad:?}");
        assert!(stderr(&o).contains(says), "{}", stderr(&o));
    }
}
