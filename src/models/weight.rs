//! Weights, their starts, their updates by AdamW, and digests of them: what every model's programs share.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId, Tx, Type};
use crate::kernels::rng::Stream;
use crate::ops::digest::blocks as digest_blocks;
use crate::ops::optim::Store;
use crate::ops::{AdamPart, Op};
use crate::passes::autocast::{Policy, Rounding};
use crate::passes::scaling::Ready;

/// The state that holds the digests' sums: of all weights and moments, block after block.
pub const DIGEST_STATE: &str = "digest.sums";

/// Number of the stream of the first weight's start.
const INIT_STREAM: u32 = 0x1000_0000;

/// How a weight starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Init {
    /// Normal, standard deviation 0.02.
    Normal,
    /// Normal, standard deviation 1 / sqrt(n) for a last extent of n: `[outputs, inputs]` keeps the
    /// size of what passes through.
    FanIn,
    /// Ones.
    Ones,
    /// Zeros.
    Zeros,
}

/// One weight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weight {
    /// PyTorch's name.
    pub name: String,
    /// Extents.
    pub dims: Vec<usize>,
    /// Its start.
    pub init: Init,
}

impl Weight {
    /// A weight.
    pub fn new(name: impl Into<String>, dims: &[usize], init: Init) -> Weight {
        Weight {
            name: name.into(),
            dims: dims.to_vec(),
            init,
        }
    }

    /// Name of its first moment's state.
    pub fn m(&self) -> String {
        format!("{}.m", self.name)
    }

    /// Name of its second moment's state.
    pub fn v(&self) -> String {
        format!("{}.v", self.name)
    }

    /// Name of its compensation's state, of a policy that has one.
    pub fn c(&self) -> String {
        format!("{}.c", self.name)
    }

    /// Names of its states under a policy: the weight, both moments, the compensation.
    pub fn states(&self, policy: &Policy) -> Vec<String> {
        let mut out = vec![self.name.clone(), self.m(), self.v()];
        if policy.rounding == Rounding::Compensated {
            out.push(self.c());
        }
        out
    }

    /// Length of its last dimension.
    pub fn row(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Number of its elements.
    pub fn elems(&self) -> usize {
        self.dims.iter().product()
    }

    /// Its initial values: a function of the seed, the weight's place in its model, and the element.
    pub fn draw(&self, seed: u64, place: usize) -> Vec<f32> {
        let n = self.elems();
        let mut s = Stream::new(seed, INIT_STREAM + place as u32);
        let mut normal = |deviation: f64| (0..n).map(|_| (deviation * s.normal()) as f32).collect();
        match self.init {
            Init::Ones => vec![1.0; n],
            Init::Zeros => vec![0.0; n],
            Init::Normal => normal(0.02),
            Init::FanIn => normal(1.0 / libm::sqrt(self.row() as f64)),
        }
    }
}

/// The number of a state that a node stands for.
///
/// # Panics
/// The node is none: a fault in model code.
pub fn state_index(state: Tx) -> u32 {
    match state.node().op {
        Op::State(index) => index,
        op => unreachable!("{op:?} is no state"),
    }
}

/// AdamW's update of one weight: (number of the state, its new value), of the weight, its moments and,
/// where the policy keeps one, its compensation. `tensor` is the weight's number in its model.
pub fn adamw<'g>(
    g: &'g Graph,
    policy: &Policy,
    (tensor, weight): (usize, &Weight),
    (w, grad): (Tx<'g>, Tx<'g>),
    ready: &Ready<'g>,
) -> Vec<(u32, Tx<'g>)> {
    let ty = Type::new(&weight.dims, policy.storage);
    let others = weight.states(policy).split_off(1);
    let mut states = vec![w];
    states.extend(others.iter().map(|name| g.state(name, ty)));
    let tail = match ready.scalars {
        Some(scalars) => vec![grad, scalars],
        None => vec![grad, ready.hyper, ready.factor, ready.norm],
    };
    let operands: Vec<Tx> = states[1..].iter().copied().chain(tail).collect();
    let parts = [AdamPart::W, AdamPart::M, AdamPart::V, AdamPart::C];
    let one = |(part, state): (AdamPart, &Tx<'g>)| {
        let op = match policy.rounding {
            Rounding::Nearest => Op::AdamW(part),
            Rounding::Stochastic => Op::AdamWLow(Store::Stochastic(tensor as u32), part),
            Rounding::Compensated => Op::AdamWLow(Store::Compensated, part),
        };
        (state_index(*state), w.op(op, &operands))
    };
    parts.into_iter().zip(&states).map(one).collect()
}

/// The update of the digests' state: of these tensors, with the ids from 0 on.
pub fn digest(g: &Graph, tensors: &[Tx]) -> (u32, NodeId) {
    let blocks = tensors.iter().map(|x| digest_blocks(x.ty())).sum();
    let sums = g.state(DIGEST_STATE, Type::new(&[blocks, 2], DType::U32));
    let mut src = vec![sums.id];
    src.extend(tensors.iter().map(|x| x.id));
    (state_index(sums), g.add(Op::Digest, &src))
}
