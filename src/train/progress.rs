//! Where a run stands between two steps: what a checkpoint must hold besides weights and ledger.

use super::checkpoint::Checkpoint;
use super::checkpoint::meta::{Ancestor, Best, Cursor};
use crate::config::Settings;
use crate::data::batches::{Batches, Position};
use crate::error::Error;
use crate::report::cost::Cost;
use crate::train::full::Frozen;
use crate::train::run::Data;

/// A run between two steps.
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Updates applied: Adam's counter.
    pub updates: u64,
    /// The batches to come.
    pub batches: Batches,
    /// Moving average of the training loss.
    pub ema: Option<f64>,
    /// The best validation loss in fp32.
    pub best: Option<Best>,
    /// Step of the ledger's first row.
    pub first: usize,
    /// Schemes that the weights went through before.
    pub lineage: Vec<Ancestor>,
    /// Milliseconds of the timed steps together.
    pub timed_ms: f64,
    /// Timed steps.
    pub timed: u64,
    /// Peak of the executor's allocations before this process, in bytes.
    pub peak_bytes: u64,
    /// Since when each weight has had its value, where the full ledger is kept.
    pub frozen: Option<Frozen>,
    /// Where the time went.
    pub cost: Cost,
}

impl Progress {
    /// A run before its first step.
    pub fn start(s: &Settings, data: &Data) -> Progress {
        Progress {
            step: 0,
            updates: 0,
            batches: data.batches(s),
            ema: None,
            best: None,
            first: 1,
            lineage: vec![],
            timed_ms: 0.0,
            timed: 0,
            peak_bytes: 0,
            frozen: None,
            cost: Cost::default(),
        }
    }

    /// A run as its checkpoint left it.
    ///
    /// # Errors
    /// The checkpoint's place in the data is none of these settings and data.
    pub fn at(c: &Checkpoint, s: &Settings, data: &Data) -> Result<Progress, Error> {
        let m = &c.meta;
        let misplaced = || Error::Weights {
            path: c.path.clone(),
            why: "its place in the data does not fit its settings; is it from another program?"
                .into(),
        };
        if !m.random.is_empty() {
            return Err(Error::Weights {
                path: c.path.clone(),
                why: format!(
                    "holds the state of random streams, which {} has not",
                    m.scheme
                ),
            });
        }
        // Every step draws its batches: a cursor elsewhere is no cursor of this run.
        let (position, expected) = match m.cursor {
            Cursor::Stream { seed, stream, next } => {
                let number = stream;
                (
                    Position::Stream { seed, number, next },
                    (m.step.wrapping_mul((s.accumulate * s.batch) as u64)) as u32 == next,
                )
            }
            Cursor::Rows { next } => (
                Position::Rows(next as usize),
                next == m.step * s.accumulate as u64,
            ),
        };
        let batches = data.batches(s).at(position).filter(|_| expected);
        Ok(Progress {
            step: m.step as usize,
            updates: m.updates,
            batches: batches.ok_or_else(misplaced)?,
            ema: m.train_ema,
            best: m.best,
            first: m.ledger.first as usize,
            lineage: m.lineage.clone(),
            timed_ms: m.ledger.timed_ms,
            timed: m.ledger.timed_steps,
            peak_bytes: m.ledger.peak_bytes,
            cost: m.ledger.cost,
            frozen: c.full.as_ref().map(|f| f.frozen.clone()),
        })
    }

    /// The cursor of a checkpoint.
    pub fn cursor(&self) -> Cursor {
        match self.batches.position() {
            Position::Stream { seed, number, next } => Cursor::Stream {
                seed,
                stream: number,
                next,
            },
            Position::Rows(next) => Cursor::Rows { next: next as u64 },
        }
    }

    /// Mean time of a timed step in ms.
    pub fn step_ms(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.timed_ms / self.timed as f64)
    }
}
