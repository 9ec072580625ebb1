//! Precision as a pass, and policies as data. It stands before `grad`, so that the gradient of a cast
//! returns in the master's type.
//!
//! * [`Numeric::Low`] operations (matrix products, attention) take narrow operands and round their
//!   result once to the narrow type.
//! * [`Numeric::Guard`] operations (norms, softmax, reductions, exp, log, losses) see f32. Where a
//!   policy stores activations narrow, their result is rounded back, but for the loss.
//! * [`Numeric::Follow`] operations take the widest type of their operands; constants adapt.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::ops::{self, Numeric, Op};
use std::collections::HashMap;

/// A precision policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Its name, a scheme's.
    pub name: &'static str,
    /// Type of weights, gradients and moments.
    pub storage: DType,
    /// Type of the operands and results of [`Numeric::Low`] operations.
    pub low: DType,
    /// Whether guarded operations round back to `low` what they computed from narrow operands.
    pub narrow_activations: bool,
    /// Whether the loss is scaled, see [`super::scaling`].
    pub scaled: bool,
    /// How the optimizer stores what it computed.
    pub rounding: Rounding,
}

/// How the optimizer stores what it computed in f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// Up with the probability of what is cut off: weights and moments.
    Stochastic,
    /// To nearest, what is cut off a weight being kept in a term of its own.
    Compensated,
}

/// Full precision.
pub const FP32: Policy = Policy {
    name: "fp32",
    storage: DType::F32,
    low: DType::F32,
    narrow_activations: false,
    scaled: false,
    rounding: Rounding::Nearest,
};
/// Masters and optimizer in f32, products in bf16.
pub const MIXED: Policy = Policy {
    name: "mixed",
    storage: DType::F32,
    low: DType::Bf16,
    narrow_activations: false,
    scaled: false,
    rounding: Rounding::Nearest,
};
/// Everything stored in bf16; arithmetic inside an operation is still f32.
pub const BF16: Policy = Policy {
    name: "bf16",
    storage: DType::Bf16,
    low: DType::Bf16,
    narrow_activations: true,
    scaled: false,
    rounding: Rounding::Nearest,
};

/// As [`BF16`], with weights and moments rounded stochastically.
pub const BF16_SR: Policy = Policy {
    name: "bf16-sr",
    rounding: Rounding::Stochastic,
    ..BF16
};
/// As [`BF16`], with a compensation term beside each weight.
pub const BF16_KAHAN: Policy = Policy {
    name: "bf16-kahan",
    rounding: Rounding::Compensated,
    ..BF16
};
/// Masters and optimizer in f32, products in f16 under loss scaling.
pub const FP16: Policy = Policy {
    name: "fp16",
    storage: DType::F32,
    low: DType::F16,
    narrow_activations: false,
    scaled: true,
    rounding: Rounding::Nearest,
};

/// Rebuilds what `outputs` need under a policy; returns the new outputs.
pub fn autocast(g: &Graph, policy: &Policy, outputs: &[NodeId]) -> Vec<NodeId> {
    if policy.low == DType::F32 && policy.storage == DType::F32 {
        return outputs.to_vec();
    }
    let mut map: HashMap<NodeId, NodeId> = HashMap::new();
    for id in g.live(outputs) {
        let node = g.node(id);
        let src: Vec<NodeId> = node.src.iter().map(|s| map[s]).collect();
        let new = g.labelled_as(id, || rebuild(g, policy, id, &node.op, &src));
        map.insert(id, new);
    }
    outputs.iter().map(|o| map[o]).collect()
}

fn rebuild(g: &Graph, policy: &Policy, id: NodeId, op: &Op, src: &[NodeId]) -> NodeId {
    if src.is_empty() || matches!(op, Op::Cast(_)) {
        return if src.is_empty() {
            id
        } else {
            g.add(op.clone(), src)
        };
    }
    let narrow = |s: &NodeId| g.ty(*s).dtype.is_low();
    match ops::numeric(op) {
        Numeric::Low => g.add(op.clone(), &cast_all(g, src, policy.low)),
        Numeric::Guard => {
            let all_narrow = src
                .iter()
                .filter(|s| g.ty(**s).dtype.is_float())
                .all(narrow);
            let out = g.tx(g.add(op.clone(), &cast_all(g, src, DType::F32)));
            let back = policy.narrow_activations && all_narrow && !matches!(op, Op::Xent);
            if back {
                out.cast(policy.low).id
            } else {
                out.id
            }
        }
        Numeric::Follow => {
            let wide = src
                .iter()
                .any(|s| g.ty(*s).dtype == DType::F32 && !is_constant(g, *s));
            let to = if wide || !src.iter().any(narrow) {
                DType::F32
            } else {
                policy.low
            };
            g.add(op.clone(), &cast_all(g, src, to))
        }
    }
}

/// Casts the floating-point operands; ids stay as they are.
fn cast_all(g: &Graph, src: &[NodeId], to: DType) -> Vec<NodeId> {
    src.iter()
        .map(|&s| match g.node(s).op {
            Op::Const(bits, _) => g.constant(to.round(f32::from_bits(bits)), to).id,
            _ if g.ty(s).dtype.is_float() => g.tx(s).cast(to).id,
            _ => s,
        })
        .collect()
}

/// Whether a node is one repeated constant.
fn is_constant(g: &Graph, id: NodeId) -> bool {
    let node = g.node(id);
    match node.op {
        Op::Const(..) => true,
        Op::Broadcast(_) | Op::Reshape(_) | Op::Cast(_) => is_constant(g, node.src[0]),
        _ => false,
    }
}
