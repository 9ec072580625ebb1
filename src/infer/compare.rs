//! The same weights under several precisions, over the same validation batches: loss, and how far the
//! logits move.

use super::generate::{check_extent, write_weights};
use crate::dtype::DType;
use crate::error::{Error, usage};
use crate::exec::{Executor, ProgramId};
use crate::models::char_gpt::CharGpt;
use crate::passes::autocast::{FP16, FP32, MIXED, Policy};
use crate::passes::compile;
use std::sync::Arc;

/// A precision of inference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precision {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it means, for people.
    pub meaning: &'static str,
    policy: Policy,
}

/// The precisions of this version. All keep the weights as they are, in f32.
pub const PRECISIONS: &[Precision] = &[
    Precision {
        name: "fp32",
        meaning: "weights, operands and results in f32",
        policy: FP32,
    },
    Precision {
        name: "bf16",
        meaning: "the operands of matrix products and of attention, weights among them, rounded to bf16; \
                  sums in f32, each result rounded once to bf16; embedding, norms, softmax, GELU and loss \
                  in f32 (as the scheme `mixed` computes)",
        policy: MIXED,
    },
    Precision {
        name: "fp16",
        meaning: "the same in fp16: what is above 65504 becomes infinite, what is below 2^-25 zero (as the \
                  scheme `fp16` computes)",
        policy: Policy {
            scaled: false,
            ..FP16
        },
    },
];

impl Precision {
    /// A precision by name.
    ///
    /// # Errors
    /// An unknown name; the message lists the known ones.
    pub fn parse(name: &str) -> Result<Precision, Error> {
        let found = PRECISIONS.iter().find(|p| p.name == name.trim());
        found.copied().ok_or_else(|| {
            let known: Vec<_> = PRECISIONS.iter().map(|p| p.name).collect();
            Error::Usage(format!(
                "unknown precision `{name}`: this version has {}",
                known.join(", ")
            ))
        })
    }
}

/// What one precision gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Mean loss, in nats a character.
    pub loss: f64,
    /// Positions whose likeliest character is the first precision's.
    pub same: u64,
    /// Largest difference of a logit from the first precision's.
    pub difference: f32,
}

/// The programs of several precisions, on one executor.
pub struct Comparison {
    exec: Box<dyn Executor>,
    vocab: usize,
    programs: Vec<(Precision, ProgramId)>,
    totals: Vec<Measured>,
    batches: usize,
    positions: u64,
}

impl Comparison {
    /// Loads the programs for batches of `batch` blocks and writes the weights, in the model's order.
    ///
    /// # Errors
    /// The device cannot hold them.
    pub fn new(
        mut exec: Box<dyn Executor>,
        model: &CharGpt,
        batch: usize,
        weights: &[(String, Vec<f32>)],
        precisions: &[Precision],
    ) -> Result<Comparison, Error> {
        check_extent(model, batch.saturating_mul(model.block))?;
        let mut programs = Vec::new();
        for &p in precisions {
            assert_eq!(p.policy.storage, DType::F32, "the weights are shared");
            let program = model.compare_program(batch, &p.policy);
            let plan = compile("compare", program).map_err(Error::Internal)?;
            programs.push((p, exec.load(Arc::new(plan))?));
        }
        write_weights(&mut *exec, model, &FP32, weights)?;
        let none = Measured {
            loss: 0.0,
            same: 0,
            difference: 0.0,
        };
        Ok(Comparison {
            exec,
            vocab: model.vocab,
            totals: vec![none; programs.len()],
            programs,
            batches: 0,
            positions: 0,
        })
    }

    /// Adds a batch (ids and targets).
    ///
    /// # Errors
    /// The device failed, or a loss is not a number.
    pub fn add(&mut self, batch: &(Vec<u32>, Vec<u32>)) -> Result<(), Error> {
        let mut first: Option<Vec<f32>> = None;
        for ((precision, id), total) in self.programs.iter().zip(&mut self.totals) {
            self.exec.write_input(*id, "idx", &batch.0)?;
            self.exec.write_input(*id, "target", &batch.1)?;
            self.exec.run(*id)?;
            let loss = f32::from_bits(self.exec.read_output(*id, "loss")?[0]);
            let logits = self.exec.read_output(*id, "logits")?;
            let logits: Vec<f32> = logits.into_iter().map(f32::from_bits).collect();
            if !loss.is_finite() || !logits.iter().all(|x| x.is_finite()) {
                return usage(format!(
                    "under {} the model gives values that are not numbers; take an older checkpoint",
                    precision.name
                ));
            }
            total.loss += loss as f64;
            let reference = first.get_or_insert_with(|| logits.clone());
            let rows = logits
                .chunks_exact(self.vocab)
                .zip(reference.chunks_exact(self.vocab));
            total.same += rows.filter(|(a, b)| argmax(a) == argmax(b)).count() as u64;
            let differences = logits.iter().zip(&*reference).map(|(a, b)| (a - b).abs());
            total.difference = differences.fold(total.difference, f32::max);
        }
        self.batches += 1;
        self.positions += batch.0.len() as u64;
        Ok(())
    }

    /// The results so far, by precision, and the number of positions.
    pub fn results(&self) -> (Vec<(Precision, Measured)>, u64) {
        let mean = |r: &Measured| Measured {
            loss: r.loss / self.batches.max(1) as f64,
            ..*r
        };
        let each = self.programs.iter().zip(&self.totals);
        (each.map(|(p, r)| (p.0, mean(r))).collect(), self.positions)
    }
}

/// The place of the largest element, the first of equals.
fn argmax(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}
