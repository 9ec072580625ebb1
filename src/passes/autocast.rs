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
use crate::passes::rules::Rules;
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
    /// What is otherwise in parts of the model.
    pub rules: Rules,
}

impl Policy {
    /// The type of a low operation's operands, by its name, in a part of the model.
    pub fn low_at(&self, op: &str, place: &str) -> DType {
        self.rules.of(op, place).unwrap_or(self.low)
    }
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
    rules: Rules::NONE,
};
/// Masters and optimizer in f32, products in bf16.
pub const MIXED: Policy = Policy {
    name: "mixed",
    storage: DType::F32,
    low: DType::Bf16,
    narrow_activations: false,
    scaled: false,
    rounding: Rounding::Nearest,
    rules: Rules::NONE,
};
/// Everything stored in bf16; arithmetic inside an operation is still f32.
pub const BF16: Policy = Policy {
    name: "bf16",
    storage: DType::Bf16,
    low: DType::Bf16,
    narrow_activations: true,
    scaled: false,
    rounding: Rounding::Nearest,
    rules: Rules::NONE,
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
    rules: Rules::NONE,
};

/// Rebuilds what `outputs` need under a policy; returns the new outputs.
pub fn autocast(g: &Graph, policy: &Policy, outputs: &[NodeId]) -> Vec<NodeId> {
    let plain = policy.rules == Rules::NONE;
    if plain && policy.low == DType::F32 && policy.storage == DType::F32 {
        return outputs.to_vec();
    }
    let mut map: HashMap<NodeId, NodeId> = HashMap::new();
    for id in g.live(outputs) {
        let node = g.node(id);
        let rule = rule_of(g, policy, id);
        let from = |&s: &NodeId| {
            let leaves = policy.narrow_activations && rule.is_none() && !plain;
            match leaves && island(g, policy, s) {
                true => g.labelled_as(s, || g.tx(map[&s]).cast(policy.low).id),
                false => map[&s],
            }
        };
        let src: Vec<NodeId> = node.src.iter().map(from).collect();
        let new = g.labelled_as(id, || rebuild(g, policy, rule, id, &node.op, &src));
        map.insert(id, new);
    }
    outputs.iter().map(|o| map[o]).collect()
}

/// The part of a model that no rule reaches.
pub const LOSS: &str = "loss";

/// The override of an operation, where there is one.
fn rule_of(g: &Graph, policy: &Policy, id: NodeId) -> Option<DType> {
    // The loss is f32 whatever a policy says, with the mean that makes it.
    if policy.rules == Rules::NONE || *g.label(id) == *LOSS {
        return None;
    }
    policy.rules.of(ops::def(&g.node(id).op).name, &g.label(id))
}

/// Whether a value comes out of an f32 island: where activations are narrow, it is rounded on its way out.
fn island(g: &Graph, policy: &Policy, id: NodeId) -> bool {
    let inner = !g.node(id).src.is_empty() && g.ty(id).dtype.is_float();
    inner && rule_of(g, policy, id) == Some(DType::F32)
}

fn rebuild(
    g: &Graph,
    policy: &Policy,
    rule: Option<DType>,
    id: NodeId,
    op: &Op,
    src: &[NodeId],
) -> NodeId {
    if src.is_empty() {
        return id;
    }
    if let Op::Cast(to) = op {
        // Generation casts back to the type that a value has without overrides: not inside an island.
        let inside = rule == Some(DType::F32) && to.is_low();
        return if inside {
            src[0]
        } else {
            g.add(op.clone(), src)
        };
    }
    let narrow = |s: &NodeId| g.ty(*s).dtype.is_low();
    match ops::numeric(op) {
        Numeric::Low => g.add(op.clone(), &cast_all(g, src, rule.unwrap_or(policy.low))),
        Numeric::Guard => {
            let all_narrow = src
                .iter()
                .filter(|s| g.ty(**s).dtype.is_float())
                .all(narrow);
            let out = g.tx(g.add(op.clone(), &cast_all(g, src, DType::F32)));
            let back = match rule {
                Some(dtype) => dtype,
                None if policy.narrow_activations && all_narrow => policy.low,
                None => DType::F32,
            };
            // The loss is f32 whatever a policy says.
            match op {
                Op::Xent => out.id,
                _ => out.cast(back).id,
            }
        }
        Numeric::Follow => {
            let wide = src
                .iter()
                .any(|s| g.ty(*s).dtype == DType::F32 && !is_constant(g, *s));
            let to = match rule {
                Some(dtype) => dtype,
                None if wide || !src.iter().any(narrow) => DType::F32,
                None => policy.low,
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
