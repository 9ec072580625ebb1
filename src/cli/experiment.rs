//! `isobit experiment`: several runs that answer one question, as one command.

use super::Global;
use super::seeds::train_seeds;
use super::train::{Measured, TrainArgs};
use crate::config::{Preset, Settings};
use crate::error::{Error, usage};
use crate::report::experiment::{Ending, read, write};
use crate::train::run::Data;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Flags of `experiment`.
#[derive(Args, Debug, Clone)]
pub struct ExperimentArgs {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand, Debug, Clone)]
enum Which {
    /// What a small learning rate does to weights kept in bf16, and what cures it.
    LearningRate(LearningRate),
}

/// Flags of `experiment learning-rate`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP)]
struct LearningRate {
    /// Model.
    #[arg(long, value_enum, default_value_t = Preset::Small)]
    preset: Preset,
    /// UTF-8 text, or `tinyshakespeare`, which is downloaded once into the user's cache and checked.
    #[arg(long, value_name = "FILE-OR-NAME", default_value = "tinyshakespeare")]
    data: PathBuf,
    /// Training steps of every run [default: 2000 at the usual rate, 1500 at the low one].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    steps: Option<i64>,
    /// Sequences a step [default: the preset's].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    batch: Option<i64>,
    /// The first seed.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    seed: i64,
    /// How many seeds.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        allow_negative_numbers = true
    )]
    seeds: i64,
    /// Keep the full ledger too, see `isobit train --help`.
    #[arg(long, value_enum, value_name = "WHAT")]
    ledger: Option<Measured>,
    /// Where the folders `seed_rate` and `low_rate` and the two tables go.
    #[arg(long, value_name = "DIR", default_value = "results/learning-rate")]
    outdir: PathBuf,
    /// Plain lines on a terminal too, instead of the live view.
    #[arg(long, short)]
    quiet: bool,
    /// Start anew where an earlier experiment left its runs, and delete them.
    #[arg(long)]
    overwrite: bool,
    /// Check everything and say what would run, without running or writing.
    #[arg(long)]
    dry_run: bool,
}

const HELP: &str = "\
Trains the same model at two learning rates, from several seeds each:

  seed_rate   1e-3 falling to 1e-4: fp32, mixed
  low_rate    1e-4 falling to 1e-5: fp32, mixed, bf16, bf16-sr, bf16-kahan

Each folder is a run's, with report.html; seed_rate.csv and low_rate.csv beside them have every run's last
validation loss and digest. Seeds that are finished are left as they are when the command is given again.

Examples:
  isobit experiment learning-rate
  isobit experiment learning-rate --preset tiny --data book.txt --steps 200 --seeds 2";

/// One half of the experiment.
struct Half {
    name: &'static str,
    tag: &'static str,
    schemes: &'static [&'static str],
    rate: Option<(f64, f64)>,
    /// Steps where none are asked for; else the preset's.
    steps: Option<i64>,
}

const HALVES: [Half; 2] = [
    Half {
        name: "seed_rate",
        tag: "",
        schemes: &["fp32", "mixed"],
        rate: None,
        steps: None,
    },
    Half {
        name: "low_rate",
        tag: "_lowlr",
        schemes: &["fp32", "mixed", "bf16", "bf16-sr", "bf16-kahan"],
        rate: Some((1e-4, 1e-5)),
        steps: Some(1500),
    },
];

/// Runs the command; returns the exit code.
///
/// # Errors
/// Whatever stops one of the runs.
pub fn experiment(global: &Global, args: &ExperimentArgs) -> Result<i32, Error> {
    let Which::LearningRate(args) = &args.which;
    // What no run could use is refused before the first one.
    for half in &HALVES {
        let all = half.args(args).settings(args.preset)?;
        refuse_gap(&all)?;
        Data::load(&all)?;
    }
    let mut done = vec![];
    for half in &HALVES {
        println!("\n{}: {}", half.name, half.says());
        let code = train_seeds(global, &half.args(args), args.seeds)?;
        if code != 0 {
            return Ok(code);
        }
        if args.dry_run {
            continue;
        }
        let folder = args.outdir.join(half.name);
        let seeds = (0..args.seeds).map(|i| args.seed + i);
        let rows = read(&folder, half.tag, half.schemes, seeds)?;
        write(&args.outdir.join(format!("{}.csv", half.name)), &rows)?;
        done.push((half, folder, rows));
    }
    conclude(&done);
    Ok(0)
}

/// A warm-up that the run does not reach the end of says nothing of a rate.
fn refuse_gap(s: &Settings) -> Result<(), Error> {
    match s.steps > s.warmup {
        true => Ok(()),
        false => usage(format!(
            "--steps {}: the rate is reached after {} steps of warm-up; take more steps",
            s.steps, s.warmup
        )),
    }
}

impl Half {
    fn args(&self, a: &LearningRate) -> TrainArgs {
        let mut out = TrainArgs {
            preset: Some(a.preset),
            data: Some(a.data.clone()),
            schemes: Some(self.schemes.iter().map(|s| s.to_string()).collect()),
            outdir: Some(a.outdir.join(self.name)),
            steps: a.steps.or(self.steps),
            batch: a.batch,
            lr: self.rate.map(|r| r.0),
            min_lr: self.rate.map(|r| r.1),
            seed: Some(a.seed),
            seeds: Some(a.seeds),
            ledger: a.ledger,
            tag: Some(self.tag.into()),
            quiet: a.quiet,
            dry_run: a.dry_run,
            ..TrainArgs::default()
        };
        out.checkpoints.overwrite = a.overwrite;
        out
    }

    fn says(&self) -> String {
        let rate = match self.rate {
            Some((high, low)) => format!("a learning rate of {high:e} falling to {low:e}"),
            None => "the preset's learning rate".into(),
        };
        format!("{rate}; {}", self.schemes.join(", "))
    }
}

/// What the runs ended with, and where it is.
fn conclude(done: &[(&Half, PathBuf, Vec<Ending>)]) {
    for (half, folder, rows) in done {
        println!(
            "\n{}\n{:<11} {:>6} {:>9} {:>16}",
            half.name, "scheme", "seeds", "mean", "most above fp32"
        );
        for scheme in half.schemes {
            let own: Vec<&Ending> = rows.iter().filter(|r| r.scheme == *scheme).collect();
            let mean = own.iter().map(|r| r.loss).sum::<f64>() / own.len().max(1) as f64;
            let gap = own.iter().filter_map(|r| r.above(rows, "fp32"));
            let gap = match *scheme {
                "fp32" => String::new(),
                _ => format!("{:+.4}", gap.fold(f64::NEG_INFINITY, f64::max)),
            };
            println!("{scheme:<11} {:>6} {mean:>9.4} {gap:>16}", own.len());
        }
        println!("table: {}.csv, report: {}", folder.display(), page(folder));
    }
}

fn page(folder: &Path) -> String {
    folder.join(crate::report::html::PAGE).display().to_string()
}
