//! A session: the programs of one training run, loaded on one executor over shared states.

use super::schedule::hyper;
use super::weights::Tensors;
use crate::config::Settings;
use crate::error::Error;
use crate::exec::{Executor, ProgramId, bytes};
use crate::kernels::digest::combine;
use crate::models::char_gpt::CharGpt;
use crate::passes::compile;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The model's programs, compiled but not loaded.
pub struct Programs {
    train: Arc<crate::plan::Plan>,
    eval: Arc<crate::plan::Plan>,
    digest: Arc<crate::plan::Plan>,
}

impl Programs {
    /// Compiles them.
    ///
    /// # Errors
    /// A violated invariant of the program itself.
    pub fn compile(model: &CharGpt, s: &Settings, dump_grads: bool) -> Result<Programs, Error> {
        let train = model
            .train_program(s.batch, s.clip as f32, dump_grads)
            .map_err(Error::Internal)?;
        let plan = |name: &str, p| compile(name, p).map(Arc::new).map_err(Error::Internal);
        Ok(Programs {
            train: plan("train", train)?,
            eval: plan("eval", model.eval_program(s.batch))?,
            digest: plan("digest", model.digest_program())?,
        })
    }

    /// The plans, by name.
    pub fn plans(&self) -> [&crate::plan::Plan; 3] {
        [&self.train, &self.eval, &self.digest]
    }

    /// Hashes of the plans, by name.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        self.plans()
            .iter()
            .map(|p| (p.name.clone(), p.hash.clone()))
            .collect()
    }

    /// Bytes that all programs together need.
    pub fn bytes(&self) -> u64 {
        self.train.state_bytes() + self.plans().iter().map(|p| p.slot_bytes()).sum::<u64>()
    }
}

/// What a training step gives.
#[derive(Clone, Copy, Debug)]
pub struct StepResult {
    /// Loss before the update.
    pub loss: f32,
    /// Norm of all gradients together, before clipping.
    pub grad_norm: f32,
}

/// Programs loaded on an executor.
pub struct Session {
    exec: Box<dyn Executor>,
    model: CharGpt,
    train: ProgramId,
    eval: ProgramId,
    digest: ProgramId,
}

/// Refuses a model that the machine cannot hold, from its extents alone.
///
/// # Errors
/// More bytes than `have`.
pub fn check_memory(model: &CharGpt, batch: usize, have: u64) -> Result<(), Error> {
    let need = model.least_bytes(batch);
    if need <= have as u128 {
        return Ok(());
    }
    let need = bytes(u64::try_from(need).unwrap_or(u64::MAX));
    let text = format!(
        "this model with {} parameters at batch {batch}, block {} needs at least {need} of memory, {} are free; \
         take a smaller n_layer, n_embd, batch or block",
        model.parameters(),
        model.block,
        bytes(have)
    );
    Err(Error::Usage(text))
}

impl Session {
    /// Loads the programs and writes the initial weights; moments start at zero.
    ///
    /// # Errors
    /// The device cannot hold them.
    pub fn new(
        mut exec: Box<dyn Executor>,
        model: CharGpt,
        programs: &Programs,
        weights: &[(String, Vec<f32>)],
    ) -> Result<Session, Error> {
        let train = exec.load(programs.train.clone())?;
        let eval = exec.load(programs.eval.clone())?;
        let digest = exec.load(programs.digest.clone())?;
        for (name, data) in weights {
            exec.write_state(name, bytemuck::cast_slice(data))?;
            let zeros = vec![0; data.len()];
            exec.write_state(&format!("{name}.m"), &zeros)?;
            exec.write_state(&format!("{name}.v"), &zeros)?;
        }
        Ok(Session {
            exec,
            model,
            train,
            eval,
            digest,
        })
    }

    /// The executor.
    pub fn exec(&self) -> &dyn Executor {
        &*self.exec
    }

    /// One training step: batch (ids and targets), learning rate, number of the update from 1.
    ///
    /// # Errors
    /// The device failed.
    pub fn step(
        &mut self,
        s: &Settings,
        batch: &(Vec<u32>, Vec<u32>),
        lr: f64,
        t: u64,
    ) -> Result<StepResult, Error> {
        self.exec.write_input(self.train, "idx", &batch.0)?;
        self.exec.write_input(self.train, "target", &batch.1)?;
        self.exec
            .write_input(self.train, "hyper", bytemuck::cast_slice(&hyper(s, lr, t)))?;
        self.exec.run(self.train)?;
        let loss = self.scalar(self.train, "loss")?;
        Ok(StepResult {
            loss,
            grad_norm: self.scalar(self.train, "grad_norm")?,
        })
    }

    /// Loss of a batch under the present weights.
    ///
    /// # Errors
    /// The device failed.
    pub fn evaluate(&mut self, batch: &(Vec<u32>, Vec<u32>)) -> Result<f32, Error> {
        self.exec.write_input(self.eval, "idx", &batch.0)?;
        self.exec.write_input(self.eval, "target", &batch.1)?;
        self.exec.run(self.eval)?;
        self.scalar(self.eval, "loss")
    }

    fn scalar(&mut self, program: ProgramId, name: &str) -> Result<f32, Error> {
        let words = self.exec.read_output(program, name)?;
        Ok(f32::from_bits(words[0]))
    }

    /// Digest of all weights and moments.
    ///
    /// # Errors
    /// The device failed.
    pub fn digest(&mut self) -> Result<u64, Error> {
        self.exec.run(self.digest)?;
        let mut words = Vec::new();
        for w in self.model.weights() {
            for name in [
                w.name.clone(),
                format!("{}.m", w.name),
                format!("{}.v", w.name),
            ] {
                words.extend(self.exec.read_output(self.digest, &name)?);
            }
        }
        Ok(combine(words))
    }

    /// The present weights.
    ///
    /// # Errors
    /// The device failed.
    pub fn weights(&mut self) -> Result<Tensors, Error> {
        let mut out = Vec::new();
        for w in self.model.weights() {
            let words = self.exec.read_state(&w.name)?;
            out.push((w.name, w.dims, bytemuck::cast_slice(&words).to_vec()));
        }
        Ok(out)
    }

    /// The gradients of the last step, where the program was compiled to keep them.
    ///
    /// # Errors
    /// The device failed.
    pub fn gradients(&mut self) -> Result<Tensors, Error> {
        let mut out = Vec::new();
        for w in self.model.weights() {
            let words = self
                .exec
                .read_output(self.train, &format!("grad.{}", w.name))?;
            out.push((w.name, w.dims, bytemuck::cast_slice(&words).to_vec()));
        }
        Ok(out)
    }

    /// Runs the last step again under a watch and names the first value that is no number. The optimizer
    /// leaves the weights alone when the gradient's norm is not finite, so the step repeats itself.
    ///
    /// # Errors
    /// The device failed.
    pub fn first_non_finite(&mut self) -> Result<String, Error> {
        let mut found = None;
        self.exec.trace(self.train, &mut |_, step, wrote| {
            for (_, words) in wrote {
                // Integer buffers hold small numbers, never these patterns.
                let bad = words.iter().position(|w| w & 0x7f80_0000 == 0x7f80_0000);
                if let (Some(i), false) = (bad, step.kernel.name == "row_order") {
                    let value = f32::from_bits(words[i]);
                    let place = if step.label.is_empty() { "the step" } else { &step.label };
                    found = Some(format!("the first non-finite value comes from {} in {place}: element {i} is {value}", step.kernel.name));
                    return false;
                }
            }
            true
        })?;
        Ok(found.unwrap_or_else(|| {
            "the loss is not finite, and a second run of the step does not show where".into()
        }))
    }
}
