//! Programs of any model on an executor: what a training loop does with them, in a line each.

use super::weights::Tensors;
use crate::error::Error;
use crate::exec::{Executor, ProgramId};
use crate::graph::Program;
use crate::kernels::digest::combine;
use crate::models::step::{Constant, average};
use crate::models::weight::{DIGEST_STATE, Weight};
use crate::passes::compile;
use std::sync::Arc;

/// An executor with the programs of a model.
pub struct Driver {
    exec: Box<dyn Executor>,
}

impl Driver {
    /// On an executor.
    pub fn new(exec: Box<dyn Executor>) -> Driver {
        Driver { exec }
    }

    /// The executor.
    pub fn exec(&self) -> &dyn Executor {
        &*self.exec
    }

    /// Compiles and loads a program, whose states begin at zero where they are new.
    ///
    /// # Errors
    /// An operation that has no gradient, a violated invariant, or a device that cannot hold it.
    pub fn load(&mut self, name: &str, p: Result<Program, String>) -> Result<ProgramId, Error> {
        let plan = p.and_then(|p| compile(name, p)).map_err(Error::Internal)?;
        Ok(self.exec.load(Arc::new(plan))?)
    }

    /// Writes the initial weights, drawn from the seed with `first` as the first one's place, and with
    /// `averaged` their averages. The programs that have them are loaded before.
    ///
    /// # Errors
    /// The device failed.
    pub fn draw_weights(
        &mut self,
        weights: &[Weight],
        (seed, first): (u64, usize),
        averaged: bool,
    ) -> Result<(), Error> {
        for (i, w) in weights.iter().enumerate() {
            let data = w.draw(seed, first + i);
            self.write(&w.name, &data)?;
            if averaged {
                self.write(&average(&w.name), &data)?;
            }
        }
        Ok(())
    }

    /// Writes constants.
    ///
    /// # Errors
    /// The device failed, or no loaded program has one of them.
    pub fn write_constants(&mut self, constants: &[Constant]) -> Result<(), Error> {
        for c in constants {
            self.write(&c.name, &c.data)?;
        }
        Ok(())
    }

    /// Writes a state.
    ///
    /// # Errors
    /// There is none of this name and length, or the device failed.
    pub fn write(&mut self, state: &str, data: &[f32]) -> Result<(), Error> {
        Ok(self.exec.write_state(state, bytemuck::cast_slice(data))?)
    }

    /// Writes a program's inputs and runs it.
    ///
    /// # Errors
    /// It has no input of a name and length, or the device failed.
    pub fn run(&mut self, program: ProgramId, inputs: &[(&str, &[f32])]) -> Result<(), Error> {
        for (name, data) in inputs {
            let words = bytemuck::cast_slice(data);
            self.exec.write_input(program, name, words)?;
        }
        Ok(self.exec.run(program)?)
    }

    /// Writes a program's input of ids.
    ///
    /// # Errors
    /// It has none of this name and length, or the device failed.
    pub fn write_ids(&mut self, program: ProgramId, name: &str, ids: &[u32]) -> Result<(), Error> {
        Ok(self.exec.write_input(program, name, ids)?)
    }

    /// An output of the program that ran last.
    ///
    /// # Errors
    /// It has none of this name, or the device failed.
    pub fn output(&mut self, program: ProgramId, name: &str) -> Result<Vec<f32>, Error> {
        let words = self.exec.read_output(program, name)?;
        Ok(words.into_iter().map(f32::from_bits).collect())
    }

    /// An output of one element.
    ///
    /// # Errors
    /// As [`Driver::output`].
    pub fn scalar(&mut self, program: ProgramId, name: &str) -> Result<f32, Error> {
        Ok(self.output(program, name)?[0])
    }

    /// The digest that a digest program takes.
    ///
    /// # Errors
    /// The device failed.
    pub fn digest(&mut self, program: ProgramId) -> Result<u64, Error> {
        self.exec.run(program)?;
        Ok(combine(self.exec.read_state(DIGEST_STATE)?))
    }

    /// Replaces weights and their averages by averages that [`Driver::tensors`] gave.
    ///
    /// # Errors
    /// They are another model's, or the device failed.
    pub fn adopt(&mut self, tensors: &Tensors) -> Result<(), Error> {
        for (name, _, data) in tensors {
            self.write(name, data)?;
            self.write(&average(name), data)?;
        }
        Ok(())
    }

    /// Weights, or their averages, under the weights' names.
    ///
    /// # Errors
    /// The device failed.
    pub fn tensors(&mut self, weights: &[Weight], averaged: bool) -> Result<Tensors, Error> {
        let mut out = Vec::new();
        for w in weights {
            let name = match averaged {
                true => average(&w.name),
                false => w.name.clone(),
            };
            let words = self.exec.read_state(&name)?;
            let data = words.into_iter().map(f32::from_bits).collect();
            out.push((w.name.clone(), w.dims.clone(), data));
        }
        Ok(out)
    }
}
