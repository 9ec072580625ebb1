//! What the ledgers ask of a session: counts of swallowed updates and of gradients, and a step under a watch.

use super::{LedgerIds, Session, StepResult};
use crate::config::Settings;
use crate::error::Error;
use crate::kernels::histogram::BINS;
use crate::models::char_gpt::Weight;
use crate::plan::{BufId, Class, Plan, Step};
use crate::train::checkpoint::State;
use crate::train::weights::Tensors;

/// Told of each launch of a step: the plan, its step, and what that wrote.
pub type Watcher<'a> = dyn FnMut(&Plan, &Step, &[(BufId, Vec<u32>)]) + 'a;

/// What the full ledger sees of a step.
pub struct Looked {
    /// What the step gave.
    pub result: StepResult,
    /// Weights and moments before it.
    pub before: Vec<State>,
    /// The same after it.
    pub after: Vec<State>,
    /// The gradients, before clipping, in the model's order.
    pub gradients: Tensors,
    /// The factor that clipped them.
    pub factor: f32,
}

impl Session {
    /// As [`Session::step`], by the program of the full ledger: the same bits, step by step under a watch,
    /// of which the forward and backward pass of the last micro-batch are shown too.
    ///
    /// # Errors
    /// The device failed.
    ///
    /// # Panics
    /// The programs were compiled without the full ledger.
    pub fn look(
        &mut self,
        s: &Settings,
        batches: &[(Vec<u32>, Vec<u32>)],
        (lr, t): (f64, u64),
        is_final: bool,
        watch: &mut Watcher,
    ) -> Result<Looked, Error> {
        let (own, last) = self.full.as_ref().expect("compiled for the full ledger");
        let stage = match last {
            Some(last) if is_final => last.clone(),
            _ => own.clone(),
        };
        let program = stage.train;
        let counts = stage.stage.train.find(Class::Input, "edges").is_some();
        self.last = (program, stage);
        let before = self.states()?;
        let result = self.run_step(s, batches, (lr, t), counts, Some(watch))?;
        let factor = match s.clip != 0.0 {
            true => self.scalar(program, "clip_factor")?,
            false => 1.0,
        };
        Ok(Looked {
            result,
            factor,
            gradients: self.gradients()?,
            after: self.states()?,
            before,
        })
    }

    /// Keeps a copy of the weights, for [`Session::swallowed`]. Nothing where the scheme has no ledger.
    ///
    /// # Errors
    /// The device failed.
    pub fn snapshot(&mut self) -> Result<(), Error> {
        if let Some(l) = self.ledgers {
            self.exec.run(l.snapshot)?;
        }
        Ok(())
    }

    /// The share of weights whose last update bf16 would have swallowed, where the scheme has that
    /// ledger.
    ///
    /// # Errors
    /// The device failed.
    pub fn swallowed(&mut self) -> Result<Option<f64>, Error> {
        let Some(l) = self.ledgers else {
            return Ok(None);
        };
        self.exec.run(l.swallow)?;
        let mut count = 0.0;
        for w in self.model.weights() {
            count += self.scalar(l.swallow, &w.name)? as f64;
        }
        Ok(Some(count / self.model.parameters() as f64))
    }

    /// What [`Session::swallowed`] counted last, by weight in the model's order.
    ///
    /// # Errors
    /// The device failed.
    pub fn swallowed_by_tensor(&mut self) -> Result<Vec<u64>, Error> {
        let Some(l) = self.ledgers else {
            return Ok(vec![]);
        };
        let weights = self.model.weights();
        let count = |w: &Weight| Ok(self.scalar(l.swallow, &w.name)? as u64);
        weights.iter().map(count).collect()
    }

    /// The gradient histogram of the last step, where it was counted.
    ///
    /// # Errors
    /// The device failed.
    pub fn gradient_histogram(&mut self) -> Result<Option<[u64; BINS]>, Error> {
        let full = self.full.as_ref().map(|f| f.0.train);
        let counted = |l: &LedgerIds| l.histogram == self.last.0 || full == Some(self.last.0);
        if self.ledgers.filter(counted).is_none() {
            return Ok(None);
        }
        let mut total = [0u64; BINS];
        for w in self.model.weights() {
            let words = self
                .exec
                .read_output(self.last.0, &format!("histogram.{}", w.name))?;
            for row in words.chunks_exact(BINS) {
                total.iter_mut().zip(row).for_each(|(t, &c)| *t += c as u64);
            }
        }
        Ok(Some(total))
    }
}
