//! `isobit sample` as a person meets it.

mod common;

use common::{fresh, isobit, stderr, stdout};
use std::path::{Path, PathBuf};

const TEXT: &str = "the cat sat on the mat, and the dog sat by the door.\n";

/// A folder with a run of a few steps on a small text.
fn trained(name: &str) -> PathBuf {
    let dir = fresh(name);
    std::fs::write(dir.join("text.txt"), TEXT.repeat(40)).expect("written");
    let args = "train --backend cpu --data text.txt --steps 6 --batch 2 --outdir run";
    let o = isobit(&dir, &args.split(' ').collect::<Vec<_>>());
    assert!(o.status.success(), "{}", stderr(&o));
    dir
}

fn sampled(dir: &Path, scheme: &str, args: &[&str]) -> String {
    let from = format!("run/checkpoints/{scheme}");
    let mut all = vec!["sample", "--from", &from, "--tokens", "150"];
    all.extend(args);
    let o = isobit(dir, &all);
    assert!(o.status.success(), "{args:?}: {}", stderr(&o));
    stdout(&o)
}

#[test]
fn the_text_is_the_same_with_and_without_the_cache_and_on_every_backend() {
    let dir = trained("sample-text");
    for scheme in ["fp32", "mixed", "bf16"] {
        let cpu = sampled(&dir, scheme, &["--backend", "cpu"]);
        assert_eq!(cpu.chars().count(), 150 + 1, "and a line's end");
        assert!(cpu.trim_end_matches('\n').chars().all(|c| TEXT.contains(c)));
        let threads = ["--backend", "cpu", "--threads", "1", "--no-cache"];
        assert_eq!(cpu, sampled(&dir, scheme, &threads));
        assert_ne!(
            cpu,
            sampled(&dir, scheme, &["--backend", "cpu", "--seed", "6"])
        );
        // Any Vulkan device of the machine, a software one too.
        let adapters = stdout(&isobit(&dir, &["adapters"]));
        if adapters.contains("(vulkan") || adapters.contains("(Vulkan") {
            assert_eq!(cpu, sampled(&dir, scheme, &["--backend", "vulkan"]));
        } else {
            println!("skipped: no Vulkan device; {adapters}");
            assert!(std::env::var_os("ISOBIT_REQUIRE_DEVICES").is_none());
        }
    }
    let prompted = sampled(&dir, "fp32", &["--prompt", "the d", "--temperature", "0"]);
    assert!(prompted.starts_with("the d"), "{prompted}");
    let greedy = [
        "--prompt",
        "the d",
        "--top-k",
        "1",
        "--temperature",
        "3",
        "--best",
    ];
    let best = sampled(&dir, "fp32", &greedy);
    assert_eq!(best.chars().count(), 156);
    let o = isobit(&dir, &["sample", "--from", "run/checkpoints/fp32"]);
    assert!(stderr(&o).contains("256 characters in"), "{}", stderr(&o));
}

#[test]
fn what_cannot_be_used_is_one_line() {
    let dir = trained("sample-refused");
    let refused = |args: &[&str], says: &[&str]| {
        let mut all = vec!["sample", "--backend", "cpu"];
        all.extend(args);
        let o = isobit(&dir, &all);
        let text = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
        for s in says {
            assert!(text.contains(s), "{args:?}: {text:?} does not say {s:?}");
        }
        assert_eq!(stdout(&o), "");
    };
    let from = ["--from", "run/checkpoints/fp32"];
    let with = |more: &[&'static str]| -> Vec<&'static str> { [&from[..], more].concat() };
    refused(&[], &["--from"]);
    refused(&["--from", "nowhere"], &["nowhere"]);
    refused(&["--from", "run"], &["fp32", "mixed", "name one"]);
    refused(&["--from", "text.txt"], &["text.txt"]);
    let unknown = with(&["--prompt", "Zoë"]);
    refused(&unknown, &["'Z' (U+005A)", "'ë' (U+00EB)", "text.txt"]);
    refused(&with(&["--prompt", ""]), &["--prompt", "empty"]);
    refused(&with(&["--tokens", "0"]), &["--tokens 0"]);
    refused(&with(&["--tokens", "-3"]), &["--tokens -3"]);
    refused(&with(&["--temperature", "-1"]), &["--temperature -1"]);
    refused(&with(&["--temperature", "nan"]), &["--temperature NaN"]);
    refused(&with(&["--temperature", "1e-9"]), &["0.001"]);
    refused(&with(&["--top-k", "0"]), &["--top-k 0"]);
    refused(&with(&["--seed", "-1"]), &["--seed -1"]);
}

/// A reader that goes away ends the program quietly.
#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_it_quietly() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let dir = trained("sample-pipe");
    let mut child = Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(["sample", "--backend", "cpu", "--tokens", "1000000"])
        .args(["--from", "run/checkpoints/fp32"])
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut first = [0; 10];
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut first).expect("text, at once");
    drop(out);
    let o = child.wait_with_output().expect("it ends");
    assert_eq!(o.status.code(), Some(141));
    assert!(!stderr(&o).contains("error"), "{}", stderr(&o));
}

/// Ctrl-C ends it after the present character, with a line's end and a code of its own.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_cleanly() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let dir = trained("sample-interrupt");
    let mut child = Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(["sample", "--backend", "cpu", "--tokens", "10000000"])
        .args(["--from", "run/checkpoints/fp32"])
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut out = child.stdout.take().expect("a pipe");
    let mut first = [0; 10];
    out.read_exact(&mut first).expect("text, at once");
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.expect("kill runs").success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("text to the end");
    assert!(rest.ends_with('\n'));
    let o = child.wait_with_output().expect("it ends");
    assert_eq!(o.status.code(), Some(130));
    assert!(stderr(&o).contains("characters in"), "{}", stderr(&o));
}
