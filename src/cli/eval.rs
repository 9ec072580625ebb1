//! `isobit eval`.

use super::Global;
use super::device::Device;
use super::terminal::{catch_signals, interrupted};
use crate::data::batches::gather;
use crate::error::{Error, usage};
use crate::infer::compare::{Comparison, Measured, Precision};
use crate::train::checkpoint::{Checkpoint, Which, locate};
use crate::train::run::Data;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Flags of `eval`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP)]
pub struct EvalArgs {
    /// A checkpoint: a file, a scheme's folder, or the output folder of a run.
    #[arg(long, value_name = "DIR-OR-FILE")]
    pub from: PathBuf,
    /// Take the checkpoint with the best validation loss, not the newest.
    #[arg(long)]
    pub best: bool,
    /// Precisions to compare, comma-separated; the first is what the others are held against.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "fp32,bf16"
    )]
    pub precision: Vec<String>,
    /// Another text, or `tinyshakespeare`; it may use the characters of the checkpoint's vocabulary
    /// [default: the text of the run].
    #[arg(long, value_name = "FILE-OR-NAME")]
    pub data: Option<PathBuf>,
}

const HELP: &str = "\
The batches are those of the run's own validation (the last tenth of the text), so that the loss under
fp32 is the one that training reports for fp32. The weights are the checkpoint's, widened exactly.

  fp32   everything in f32
  bf16   the operands of matrix products and of attention, weights among them, rounded to bf16; sums in
         f32, each result rounded once to bf16; all else in f32. bf16 is emulated: no tensor core is used.
  fp16   the same in fp16, emulated too: more bits, less range

Examples:
  isobit eval --from run/checkpoints/mixed
  isobit eval --from run/checkpoints/mixed --precision fp32,bf16,fp16
  isobit eval --from run/checkpoints/fp32 --data other.txt --precision fp32";

/// Runs the command; returns the exit code.
///
/// # Errors
/// Whatever stops it, as one line.
pub fn eval(global: &Global, args: &EvalArgs) -> Result<i32, Error> {
    let mut precisions: Vec<Precision> = Vec::new();
    for name in &args.precision {
        let p = Precision::parse(name)?;
        if precisions.contains(&p) {
            return usage(format!("--precision: names {} twice", p.name));
        }
        precisions.push(p);
    }
    let which = if args.best {
        Which::Best
    } else {
        Which::Newest
    };
    let c = Checkpoint::load(&locate(&args.from, which)?)?;
    let data = data(&c, args)?;
    let s = &c.meta.settings;
    let device = Device::choose(global)?;
    let model = c.model();
    let mut all = Comparison::new(
        device.admitted(global)?,
        &model,
        s.batch,
        &c.weights(),
        &precisions,
    )?;
    println!(
        "from: {} ({}, step {})",
        c.path.display(),
        c.scheme().name(),
        c.meta.step
    );
    println!("device: {}", device.why());
    let batches = data.validation();
    println!(
        "data: {}, its last tenth: {} batches of {} x {} characters",
        data.text.name,
        batches.len(),
        s.batch,
        s.block
    );
    catch_signals()?;
    let bar = progress(batches.len() as u64);
    let mut done = 0;
    for offsets in batches {
        if interrupted() {
            break;
        }
        all.add(&gather(&data.text.val, offsets, s.block))?;
        done += 1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if done < batches.len() {
        println!("stopped after {done} of {} batches", batches.len());
    }
    if done > 0 {
        let (results, positions) = all.results();
        show(&results, positions);
    }
    Ok(if done < batches.len() { 130 } else { 0 })
}

/// The validation data: the run's own, unchanged, or a text that the vocabulary covers.
fn data(c: &Checkpoint, args: &EvalArgs) -> Result<Data, Error> {
    let mut s = c.meta.settings.clone();
    s.train_offsets = None; // not needed, and perhaps no longer there
    if let Some(path) = &args.data {
        s.text = Some(path.clone());
        s.val_offsets = None;
    }
    let mut data = Data::load(&s)?;
    if args.data.is_none() && data.text.sha256 != c.meta.data.sha256 {
        return usage(format!(
            "{}: is not the text that the checkpoint was trained on; name it with --data to evaluate on it all the same",
            data.text.name
        ));
    }
    data.text = data.text.recoded(c.vocab(), &c.meta.data.name)?;
    Ok(data)
}

fn progress(batches: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{wide_bar} {pos}/{len} batches, {eta} left";
    let bar = ProgressBar::new(batches);
    bar.set_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar
}

/// The table, and what it means.
fn show(results: &[(Precision, Measured)], positions: u64) {
    let first = results[0].0.name;
    println!(
        "\n{:<10} {:>9} {:>10} {:>12} {:>19}",
        "precision", "loss", "bits/char", "same argmax", "largest difference"
    );
    for (i, (p, r)) in results.iter().enumerate() {
        let bits = r.loss / std::f64::consts::LN_2;
        let (same, difference) = if i == 0 {
            ("-".into(), "-".into())
        } else {
            (
                format!("{:.3}%", 100.0 * r.same as f64 / positions as f64),
                format!("{:.3e}", r.difference),
            )
        };
        println!(
            "{:<10} {:>9.5} {bits:>10.5} {same:>12} {difference:>19}",
            p.name, r.loss
        );
    }
    println!("loss: mean over {positions} characters, in nats; bits/char: the same in bits");
    if results.len() > 1 {
        println!(
            "same argmax: share of the characters for which the likeliest one is that of {first}"
        );
        println!("largest difference: of any logit from that of {first}");
    }
    for (p, _) in results {
        println!("{}: {}", p.name, p.meaning);
    }
}
