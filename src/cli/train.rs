//! `isobit train`.

use super::Global;
use super::adapters::default_preset;
use super::device::Device;
use crate::config::{Preset, SCHEMES, Scheme, Settings};
use crate::error::{Error, usage};
use crate::exec::bytes;
use crate::exec::cpu::free_memory;
use crate::models::char_gpt::CharGpt;
use crate::report::ledger::{CurveRow, SchemeLedger, SummaryRow, write_summary};
use crate::report::{env, files};
use crate::train::run::{Data, Extras, Observer, Outcome, run};
use crate::train::session::{Programs, Session, StepResult, check_memory};
use crate::train::weights;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Flags of `train`.
#[derive(Args, Debug, Clone, Default)]
pub struct TrainArgs {
    /// Model and schedule [default: tiny, or seed on a real GPU].
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// TOML file with the run's settings; flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// UTF-8 text to train on, or `tinyshakespeare`, which is downloaded once into the user's cache and
    /// checked [default: a dialogue that the program makes itself].
    #[arg(long, value_name = "FILE-OR-NAME")]
    pub data: Option<PathBuf>,
    /// Initial weights (safetensors, PyTorch's names) [default: drawn from the seed].
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Precision schemes to run, comma-separated [default: all of this version].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub schemes: Option<Vec<String>>,
    /// Where the files go [default: results/<preset>-<device>].
    #[arg(long, value_name = "DIR")]
    pub outdir: Option<PathBuf>,
    /// Training steps.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<i64>,
    /// Steps of linear warm-up.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub warmup: Option<i64>,
    /// Highest learning rate.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// Learning rate at the end of the cosine.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub min_lr: Option<f64>,
    /// Sequences a step.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub batch: Option<i64>,
    /// Seed of initial weights and batches.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<i64>,
    /// Appended to the names of the CSV files.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub tag: String,
    /// Write the weights after the last step.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Write the gradients of one step, by weight.
    #[arg(long, num_args = 2, value_names = ["STEP", "FILE"], allow_negative_numbers = true)]
    pub dump_grads: Option<Vec<String>>,
    /// Check everything and say what would run, without running or writing.
    #[arg(long)]
    pub dry_run: bool,
}

impl TrainArgs {
    /// The settings that preset (`default` where none is named), config file and flags give together.
    ///
    /// # Errors
    /// A file, key or value that cannot be used.
    pub fn settings(&self, default: Preset) -> Result<Settings, Error> {
        let mut s = Settings::preset(self.preset.unwrap_or(default));
        if let Some(path) = &self.config {
            s.apply_file(path)?;
        }
        let count = |flag: &str, to: &mut usize, v: Option<i64>| match v {
            None => Ok(()),
            Some(v) => match usize::try_from(v) {
                Ok(v) => {
                    *to = v;
                    Ok(())
                }
                Err(_) => usage(format!("--{flag} {v}: must not be negative")),
            },
        };
        count("steps", &mut s.steps, self.steps)?;
        count("warmup", &mut s.warmup, self.warmup)?;
        count("batch", &mut s.batch, self.batch)?;
        if let Some(v) = self.seed {
            s.seed =
                u64::try_from(v).or_else(|_| usage(format!("--seed {v}: must not be negative")))?;
        }
        s.lr = self.lr.unwrap_or(s.lr);
        // A lower --lr alone must not end below the preset's final rate.
        s.min_lr = self.min_lr.unwrap_or(if self.lr.is_some() {
            s.min_lr.min(s.lr)
        } else {
            s.min_lr
        });
        if let Some(p) = &self.data {
            s.text = Some(p.clone());
        }
        if let Some(p) = &self.init {
            s.init = Some(p.clone());
        }
        if let Some(list) = &self.schemes {
            s.schemes = list
                .iter()
                .map(|n| Scheme::parse(n))
                .collect::<Result<_, _>>()?;
            s.schemes
                .sort_by_key(|x| SCHEMES.iter().position(|y| x == y));
            s.schemes.dedup();
        }
        s.validate()?;
        Ok(s)
    }

    fn extras(&self, s: &Settings) -> Result<Extras, Error> {
        let dump_grads = match self.dump_grads.as_deref() {
            Some([step, file]) => match step.parse::<usize>() {
                Ok(n) if (1..=s.steps).contains(&n) => Some((n, PathBuf::from(file))),
                _ => {
                    return usage(format!(
                        "--dump-grads {step}: the step must be from 1 to {}",
                        s.steps
                    ));
                }
            },
            _ => None,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if self.tag.len() > 64 || !self.tag.chars().all(plain) {
            return usage(format!(
                "--tag {:?}: is part of file names: at most 64 letters, digits, `.`, `_` and `-`",
                self.tag
            ));
        }
        Ok(Extras {
            save: self.save.clone(),
            dump_grads,
        })
    }
}

/// Set by Ctrl-C or SIGTERM.
pub(super) static STOP: AtomicBool = AtomicBool::new(false);

pub(super) fn catch_signals() -> Result<(), Error> {
    let handler = || {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130); // asked twice: now
        }
        eprintln!("\nstopping after this step (once more: at once)");
    };
    ctrlc::set_handler(handler).map_err(|e| Error::Internal(format!("cannot catch Ctrl-C: {e}")))
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Whatever stops it, as one line.
pub fn train(global: &Global, args: &TrainArgs) -> Result<i32, Error> {
    // Without a device there is no default preset; with one, the settings are still checked first.
    let asked = args
        .preset
        .or(args.config.is_some().then_some(Preset::Tiny));
    if let Some(preset) = asked {
        args.settings(preset)?;
    }
    let device = Device::choose(global)?;
    let s = args.settings(default_preset(&device))?;
    let extras = args.extras(&s)?;
    let first = device.open()?;
    let data = Data::load(&s)?;
    let model = s.model(data.text.vocab.len());
    check_memory(&model, s.batch, free_memory())?;
    let weights = match &s.init {
        Some(path) => weights::load(path, &model)?,
        None => model.initial(s.seed),
    };
    let dump = extras.dump_grads.is_some();
    let compiled = s
        .schemes
        .iter()
        .map(|&scheme| Programs::compile(&model, &s, scheme, dump));
    let programs = compiled.collect::<Result<Vec<_>, _>>()?;
    let info = first.info();
    let outdir = args
        .outdir
        .clone()
        .unwrap_or_else(|| PathBuf::from("results").join(format!("{}-{}", s.name, info.backend)));
    let threads = info
        .threads
        .map_or(String::new(), |n| format!(", {n} threads"));
    println!(
        "device: {} ({}, {}{threads})",
        device.why(),
        info.name,
        info.driver
    );
    introduce(&s, &data, &model, &programs, &outdir);
    if args.dry_run {
        println!("dry run: all is in order; nothing was run or written");
        return Ok(0);
    }
    let files: Vec<Extras> = s
        .schemes
        .iter()
        .map(|&x| extras.of(x, s.schemes.len()))
        .collect();
    refuse_collisions(&s, args, &outdir, &files)?;
    // What the device cannot hold is refused before anything is written.
    let mut ready = Some(Session::new(first, model, &programs[0], &weights)?);
    prepare_outputs(&outdir, &files)?;
    catch_signals()?;
    env::write(&outdir, &info, &data.text, &s, &hashes(&programs))?;
    let mut summary: Vec<SummaryRow> = Vec::new();
    let mut stopped = false;
    for ((&scheme, programs), extras) in s.schemes.iter().zip(&programs).zip(&files) {
        // A new executor for each scheme, so that peak memory is counted anew.
        let mut session = match ready.take() {
            Some(session) => session,
            None => Session::new(device.open()?, model, programs, &weights)?,
        };
        let mut ledger = SchemeLedger::new(&outdir, scheme.name(), &args.tag);
        let mut view = Terminal::new(scheme, s.steps);
        let outcome = run(
            &mut session,
            scheme,
            &s,
            &data,
            &mut ledger,
            extras,
            &mut view,
        );
        view.finish();
        let outcome = outcome?;
        view.close(&outcome);
        stopped = outcome.stopped;
        summary.push(outcome.summary);
        write_summary(&outdir, &args.tag, &summary)?;
        if stopped {
            break;
        }
    }
    conclude(&s, &args.tag, &summary, &outdir);
    Ok(if stopped { 130 } else { 0 })
}

/// Weights and gradients must not replace a file that the run reads, or one another, or stand under a
/// name that the ledger writes.
fn refuse_collisions(
    s: &Settings,
    args: &TrainArgs,
    outdir: &Path,
    files: &[Extras],
) -> Result<(), Error> {
    let whole = |p: &Path| {
        let parent = p
            .parent()
            .filter(|d| !d.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let folder = parent
            .canonicalize()
            .unwrap_or_else(|_| parent.to_path_buf());
        folder.join(p.file_name().unwrap_or_default())
    };
    let inputs = [
        &s.init,
        &s.text,
        &s.train_offsets,
        &s.val_offsets,
        &args.config,
    ];
    let inputs: Vec<PathBuf> = inputs
        .into_iter()
        .flatten()
        .filter_map(|p| p.canonicalize().ok())
        .collect();
    let program = std::env::current_exe().and_then(|p| p.canonicalize()).ok();
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in files.iter().flat_map(Extras::paths) {
        let here = whole(path);
        let ending = here.extension().and_then(|e| e.to_str()).unwrap_or("");
        let ledgers = here.starts_with(whole(outdir)) && ["csv", "json"].contains(&ending);
        let why = if inputs.contains(&here) || program.as_ref() == Some(&here) {
            "this run reads it"
        } else if seen.contains(&here) {
            "two files would have this name"
        } else if ledgers || here == whole(outdir) {
            "the run's own files are there; take a name that ends in .safetensors"
        } else {
            seen.push(here);
            continue;
        };
        return usage(format!("cannot write {}: {why}", path.display()));
    }
    Ok(())
}

fn prepare_outputs(outdir: &Path, files: &[Extras]) -> Result<(), Error> {
    // Files inside the output folder wait for the folder; others are checked before anything is made.
    let wanted = files.iter().flat_map(Extras::paths);
    let (inside, outside): (Vec<_>, Vec<_>) = wanted.partition(|p| p.starts_with(outdir));
    outside
        .into_iter()
        .try_for_each(|p| files::check_writable(p))?;
    std::fs::create_dir_all(outdir).map_err(Error::io("create", outdir))?;
    inside
        .into_iter()
        .try_for_each(|p| files::check_writable(p))?;
    files::check_writable(&outdir.join("env.json"))
}

fn hashes(programs: &[Programs]) -> BTreeMap<String, String> {
    programs.iter().flat_map(|p| p.hashes()).collect()
}

fn introduce(s: &Settings, data: &Data, model: &CharGpt, programs: &[Programs], outdir: &Path) {
    let t = &data.text;
    if s.text.is_none() {
        println!(
            "data: {}, made by the program itself; `--data FILE` trains on a text of yours",
            t.name
        );
    } else {
        println!("data: {}", t.name);
    }
    println!(
        "      {} characters to train on, {} to validate, vocabulary {}",
        t.train.len(),
        t.val.len(),
        t.vocab.len()
    );
    println!(
        "model: {} layers, {} heads, width {}, block {}: {} parameters; batch {}, {} steps; {} of memory",
        s.n_layer,
        s.n_head,
        s.n_embd,
        s.block,
        model.parameters(),
        s.batch,
        s.steps,
        bytes(programs.iter().map(|p| p.bytes()).max().unwrap_or(0))
    );
    println!("files: {}", outdir.display());
}

/// The closing table, and what it means.
fn conclude(s: &Settings, tag: &str, summary: &[SummaryRow], outdir: &Path) {
    println!(
        "\n{:<8} {:>10} {:>12} {:>14} {:>10}",
        "scheme", "ms a step", "memory", "final val loss", "swallowed"
    );
    let mut short = false;
    for r in summary {
        short |= r.step_ms.is_none();
        let ms = r.step_ms.map_or("-".into(), |v| format!("{v:.2}"));
        let loss = r.final_val_loss.map_or("-".into(), |v| format!("{v:.4}"));
        let memory = bytes((r.peak_mem_gib * (1u64 << 30) as f64) as u64);
        let swallowed = r
            .swallowed
            .map_or("-".into(), |v| format!("{:.1}%", 100.0 * v));
        println!(
            "{:<8} {ms:>10} {memory:>12} {loss:>14} {swallowed:>10}",
            r.scheme
        );
    }
    if short {
        println!(
            "(a step's time leaves out the first 20 steps; this run was too short to have one)"
        );
    }
    if let Some(mixed) = summary.iter().find(|r| r.scheme == Scheme::Mixed.name()) {
        if mixed.swallowed.is_some() {
            println!(
                "swallowed: the share of weights whose last counted update is lost if weights are kept in bf16"
            );
        } else {
            println!(
                "(no swallow count: it is taken every {} steps)",
                s.ledger.swallow_interval
            );
        }
        if tag.is_empty() && s.steps < s.ledger.gradhist_step as usize {
            println!(
                "(no gradient histogram: it is taken at step {})",
                s.ledger.gradhist_step
            );
        }
    }
    println!("\nwritten to {}", outdir.display());
}

/// A progress bar on a terminal, plain lines elsewhere.
struct Terminal {
    scheme: &'static str,
    bar: Option<ProgressBar>,
    start: Instant,
}

impl Terminal {
    fn new(scheme: Scheme, steps: usize) -> Terminal {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = "{prefix} {wide_bar} {pos}/{len} {msg} {eta} left";
            let bar = ProgressBar::new(steps as u64).with_prefix(scheme.name());
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Terminal {
            scheme: scheme.name(),
            bar,
            start: Instant::now(),
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn close(&self, o: &Outcome) {
        let how = if o.stopped { "stopped" } else { "done" };
        println!(
            "[{}] {how} after {} steps, {:.1} s; digest of weights and moments {:016x}",
            self.scheme,
            o.steps,
            self.start.elapsed().as_secs_f64(),
            o.digest
        );
    }
}

impl Observer for Terminal {
    fn step(&mut self, step: usize, r: StepResult, ms: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position(step as u64);
            bar.set_message(format!("loss {:.4}, {ms:.1} ms,", r.loss));
        }
    }

    fn evaluated(&mut self, row: &CurveRow) {
        self.line(&format!(
            "[{}] step {}: val {:.4} train_ema {:.4}",
            self.scheme, row.step, row.val_loss, row.train_ema
        ));
    }

    fn swallowed(&mut self, step: usize, share: f64) {
        let percent = 100.0 * share;
        self.line(&format!(
            "[{}] step {step}: bf16 weights would have swallowed {percent:.1}% of the updates",
            self.scheme
        ));
    }

    fn stopped(&self) -> bool {
        STOP.load(Ordering::SeqCst)
    }
}
