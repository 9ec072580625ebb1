//! `isobit eval`: the run's own validation loss, and what bf16 changes of it.

mod common;

use common::{Csv, fresh, isobit, stderr, stdout};
use std::path::Path;

const TEXT: &str = "the cat sat on the mat, and the dog sat by the door.\n";

fn run(dir: &Path, args: &str) -> String {
    let o = isobit(dir, &args.split(' ').collect::<Vec<_>>());
    assert!(o.status.success(), "{args}: {}", stderr(&o));
    stdout(&o)
}

/// The columns of a precision's row.
fn row(table: &str, precision: &str) -> Vec<String> {
    let line = table
        .lines()
        .find(|l| l.starts_with(precision) && !l.contains(':'));
    let line = line.unwrap_or_else(|| panic!("no row {precision} in {table}"));
    line.split_whitespace().map(String::from).collect()
}

#[test]
fn eval_repeats_the_runs_own_losses() {
    let dir = fresh("eval");
    std::fs::write(dir.join("text.txt"), TEXT.repeat(40)).expect("written");
    run(
        &dir,
        "train --backend cpu --data text.txt --steps 30 --batch 4 --outdir run",
    );
    let mut tables = Vec::new();
    for scheme in ["fp32", "mixed"] {
        let from = format!("eval --backend cpu --from run/checkpoints/{scheme}");
        let table = run(&dir, &from);
        let (fp32, bf16) = (row(&table, "fp32"), row(&table, "bf16"));
        // The scheme's own arithmetic gives the scheme's own validation loss.
        let own = if scheme == "fp32" { &fp32 } else { &bf16 };
        let curve = Csv::read(&dir.join(format!("run/curve_{scheme}.csv")));
        let last = curve.number(curve.rows.len() - 1, "val_loss");
        assert_eq!(own[1], format!("{last:.5}"), "{table}");
        let (loss, bits): (f64, f64) = (own[1].parse().unwrap(), own[2].parse().unwrap());
        assert!(
            (bits - loss / std::f64::consts::LN_2).abs() < 2e-5,
            "{table}"
        );
        assert_eq!(fp32[3..], ["-", "-"], "{table}");
        let same: f64 = bf16[3].trim_end_matches('%').parse().expect("a share");
        let difference: f64 = bf16[4].parse().expect("a number");
        assert!((80.0..=100.0).contains(&same), "{table}");
        assert!(difference > 1e-5 && difference < 0.2, "{table}");
        assert!(
            table.contains("its last tenth: 20 batches of 4 x 64"),
            "{table}"
        );
        assert!(
            table.contains("bf16: the operands of matrix products"),
            "{table}"
        );
        tables.push(table);
    }
    // The weights of the bf16 scheme, another text, one precision.
    std::fs::write(
        dir.join("other.txt"),
        "sat the cat on the door. ".repeat(60),
    )
    .expect("written");
    let other = run(
        &dir,
        "eval --backend cpu --from run/checkpoints/bf16 --data other.txt --precision bf16",
    );
    assert!(other.contains("data: other.txt") && !other.contains("same argmax:"));
    assert_eq!(row(&other, "bf16").len(), 5);
    let vulkan = stdout(&isobit(&dir, &["adapters"])).contains("(vulkan");
    if vulkan {
        let table = run(&dir, "eval --backend vulkan --from run/checkpoints/mixed");
        assert_eq!(row(&table, "bf16"), row(&tables[1], "bf16"));
    } else {
        println!("skipped: no Vulkan device");
    }
    refusals(&dir);
}

fn refusals(dir: &Path) {
    let refused = |args: &str, says: &str| {
        let from = format!("eval --backend cpu --from run/checkpoints/fp32 {args}");
        let o = isobit(dir, &from.split(' ').collect::<Vec<_>>());
        let text = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{args}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{args}: {text}");
        assert!(
            text.contains(says),
            "{args}: {text:?} does not say {says:?}"
        );
    };
    refused(
        "--precision fp32,int4",
        "`int4`: this version has fp32, bf16",
    );
    refused("--precision fp32,fp32", "names fp32 twice");
    refused("--precision ,", "unknown precision ``");
    refused("--data nowhere.txt", "nowhere.txt");
    std::fs::write(dir.join("strange.txt"), "Ünder ".repeat(200)).expect("written");
    refused("--data strange.txt", "'Ü' (U+00DC)");
    std::fs::write(dir.join("short.txt"), "the cat").expect("written");
    refused("--data short.txt", "short.txt");
    std::fs::write(dir.join("text.txt"), TEXT.repeat(41)).expect("written");
    refused(
        "--best",
        "is not the text that the checkpoint was trained on",
    );
    std::fs::remove_file(dir.join("text.txt")).expect("removed");
    refused("--best", "text.txt: no such file");
}
