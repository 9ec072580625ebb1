//! Short runs of the built program, and what is compared between them.
#![allow(dead_code)] // not every test file uses all of it

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run of [`write_config`]'s file.
pub const CONFIG: [&str; 3] = ["train", "--config", "train.toml"];

/// The files of such a run that are the same for the same run.
pub const FILES: &[&str] = &[
    "steps_fp32.csv",
    "steps_mixed.csv",
    "steps_bf16.csv",
    "curve_fp32.csv",
    "curve_mixed.csv",
    "curve_bf16.csv",
    "curve_fp32eval_mixed.csv",
    "curve_fp32eval_bf16.csv",
    "swallow.csv",
    "tensor_swallow.csv",
    "gradhist.csv",
    "memory.csv",
    "policy.csv",
];

/// Writes `train.toml` and `text.txt`: ten steps of a small model that visit every ledger on both sides
/// of step 5.
pub fn write_config(dir: &Path) {
    let text: String = (0..400)
        .map(|i| {
            format!(
                "line {i}: {}\n",
                "a quick brown fox jumps over it ".repeat(i % 3 + 1)
            )
        })
        .collect();
    std::fs::write(dir.join("text.txt"), text).expect("a text");
    let config = "[model]\nn_layer = 1\nn_head = 2\nn_embd = 32\nblock = 15\n\
                  [data]\ntext = \"text.txt\"\n\
                  [train]\nbatch = 3\nsteps = 10\nwarmup = 3\nlr = 0.001\nmin_lr = 0.0001\n\
                  eval_interval = 3\neval_iters = 2\nseed = 11\nclip = 0.9\n\
                  [ledger]\nswallow_interval = 2\ngradhist_step = 7\n";
    std::fs::write(dir.join("train.toml"), config).expect("a config");
}

/// The digest that a run printed for a scheme at its end.
pub fn digest_of(text: &str, scheme: &str) -> String {
    let line = text
        .lines()
        .find(|l| l.starts_with(&format!("[{scheme}] done after")))
        .unwrap_or_else(|| panic!("{scheme} is not done: {text}"));
    line.rsplit(' ').next().expect("a digest").to_string()
}

/// Every file below a folder, by path.
pub fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path
                    .strip_prefix(dir)
                    .expect("inside")
                    .display()
                    .to_string();
                out.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    out
}

/// Starts a run of the config and does not wait for it.
pub fn start(dir: &Path, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(CONFIG)
        .args(more)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

/// Waits until a file is there.
pub fn wait_for(file: &Path) {
    let start = Instant::now();
    while !file.exists() {
        assert!(
            start.elapsed().as_secs() < 60,
            "{} never came",
            file.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal.
pub fn kill(child: &Child, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(status.expect("kill").success());
}
