//! `isobit showers`: trains a generator of calorimeter showers.

use super::Global;
use super::device::Device;
use super::terminal::{catch_signals, clear, interrupted, say};
use crate::error::{Error, usage};
use crate::exec::bytes;
use crate::exec::cpu::free_memory;
use crate::report::files::check_writable;
use crate::train::surrogate::settings::{Kind, Settings, Shares, TrunkKind, resolve_precision};
use crate::train::surrogate::{Evaluation, FILES, Observer, run, trainer};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Flags of `showers`.
#[derive(Args, Debug, Clone, Default)]
#[command(after_help = NOTES)]
pub struct ShowersArgs {
    /// How the generator is trained [default: flow].
    #[arg(long, value_enum)]
    pub model: Option<Kind>,
    /// The networks' middle [default: plain].
    #[arg(long, value_enum)]
    pub trunk: Option<TrunkKind>,
    /// How the layers' shares of an event are made [default: one-shot].
    #[arg(long, value_enum)]
    pub shares: Option<Shares>,
    /// `fp32`, or `mixed`: products in bf16, weights and the delicate parts in f32 [default: fp32].
    #[arg(long, value_name = "NAME")]
    pub precision: Option<String>,
    /// TOML file with the run's settings; flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Training steps; of the generator, with wgan [default: 500].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub steps: Option<usize>,
    /// Events a batch [default: 256].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub batch: Option<usize>,
    /// Events to train on [default: 16384].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub events: Option<usize>,
    /// Width of the networks [default: 64].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub hidden: Option<usize>,
    /// Residual blocks of a stack [default: 2].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub blocks: Option<usize>,
    /// Highest learning rate [default: 2e-3, wgan 1e-3].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// Seed of events, weights, batches and noise [default: 1337].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Where the files go; those of an earlier run there are replaced [default:
    /// results/showers-<model>-<precision>].
    #[arg(long, value_name = "DIR")]
    pub outdir: Option<PathBuf>,
}

const NOTES: &str = "\
Events are made by the program itself: a documented shower model of an energy and an angle, so that
what the generator learnt can be measured. Two networks are trained: the total energy of an event,
then the layers' shares of it. At every evaluation events are drawn and compared with known ones,
layer by layer, by the Wasserstein-1 distance of their energies; that and the validation loss are
computed in f32 whatever the precision.

Config file, with the defaults of flow (all keys may be left out):
  [model]
  kind = \"flow\"            # flow, ddpm, wgan
  trunk = \"plain\"          # plain, routed
  shares = \"one-shot\"      # one-shot, autoregressive
  hidden = 64
  blocks = 2
  experts = 4              # of a routed trunk
  top = 2                  # how many of them an event gets
  [data]
  layers = 8
  events = 16384
  reference = 2048         # known events that drawn ones are compared with
  [train]
  precision = \"fp32\"       # fp32, mixed
  steps = 500
  batch = 256
  lr = 2e-3
  warmup = 20
  clip = 1.0               # largest norm of the gradient; 0: not clipped
  ema = 0.999              # decay of the weights' moving average
  eval_interval = 100
  noise_steps = 25         # steps of a draw; ddpm: of its schedule too
  n_critic = 5             # wgan: steps of the critic for each of the generator
  seed = 1337

Examples:
  isobit showers                                     flow matching, small, in fp32
  isobit showers --model wgan --precision mixed      the adversarial generator, products in bf16
  isobit showers --trunk routed --shares autoregressive --steps 2000 --backend vulkan";

/// Runs the command; returns the exit code.
///
/// # Errors
/// Settings that cannot be used, a device that fails, a file that cannot be written.
pub fn showers(global: &Global, args: &ShowersArgs) -> Result<i32, Error> {
    let s = settings(args)?;
    s.check_memory(free_memory())?;
    let device = Device::choose(global)?;
    let info = device.info()?;
    let (policy, how) = resolve_precision(&s.precision, &info.name)?;
    let outdir = args.outdir.clone().unwrap_or_else(|| {
        let name = format!("showers-{}-{}", s.kind.name(), s.precision);
        PathBuf::from("results").join(name)
    });
    if outdir.exists() && !outdir.is_dir() {
        return usage(format!("--outdir {}: is a file", outdir.display()));
    }
    let exec = device.admitted(global)?;
    refuse_others(&outdir)?;
    std::fs::create_dir_all(&outdir).map_err(Error::io("make", &outdir))?;
    // One that cannot be written is refused before any is.
    FILES
        .iter()
        .try_for_each(|name| check_writable(&outdir.join(name)))?;
    catch_signals()?;
    println!("device: {} ({}, {})", device.why(), info.name, info.driver);
    println!("precision: {} ({how})", s.precision);
    println!(
        "data: {} events of {} layers, made by the program itself, seed {}",
        s.events, s.layers, s.seed
    );
    let mut trainer = trainer(exec, &s, &policy)?;
    println!("files: {}", outdir.display());
    let mut shown = Shown::new(&s);
    let result = run(&mut *trainer, &s, Some(&outdir), &mut shown);
    clear(shown.bar.as_ref());
    let out = result?;
    let [first, last] = [out.evaluations.first(), out.evaluations.last()]
        .map(|e| e.map_or(f64::NAN, Evaluation::mean_w1));
    println!(
        "\n{} after {} steps: the layers' energies are {} GeV from the known ones on average, {} before the first step; best step {}; {} of memory",
        if out.stopped { "stopped" } else { "done" },
        out.steps.len(),
        distance(last),
        distance(first),
        out.best,
        bytes(out.peak_bytes)
    );
    println!("written to {}", outdir.display());
    Ok(if out.stopped { 130 } else { 0 })
}

/// A whole number; one below 0 is told apart from what is none.
fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    match text.starts_with('-') {
        true => Err("must not be negative".into()),
        false => text.parse().map_err(|e: ParseIntError| e.to_string()),
    }
}

/// A folder with a run of `train` takes no files of this command: reports would mix them.
fn refuse_others(outdir: &Path) -> Result<(), Error> {
    match ["env.json", "summary.csv"].map(|n| outdir.join(n)) {
        ours if ours.iter().any(|p| p.exists()) => usage(format!(
            "--outdir {}: holds a run of `isobit train`; name another folder",
            outdir.display()
        )),
        _ => Ok(()),
    }
}

fn settings(args: &ShowersArgs) -> Result<Settings, Error> {
    let mut s = Settings::new(args.model.unwrap_or(Kind::Flow));
    if let Some(path) = &args.config {
        s.apply_file(path)?;
        if let Some(kind) = args.model
            && kind != s.kind
        {
            return usage(format!(
                "--model {}: {} says {}; take one of them",
                kind.name(),
                path.display(),
                s.kind.name()
            ));
        }
    }
    macro_rules! take {
        ($($key:ident),*) => { $(if let Some(x) = &args.$key { s.$key.clone_from(x); })* };
    }
    take!(
        trunk, shares, precision, steps, batch, events, hidden, blocks, lr, seed
    );
    s.validate()?;
    Ok(s)
}

/// A mean distance; what has gone astray takes an exponent.
fn distance(w1: f64) -> String {
    match w1 < 1e6 {
        true => format!("{w1:.4}"),
        false => format!("{w1:.4e}"),
    }
}

/// A bar on a terminal, lines for the evaluations everywhere.
struct Shown {
    bar: Option<ProgressBar>,
}

impl Shown {
    fn new(s: &Settings) -> Shown {
        let style = "{wide_bar} step {pos}/{len}, {msg}, {eta} left";
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(s.steps as u64);
            bar.with_style(ProgressStyle::with_template(style).expect("a sound template"))
        });
        Shown { bar }
    }
}

impl Observer for Shown {
    fn step(&mut self, step: usize, loss: f32) {
        if let Some(bar) = &self.bar {
            bar.set_position(step as u64);
            bar.set_message(format!("loss {loss:.4}"));
        }
    }

    fn evaluated(&mut self, e: &Evaluation) {
        let loss = e
            .val_loss
            .map_or(String::new(), |v| format!("val {v:.4}, "));
        let text = format!(
            "step {}: {loss}W1 of the layers' energies {} GeV on average, digest {:016x}",
            e.step,
            distance(e.mean_w1()),
            e.digest
        );
        say(self.bar.as_ref(), &text);
    }

    fn stopped(&self) -> bool {
        interrupted()
    }
}
