//! The tables of the full ledger, as far as the page shows them.

use super::table::Table;
use crate::error::Error;
use crate::report::sheets::{Sheet, WHOLE};
use std::path::Path;

/// Rows of each kind that are kept of a file: a run that is looked at after every step has more than a page
/// can show, and the file has them all.
const MOST_ROWS: usize = 200_000;

/// The full ledger of one scheme's run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Full {
    /// What updates did, by tensor.
    pub updates: Vec<Update>,
    /// Step, log2 of the lower edge and count: updates in units of the last place, of all tensors.
    pub ulps: Vec<(u64, i64, u64)>,
    /// Step, way of storing, share of updates of which nothing would be left, of all tensors.
    pub ways: Vec<(u64, String, f64)>,
    /// Values of operations.
    pub ranges: Vec<Range>,
    /// Which loss scale would suit.
    pub scales: Vec<Scale>,
}

/// A row of `updates_{scheme}{tag}.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// Step.
    pub step: u64,
    /// Tensor; `*` for all.
    pub tensor: String,
    /// Share that stands still since the look before.
    pub still: f64,
    /// Share that no look has seen move.
    pub unmoved: f64,
    /// Cosine of applied and intended update.
    pub cosine: Option<f64>,
}

/// A row of `ranges_{scheme}{tag}.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// Step.
    pub step: u64,
    /// Whether it is of the backward pass.
    pub backward: bool,
    /// Part of the model, operation, tensor, type.
    pub name: [String; 4],
    /// Share below fp16's least number.
    pub below: f64,
    /// Share above fp16's largest number.
    pub above: f64,
    /// Significant bits that fp16 has for the values.
    pub bits: Option<f64>,
}

/// A row of `loss_scale_{scheme}{tag}.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct Scale {
    /// Step.
    pub step: u64,
    /// Largest magnitude; none where it is not finite.
    pub largest: Option<f64>,
    /// Operation and part of the model that gave it.
    pub from: String,
    /// Share that fp16 rounds to zero without a scale.
    pub unscaled: f64,
    /// The same at the recommended scale.
    pub at_best: Option<f64>,
    /// The recommended scale.
    pub best: Option<f64>,
}

impl Full {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Full::default()
    }

    /// Takes in a file of one kind.
    ///
    /// # Errors
    /// A file that cannot be read, or holds what no run writes.
    pub(super) fn take(&mut self, sheet: Sheet, path: &Path) -> Result<(), Error> {
        let Some(t) = Table::read(path, sheet.columns())? else {
            return Ok(());
        };
        let mut before = 1;
        for r in 0..t.len().min(MOST_ROWS) {
            let step = t.step(r, Some(before - 1).filter(|b| *b > 0))?;
            before = step;
            self.row(sheet, &t, r, step)?;
        }
        Ok(())
    }

    fn row(&mut self, sheet: Sheet, t: &Table, r: usize, step: u64) -> Result<(), Error> {
        let text = |c: &str| t.text(r, c).to_string();
        let share = |c: &str| t.number(r, c, 0.0, 1.0);
        let whole = || t.text(r, "tensor") == WHOLE;
        match sheet {
            Sheet::Updates => self.updates.push(Update {
                step,
                tensor: text("tensor"),
                still: share("still_frac")?,
                unmoved: share("unmoved_frac")?,
                cosine: t.maybe(r, "cosine", -1.0, 1.0)?,
            }),
            Sheet::UpdateUlps if whole() => {
                let log2 = t.number(r, "log2_ulps_lo", -1000.0, 1000.0)?;
                self.ulps.push((step, log2 as i64, t.count(r, "count")?));
            }
            Sheet::Counterfactual if whole() => {
                let row = (step, text("stored_as"), share("swallow_frac")?);
                self.ways.push(row);
            }
            Sheet::Ranges => self.ranges.push(Range {
                step,
                backward: t.text(r, "pass") == "backward",
                name: ["place", "op", "tensor", "type"].map(text),
                below: share("below_fp16_least_frac")?,
                above: share("above_fp16_frac")?,
                bits: t.maybe(r, "fp16_bits", 0.0, 24.0)?,
            }),
            Sheet::LossScale => self.scales.push(Scale {
                step,
                largest: match t.text(r, "largest") {
                    "inf" => None,
                    _ => Some(t.number(r, "largest", 0.0, 1e39)?),
                },
                from: format!("{} in {}", text("op"), text("place")),
                unscaled: t.maybe(r, "lost_unscaled_frac", 0.0, 1.0)?.unwrap_or(0.0),
                at_best: t.maybe(r, "lost_recommended_frac", 0.0, 1.0)?,
                best: t.maybe(r, "recommended_scale", 1.0, 1e9)?,
            }),
            _ => {}
        }
        Ok(())
    }
}
