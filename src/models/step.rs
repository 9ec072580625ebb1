//! From a model to its programs: what [`Model`] says once becomes a training step under any policy, an
//! evaluation, a moving average of the weights, a digest.

use super::weight::{Weight, adamw, digest, state_index};
use crate::dtype::DType;
use crate::graph::{Graph, Program, Tx, Type};
use crate::passes::autocast::{Policy, autocast};
use crate::passes::scaling::ScaledLoss;
use std::collections::HashMap;

/// Nodes by name.
pub type Named<'g> = HashMap<String, Tx<'g>>;

/// Scalars by name; the first is the one that training minimises.
pub type Losses<'g> = Vec<(&'static str, Tx<'g>)>;

/// A tensor that never changes; its name begins with `const.`.
#[derive(Clone, PartialEq, Debug)]
pub struct Constant {
    /// Its state's name.
    pub name: String,
    /// Extents.
    pub dims: Vec<usize>,
    /// Elements.
    pub data: Vec<f32>,
}

impl Constant {
    /// A matrix of `f(row, column)`.
    pub fn matrix(name: &str, dims: [usize; 2], f: impl Fn(usize, usize) -> f32) -> Constant {
        let [rows, columns] = dims;
        Constant {
            name: format!("const.{name}"),
            dims: dims.to_vec(),
            data: (0..rows * columns)
                .map(|i| f(i / columns, i % columns))
                .collect(),
        }
    }
}

/// What programs are made of.
pub trait Model {
    /// The weights that training changes.
    fn weights(&self) -> Vec<Weight>;
    /// Weights that are read only: another model's, in a game of two.
    fn frozen(&self) -> Vec<Weight> {
        vec![]
    }
    /// Tensors that never change.
    fn constants(&self) -> Vec<Constant> {
        vec![]
    }
    /// Declares the inputs and builds the losses from the weights, all in f32: precision is a later pass.
    ///
    /// # Errors
    /// An operation that cannot be differentiated, where a loss holds a gradient.
    fn losses<'g>(&self, g: &'g Graph, w: &Named<'g>) -> Result<Losses<'g>, String>;
}

/// Name of the state that holds a weight's moving average.
pub fn average(weight: &str) -> String {
    format!("ema.{weight}")
}

/// Declares f32 weights as states, each under its own name or under that of its average.
pub fn declare<'g>(g: &'g Graph, weights: &[Weight], averaged: bool) -> Named<'g> {
    let one = |w: &Weight| {
        let name = match averaged {
            true => average(&w.name),
            false => w.name.clone(),
        };
        (w.name.clone(), g.state(&name, Type::f32(&w.dims)))
    };
    weights.iter().map(one).collect()
}

/// Declares constants as states.
pub fn declare_constants<'g>(g: &'g Graph, constants: &[Constant]) -> Named<'g> {
    let one = |c: &Constant| (c.name.clone(), g.state(&c.name, Type::f32(&c.dims)));
    constants.iter().map(one).collect()
}

/// Declares all that a model's losses are built from; `averaged` as in [`declare`].
pub fn declare_all<'g>(g: &'g Graph, model: &dyn Model, averaged: bool) -> Named<'g> {
    let mut all = declare(g, &model.weights(), averaged);
    all.extend(declare(g, &model.frozen(), averaged));
    all.extend(declare_constants(g, &model.constants()));
    all
}

/// A training step: the model's inputs and `hyper`; outputs the losses and `grad_norm`, and with
/// `dump_grads` each gradient as `grad.<weight>`; updates weights and moments, which are f32 under every
/// policy.
///
/// # Errors
/// An operation that cannot be differentiated.
pub fn train_program(
    model: &dyn Model,
    policy: &Policy,
    clip: f32,
    dump_grads: bool,
) -> Result<Program, String> {
    assert_eq!(policy.storage, DType::F32, "weights are kept in f32");
    let graph = Graph::new();
    let (mut outputs, mut updates) = (Vec::new(), Vec::new());
    {
        let g = &graph;
        let w = declare_all(g, model, false);
        let losses = cast(g, policy, model.losses(g, &w)?);
        let weights = model.weights();
        let nodes: Vec<Tx> = weights.iter().map(|x| w[&x.name]).collect();
        let grads = ScaledLoss::new(g, losses[0].1, None).backward(g, &nodes)?;
        let ready = grads.unscale(g).clip(g, clip);
        let ready = ready.step_or_skip(g, policy.rounding);
        outputs.extend(losses.iter().map(|(n, x)| (n.to_string(), x.id)));
        outputs.push(("grad_norm".into(), ready.norm.id));
        for (i, weight) in weights.iter().enumerate() {
            let pair = (nodes[i], ready.grads[i]);
            let new = adamw(g, policy, (i, weight), pair, &ready);
            updates.extend(new.into_iter().map(|(state, x)| (state, x.id)));
            if dump_grads {
                outputs.push((format!("grad.{}", weight.name), ready.grads[i].id));
            }
        }
    }
    Ok(Program {
        graph,
        outputs,
        updates,
    })
}

/// The losses alone, of the weights or of their averages.
///
/// # Errors
/// As [`Model::losses`].
pub fn eval_program(model: &dyn Model, policy: &Policy, averaged: bool) -> Result<Program, String> {
    let graph = Graph::new();
    let outputs = {
        let w = declare_all(&graph, model, averaged);
        let losses = cast(&graph, policy, model.losses(&graph, &w)?);
        losses.iter().map(|(n, x)| (n.to_string(), x.id)).collect()
    };
    Ok(Program {
        graph,
        outputs,
        updates: vec![],
    })
}

fn cast<'g>(g: &'g Graph, policy: &Policy, losses: Losses<'g>) -> Losses<'g> {
    let ids: Vec<_> = losses.iter().map(|l| l.1.id).collect();
    let new = autocast(g, policy, &ids);
    let new = new.into_iter().map(|id| g.tx(id).f32());
    losses.iter().map(|l| l.0).zip(new).collect()
}

/// Moves the averages toward the weights: `ema = keep * ema + take * w`, in f32 under every policy. Inputs
/// `keep` and `take`, f32[1] each, which the host computes in f64.
pub fn average_program(weights: &[Weight]) -> Program {
    let graph = Graph::new();
    let updates = {
        let g = &graph;
        let (now, old) = (declare(g, weights, false), declare(g, weights, true));
        let [keep, take] = ["keep", "take"].map(|n| g.input(n, Type::f32(&[1])));
        let one = |w: &Weight| {
            let (now, old) = (now[&w.name], old[&w.name]);
            (state_index(old), (old * keep + now * take).id)
        };
        weights.iter().map(one).collect()
    };
    Program {
        graph,
        outputs: vec![],
        updates,
    }
}

/// Digests all weights and moments, and the averages where there are any.
pub fn digest_program(weights: &[Weight], averages: &[Weight]) -> Program {
    let graph = Graph::new();
    let update = {
        let state = |name: &str, w: &Weight| graph.state(name, Type::f32(&w.dims));
        let own = weights.iter();
        let own = own.flat_map(|w| [w.name.clone(), w.m(), w.v()].map(|n| state(&n, w)));
        let averages = averages.iter().map(|w| state(&average(&w.name), w));
        let all: Vec<Tx> = own.chain(averages).collect();
        digest(&graph, &all)
    };
    Program {
        graph,
        outputs: vec![],
        updates: vec![update],
    }
}

/// Mean of all elements, a scalar, summed in f32 whatever their type.
pub fn mean_all(x: Tx) -> Tx {
    let shape = x.shape();
    let mask = ((1usize << shape.rank()) - 1) as u8;
    let sum = x.sum(mask).reshape(&[]);
    sum * sum.constant(1.0 / shape.elems() as f32)
}

/// `x[n, k] * w[m, k]^T`.
pub fn linear<'g>(x: Tx<'g>, w: Tx<'g>) -> Tx<'g> {
    x.matmul(w, false, true)
}
