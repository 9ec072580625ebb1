//! `isobit bench models`: what mixed precision changes for the generators of showers.

use super::Global;
use super::device::Device;
use super::terminal::{catch_signals, interrupted};
use crate::error::{Error, usage};
use crate::exec::bytes;
use crate::exec::cpu::free_memory;
use crate::report::files;
use crate::train::surrogate::bench::{CONFIGURATIONS, PRECISIONS, Timed, time};
use crate::train::surrogate::settings::{Kind, Settings};
use crate::train::surrogate::table;
use clap::Args;
use std::path::PathBuf;

/// Flags of `bench models`.
#[derive(Args, Debug, Clone)]
#[command(after_help = NOTES)]
pub struct ModelsArgs {
    /// Width of the networks.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub hidden: usize,
    /// Residual blocks of a stack.
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub blocks: usize,
    /// Events a batch.
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub batch: usize,
    /// Steps that count; the times are medians.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub steps: usize,
    /// Folder for `bench_models.csv`.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub outdir: PathBuf,
}

const NOTES: &str = "\
Trains flow matching for a few steps in three configurations, each in fp32 and in mixed: one-shot
shares; the same with a routed trunk, which computes all its experts; autoregressive shares. Prints
the events a second, the peak of the memory that the executor held, and mixed's ratios to fp32.
Whether bf16 is native or emulated stands in every row: emulated, it may well be slower.

Examples:
  isobit bench models --backend vulkan           the default sizes, on a GPU
  isobit bench models --hidden 128 --batch 512   smaller, for a CPU";

/// Runs the command; returns the exit code.
///
/// # Errors
/// Settings that cannot be used, a device that fails, a file that cannot be written.
pub fn bench_models(global: &Global, args: &ModelsArgs) -> Result<i32, Error> {
    let s = Settings {
        hidden: args.hidden,
        blocks: args.blocks,
        batch: args.batch,
        ..Settings::new(Kind::Flow)
    };
    s.validate()?;
    s.check_memory(free_memory())?;
    if !(1..=10_000).contains(&args.steps) {
        return usage(format!(
            "--steps {}: must be at least 1 and at most 10000",
            args.steps
        ));
    }
    let device = Device::choose(global)?;
    device.admit(global.numerics.unwrap_or_default())?;
    std::fs::create_dir_all(&args.outdir).map_err(Error::io("make", &args.outdir))?;
    let path = args.outdir.join("bench_models.csv");
    files::check_writable(&path)?;
    catch_signals()?;
    println!("device: {}", super::plain(device.why()));
    println!(
        "width {}, {} blocks, batch {}; medians of {} steps\n",
        s.hidden, s.blocks, s.batch, args.steps
    );
    println!(
        "{:<16}{:<8}{:>10}{:>12}{:>12}  bf16",
        "configuration", "", "ms a step", "events/s", "memory"
    );
    let mut rows: Vec<Timed> = Vec::new();
    for c in 0..CONFIGURATIONS.len() {
        for p in 0..PRECISIONS.len() {
            let exec = device.admitted(global)?;
            let Some(t) = time(exec, &s, (c, p), args.steps, &interrupted)? else {
                println!(
                    "stopped; what was measured by then is in {}",
                    path.display()
                );
                return Ok(130);
            };
            println!(
                "{:<16}{:<8}{:>10.2}{:>12.0}{:>12}  {}",
                t.configuration,
                t.precision,
                t.step_ms,
                t.events_per_s,
                bytes(t.peak_bytes),
                if t.precision == "fp32" {
                    "-"
                } else {
                    "emulated"
                }
            );
            rows.push(t);
            write(&path, &rows)?;
        }
        if let [.., full, mixed] = &rows[..] {
            println!(
                "{:<16}mixed: {:.2} times the throughput, {:.2} times the memory of fp32",
                "",
                mixed.events_per_s / full.events_per_s,
                mixed.peak_bytes as f64 / full.peak_bytes as f64
            );
        }
    }
    println!("\nwritten to {}", path.display());
    Ok(0)
}

fn write(path: &std::path::Path, rows: &[Timed]) -> Result<(), Error> {
    let header = [
        "configuration",
        "precision",
        "how",
        "step_ms",
        "events_per_s",
        "peak_bytes",
    ]
    .map(String::from);
    let rows = rows.iter().map(|t| {
        vec![
            t.configuration.to_string(),
            t.precision.to_string(),
            t.how.to_string(),
            format!("{:.4}", t.step_ms),
            format!("{:.1}", t.events_per_s),
            t.peak_bytes.to_string(),
        ]
    });
    table(path, header.to_vec(), rows)
}
