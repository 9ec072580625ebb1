//! The end of a training step in the one order that is right, fixed by types:
//!
//! ```text
//! ScaledLoss -> backward -> ScaledGrads -> unscale -> Grads -> clip -> Clipped -> step_or_skip -> Ready
//! ```
//!
//! Each stage is consumed by the next, and only [`Ready`] holds what the optimizer reads: gradients cannot
//! be clipped before they are unscaled, unscaled twice, or applied without the decision to skip. Without a
//! [`Scaling`] the scale is 1 and costs nothing.

use super::autocast::Rounding;
use super::grad::grad;
use crate::dtype::DType;
use crate::graph::{Graph, NodeId, Phase, Tx, Type};
use crate::kernels::optim::HYPER;
use crate::kernels::scaling::COUNTS;
use crate::ops::Op;
use crate::ops::scaling::{ScalarPart, ScalerPart};

/// State: the loss scale, f32[1].
pub const SCALE: &str = "scaler.scale";
/// State: good steps, skipped steps, applied updates, bits of the scale last used; u32[4].
pub const SCALER_COUNTS: &str = "scaler.counts";
/// State: 1 - beta1^t and 1 / sqrt(1 - beta2^t) for each update t from 1; f32[n, 2].
pub const CORRECTIONS: &str = "adam.corrections";

/// Dynamic loss scaling.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scaling {
    /// Good steps before the scale doubles.
    pub interval: u32,
    /// The largest scale.
    pub cap: f32,
    /// Rows of the table of bias corrections.
    pub corrections: usize,
}

/// The scaler's states as nodes.
#[derive(Clone, Copy)]
struct Scaler<'g> {
    scaling: Scaling,
    scale: Tx<'g>,
    counts: Tx<'g>,
}

/// The loss, multiplied by the scale.
pub struct ScaledLoss<'g> {
    loss: Tx<'g>,
    scaled: Tx<'g>,
    scaler: Option<Scaler<'g>>,
}

/// Gradients of the scaled loss.
pub struct ScaledGrads<'g> {
    loss: Tx<'g>,
    grads: Vec<Tx<'g>>,
    scaler: Option<Scaler<'g>>,
}

/// Gradients of the loss.
pub struct Grads<'g> {
    loss: Tx<'g>,
    grads: Vec<Tx<'g>>,
    scaler: Option<Scaler<'g>>,
}

/// Gradients with their norm, and the factor that clips it.
pub struct Clipped<'g> {
    loss: Tx<'g>,
    grads: Vec<Tx<'g>>,
    norm: Tx<'g>,
    factor: Tx<'g>,
    scaler: Option<Scaler<'g>>,
}

/// What the optimizer reads.
pub struct Ready<'g> {
    /// Gradients of the loss.
    pub grads: Vec<Tx<'g>>,
    /// Norm of all gradients together before clipping, f32[1]; not finite where the step is skipped.
    pub norm: Tx<'g>,
    /// The factor that clips it, f32[1].
    pub factor: Tx<'g>,
    /// AdamW's scalars.
    pub hyper: Tx<'g>,
    /// The same for bf16 weights that keep small updates: clipping, norm and key included.
    pub scalars: Option<Tx<'g>>,
    /// New values of the scaler's states, by state index.
    pub updates: Vec<(u32, NodeId)>,
}

impl<'g> Scaler<'g> {
    fn declare(g: &'g Graph, scaling: Scaling) -> Scaler<'g> {
        Scaler {
            scaling,
            scale: g.state(SCALE, Type::f32(&[1])),
            counts: g.state(SCALER_COUNTS, Type::new(&[COUNTS], DType::U32)),
        }
    }
}

impl<'g> ScaledLoss<'g> {
    /// Scales a loss, a scalar.
    pub fn new(g: &'g Graph, loss: Tx<'g>, scaling: Option<Scaling>) -> ScaledLoss<'g> {
        let scaler = scaling.map(|s| Scaler::declare(g, s));
        let scaled = match scaler {
            Some(s) => g.scope("scale", || loss * s.scale.reshape(&[])),
            None => loss,
        };
        ScaledLoss {
            loss,
            scaled,
            scaler,
        }
    }

    /// Its gradients.
    ///
    /// # Errors
    /// An operation that cannot be differentiated.
    pub fn backward(self, g: &'g Graph, weights: &[Tx<'g>]) -> Result<ScaledGrads<'g>, String> {
        Ok(ScaledGrads {
            loss: self.loss,
            grads: grad(g, self.scaled, weights)?,
            scaler: self.scaler,
        })
    }
}

/// State: the loss of the micro-batches so far, a scalar.
pub const ACCUMULATED_LOSS: &str = "accumulated.loss";

/// State: the scaled gradient of a weight, summed over micro-batches in f32.
pub fn accumulated(weight: &str) -> String {
    format!("accumulated.{weight}")
}

impl<'g> ScaledGrads<'g> {
    /// Adds loss and gradients to what earlier micro-batches left, by the weights' names; the new values of
    /// the states. The first micro-batch of a step starts anew: the input `goes_on`, f32[1], is 0 then,
    /// else 1.
    pub fn accumulate(self, g: &'g Graph, names: &[String]) -> Vec<(u32, NodeId)> {
        let goes_on = g.input("goes_on", Type::f32(&[1]));
        let add = |name: &str, x: Tx<'g>| {
            let x = x.f32();
            let sum = g.state(name, x.ty());
            let Op::State(index) = sum.node().op else {
                unreachable!("declared as a state")
            };
            // Not a product: what a skipped step left may be infinite.
            let go = goes_on.reshape(&[]).broadcast(x.shape());
            let zero = x.constant(0.0).broadcast(x.shape());
            (index, (go.select(sum, zero) + x).id)
        };
        let sums = || {
            let mut out = vec![add(ACCUMULATED_LOSS, self.loss)];
            let each = names.iter().zip(&self.grads);
            out.extend(each.map(|(name, &x)| add(&accumulated(name), x)));
            out
        };
        g.phase(Phase::Update, || g.scope("accumulate", sums))
    }

    /// What the micro-batches of a step left, each gradient in the type of its weight.
    pub fn accumulated(
        g: &'g Graph,
        weights: &[(&str, Type)],
        scaling: Option<Scaling>,
    ) -> ScaledGrads<'g> {
        let scaler = scaling.map(|s| Scaler::declare(g, s));
        let grads = weights.iter().map(|(name, ty)| {
            let sum = Type {
                dtype: DType::F32,
                ..*ty
            };
            let sum = g.state(&accumulated(name), sum);
            g.phase(Phase::Update, || sum.cast(ty.dtype))
        });
        ScaledGrads {
            loss: g.state(ACCUMULATED_LOSS, Type::f32(&[])),
            grads: grads.collect(),
            scaler,
        }
    }

    /// The loss, not scaled.
    pub fn loss(&self) -> Tx<'g> {
        self.loss
    }

    /// Divides the scale out, once.
    pub fn unscale(self, g: &'g Graph) -> Grads<'g> {
        let grads = match self.scaler {
            None => self.grads,
            Some(s) => g.scope("unscale", || {
                let one = s.scale.constant(1.0).broadcast(s.scale.shape());
                let inverse = one / s.scale;
                // Under the gradients' own names: the product goes into what makes them.
                let own = |d: &Tx<'g>| g.phase(Phase::Update, || d.f32() * inverse);
                let one = |d: &Tx<'g>| g.labelled_as(d.id, || own(d));
                self.grads.iter().map(one).collect()
            }),
        };
        Grads {
            loss: self.loss,
            grads,
            scaler: self.scaler,
        }
    }
}

impl<'g> Grads<'g> {
    /// The norm of all gradients together, and the factor that clips it to `clip` (0: none): PyTorch's
    /// `clip_grad_norm_`.
    pub fn clip(self, g: &'g Graph, clip: f32) -> Clipped<'g> {
        let clipping = || clipping(g, &self.grads, clip);
        let (norm, factor) = g.phase(Phase::Update, || g.scope("clip", clipping));
        Clipped {
            loss: self.loss,
            grads: self.grads,
            norm,
            factor,
            scaler: self.scaler,
        }
    }
}

impl<'g> Clipped<'g> {
    /// Decides on the device whether the step is applied or skipped: the optimizer leaves its states alone
    /// where the norm is not finite, and the scale of the next step follows. The input `hyper` is declared
    /// here.
    pub fn step_or_skip(self, g: &'g Graph, rounding: Rounding) -> Ready<'g> {
        g.phase(Phase::Update, || self.ready(g, rounding))
    }

    fn ready(self, g: &'g Graph, rounding: Rounding) -> Ready<'g> {
        let words = match rounding {
            Rounding::Stochastic => HYPER + 2,
            Rounding::Nearest | Rounding::Compensated => HYPER,
        };
        let hyper = g.input("hyper", Type::f32(&[words]));
        let mut ready = Ready {
            grads: self.grads,
            norm: self.norm,
            factor: self.factor,
            hyper,
            scalars: None,
            updates: vec![],
        };
        if rounding != Rounding::Nearest {
            assert!(self.scaler.is_none(), "bf16 needs no loss scale");
            ready.scalars = Some(hyper.op(Op::AdamWScalars, &[self.factor, self.norm]));
        }
        let Some(s) = self.scaler else { return ready };
        g.scope("scaler", || {
            let table = g.state(CORRECTIONS, Type::f32(&[s.scaling.corrections, 2]));
            let scalar = |part| {
                let rest = [self.loss, s.counts, hyper, table];
                self.norm.op(Op::StepScalars(part), &rest)
            };
            ready.hyper = scalar(ScalarPart::Hyper);
            ready.norm = scalar(ScalarPart::Norm);
            let parts = [(ScalerPart::Scale, s.scale), (ScalerPart::Counts, s.counts)];
            ready.updates = parts
                .map(|(part, state)| {
                    let op = Op::LossScale {
                        part,
                        interval: s.scaling.interval,
                        cap: s.scaling.cap.to_bits(),
                    };
                    let Op::State(index) = state.node().op else {
                        unreachable!("declared as a state")
                    };
                    (index, ready.norm.op(op, &[s.scale, s.counts]).id)
                })
                .to_vec();
        });
        ready
    }
}

fn clipping<'g>(g: &'g Graph, grads: &[Tx<'g>], clip: f32) -> (Tx<'g>, Tx<'g>) {
    let squares = grads.iter().map(|d| d.f32()).map(|d| (d * d).sum_all());
    let norm = squares
        .reduce(|a, b| a + b)
        .expect("a model has weights")
        .sqrt()
        .reshape(&[1]);
    let one = g.constant(1.0, DType::F32).broadcast(norm.shape());
    if clip == 0.0 {
        return (norm, one);
    }
    (
        norm,
        (norm.constant(clip) / (norm + norm.constant(1e-6))).minimum(one),
    )
}
