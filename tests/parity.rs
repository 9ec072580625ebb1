//! The same weights, batches and schedule as PyTorch's run: the same losses, gradients and weights.

mod common;

use common::{Csv, distance, fresh, isobit, repo, stderr, tensors};
use std::path::Path;

/// Trains a parity folder through the command line and compares everything that is recorded there.
fn holds(folder: &Path, name: &str) {
    let out = fresh(&format!("parity-{name}"));
    let config = folder.join("config.toml");
    let args = [
        "train",
        "--config",
        config.to_str().unwrap(),
        "--schemes",
        "fp32",
        "--outdir",
        "run",
        "--save",
        "final.safetensors",
        "--dump-grads",
        "1",
        "grads.safetensors",
    ];
    let done = isobit(&out, &args);
    assert!(done.status.success(), "{}", stderr(&done));
    let theirs = Csv::read(&folder.join("steps_fp32.csv"));
    let ours = Csv::read(&out.join("run/steps_fp32.csv"));
    assert_eq!(ours.rows.len(), theirs.rows.len());
    let (mut loss, mut val, mut norm, mut lr, mut vals) = (0f64, 0f64, 0f64, 0f64, 0);
    for i in 0..ours.rows.len() {
        loss = loss.max((ours.number(i, "loss") - theirs.number(i, "loss")).abs());
        norm = norm.max((ours.number(i, "grad_norm") / theirs.number(i, "grad_norm") - 1.0).abs());
        lr = lr.max((ours.number(i, "lr") / theirs.number(i, "lr") - 1.0).abs());
        if !theirs.text(i, "val_loss").is_empty() {
            val = val.max((ours.number(i, "val_loss") - theirs.number(i, "val_loss")).abs());
            vals += 1;
        }
    }
    println!(
        "{name}: loss {loss:.2e}, validation {val:.2e} ({vals}), gradient norm {norm:.2e} relative"
    );
    assert!(loss <= 1e-5 && val <= 1e-5 && norm <= 1e-4 && lr <= 1e-12 && vals > 1);
    let curve = Csv::read(&out.join("run/curve_fp32.csv"));
    assert_eq!(curve.rows.len(), vals);
    for (file, mine, limit) in [
        ("grads_step1_fp32.safetensors", "grads.safetensors", 1e-5),
        ("final_fp32.safetensors", "final.safetensors", 1e-3),
    ] {
        if !folder.join(file).exists() {
            continue; // the four-layer run recorded none
        }
        let (a, b) = (tensors(&out.join(mine)), tensors(&folder.join(file)));
        assert_eq!(a.len(), b.len());
        let worst = b
            .iter()
            .map(|(n, t)| (distance(&a[n], t), n))
            .max_by(|x, y| x.0.total_cmp(&y.0))
            .unwrap();
        println!("{name}: {mine} {:.2e} at worst ({})", worst.0, worst.1);
        assert!(worst.0 <= limit, "{worst:?}");
    }
}

#[test]
fn two_layer() {
    holds(&repo("tests/data/two-layer"), "two-layer");
}

/// Runs that are too large to keep in the repository.
#[test]
fn larger_runs() {
    for name in ["block256", "four-layer"] {
        let folder = repo("../shared/parity").join(name);
        if folder.exists() {
            holds(&folder, name);
        } else {
            println!("skipped: {} is not there", folder.display());
        }
    }
}
