//! `isobit inspect`: what a checkpoint or any safetensors file holds.

use crate::error::{Error, usage};
use crate::train::checkpoint::inspect::{Inspected, RANGES, Summary, inspect as read, range};
use crate::train::checkpoint::{Which, locate};
use clap::Args;
use std::path::PathBuf;

/// Longest name that is printed whole.
const NAME: usize = 64;

/// Flags of `inspect`.
#[derive(Args, Debug, Clone)]
pub struct InspectArgs {
    /// A safetensors file, or the output folder or scheme's folder of a run: its newest checkpoint.
    pub path: PathBuf,
    /// Of a folder: the checkpoint with the lowest validation loss in fp32.
    #[arg(long)]
    pub best: bool,
    /// As JSON, with all metadata.
    #[arg(long)]
    pub json: bool,
}

/// Prints what a file holds; returns the exit code.
///
/// # Errors
/// No such file, no safetensors file, or a checkpoint that a run cannot go on from: told after what it
/// holds.
pub fn inspect(args: &InspectArgs) -> Result<i32, Error> {
    let which = if args.best {
        Which::Best
    } else {
        Which::Newest
    };
    let found = read(&locate(&args.path, which)?)?;
    if args.json {
        let text =
            serde_json::to_string_pretty(&found).map_err(|e| Error::Internal(e.to_string()))?;
        println!("{text}");
    } else {
        show(&found);
    }
    match found.fault {
        Some(why) => usage(why),
        None => Ok(0),
    }
}

/// Text from a file, safe for a terminal and not too long.
fn plain(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(NAME)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(NAME).is_some() {
        out.push('…');
    }
    out
}

fn show(f: &Inspected) {
    println!("{}: {} bytes", f.path, f.bytes);
    println!("SHA-256 {}", f.sha256);
    if let Some(c) = &f.checkpoint {
        show_checkpoint(c, f.fault.is_none());
    }
    for (key, value) in &f.metadata {
        println!("{}: {}", plain(key), plain(value));
    }
    let width = f
        .tensors
        .iter()
        .map(|t| plain(&t.name).chars().count())
        .max()
        .unwrap_or(0)
        .max(6);
    println!(
        "\n{:<width$} {:<5} {:>16} {:>10} {:>11} {:>11} {:>11} {:>8} {:>10}",
        "tensor", "type", "shape", "elements", "norm", "smallest", "largest", "zeros", "not finite"
    );
    for t in &f.tensors {
        let shape: Vec<String> = t.shape.iter().map(usize::to_string).collect();
        let start = format!(
            "{:<width$} {:<5} {:>16} {:>10}",
            plain(&t.name),
            t.dtype,
            shape.join("x"),
            t.elements
        );
        match &t.values {
            Some(v) => println!(
                "{start} {:>11.4e} {:>11.4e} {:>11.4e} {:>8} {:>10}",
                v.norm, v.smallest, v.largest, v.zeros, v.not_finite
            ),
            None => println!("{start} (values of this type are not read)"),
        }
    }
    show_histogram(&f.tensors);
}

fn show_checkpoint(c: &serde_json::Value, sound: bool) {
    let text = |key: &str| match &c[key] {
        serde_json::Value::String(s) => plain(s),
        other => plain(&other.to_string()),
    };
    println!(
        "checkpoint of isobit {}, format {}: {}, stored in {}, after step {} of {}",
        text("version"),
        text("format"),
        text("scheme"),
        text("storage"),
        text("step"),
        plain(&c["settings"]["steps"].to_string())
    );
    let m = |key: &str| plain(&c["model"][key].to_string());
    println!(
        "model: {} layers, {} heads, width {}, block {}, vocabulary {}",
        m("n_layer"),
        m("n_head"),
        m("n_embd"),
        m("block"),
        m("vocab")
    );
    let d = |key: &str| plain(c["data"][key].as_str().unwrap_or_default());
    println!("data: {}, SHA-256 {}", d("name"), d("sha256"));
    let best = &c["best"];
    println!(
        "training loss {} (moving average); best validation loss in fp32 {} at step {}",
        text("train_ema"),
        plain(&best["val_loss"].to_string()),
        plain(&best["step"].to_string())
    );
    let checked = if sound {
        "recomputed, it holds"
    } else {
        "claimed"
    };
    println!(
        "digest of weights and moments {} ({checked})",
        text("digest")
    );
}

/// Magnitudes of all tensors of a role together.
fn show_histogram(tensors: &[Summary]) {
    let mut roles: Vec<&str> = Vec::new();
    for t in tensors.iter().filter(|t| t.role != "ledger") {
        if !roles.contains(&t.role.as_str()) {
            roles.push(&t.role);
        }
    }
    let sum = |role: &str, k: usize| -> u64 {
        let of = tensors.iter().filter(|t| t.role == role);
        of.filter_map(|t| t.values.as_ref())
            .map(|v| v.histogram[k])
            .sum()
    };
    let title = |role: &&str| format!(" {:>12}", if role.is_empty() { "all" } else { role });
    let heads: String = roles.iter().map(title).collect();
    println!("\n{:<14}{heads}", "magnitude");
    for k in 0..RANGES {
        let counts: Vec<u64> = roles.iter().map(|r| sum(r, k)).collect();
        if counts.iter().any(|&c| c > 0) {
            let cells: String = counts.iter().map(|c| format!(" {c:>12}")).collect();
            println!("{:<14}{cells}", range(k));
        }
    }
}
