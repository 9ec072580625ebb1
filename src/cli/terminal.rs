//! What a run shows on the terminal, and how it is stopped from there.

use super::device::Device;
use super::live::Live;
use crate::config::{Scheme, Settings};
use crate::error::Error;
use crate::exec::{DeviceInfo, Numerics, bytes};
use crate::models::char_gpt::CharGpt;
use crate::numerics::passport::Passport;
use crate::report::ledger::{CurveRow, ScalerRow, SummaryRow};
use crate::train::checkpoint::Checkpoint;
use crate::train::run::{Data, Observer, Outcome};
use crate::train::session::{Programs, StepResult};
use indicatif::ProgressBar;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Set by Ctrl-C or SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// Lets Ctrl-C and SIGTERM end the run after the present step.
///
/// # Errors
/// The system allows no handler.
pub fn catch_signals() -> Result<(), Error> {
    static CAUGHT: AtomicBool = AtomicBool::new(false);
    if CAUGHT.swap(true, Ordering::SeqCst) {
        return Ok(()); // by an earlier run of this process
    }
    let handler = || {
        if STOP.swap(true, Ordering::SeqCst) {
            std::process::exit(130); // asked twice: now
        }
        crate::tell!("\nstopping after this step (once more: at once)");
    };
    ctrlc::set_handler(handler).map_err(|e| Error::Internal(format!("cannot catch Ctrl-C: {e}")))
}

/// Whether Ctrl-C or SIGTERM has come.
pub fn interrupted() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// A live view on a terminal, plain lines elsewhere.
pub struct Terminal {
    scheme: &'static str,
    live: Option<Live>,
    start: Instant,
    /// Steps done before this process.
    before: usize,
    done: usize,
    stop_after: Option<usize>,
}

impl Terminal {
    /// For a run of `steps` steps, `done` of them behind it, that stops after `stop_after`. `live` has the
    /// bytes that are planned, where a live view is wanted.
    pub fn new(
        scheme: Scheme,
        steps: usize,
        done: usize,
        stop_after: Option<usize>,
        live: Option<u64>,
    ) -> Terminal {
        let live = live.filter(|_| std::io::stderr().is_terminal());
        let live = live.map(|memory| Live::new(scheme.name(), steps, done, memory));
        Terminal {
            scheme: scheme.name(),
            live,
            start: Instant::now(),
            before: done,
            done,
            stop_after,
        }
    }

    fn line(&self, text: &str) {
        let write = || writeln!(std::io::stdout(), "{text}");
        let written = match &self.live {
            Some(live) => live.aside(write),
            None => write(),
        };
        if written.is_err() {
            // Nobody reads any more: end as at Ctrl-C, with a checkpoint.
            STOP.store(true, Ordering::SeqCst);
        }
    }

    /// Takes the live view away.
    pub fn finish(&self) {
        if let Some(live) = &self.live {
            live.clear();
        }
    }

    /// Says how the run ended.
    pub fn close(&self, o: &Outcome) {
        let how = if o.stopped { "stopped" } else { "done" };
        let before = match self.before {
            0 => String::new(),
            n => format!(" ({} in this process)", o.steps - n),
        };
        println!(
            "[{}] {how} after {} steps{before}, {:.1} s; digest of weights and moments {:016x}",
            self.scheme,
            o.steps,
            self.start.elapsed().as_secs_f64(),
            o.digest
        );
        if let Some(parts) = o.cost.parts() {
            println!("[{}] {}", self.scheme, parts.says());
        }
    }
}

impl Observer for Terminal {
    fn step(&mut self, step: usize, r: StepResult, ms: f64) {
        self.done = step;
        if let Some(live) = &mut self.live {
            live.step(step, r.loss as f64, ms);
        }
    }

    fn evaluated(&mut self, row: &CurveRow) {
        if let Some(live) = &mut self.live {
            live.evaluated(row.val_loss);
        }
        self.line(&format!(
            "[{}] step {}: val {:.4} train_ema {:.4}",
            self.scheme, row.step, row.val_loss, row.train_ema
        ));
    }

    fn swallowed(&mut self, step: usize, share: f64) {
        if let Some(live) = &mut self.live {
            live.swallowed(share);
        }
        let percent = 100.0 * share;
        self.line(&format!(
            "[{}] step {step}: bf16 weights would have swallowed {percent:.1}% of the updates",
            self.scheme
        ));
    }

    fn skipped(&mut self, row: &ScalerRow) {
        self.line(&format!(
            "[{}] step {}: skipped at loss scale {}, the gradient is not finite (first {}); the scale is halved",
            self.scheme, row.step, row.loss_scale, row.first_nonfinite
        ));
    }

    fn warned(&mut self, text: &str) {
        match &self.live {
            Some(live) => live.aside(|| crate::tell!("{text}")),
            None => crate::tell!("{text}"),
        }
    }

    fn stopped(&self) -> bool {
        interrupted() || self.stop_after.is_some_and(|n| self.done >= n)
    }
}

/// A line above a bar, where there is one.
pub fn say(bar: Option<&ProgressBar>, text: &str) {
    match bar {
        Some(bar) => bar.suspend(|| println!("{text}")),
        None => println!("{text}"),
    }
}

/// Takes a bar away, where there is one.
pub fn clear(bar: Option<&ProgressBar>) {
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// What a run promises of its bits.
pub fn introduce_numerics(n: Numerics, info: &DeviceInfo, passport: Option<&Passport>) {
    let promise = match (n, passport) {
        (Numerics::Portable, Some(p)) => format!(
            "portable: the CPU executor's bits; this device passes the probe (digest {})",
            p.digest
        ),
        (Numerics::Portable, None) => "portable: the bits that every device must give".into(),
        (Numerics::Fast, _) if info.backend == "cpu" => {
            "fast: this machine's own bits, with its fused multiply-add in f32 products".into()
        }
        (Numerics::Fast, _) => "fast: this device's own bits, with its fused multiply-add".into(),
    };
    println!("numerics: {promise}");
}

/// Where the run computes.
pub fn introduce_device(device: &Device, info: &DeviceInfo) {
    let threads = info
        .threads
        .map_or(String::new(), |n| format!(", {n} threads"));
    println!(
        "device: {} ({}, {}{threads})",
        device.why(),
        info.name,
        info.driver
    );
}

/// What the run works on.
pub fn introduce(s: &Settings, data: &Data, model: &CharGpt, programs: &[Programs], outdir: &Path) {
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

/// Says where each scheme goes on.
pub fn tell_points(s: &Settings, points: &[Checkpoint], programs: &[Programs], dump: bool) {
    for p in points {
        let m = &p.meta;
        let how = if m.step == s.steps as u64 {
            "done before"
        } else {
            "goes on"
        };
        println!(
            "[{}] {how}: step {} of {}, digest {}, {}",
            m.scheme,
            m.step,
            s.steps,
            m.digest,
            p.path.display()
        );
        let now = s.schemes.iter().position(|x| *x == p.scheme());
        // Another output makes another plan of the same arithmetic.
        if !dump && m.lineage.is_empty() && now.is_some_and(|i| programs[i].hash() != m.plan) {
            println!(
                "[{}] note: isobit {} wrote this checkpoint by another plan; from here on the bits are those of this {}",
                m.scheme,
                m.version,
                env!("CARGO_PKG_VERSION")
            );
        }
    }
}

/// The closing table, and what it means.
pub fn conclude(s: &Settings, tag: &str, summary: &[SummaryRow], outdir: &Path) {
    println!(
        "\n{:<10} {:>10} {:>12} {:>14} {:>10}",
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
            "{:<10} {ms:>10} {memory:>12} {loss:>14} {swallowed:>10}",
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
