//! `train` on a terminal, made by `script`: the live view, `--quiet`, narrow windows, Ctrl-C.

mod common;

use common::{fresh, isobit};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts a training run of the tiny preset on a terminal of so many columns; none where there is no
/// `script` that can make one.
fn on_terminal(dir: &Path, columns: u32, flags: &str) -> Option<Child> {
    let program = env!("CARGO_BIN_EXE_isobit");
    let line = format!(
        "stty cols {columns}; exec '{program}' train --backend cpu --preset tiny --schemes mixed --outdir out {flags}"
    );
    let started = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .current_dir(dir)
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() || !cfg!(target_os = "linux") {
        println!("skipped: there is no `script` (util-linux) to make a terminal");
        return None;
    }
    started.ok()
}

/// All that it wrote, and its exit code.
fn end(mut child: Child) -> (String, Option<i32>) {
    let mut bytes = vec![];
    let mut out = child.stdout.take().expect("piped");
    out.read_to_end(&mut bytes).expect("reads");
    let code = child.wait().expect("ends").code();
    (String::from_utf8_lossy(&bytes).into_owned(), code)
}

const BLOCKS: [char; 4] = ['▁', '▃', '▅', '█'];

#[test]
fn a_terminal_shows_courses_and_a_table() {
    let dir = fresh("terminal");
    let Some(run) = on_terminal(&dir, 100, "--steps 150") else {
        return;
    };
    let (text, code) = end(run);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("loss ") && text.contains("planned"), "{text}");
    assert!(BLOCKS.iter().all(|b| text.contains(*b)), "a course: {text}");
    assert!(
        text.contains("[mixed] step 150: val") && text.contains("final val loss"),
        "{text}"
    );
    let Some(run) = on_terminal(&dir, 100, "--steps 30 --overwrite --quiet") else {
        return;
    };
    let (text, code) = end(run);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        !BLOCKS.iter().any(|b| text.contains(*b)) && !text.contains("left"),
        "{text}"
    );
    // Without a terminal the lines are as plain.
    let args = [
        "train",
        "--backend",
        "cpu",
        "--preset",
        "tiny",
        "--schemes",
        "mixed",
        "--steps",
        "30",
    ];
    let o = isobit(
        &dir,
        &[&args[..], &["--outdir", "out", "--overwrite"]].concat(),
    );
    assert!(o.status.success());
    assert!(
        o.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&o.stderr)
    );
    assert!(!o.stdout.contains(&0x1b));
}

#[test]
fn narrow_terminals_and_ctrl_c() {
    let dir = fresh("terminal-narrow");
    for columns in [1, 9, 20] {
        let Some(run) = on_terminal(&dir, columns, "--steps 60 --overwrite") else {
            return;
        };
        let (text, code) = end(run);
        assert!(
            code == Some(0) && !text.contains("panicked"),
            "{columns}: {text}"
        );
    }
    let Some(mut run) = on_terminal(&dir, 80, "--steps 1000000 --overwrite") else {
        return;
    };
    let mut keys = run.stdin.take().expect("piped");
    let mut out = run.stdout.take().expect("piped");
    let mut text = String::new();
    let mut part = [0; 4096];
    while !text.contains("step 100:") {
        let n = out.read(&mut part).expect("reads");
        assert!(n > 0, "it ended: {text}");
        text += &String::from_utf8_lossy(&part[..n]);
    }
    keys.write_all(b"\x03").expect("a key");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("reads");
    assert_eq!(run.wait().expect("ends").code(), Some(130), "{rest}");
    assert!(rest.contains("stopping after this step"), "{rest}");
    assert!(
        rest.contains("to go on: isobit train --resume out"),
        "{rest}"
    );
    // The last thing is a line, not a bar.
    assert!(rest.trim_end().ends_with("report.html"), "{rest}");
}
