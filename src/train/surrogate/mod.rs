//! Trainers of shower generators: what a step is, the loop around it, and the files it leaves.
//!
//! * `losses.csv`: a row a step.
//! * `validation.csv`: a row an evaluation: the validation loss of the averaged weights and the distance of
//!   generated events from the reference events, both computed in f32 whatever the training's precision.
//! * `w1.csv`: that distance layer by layer.
//! * `best.safetensors`, `last.safetensors`: averaged weights in f32.

pub mod adversarial;
pub mod batches;
pub mod bench;
pub mod denoise;
pub mod settings;

use crate::data::showers::{Part, wasserstein};
use crate::error::Error;
use crate::exec::Executor;
use crate::kernels::optim::HYPER;
use crate::passes::autocast::Policy;
use crate::report::files::{csv_bytes, write_atomic};
use crate::train::schedule::{Adam, cosine};
use crate::train::weights::{Tensors, save};
use adversarial::Adversarial;
use batches::Events;
use denoise::Denoise;
use settings::{Kind, Settings};
use std::path::Path;

/// A step's scalars from the host, in f64 with one rounding.
pub struct Pace {
    /// Learning rate.
    pub lr: f64,
    /// The step, from 1.
    pub step: u64,
    adam: Adam,
    keep: [f32; 1],
    take: [f32; 1],
}

impl Pace {
    /// Of step `step` (from 1).
    pub fn at(s: &Settings, step: usize) -> Pace {
        let gan = s.kind == Kind::Wgan;
        // A young average follows the weights more closely.
        let decay = s.ema.min((1.0 + step as f64) / (10.0 + step as f64));
        Pace {
            lr: cosine([0.1 * s.lr, s.lr], [s.warmup, s.steps], step - 1),
            step: step as u64,
            adam: Adam::new(if gan { [0.0, 0.9] } else { [0.9, 0.99] }),
            keep: [decay as f32],
            take: [(1.0 - decay) as f32],
        }
    }

    /// AdamW's scalars for the update number `t` of some weights.
    pub fn hyper(&self, t: u64) -> [f32; HYPER] {
        self.adam.scalars(self.lr, t)
    }

    /// The inputs of the moving average.
    pub fn average(&self) -> [(&str, &[f32]); 2] {
        [("keep", &self.keep), ("take", &self.take)]
    }
}

/// A trainer: the same loop runs them all.
pub trait Trainer {
    /// Names of what a step tells.
    fn columns(&self) -> &'static [&'static str];
    /// One step: what it tells, in the order of the columns.
    ///
    /// # Errors
    /// The device failed.
    fn step(&mut self, pace: &Pace) -> Result<Vec<f32>, Error>;
    /// The validation loss of the averaged weights, in f32, where the kind has one.
    ///
    /// # Errors
    /// The device failed.
    fn validate(&mut self) -> Result<Option<f64>, Error>;
    /// Events drawn from the averaged weights in f32, one for each row of conditions: each layer's energy
    /// over the event's. The noise is the same each time.
    ///
    /// # Errors
    /// The device failed.
    fn generate(&mut self, conditions: &[f32]) -> Result<Vec<f32>, Error>;
    /// Digest of weights, moments and averages.
    ///
    /// # Errors
    /// The device failed.
    fn digest(&mut self) -> Result<u64, Error>;
    /// The averaged weights.
    ///
    /// # Errors
    /// The device failed.
    fn averages(&mut self) -> Result<Tensors, Error>;
    /// Replaces weights and averages by averages of the same model.
    ///
    /// # Errors
    /// They are another model's, or the device failed.
    fn adopt(&mut self, averages: &Tensors) -> Result<(), Error>;
    /// Most bytes that the executor has held.
    fn peak_bytes(&self) -> u64;
}

/// The trainer of a kind, with its programs on the executor.
///
/// # Errors
/// The device cannot hold them.
pub fn trainer(
    exec: Box<dyn Executor>,
    s: &Settings,
    policy: &Policy,
) -> Result<Box<dyn Trainer>, Error> {
    let events = Events::load(s.seed, Part::Train, s.events, s.layers);
    Ok(match s.kind {
        Kind::Flow | Kind::Ddpm => Box::new(Denoise::new(exec, s, policy, events)?),
        Kind::Wgan => Box::new(Adversarial::new(exec, s, policy, events)?),
    })
}

/// One evaluation.
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluation {
    /// After this step; 0: before the first.
    pub step: usize,
    /// Validation loss, where there is one.
    pub val_loss: Option<f64>,
    /// Wasserstein-1 distance of each layer's energy from the reference events', GeV.
    pub w1: Vec<f64>,
    /// Digest of all states.
    pub digest: u64,
}

impl Evaluation {
    /// Mean distance of the layers, GeV.
    pub fn mean_w1(&self) -> f64 {
        self.w1.iter().sum::<f64>() / self.w1.len() as f64
    }

    /// What the best weights are chosen by: the smaller the better.
    fn judged_by(&self) -> f64 {
        self.val_loss.unwrap_or_else(|| self.mean_w1())
    }
}

/// Told of a run's progress.
pub trait Observer {
    /// After each step, with the first column of its row.
    fn step(&mut self, step: usize, loss: f32);
    /// After each evaluation.
    fn evaluated(&mut self, e: &Evaluation);
    /// Whether to stop after this step.
    fn stopped(&self) -> bool;
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its evaluations, the first before the first step.
    pub evaluations: Vec<Evaluation>,
    /// Rows of the steps.
    pub steps: Vec<Vec<f32>>,
    /// Step of the best evaluation.
    pub best: usize,
    /// Whether it was stopped before its last step.
    pub stopped: bool,
    /// Most bytes that the executor has held.
    pub peak_bytes: u64,
}

/// Measures the averaged weights: in f32, on the same noise each time.
///
/// # Errors
/// The device failed.
pub fn evaluate(
    trainer: &mut dyn Trainer,
    reference: &Events,
    step: usize,
) -> Result<Evaluation, Error> {
    let digest = trainer.digest()?;
    let val_loss = trainer.validate()?;
    let fractions = trainer.generate(&reference.conditions)?;
    let layers = reference.layers;
    let one = |l: usize| {
        let column = |x: &mut dyn Iterator<Item = f64>| x.skip(l).step_by(layers).collect();
        let energy = |i: usize| reference.energy[i / layers];
        let made = fractions.iter().enumerate();
        let made: Vec<f64> = column(&mut made.map(|(i, &f)| f64::from(f) * energy(i)));
        let known: Vec<f64> = column(&mut reference.deposits.iter().copied());
        wasserstein(&made, &known)
    };
    Ok(Evaluation {
        step,
        val_loss,
        w1: (0..layers).map(one).collect(),
        digest,
    })
}

/// The files of a run.
pub const FILES: [&str; 5] = [
    "losses.csv",
    "validation.csv",
    "w1.csv",
    "best.safetensors",
    "last.safetensors",
];

/// An evaluation whose numbers are numbers: weights that ran away are no success.
fn sound(e: Evaluation, s: &Settings) -> Result<Evaluation, Error> {
    if e.val_loss.is_none_or(f64::is_finite) && e.mean_w1().is_finite() {
        return Ok(e);
    }
    let loss = e
        .val_loss
        .map_or(String::new(), |v| format!("val_loss {v}, "));
    Err(Error::NonFinite {
        scheme: format!("{} {}", s.kind.name(), s.precision),
        step: e.step,
        what: format!("{loss}W1 {}", e.mean_w1()),
    })
}

/// Trains to the end, or until the observer says stop. With an `outdir` its files are whole after every
/// evaluation.
///
/// # Errors
/// A device or file error, or a loss that is no number.
pub fn run(
    trainer: &mut dyn Trainer,
    s: &Settings,
    outdir: Option<&Path>,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let reference = Events::load(s.seed, Part::Reference, s.reference, s.layers);
    let first = sound(evaluate(trainer, &reference, 0)?, s)?;
    observer.evaluated(&first);
    let mut out = Outcome {
        evaluations: vec![first],
        steps: vec![],
        best: 0,
        stopped: false,
        peak_bytes: 0,
    };
    if let Some(dir) = outdir {
        write(dir, s, trainer, &out, true)?;
    }
    for step in 1..=s.steps {
        let row = trainer.step(&Pace::at(s, step))?;
        if row.iter().any(|x| !x.is_finite()) {
            let what = trainer.columns().iter().zip(&row);
            let what: Vec<String> = what.map(|(n, x)| format!("{n} {x}")).collect();
            return Err(Error::NonFinite {
                scheme: format!("{} {}", s.kind.name(), s.precision),
                step,
                what: what.join(", "),
            });
        }
        observer.step(step, row[0]);
        out.steps.push(row);
        out.stopped = step < s.steps && observer.stopped();
        if step.is_multiple_of(s.eval_interval) || step == s.steps || out.stopped {
            let e = sound(evaluate(trainer, &reference, step)?, s)?;
            observer.evaluated(&e);
            let judged = |e: &Evaluation| e.judged_by();
            let better = out.evaluations.iter().all(|o| judged(&e) < judged(o));
            if better {
                out.best = step;
            }
            out.evaluations.push(e);
            if let Some(dir) = outdir {
                write(dir, s, trainer, &out, better)?;
            }
        }
        if out.stopped {
            break;
        }
    }
    out.peak_bytes = trainer.peak_bytes();
    Ok(out)
}

fn write(
    dir: &Path,
    s: &Settings,
    trainer: &mut dyn Trainer,
    out: &Outcome,
    better: bool,
) -> Result<(), Error> {
    let weights = trainer.averages()?;
    if better {
        save(&dir.join("best.safetensors"), &weights)?;
    }
    save(&dir.join("last.safetensors"), &weights)?;
    let header = ["step", "lr"].iter().chain(trainer.columns());
    let header: Vec<String> = header.map(|c| c.to_string()).collect();
    let rows = out.steps.iter().enumerate().map(|(i, row)| {
        let lr = Pace::at(s, i + 1).lr;
        let numbers = row.iter().map(|x| x.to_string());
        [(i + 1).to_string(), format!("{lr:e}")]
            .into_iter()
            .chain(numbers)
            .collect()
    });
    table(&dir.join("losses.csv"), header, rows)?;
    let header = ["step", "val_loss", "w1_mean_gev", "digest"].map(String::from);
    let rows = out.evaluations.iter().map(|e| {
        vec![
            e.step.to_string(),
            e.val_loss.map_or(String::new(), |v| v.to_string()),
            e.mean_w1().to_string(),
            format!("{:016x}", e.digest),
        ]
    });
    table(&dir.join("validation.csv"), header.to_vec(), rows)?;
    let header = ["step", "layer", "w1_gev"].map(String::from);
    let rows = out.evaluations.iter().flat_map(|e| {
        let each = e.w1.iter().enumerate();
        each.map(|(l, w)| vec![e.step.to_string(), l.to_string(), w.to_string()])
    });
    table(&dir.join("w1.csv"), header.to_vec(), rows)
}

/// Writes a CSV file, whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn table(
    path: &Path,
    header: Vec<String>,
    rows: impl Iterator<Item = Vec<String>>,
) -> Result<(), Error> {
    write_atomic(path, &csv_bytes(header, rows)?)
}
