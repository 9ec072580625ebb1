//! `isobit bench`: where a training step's time goes.

use super::Global;
use super::device::Device;
use super::growth::Growth;
use super::job::materials;
use super::profile::Profiling;
use super::terminal::catch_signals;
use super::tune::TuneArgs;
use crate::config::{Preset, Scheme, Settings};
use crate::error::{Error, usage};
use crate::report::files;
use clap::Args;
use std::path::{Path, PathBuf};

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
    /// Instead, time whole steps at a quarter to four times the width, depth, block and batch, and fit the
    /// times by the operations that each plan counts, with residuals: `growth_<preset>_<scheme>.csv`.
    #[arg(long, conflicts_with = "trace")]
    pub growth: bool,
    /// Tuning.
    #[command(flatten)]
    pub tune: TuneArgs,
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

Examples:
  isobit bench --preset small --schemes mixed --trace trace.json
  isobit bench --growth --schemes fp32 --steps 9
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
    let mut device = Device::choose(global)?;
    device.set_tune(args.tune.always());
    let (data, model, weights) = materials(&s)?;
    std::fs::create_dir_all(&args.outdir).map_err(Error::io("make", &args.outdir))?;
    let kind = if args.growth { "growth" } else { "bench" };
    let file = |scheme: Scheme| {
        args.outdir
            .join(format!("{kind}_{}_{}.csv", s.name, scheme.name()))
    };
    for path in schemes.iter().map(|s| file(*s)).chain(args.trace.clone()) {
        files::check_writable(&path)?;
    }
    device.admit(numerics)?;
    catch_signals()?;
    println!("device: {}", super::plain(device.why()));
    if args.growth {
        let growth = Growth {
            device: &device,
            numerics,
            s: &s,
            rounds: args.steps,
        };
        return match growth.go(&schemes, &file)? {
            true => done(&args.outdir),
            false => Ok(130),
        };
    }
    let profiling = Profiling {
        device: &device,
        numerics,
        s: &s,
        data: &data,
        model,
        weights: &weights,
        steps: args.steps,
    };
    if !profiling.go(&schemes, &file, args.trace.as_deref())? {
        return Ok(130);
    }
    done(&args.outdir)
}

fn done(outdir: &Path) -> Result<i32, Error> {
    println!("\nwritten to {}", outdir.display());
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
