//! The seed document's two ledgers, computed on the device in a mixed run, where the f32 weights are a
//! reference to trust: which updates bf16 weights would have swallowed, and how large gradients are.

use crate::dtype::DType;
use crate::graph::{Graph, Program, Type};
use crate::kernels::histogram::BINS;
use crate::models::char_gpt::Weight;
use crate::ops::Op;

/// Lowest edge of the gradient histogram, log10.
const LOWEST: f64 = -12.0;
/// Width of a range, log10: 56 of them end at 2.
const WIDTH: f64 = 0.25;

/// Name of the state that holds a weight as it was before the step.
fn before(weight: &str) -> String {
    format!("{weight}.before")
}

/// The program that keeps a copy of all weights.
pub fn snapshot_program(weights: &[Weight]) -> Program {
    let graph = Graph::new();
    let mut updates = Vec::new();
    for w in weights {
        let now = graph.state(&w.name, Type::f32(&w.dims));
        let copy = graph.state(&before(&w.name), Type::f32(&w.dims));
        let Op::State(index) = copy.node().op else {
            unreachable!("declared as a state")
        };
        updates.push((index, now.id));
    }
    Program {
        graph,
        outputs: vec![],
        updates,
    }
}

/// The program that counts, for each weight, the elements whose update a bf16 weight would swallow:
/// with w0 before and w after the step, `bf16(bf16(w0) + (w - w0)) == bf16(w0)`. Outputs by the weight's
/// name, f32, exact up to 2^24 elements.
pub fn swallow_program(weights: &[Weight]) -> Program {
    let graph = Graph::new();
    let mut outputs = Vec::new();
    for w in weights {
        let now = graph.state(&w.name, Type::f32(&w.dims));
        let w0 = graph.state(&before(&w.name), Type::f32(&w.dims));
        let narrow = w0.cast(DType::Bf16).f32();
        let moved = (narrow + (now - w0)).cast(DType::Bf16).f32();
        let differs = moved.gt(narrow) + narrow.gt(moved);
        let same = differs.constant(1.0) - differs;
        outputs.push((w.name.clone(), same.sum_all().id));
    }
    Program {
        graph,
        outputs,
        updates: vec![],
    }
}

/// The edges of the gradient histogram: powers of ten from 1e-12 to 1e2 in steps of a quarter.
pub fn edges() -> [f32; BINS + 1] {
    std::array::from_fn(|k| libm::exp10(LOWEST + WIDTH * k as f64) as f32)
}

/// log10 of a range's lower edge.
pub fn lower_edge(k: usize) -> f64 {
    LOWEST + WIDTH * k as f64
}
