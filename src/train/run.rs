//! One scheme's run: steps, evaluations, ledger rows.

use super::ledgers::lower_edge;
use super::schedule::lr_at;
use super::session::{Session, StepResult};
use super::weights;
use crate::config::{Scheme, Settings};
use crate::data::batches::{Batches, gather};
use crate::data::named;
use crate::data::text::{Offsets, Text};
use crate::error::{Error, usage};
use crate::report::ledger::{CurveRow, SchemeLedger, StepRow, SummaryRow};
use std::path::PathBuf;
use std::time::Instant;

/// Stream numbers of the random batches.
const TRAIN_STREAM: u32 = 1;
/// The seed document's own seed for validation batches: the same for every run.
const VAL_SEED: u64 = 4242;
/// Steps left out of the timing, as the seed's program does.
const UNTIMED: usize = 20;

/// A text and the batches drawn from it.
pub struct Data {
    /// The text.
    pub text: Text,
    /// Training offsets to replay.
    train: Option<Offsets>,
    /// Validation batches.
    val: Vec<Vec<u32>>,
}

impl Data {
    /// Loads the text and, where given, the offsets, and checks that they fit the settings.
    ///
    /// # Errors
    /// A file that cannot be used, or a text too short for the block.
    pub fn load(s: &Settings) -> Result<Data, Error> {
        let text = match &s.text {
            Some(path) => named::load(path)?,
            None => Text::from_str("built-in dialogue", &crate::data::corpus::dialogue())?,
        };
        for (part, name) in [(&text.train, "first 90%"), (&text.val, "last 10%")] {
            if part.len() < s.block + 2 {
                return usage(format!(
                    "{}: its {name} has {} characters, block {} needs at least {}; take a longer text or a smaller block",
                    text.name,
                    part.len(),
                    s.block,
                    s.block + 2
                ));
            }
        }
        let train = match &s.train_offsets {
            Some(p) => Some(Offsets::load(p, s.batch, s.block, text.train.len())?),
            None => None,
        };
        if let (Some(o), Some(p)) = (&train, &s.train_offsets)
            && o.rows.len() < s.steps
        {
            let n = o.rows.len();
            return usage(format!(
                "{}: has {n} rows for {} steps; lower --steps or take another file",
                p.display(),
                s.steps
            ));
        }
        let val = match &s.val_offsets {
            Some(p) => Offsets::load(p, s.batch, s.block, text.val.len())?.rows,
            None => {
                let mut stream = Batches::stream(VAL_SEED, 0, text.val.len(), s.block, s.batch);
                (0..s.eval_iters).map(|_| stream.next_offsets()).collect()
            }
        };
        if val.is_empty() {
            return usage("the validation offsets have no row");
        }
        Ok(Data { text, train, val })
    }

    /// The training batches, from the first on.
    pub fn batches(&self, s: &Settings) -> Batches {
        match &self.train {
            Some(o) => Batches::Rows(o.clone(), 0),
            None => Batches::stream(
                s.seed,
                TRAIN_STREAM,
                self.text.train.len(),
                s.block,
                s.batch,
            ),
        }
    }
}

/// What a run is asked to leave besides the ledger.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Weights after the last step.
    pub save: Option<PathBuf>,
    /// Gradients of a step.
    pub dump_grads: Option<(usize, PathBuf)>,
}

impl Extras {
    /// The files it names.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.save.iter().chain(self.dump_grads.iter().map(|d| &d.1))
    }

    /// The files of one scheme: as they are if it runs alone, else with the scheme's name before the
    /// extension.
    pub fn of(&self, scheme: Scheme, schemes: usize) -> Extras {
        let name = |p: &PathBuf| {
            if schemes == 1 {
                return p.clone();
            }
            let stem = p.file_stem().unwrap_or_default().to_string_lossy();
            let end = p
                .extension()
                .map_or(String::new(), |e| format!(".{}", e.to_string_lossy()));
            p.with_file_name(format!("{stem}_{}{end}", scheme.name()))
        };
        Extras {
            save: self.save.as_ref().map(name),
            dump_grads: self.dump_grads.as_ref().map(|(n, p)| (*n, name(p))),
        }
    }
}

/// Told of a run's progress.
pub trait Observer {
    /// After each training step: number, result, its time in ms.
    fn step(&mut self, step: usize, result: StepResult, ms: f64);
    /// After each evaluation.
    fn evaluated(&mut self, row: &CurveRow);
    /// After each count of swallowed updates: step, share of all weights.
    fn swallowed(&mut self, step: usize, share: f64);
    /// Whether to stop after this step.
    fn stopped(&self) -> bool;
}

/// How a run ended.
pub struct Outcome {
    /// Its row of the summary.
    pub summary: SummaryRow,
    /// Digest of weights and moments after the last step.
    pub digest: u64,
    /// Steps done.
    pub steps: usize,
    /// Whether it was stopped before its last step.
    pub stopped: bool,
}

/// Trains one scheme to the end, or until the observer says stop. The ledger's files are up to date at
/// every evaluation and when this returns, with or without an error.
///
/// # Errors
/// A device or file error, or a loss that is no number.
pub fn run(
    session: &mut Session,
    scheme: Scheme,
    s: &Settings,
    data: &Data,
    ledger: &mut SchemeLedger,
    extras: &Extras,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let result = steps(session, scheme, s, data, ledger, extras, observer);
    let flushed = ledger.flush();
    let outcome = result?;
    flushed?;
    Ok(outcome)
}

fn steps(
    session: &mut Session,
    scheme: Scheme,
    s: &Settings,
    data: &Data,
    ledger: &mut SchemeLedger,
    extras: &Extras,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let mut batches = data.batches(s);
    let mut ema: Option<f64> = None;
    let (mut timed_ms, mut timed) = (0.0, 0usize);
    let mut digest = 0;
    let mut done = 0;
    let mut stopped = false;
    while done < s.steps && !stopped {
        let it = done;
        let batch = gather(&data.text.train, &batches.next_offsets(), s.block);
        let lr = lr_at(s, it);
        done = it + 1;
        let counts_swallowed = (done as u64).is_multiple_of(s.ledger.swallow_interval);
        let histogram = done as u64 == s.ledger.gradhist_step;
        if counts_swallowed {
            session.snapshot()?;
        }
        let start = Instant::now();
        let result = session.step(s, &batch, lr, done as u64, histogram)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if !result.loss.is_finite() || !result.grad_norm.is_finite() {
            let what = session.first_non_finite()?;
            return Err(Error::NonFinite {
                scheme: scheme.name().into(),
                step: done,
                what,
            });
        }
        if it >= UNTIMED && !counts_swallowed && !histogram {
            (timed_ms, timed) = (timed_ms + ms, timed + 1);
        }
        let average = ema.map_or(result.loss as f64, |e| 0.98 * e + 0.02 * result.loss as f64);
        ema = Some(average);
        if let Some((step, path)) = &extras.dump_grads
            && *step == done
        {
            weights::save(path, &session.gradients()?)?;
        }
        if histogram && let Some(counts) = session.gradient_histogram()? {
            ledger.histogram = counts
                .iter()
                .enumerate()
                .map(|(k, &c)| (lower_edge(k), c))
                .collect();
        }
        if counts_swallowed && let Some(share) = session.swallowed()? {
            ledger.swallow.push((done, share));
            observer.swallowed(done, share);
        }
        observer.step(done, result, ms);
        stopped = done < s.steps && observer.stopped();
        let mut row = StepRow {
            step: done,
            lr,
            loss: result.loss,
            grad_norm: result.grad_norm,
            digest: None,
            val_loss: None,
        };
        let last = done == s.steps || stopped;
        let evaluates = done == 1 || done.is_multiple_of(s.eval_interval) || done == s.steps;
        if evaluates || last {
            digest = session.digest()?;
            row.digest = Some(digest);
        }
        if evaluates {
            let curve = CurveRow {
                step: done,
                val_loss: validate(session, s, data)?,
                train_ema: average,
            };
            row.val_loss = Some(curve.val_loss);
            ledger.curve.push(curve);
            observer.evaluated(&curve);
        }
        ledger.steps.push(row);
        if evaluates {
            ledger.flush()?;
        }
    }
    if let Some(path) = &extras.save {
        weights::save(path, &session.weights()?)?;
    }
    let summary = SummaryRow {
        scheme: scheme.name().into(),
        step_ms: (timed > 0).then(|| timed_ms / timed as f64),
        peak_mem_gib: session.exec().memory().peak as f64 / (1u64 << 30) as f64,
        final_val_loss: ledger.curve.last().map(|c| c.val_loss),
        swallowed: ledger.swallow.last().map(|s| s.1),
    };
    Ok(Outcome {
        summary,
        digest,
        steps: done,
        stopped,
    })
}

/// Mean loss over the validation batches.
fn validate(session: &mut Session, s: &Settings, data: &Data) -> Result<f64, Error> {
    let mut total = 0.0;
    for offsets in &data.val {
        total += session.evaluate(&gather(&data.text.val, offsets, s.block))? as f64;
    }
    Ok(total / data.val.len() as f64)
}
