//! A naive evaluator in f64: the reference that tests hold every operation to. Never used to train.

use super::{Graph, NodeId};
use crate::dtype::DType;
use crate::ops::{self, Op};
use crate::shape::Shape;
use std::collections::HashMap;

/// A dense tensor of f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Extents.
    pub shape: Shape,
    /// Elements, row-major.
    pub data: Vec<f64>,
}

impl Tensor {
    /// A tensor of one repeated value.
    pub fn full(shape: Shape, value: f64) -> Tensor {
        Tensor {
            shape,
            data: vec![value; shape.elems()],
        }
    }

    /// A tensor from its elements.
    pub fn new(shape: Shape, data: Vec<f64>) -> Tensor {
        assert_eq!(shape.elems(), data.len());
        Tensor { shape, data }
    }

    /// The element of this tensor, broadcast to `to`, at the flat index `i` of `to`.
    pub fn at_broadcast(&self, to: Shape, i: usize) -> f64 {
        self.data[broadcast_index(self.shape, to, i)]
    }
}

/// The flat index in a tensor of shape `from` that broadcasting reads at flat index `i` of `to`.
pub fn broadcast_index(from: Shape, to: Shape, i: usize) -> usize {
    let (fd, td) = (from.padded(to.rank()), to.dims());
    let (mut rest, mut stride, mut at) = (i, 1, 0);
    for (f, t) in fd.iter().zip(&td).rev() {
        let p = rest % t;
        rest /= t;
        if *f != 1 {
            at += p * stride;
        }
        stride *= f;
    }
    at
}

/// Evaluates `wanted`, given the leaves' values.
pub fn eval(g: &Graph, wanted: &[NodeId], states: &[Tensor], inputs: &[Tensor]) -> Vec<Tensor> {
    let mut values: HashMap<NodeId, Tensor> = HashMap::new();
    for id in g.live(wanted) {
        let n = g.node(id);
        let mut value = match n.op {
            Op::State(i) => states[i as usize].clone(),
            Op::Input(i) => inputs[i as usize].clone(),
            ref op => {
                let src: Vec<&Tensor> = n.src.iter().map(|s| &values[s]).collect();
                (ops::def(op).eval)(op, n.ty.shape, &src)
            }
        };
        assert_eq!(
            value.shape,
            n.ty.shape,
            "{} evaluates to another shape",
            ops::def(&n.op).name
        );
        if matches!(n.ty.dtype, DType::Bf16 | DType::F16) {
            value
                .data
                .iter_mut()
                .for_each(|v| *v = n.ty.dtype.round(*v as f32) as f64);
        }
        values.insert(id, value);
    }
    wanted.iter().map(|w| values[w].clone()).collect()
}
