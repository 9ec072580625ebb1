//! `isobit showers` and `isobit bench models` as their users meet them.

mod common;

use common::{Csv, fresh, isobit, stderr, stdout};
use std::path::Path;

const QUICK: [&str; 13] = [
    "showers", "--steps", "4", "--batch", "16", "--hidden", "8", "--blocks", "1", "--events", "64",
    "--outdir", "out",
];

fn small(dir: &Path) {
    let text = "[data]\nreference = 32\nlayers = 4\n[train]\neval_interval = 2\nnoise_steps = 21\n";
    std::fs::write(dir.join("run.toml"), text).expect("written");
}

#[test]
fn a_run_leaves_whole_files_and_the_same_bits_on_any_number_of_threads() {
    for model in ["flow", "ddpm", "wgan"] {
        let dir = fresh(&format!("showers-{model}"));
        small(&dir);
        let go = |threads: &str| {
            let mut args = QUICK.to_vec();
            args.extend(["--config", "run.toml", "--precision", "mixed"]);
            args.extend(["--backend", "cpu", "--threads", threads]);
            let kind = format!("[model]\nkind = \"{model}\"\n");
            let rest = std::fs::read_to_string(dir.join("run.toml")).expect("read");
            if !rest.starts_with("[model]") {
                std::fs::write(dir.join("run.toml"), kind + &rest).expect("written");
            }
            let o = isobit(&dir, &args);
            assert!(o.status.success(), "{}", stderr(&o));
            assert!(stdout(&o).contains("emulated"), "{}", stdout(&o));
            let read = |name: &str| std::fs::read_to_string(dir.join("out").join(name));
            ["losses.csv", "validation.csv", "w1.csv"].map(|n| read(n).expect("a file"))
        };
        assert_eq!(go("1"), go("2"));
        let losses = Csv::read(&dir.join("out/losses.csv"));
        assert_eq!(losses.rows.len(), 4);
        assert!(losses.number(3, "loss").is_finite());
        let validation = Csv::read(&dir.join("out/validation.csv"));
        assert_eq!(validation.rows.len(), 3);
        assert_eq!(validation.text(1, "val_loss").is_empty(), model == "wgan");
        let w1 = Csv::read(&dir.join("out/w1.csv"));
        assert_eq!(w1.rows.len(), 12);
        for name in ["best.safetensors", "last.safetensors"] {
            let weights = common::tensors(&dir.join("out").join(name));
            assert!(weights.contains_key("shares.head.weight"), "{name}");
        }
    }
}

#[test]
fn mistakes_are_one_line_and_code_2() {
    let dir = fresh("showers-mistakes");
    std::fs::write(dir.join("key.toml"), "[train]\nprecison = \"fp32\"\n").expect("written");
    std::fs::write(dir.join("low.toml"), "[train]\nprecision = \"fp16\"\n").expect("written");
    std::fs::write(dir.join("gan.toml"), "[model]\nkind = \"wgan\"\n").expect("written");
    std::fs::write(dir.join("clip.toml"), "[train]\nclip = 1e-60\n").expect("written");
    std::fs::create_dir(dir.join("trained")).expect("made");
    std::fs::write(dir.join("trained/env.json"), "{}").expect("written");
    std::fs::create_dir_all(dir.join("blocked/last.safetensors")).expect("made");
    let long = ["--config", "gan.toml", "--model", "flow"];
    for (args, says) in [
        (&["--precision", "fp16"][..], "1e-8"),
        (&["--precision", "bf16"], "mixed"),
        (&["--config", "low.toml"], "65504"),
        (
            &["--config", "key.toml"],
            "line 2: unknown field `precison`",
        ),
        (&["--config", "absent.toml"], "absent.toml"),
        (&long, "wgan"),
        (&["--steps", "0"], "steps"),
        (&["--lr", "nan"], "lr"),
        (&["--batch", "0"], "batch"),
        (
            &["--hidden", "8192", "--blocks", "64", "--trunk", "routed"],
            "memory",
        ),
        (&["--outdir", "key.toml"], "is a file"),
        (&["--config", "clip.toml"], "clip = 1e-60: is 0 in f32"),
        (&["--lr", "-1"], "lr = -1: must be at least"),
        (&["--outdir", "trained"], "holds a run of `isobit train`"),
        (&["--outdir", "blocked"], "last.safetensors"),
    ] {
        let mut all = vec!["showers", "--backend", "cpu"];
        all.extend(args);
        let o = isobit(&dir, &all);
        let text = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(says), "{args:?}: {text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    }
    let left = std::fs::read_dir(dir.join("blocked")).expect("a folder");
    assert_eq!(left.count(), 1, "nothing is written where not all can be");
    let o = isobit(&dir, &["showers", "--seed", "-1"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(
        stderr(&o).contains("must not be negative"),
        "{}",
        stderr(&o)
    );
}

#[test]
fn train_leaves_the_files_of_showers_alone() {
    let dir = fresh("showers-train");
    std::fs::create_dir(dir.join("out")).expect("made");
    std::fs::write(dir.join("out/w1.csv"), "step,layer,w1_gev\n").expect("written");
    std::fs::write(dir.join("text.txt"), "a line of text\n".repeat(400)).expect("written");
    let args = "train --preset tiny --data text.txt --steps 1 --backend cpu --outdir out";
    let o = isobit(&dir, &args.split(' ').collect::<Vec<_>>());
    assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
    assert!(stderr(&o).contains("holds a run of `isobit showers`"));
    assert_eq!(std::fs::read_dir(dir.join("out")).expect("read").count(), 1);
}

#[test]
fn bench_models_compares_each_configuration_in_both_precisions() {
    let dir = fresh("bench-models");
    let args = "bench models --hidden 8 --blocks 1 --batch 8 --steps 1 --backend cpu --outdir .";
    let o = isobit(&dir, &args.split(' ').collect::<Vec<_>>());
    assert!(o.status.success(), "{}", stderr(&o));
    let rows = Csv::read(&dir.join("bench_models.csv"));
    assert_eq!(rows.rows.len(), 6);
    for i in 0..6 {
        assert!(rows.number(i, "events_per_s") > 0.0);
        assert!(rows.number(i, "peak_bytes") > 0.0);
        let mixed = rows.text(i, "precision") == "mixed";
        assert_eq!(rows.text(i, "how").contains("emulated"), mixed);
    }
    assert!(stdout(&o).contains("times the throughput"));
}
