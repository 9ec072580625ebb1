//! A run that writes a checkpoint at every step is killed at random moments, and its disk fills up: the
//! last good checkpoint is always there, and the run ends with the digest of the undisturbed one.
#![cfg(unix)]

mod common;
#[path = "common/runs.rs"]
mod runs;

use common::{fresh, isobit, stderr, stdout};
use isobit::kernels::rng::Stream;
use runs::{CONFIG, contents, digest_of, start, write_config};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// How often the run is killed.
const KILLS: usize = 50;
/// Schemes of the killed runs: the two that differ most, in one run.
const SCHEMES: [&str; 2] = ["mixed", "bf16"];

const EACH_STEP: [&str; 5] = [
    "--checkpoint-every",
    "1",
    "--schemes",
    "mixed,bf16",
    "--outdir",
];

fn done(dir: &Path, args: &[&str]) -> String {
    let o = isobit(dir, args);
    assert!(o.status.success(), "{args:?}: {}{}", stderr(&o), stdout(&o));
    stdout(&o)
}

/// The files but for `env.json`, the summary and checkpoints, which hold times.
fn ledgers(dir: &Path) -> Vec<(String, Vec<u8>)> {
    // Files that hold times, or pictures of them; the report's parts are made of the others.
    let timed = |n: &str| {
        n.ends_with(".json")
            || n.starts_with("summary")
            || n.starts_with("cost")
            || n.contains("checkpoints")
            || n.starts_with("report")
            || n.starts_with("plots")
    };
    contents(dir)
        .into_iter()
        .filter(|(n, _)| !timed(n))
        .collect()
}

#[test]
fn killed_fifty_times_the_run_ends_with_the_undisturbed_digests() {
    let dir = fresh("kill");
    write_config(&dir);
    let config = std::fs::read_to_string(dir.join("train.toml")).expect("the config");
    let fewer = config.replace("eval_interval = 3", "eval_interval = 5");
    std::fs::write(dir.join("train.toml"), fewer).expect("a config");
    let begin = Instant::now();
    let whole = done(&dir, &[&CONFIG[..], &EACH_STEP, &["whole"]].concat());
    let mut length = begin.elapsed();
    let expected = SCHEMES.map(|s| digest_of(&whole, s));
    let mut moments = Stream::new(1, 1);
    let (mut kills, mut runs_begun, mut resumed, mut leftovers) = (0, 0, 0, 0);
    while kills < KILLS || resumed <= KILLS / 4 {
        runs_begun += 1;
        let out = format!("run-{runs_begun}");
        let outdir = dir.join(&out);
        let mut has_checkpoint = false;
        // One run, killed again and again until it lives to its end.
        let text = loop {
            // Most processes live long enough to write something, and few to their end.
            let moment = length.mul_f64(0.1 + 0.6 * moments.unit());
            let mut child = if has_checkpoint {
                resumed += 1;
                Command::new(env!("CARGO_BIN_EXE_isobit"))
                    .args(["train", "--resume", &out, "--checkpoint-every", "1"])
                    .current_dir(&dir)
                    .stdout(std::process::Stdio::null())
                    .stderr(std::process::Stdio::null())
                    .spawn()
                    .expect("the program starts")
            } else {
                start(&dir, &[&EACH_STEP[..], &[&out]].concat())
            };
            std::thread::sleep(moment);
            child.kill().expect("killed");
            let ended = child.wait().expect("it ends");
            kills += usize::from(!ended.success());
            let all = contents(&dir);
            let inside = |n: &String| n.starts_with(&format!("{out}/checkpoints"));
            leftovers += all
                .keys()
                .filter(|n| inside(n) && n.ends_with(".tmp"))
                .count();
            has_checkpoint = all.keys().any(|n| inside(n) && n.ends_with(".safetensors"));
            // The machine may be busier, or less busy, than when the length was taken.
            length = match (ended.success(), has_checkpoint) {
                (true, _) => length.mul_f64(0.8),
                (_, false) => length.mul_f64(1.1),
                _ => length,
            };
            if ended.success() || (has_checkpoint && kills % 5 == 0) {
                let args = ["train", "--resume", &out, "--threads", "2"];
                break done(&dir, &args);
            }
        };
        // A scheme that had ended before the last start is not trained again.
        for (scheme, digest) in SCHEMES.iter().zip(&expected) {
            let over = text.contains(&format!(
                "[{scheme}] done before: step 10 of 10, digest {digest}"
            ));
            assert!(
                over || digest_of(&text, scheme) == *digest,
                "{out}, {scheme}: {text}"
            );
        }
        assert_eq!(ledgers(&dir.join("whole")), ledgers(&outdir), "{out}");
        let tmp = contents(&outdir)
            .into_keys()
            .filter(|n| n.ends_with(".tmp"))
            .count();
        assert_eq!(tmp, 0, "leftovers are swept");
    }
    println!(
        "{kills} kills over {runs_begun} runs, {resumed} of them of resumed processes; {leftovers} unfinished files seen; {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    assert!(
        resumed > KILLS / 4,
        "kills come after the first checkpoint too"
    );
}

/// Runs a shell script in a mount namespace of its own with a small disk at `small`; none where the
/// system does not allow that.
fn with_small_disk(dir: &Path, script: &str) -> Option<std::process::Output> {
    std::fs::create_dir_all(dir.join("small")).expect("a folder");
    let mount = "mount -t tmpfs -o size=1m tmpfs small";
    let run = |script: &str| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .current_dir(dir)
            .output()
            .ok()
    };
    let as_root = |script: &str| {
        Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .current_dir(dir)
            .output()
            .ok()
    };
    let allowed = |o: &Option<std::process::Output>| o.as_ref().is_some_and(|o| o.status.success());
    let whole = format!("{mount} && {script}");
    if allowed(&run(mount)) {
        run(&whole)
    } else if allowed(&as_root(mount)) {
        as_root(&whole)
    } else {
        None
    }
}

/// The disk fills up after some checkpoints: training goes on and says so, the last good checkpoint is
/// whole, and once there is room the run goes on from it.
#[test]
fn a_full_disk_costs_no_good_checkpoint() {
    let dir = fresh("kill-full");
    write_config(&dir);
    let bin = env!("CARGO_BIN_EXE_isobit");
    // The disk has a mebibyte; the filler leaves room for the ledger, two checkpoints of some 170 KB and
    // a half of a third one.
    let run =
        "train --config train.toml --schemes fp32 --outdir small/a --keep 9 --checkpoint-every 1";
    let script = format!(
        "dd if=/dev/zero of=small/filler bs=1024 count=500 2>/dev/null\n\
         {bin} {run} > first.out 2> first.err; echo $? > first.code\n\
         ls small/a/checkpoints/fp32 > first.ls\n\
         rm small/filler\n\
         {bin} train --resume small/a --keep 1 > second.out 2> second.err; echo $? > second.code\n\
         rm -r small/a\n\
         dd if=/dev/zero of=small/filler bs=1024 count=500 2>/dev/null\n\
         {bin} {run} --on-write-error stop > third.out 2> third.err; echo $? > third.code\n"
    );
    let Some(o) = with_small_disk(&dir, &script) else {
        println!("skipped: no mount namespace with a small disk here");
        return;
    };
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    let whole = done(
        &dir,
        &[&CONFIG[..], &["--schemes", "fp32", "--outdir", "whole"]].concat(),
    );
    let expected = digest_of(&whole, "fp32");
    let warnings = read("first.err");
    assert_eq!(read("first.code").trim(), "2", "{o:?} {warnings}");
    assert!(
        warnings.contains("warning: step") && warnings.contains("No space left"),
        "{warnings}"
    );
    assert!(
        warnings
            .trim_end()
            .lines()
            .last()
            .is_some_and(|l| l.starts_with("error: cannot write")),
        "{warnings}"
    );
    assert!(
        read("first.out").contains(&expected),
        "training went on to its end"
    );
    let names = read("first.ls");
    assert!(
        names.contains("step-00000001.safetensors") && !names.contains("tmp"),
        "{names}"
    );
    assert!(!names.contains("step-00000010"), "{names}");
    assert_eq!(read("second.code").trim(), "0", "{}", read("second.err"));
    assert_eq!(digest_of(&read("second.out"), "fp32"), expected);
    assert_eq!(read("third.code").trim(), "2");
    let stopped = read("third.err");
    assert!(
        stopped.trim_end().lines().count() == 1 && stopped.contains("No space left"),
        "{stopped}"
    );
    assert!(
        !read("third.out").contains("done after"),
        "{}",
        read("third.out")
    );
}
