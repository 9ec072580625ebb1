//! Where in a step the first value comes up that is no number.

use super::Session;
use crate::error::Error;
use crate::passes::scaling::accumulated;
use crate::plan::Step;
use crate::train::scaler;

/// Where a value is that is no number.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The operation that gave it and the part of the step, in words.
    pub op: String,
    /// Where in the model it stands.
    pub scope: String,
    /// The tensor that it is an element of, where that has a name.
    pub tensor: Option<String>,
    /// The element's number.
    pub element: usize,
    /// Infinity or NaN.
    pub value: f32,
}

impl Place {
    /// Where in the model it stands, in words.
    pub fn label(&self) -> &str {
        match self.scope.as_str() {
            "" => "the step",
            scope => scope,
        }
    }

    /// Operation, place and tensor: `matmul (backward) in blocks.0.fc, tensor grad.blocks.0.fc.weight`.
    pub fn name(&self) -> String {
        let tensor = self.tensor.as_ref();
        let tensor = tensor.map_or(String::new(), |t| format!(", tensor {t}"));
        format!("{} in {}{tensor}", self.op, self.label())
    }
}

/// A launch's operation in words; of one that belongs to none, the kernel's name.
fn operation(step: &Step) -> String {
    let name = match step.origin.op.as_str() {
        "" => step.kernel.name,
        op => op,
    };
    format!("{name} ({})", step.origin.phase.name())
}

impl Session {
    /// Runs the last step again under a watch and names the first value that is no number. The optimizer
    /// leaves the weights alone when the gradient's norm is not finite, so the step repeats itself; a loss
    /// scaler is put back to where it was, and then to where it is.
    ///
    /// # Errors
    /// The device failed.
    pub fn first_non_finite(&mut self) -> Result<String, Error> {
        let place = self.first_bad_place()?;
        Ok(place.map_or_else(
            || "the loss is not finite, and a second run of the step does not show where".into(),
            |p| {
                format!(
                    "the first non-finite value comes from {}: element {} is {}",
                    p.name(),
                    p.element,
                    p.value
                )
            },
        ))
    }

    /// The first value of the last step that is no number, if there is one; see
    /// [`Session::first_non_finite`].
    ///
    /// # Errors
    /// The device failed.
    pub fn first_bad_place(&mut self) -> Result<Option<Place>, Error> {
        if self.last.1.micro.is_some() {
            return self.first_bad_gradient();
        }
        let now = match self.last.1.stage.policy.scaled {
            true => scaler::rewind(&mut *self.exec)?,
            false => vec![],
        };
        let found = self.find_bad_place();
        for (name, words) in now {
            self.exec.write_state(&name, &words)?;
        }
        found
    }

    /// Of a step with several micro-batches the sums of their gradients are still there. The weights'
    /// order is that of the forward pass; the backward pass reaches the last one first.
    fn first_bad_gradient(&mut self) -> Result<Option<Place>, Error> {
        for w in self.model.weights().into_iter().rev() {
            let words = self.exec.read_state(&accumulated(&w.name))?;
            let values = words.iter().map(|&w| f32::from_bits(w));
            if let Some((element, value)) = values.enumerate().find(|v| !v.1.is_finite()) {
                let tensor = Some(format!("grad.{}", w.name));
                return Ok(Some(Place {
                    op: "sum of gradients (backward)".into(),
                    scope: w.name,
                    tensor,
                    element,
                    value,
                }));
            }
        }
        Ok(None)
    }

    fn find_bad_place(&mut self) -> Result<Option<Place>, Error> {
        let mut found = None;
        let (plan, program) = (self.last.1.stage.train.clone(), self.last.1.train);
        self.exec.trace(program, &mut |_, step, wrote| {
            for (buf, words) in wrote {
                let ty = plan.buf(*buf).ty;
                if !ty.dtype.is_float() {
                    continue;
                }
                let values = ty.dtype.unpack(ty.shape.row(), words);
                if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                    found = Some(Place {
                        op: operation(step),
                        scope: step.label.clone(),
                        tensor: plan.tensor(*buf),
                        element: i,
                        value: values[i],
                    });
                    return false;
                }
            }
            true
        })?;
        Ok(found)
    }
}
