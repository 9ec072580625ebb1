//! `isobit bench`: where a training step's time goes.

use super::Global;
use super::device::Device;
use super::job::materials;
use super::terminal::{catch_signals, interrupted};
use crate::config::{Preset, Scheme, Settings};
use crate::error::{Error, usage};
use crate::exec::Numerics;
use crate::measure::steps::{Ceilings, KernelTime, Profile, ceilings, profile, trace};
use crate::report::files;
use crate::train::session::{Programs, Session};
use clap::Args;
use std::path::PathBuf;

/// Flags of `bench`.
#[derive(Args, Debug, Clone)]
#[command(after_help = NOTES, args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// What else can be timed.
    #[command(subcommand)]
    pub what: Option<What>,
    /// Model [default: small].
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// TOML file with the run's settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Precision schemes, comma-separated.
    #[arg(long, value_name = "LIST", default_value = "fp32,mixed,bf16")]
    pub schemes: String,
    /// Sequences a batch [default: the preset's].
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Steps that count; the times are medians.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub steps: usize,
    /// Folder for `bench_<preset>_<scheme>.csv`.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub outdir: PathBuf,
    /// Also write the launches as a trace that Perfetto and chrome://tracing open.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// What can be timed besides the char-GPT's step.
#[derive(clap::Subcommand, Debug, Clone)]
pub enum What {
    /// Mixed precision against fp32 for the generators of showers: throughput and memory.
    Models(super::bench_models::ModelsArgs),
}

const NOTES: &str = "\
Trains a few steps of each scheme, whole and launch by launch in turn, and prints for each kernel
its launches, its time, and what it reaches of the device's multiply-adds and of its bandwidth,
both measured in the same run. On a GPU a launch is timed by itself, on the device's clock where
it has one: the launches of a whole step overlap, so their sum is more than the step.

Example:
  isobit bench --preset small --schemes mixed --trace trace.json
  isobit bench models                  generators of showers: one-shot, routed, autoregressive";

/// Most steps of a scheme.
const MOST: usize = 10_000;

/// Runs the command; returns the exit code.
///
/// # Errors
/// Settings that cannot be used, a device that fails, a file that cannot be written.
pub fn bench(global: &Global, args: &BenchArgs) -> Result<i32, Error> {
    if let Some(What::Models(args)) = &args.what {
        return super::bench_models::bench_models(global, args);
    }
    let mut s = Settings::preset(args.preset.unwrap_or(Preset::Small));
    if let Some(path) = &args.config {
        s.apply_file(path)?;
    }
    s.batch = args.batch.unwrap_or(s.batch);
    s.validate()?;
    if s.accumulate > 1 {
        return usage("bench: takes one batch a step; leave out accumulate");
    }
    if !(1..=MOST).contains(&args.steps) {
        return usage(format!(
            "--steps {}: must be at least 1 and at most {MOST}",
            args.steps
        ));
    }
    let schemes = schemes(&args.schemes)?;
    let numerics = global.numerics.unwrap_or(s.numerics);
    let device = Device::choose(global)?;
    let (data, model, weights) = materials(&s)?;
    std::fs::create_dir_all(&args.outdir).map_err(Error::io("make", &args.outdir))?;
    let file = |scheme: Scheme| {
        args.outdir
            .join(format!("bench_{}_{}.csv", s.name, scheme.name()))
    };
    for path in schemes.iter().map(|s| file(*s)).chain(args.trace.clone()) {
        files::check_writable(&path)?;
    }
    device.admit(numerics)?;
    catch_signals()?;
    println!("device: {}", super::plain(device.why()));
    let ceilings = ceilings(device.open(Numerics::Fast)?.as_mut())?;
    println!(
        "ceilings: {:.3} TFLOP/s of multiply-adds, {:.1} GB/s of a copy",
        ceilings.tflops, ceilings.gbytes
    );
    let mut done: Vec<(&str, Profile)> = Vec::new();
    for scheme in schemes {
        let programs = Programs::compile(&model, &s, scheme, false)?;
        let mut session = Session::new(device.open(numerics)?, model, &programs, &weights)?;
        let run = (&s, &data);
        let Some(p) = profile(
            &mut session,
            programs.train(),
            run,
            args.steps,
            &interrupted,
        )?
        else {
            println!("stopped; the schemes done by then are in the files");
            return Ok(130);
        };
        show(scheme.name(), &s, &p, ceilings);
        files::write_atomic(&file(scheme), &table(&p, ceilings)?)?;
        done.push((scheme.name(), p));
    }
    if let Some(path) = &args.trace {
        let profiles: Vec<(&str, &Profile)> = done.iter().map(|(n, p)| (*n, p)).collect();
        files::write_atomic(path, trace(&profiles).as_bytes())?;
    }
    println!("\nwritten to {}", args.outdir.display());
    Ok(0)
}

fn schemes(list: &str) -> Result<Vec<Scheme>, Error> {
    let mut out: Vec<Scheme> = Vec::new();
    for name in list.split(',') {
        let scheme = Scheme::parse(name.trim())?;
        if !out.contains(&scheme) {
            out.push(scheme);
        }
    }
    Ok(out)
}

/// Fractions of the ceilings that a kernel reaches: of the multiply-adds, of the bandwidth.
fn fractions(k: &KernelTime, c: Ceilings) -> (f64, f64) {
    let second = k.ms * 1e-3;
    (
        k.flops as f64 / second / (c.tflops * 1e12),
        k.bytes as f64 / second / (c.gbytes * 1e9),
    )
}

fn show(scheme: &str, s: &Settings, p: &Profile, c: Ceilings) {
    let sum: f64 = p.kernels.iter().map(|k| k.ms).sum();
    println!(
        "\n{} at batch {}, {scheme}: {:.2} ms a step; {} launches, {:.2} ms by themselves ({})",
        s.name,
        s.batch,
        p.step_ms,
        p.launches.len(),
        sum,
        p.clock.name()
    );
    println!(
        "{:<18} {:>8} {:>10} {:>7} {:>10} {:>9} {:>7} {:>7}",
        "kernel", "launches", "ms", "share", "MB", "MFLOP", "of FLOP", "of GB/s"
    );
    for k in &p.kernels {
        let (flops, bytes) = fractions(k, c);
        println!(
            "{:<18} {:>8} {:>10.3} {:>6.1}% {:>10.2} {:>9.1} {:>6.1}% {:>6.1}%",
            k.kernel,
            k.launches,
            k.ms,
            100.0 * k.ms / sum,
            k.bytes as f64 / 1e6,
            k.flops as f64 / 1e6,
            100.0 * flops,
            100.0 * bytes
        );
    }
}

fn table(p: &Profile, c: Ceilings) -> Result<Vec<u8>, Error> {
    let internal = |e: csv::Error| Error::Internal(e.to_string());
    let mut w = csv::Writer::from_writer(Vec::new());
    w.write_record([
        "kernel",
        "launches",
        "ms",
        "bytes",
        "flop",
        "flop_fraction",
        "bandwidth_fraction",
    ])
    .map_err(internal)?;
    for k in &p.kernels {
        let (flops, bytes) = fractions(k, c);
        w.write_record([
            k.kernel.to_string(),
            k.launches.to_string(),
            format!("{:.4}", k.ms),
            k.bytes.to_string(),
            k.flops.to_string(),
            format!("{flops:.4}"),
            format!("{bytes:.4}"),
        ])
        .map_err(internal)?;
    }
    let sum: f64 = p.kernels.iter().map(|k| k.ms).sum();
    let last = ["sum of launches".into(), p.launches.len().to_string()];
    let none = || vec![String::new(); 4];
    w.write_record(last.into_iter().chain([format!("{sum:.4}")]).chain(none()))
        .map_err(internal)?;
    let step = [
        "whole step".into(),
        String::new(),
        format!("{:.4}", p.step_ms),
    ];
    w.write_record(step.into_iter().chain(none()))
        .map_err(internal)?;
    w.into_inner().map_err(|e| Error::Internal(e.to_string()))
}
