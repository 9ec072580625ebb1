//! Softmax over the last axis, and its fused gradient.

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::graph::NodeId;
use crate::graph::eval::Tensor;
use crate::kernels::KernelDef;
use crate::kernels::rows;
use crate::passes::lower::Lower;

/// Softmax.
pub static SOFTMAX: OpDef = OpDef {
    name: "softmax",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 1)?;
        need(src[0].shape.rank() >= 1, "needs at least one axis")?;
        Ok(src[0])
    },
    vjp: Vjp::Rule(|y, g| vec![Some(y.op(Op::SoftmaxGrad, &[g]))]),
    expand: Some(|y| {
        let x = y.src(0);
        let axis = 1u8 << (x.shape().rank() - 1);
        let e = (x - x.max_over(axis)).exp();
        e / e.sum(axis)
    }),
    eval: |_, shape, src| {
        let data = src[0].data.chunks(shape.row()).flat_map(|x| {
            let m = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = x.iter().map(|v| (v - m).exp()).sum();
            x.iter()
                .map(move |v| (v - m).exp() / total)
                .collect::<Vec<_>>()
        });
        Tensor::new(shape, data.collect())
    },
    lower: |lw, id| lower(lw, id, &rows::SOFTMAX),
    cases: || {
        vec![
            Case::new(Op::Softmax, &[&[3, 1]]),
            Case::new(Op::Softmax, &[&[5, 7]]),
            Case::new(Op::Softmax, &[&[2, 3, 65]]),
            Case::new(Op::Softmax, &[&[2, 9]])
                .fill(0, Fill::Uniform(-20001.0, -20000.0))
                .tol(1e-2)
                .not_differentiable(),
        ]
    },
};

/// (y, g) -> y * (g - sum(g * y)).
pub static SOFTMAX_GRAD: OpDef = OpDef {
    name: "softmax_grad",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 2)?;
        need(src[0] == src[1], "operands differ in type")?;
        Ok(src[0])
    },
    vjp: Vjp::ViaExpand,
    expand: Some(|s| {
        let (y, g) = (s.src(0), s.src(1));
        y * (g - (y * g).sum(1 << (y.shape().rank() - 1)))
    }),
    eval: |_, shape, src| {
        let c = shape.row();
        let mut out = Tensor::full(shape, 0.0);
        for r in 0..shape.rows() {
            let dot: f64 = (r * c..(r + 1) * c)
                .map(|i| src[0].data[i] * src[1].data[i])
                .sum();
            for i in r * c..(r + 1) * c {
                out.data[i] = src[0].data[i] * (src[1].data[i] - dot);
            }
        }
        out
    },
    lower: |lw, id| lower(lw, id, &rows::SOFTMAX_GRAD),
    cases: || {
        vec![
            Case::new(Op::SoftmaxGrad, &[&[5, 7], &[5, 7]]),
            Case::new(Op::SoftmaxGrad, &[&[3, 65], &[3, 65]]),
        ]
    },
};

fn lower(lw: &mut Lower, id: NodeId, kernel: &'static KernelDef) {
    let node = lw.node(id);
    let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
    let out = lw.out(id);
    let label = lw.label(id);
    lw.step(
        kernel,
        rows::row_params(node.ty.shape.rows(), node.ty.shape.row()),
        &reads,
        &[out],
        &label,
    );
}
