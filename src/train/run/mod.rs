//! One scheme's run: steps, evaluations, ledger rows.

mod data;

pub use data::{Data, Extras};

use super::checkpoint::keeper::Keeper;
use super::full::{self, Frozen};
use super::ledgers::lower_edge;
use super::progress::Progress;
use super::scaler::Scaled;
use super::schedule::lr_at;
use super::session::{Session, StepResult};
use super::weights;
use crate::config::{Scheme, Settings};
use crate::data::batches::gather;
use crate::error::Error;
use crate::exec::Numerics;
use crate::report::cost::Cost;
use crate::report::ledger::{CurveRow, ScalerRow, SchemeLedger, StepRow, SummaryRow};
use std::path::PathBuf;
use std::time::Instant;

/// Steps left out of the timing, as the seed's program does.
const UNTIMED: usize = 20;

/// Told of a run's progress.
pub trait Observer {
    /// After each training step: number, result, its time in ms.
    fn step(&mut self, step: usize, result: StepResult, ms: f64);
    /// After each evaluation.
    fn evaluated(&mut self, row: &CurveRow);
    /// After each count of swallowed updates: step, share of all weights.
    fn swallowed(&mut self, step: usize, share: f64);
    /// After a step that was skipped under loss scaling.
    fn skipped(&mut self, _: &ScalerRow) {}
    /// A file could not be written, and the run goes on.
    fn warned(&mut self, text: &str) {
        crate::tell!("{text}");
    }
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
    /// The last checkpoint, where checkpoints are written.
    pub checkpoint: Option<PathBuf>,
    /// Why the last checkpoint could not be written.
    pub unsaved: Option<Error>,
    /// Where the time went.
    pub cost: Cost,
}

/// Trains one scheme from its first step to the end, or until the observer says stop, without
/// checkpoints. See [`Run`].
///
/// # Errors
/// As [`Run::go`].
pub fn run(
    session: &mut Session,
    scheme: Scheme,
    s: &Settings,
    data: &Data,
    ledger: &mut SchemeLedger,
    extras: &Extras,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let run = Run {
        session,
        scheme,
        s,
        data,
        ledger,
        extras,
        observer,
        keeper: None,
        progress: Progress::start(s, data),
    };
    run.go()
}

/// One scheme's run and what it works on.
pub struct Run<'a> {
    /// The programs, with weights and moments as `progress` says.
    pub session: &'a mut Session,
    /// The scheme.
    pub scheme: Scheme,
    /// The settings.
    pub s: &'a Settings,
    /// The data.
    pub data: &'a Data,
    /// The ledger, with the rows up to `progress`.
    pub ledger: &'a mut SchemeLedger,
    /// Files besides the ledger.
    pub extras: &'a Extras,
    /// Told of the progress.
    pub observer: &'a mut dyn Observer,
    /// Writes checkpoints, where there are any.
    pub keeper: Option<Keeper>,
    /// Where the run stands.
    pub progress: Progress,
}

/// What [`Run::step`] tells of one step.
struct Step {
    row: StepRow,
    /// The scaler's row, kept where it tells something new.
    scaler: Option<ScalerRow>,
    /// Whether its time is one to count.
    timed: bool,
    ms: f64,
}

impl Run<'_> {
    /// Trains to the end, or until the observer says stop. The ledger's files are up to date at every
    /// evaluation and when this returns, with or without an error; a checkpoint is written where the
    /// keeper has one due, at the end, and where the run is stopped.
    ///
    /// # Errors
    /// A device or file error, or a loss that is no number.
    pub fn go(mut self) -> Result<Outcome, Error> {
        let result = self.steps();
        let flushed = self.ledger.flush();
        let outcome = result?;
        flushed?;
        Ok(outcome)
    }

    fn steps(&mut self) -> Result<Outcome, Error> {
        let start = self.progress.step;
        if self.s.ledger.full_interval > 0 && self.progress.frozen.is_none() {
            let weights = self.session.states()?;
            self.progress.frozen = Some(Frozen::start(&weights, start));
        }
        let mut digest = self.ledger.steps.last().and_then(|r| r.digest);
        let mut stopped = false;
        let mut unsaved = None;
        while self.progress.step < self.s.steps && !stopped {
            let step = self.step()?;
            let done = self.progress.step;
            if step.timed && done > start + UNTIMED {
                self.progress.timed_ms += step.ms;
                self.progress.timed += 1;
            }
            let mut row = step.row;
            stopped = done < self.s.steps && self.observer.stopped();
            let last = done == self.s.steps || stopped;
            let every = self.s.eval_interval;
            let evaluates = done == 1 || done.is_multiple_of(every) || done == self.s.steps;
            if evaluates || last {
                digest = Some(self.session.digest()?);
                row.digest = digest;
            }
            let begun = Instant::now();
            let fp32 = if evaluates {
                Some(self.evaluate(&mut row)?)
            } else {
                None
            };
            self.progress.cost.evaluation += ms_since(begun);
            self.ledger.steps.push(row);
            if let Some(row) = step.scaler {
                self.keep_scaler(row, evaluates);
            }
            let begun = Instant::now();
            if evaluates {
                let flushed = self.ledger.flush();
                self.tolerate(flushed)?;
            }
            unsaved = self.keep(fp32, last)?;
            self.progress.cost.files += ms_since(begun);
        }
        if let Some(path) = &self.extras.save {
            weights::save(path, &self.session.weights()?)?;
        }
        let digest = match digest {
            Some(digest) => digest,
            None => self.session.digest()?,
        };
        let peak = self.session.peak_bytes();
        Ok(Outcome {
            summary: summary(
                self.scheme,
                self.ledger,
                self.progress.step_ms(),
                self.progress.peak_bytes.max(peak),
                self.s.numerics,
            ),
            digest,
            steps: self.progress.step,
            stopped,
            checkpoint: self.keeper.as_ref().and_then(Keeper::last),
            unsaved,
            cost: self.progress.cost,
        })
    }

    /// One training step with its ledgers.
    fn step(&mut self) -> Result<Step, Error> {
        let (s, p) = (self.s, &mut self.progress);
        let next =
            |p: &mut Progress| gather(&self.data.text.train, &p.batches.next_offsets(), s.block);
        let batch: Vec<_> = (0..s.accumulate).map(|_| next(p)).collect();
        let lr = lr_at(s, p.step);
        p.step += 1;
        p.updates += 1;
        let done = p.step;
        let counts_swallowed = (done as u64).is_multiple_of(s.ledger.swallow_interval);
        let histogram = done as u64 == s.ledger.gradhist_step;
        let begun = Instant::now();
        if counts_swallowed {
            self.session.snapshot()?;
        }
        p.cost.swallow += ms_since(begun);
        let looks = s.ledger.looks_at(done);
        let start = Instant::now();
        let result = if looks {
            full::look(self.session, self.scheme, s, &batch, lr, p, self.ledger)?
        } else {
            self.session
                .step(s, &batch, lr, p.updates, histogram, s.is_final(done))?
        };
        let ms = ms_since(start);
        let cost = &mut p.cost;
        let kind = match (looks, histogram && self.scheme == Scheme::Mixed) {
            (true, _) => &mut cost.looks,
            (_, true) => &mut cost.histogram,
            _ => &mut cost.plain,
        };
        (kind.0, kind.1) = (kind.0 + ms, kind.1 + 1);
        let row = match result.scaled {
            Some(scaled) => self.scaled(done, scaled, result.clip_factor)?,
            None => None,
        };
        let p = &mut self.progress;
        let sound = result.loss.is_finite() && result.grad_norm.is_finite();
        if !sound && result.scaled.is_none() {
            let what = self.session.first_non_finite()?;
            return Err(Error::NonFinite {
                scheme: self.scheme.name().into(),
                step: done,
                what,
            });
        }
        let loss = result.loss as f64;
        if result.loss.is_finite() {
            p.ema = Some(p.ema.map_or(loss, |e| 0.98 * e + 0.02 * loss));
        }
        if let Some((step, path)) = &self.extras.dump_grads
            && *step == done
        {
            weights::save(path, &self.session.gradients()?)?;
        }
        let begun = Instant::now();
        if histogram && let Some(counts) = self.session.gradient_histogram()? {
            self.ledger.histogram = counts
                .iter()
                .enumerate()
                .map(|(k, &c)| (lower_edge(k), c))
                .collect();
        }
        if counts_swallowed && let Some(share) = self.session.swallowed()? {
            self.ledger.swallow.push((done, share));
            let counts = self.session.swallowed_by_tensor()?;
            self.ledger.tensor_swallow.push((done, counts));
            self.observer.swallowed(done, share);
        }
        self.progress.cost.swallow += ms_since(begun);
        self.observer.step(done, result, ms);
        Ok(Step {
            row: StepRow {
                step: done,
                lr,
                loss: result.loss,
                grad_norm: result.grad_norm,
                digest: None,
                val_loss: None,
            },
            scaler: row,
            timed: !counts_swallowed && !histogram && !looks,
            ms,
        })
    }

    /// The scaler's row of a step; the run stops where the scale can fall no further.
    fn scaled(
        &mut self,
        step: usize,
        scaled: Scaled,
        clip_factor: Option<f32>,
    ) -> Result<Option<ScalerRow>, Error> {
        self.progress.updates = scaled.applied;
        let first_nonfinite = match scaled.skipped {
            false => String::new(),
            true => match self.session.first_bad_place()? {
                Some(p) => p.name(),
                None => "not found again".into(),
            },
        };
        let row = ScalerRow {
            step,
            loss_scale: scaled.scale,
            skipped: scaled.skipped,
            applied_steps: scaled.applied,
            clip_factor,
            first_nonfinite,
        };
        if scaled.skipped && scaled.scale <= 1.0 {
            let what = self.session.first_non_finite()?;
            self.ledger.scaler.push(row);
            return Err(Error::NonFinite {
                scheme: self.scheme.name().into(),
                step,
                what: format!(
                    "the loss scale is at its floor 1 and the gradient is still not finite: {what}"
                ),
            });
        }
        if row.skipped {
            self.observer.skipped(&row);
        }
        Ok(Some(row))
    }

    /// Keeps a scaler's row that tells something new.
    fn keep_scaler(&mut self, row: ScalerRow, evaluates: bool) {
        let last = self.ledger.scaler.last().map(|r| r.loss_scale);
        if evaluates || row.skipped || last != Some(row.loss_scale) {
            self.ledger.scaler.push(row);
        }
    }

    /// Evaluates in the scheme and in fp32; returns the loss in fp32.
    fn evaluate(&mut self, row: &mut StepRow) -> Result<f64, Error> {
        let curve = |val_loss| CurveRow {
            step: row.step,
            val_loss,
            train_ema: self.progress.ema.unwrap_or(row.loss as f64),
        };
        let (text, block) = (&self.data.text.val, self.s.block);
        let offsets = self.data.validation();
        let batches = || offsets.iter().map(|offsets| gather(text, offsets, block));
        let own = curve(mean(&self.session.evaluate(batches())?));
        let fp32 = match self.session.has_own_fp32() {
            true => own,
            false => {
                let fp32 = curve(mean(&self.session.evaluate_fp32(batches())?));
                self.ledger.curve_fp32.push(fp32);
                fp32
            }
        };
        row.val_loss = Some(own.val_loss);
        self.ledger.curve.push(own);
        self.observer.evaluated(&own);
        Ok(fp32.val_loss)
    }

    /// Writes the checkpoints that are due; returns why one could not be written, where the run goes on
    /// nevertheless.
    fn keep(&mut self, fp32: Option<f64>, last: bool) -> Result<Option<Error>, Error> {
        let Some(mut keeper) = self.keeper.take() else {
            return Ok(None);
        };
        let best = match fp32 {
            Some(loss) => keeper.save_if_best(self.session, &mut self.progress, self.ledger, loss),
            None => Ok(()),
        };
        let due = last || keeper.due(self.progress.step);
        let saved = if due {
            keeper.save(self.session, &self.progress, self.ledger)
        } else {
            Ok(())
        };
        self.keeper = Some(keeper);
        let best = self.tolerate(best)?;
        Ok(self.tolerate(saved)?.or(best))
    }

    /// Lets the run go on after a file could not be written, if that is wanted: what is on disk is as it
    /// was, and the next attempt writes it all. Returns the reason, which has been told.
    fn tolerate(&mut self, result: Result<(), Error>) -> Result<Option<Error>, Error> {
        let stop = self
            .keeper
            .as_ref()
            .is_none_or(|k| k.schedule().stop_on_error);
        match result {
            Err(e @ (Error::Io { .. } | Error::Usage(_))) if !stop => {
                self.observer.warned(&format!(
                    "warning: step {}: {e}; the files before it are as they were, training goes on",
                    self.progress.step
                ));
                Ok(Some(e))
            }
            other => other.map(|()| None),
        }
    }
}

/// A scheme's row of the summary.
pub fn summary(
    scheme: Scheme,
    ledger: &SchemeLedger,
    step_ms: Option<f64>,
    peak: u64,
    numerics: Numerics,
) -> SummaryRow {
    SummaryRow {
        scheme: scheme.name().into(),
        step_ms,
        peak_mem_gib: peak as f64 / (1u64 << 30) as f64,
        final_val_loss: ledger.curve.last().map(|c| c.val_loss),
        numerics: numerics.name(),
        swallowed: ledger.swallow.last().map(|s| s.1),
    }
}

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Mean loss over the validation batches.
fn mean(losses: &[f32]) -> f64 {
    losses.iter().map(|&x| f64::from(x)).sum::<f64>() / losses.len() as f64
}
