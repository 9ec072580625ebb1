//! Softmax cross-entropy of rows, by way of the log-sum-exp, and its fused gradient.

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::Type;
use crate::graph::eval::Tensor;
use crate::kernels::rows::{self, row_params};

/// (x[n, c]) -> log(sum(exp(x))), [n].
pub static LSE: OpDef = OpDef {
    name: "lse",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 1)?;
        need(src[0].shape.rank() == 2, "needs rows [n,c]")?;
        Ok(Type::f32(&[src[0].shape.dim(0)])) // a loss is f32 whatever the logits are
    },
    vjp: Vjp::ViaExpand,
    expand: Some(|y| {
        let x = y.src(0);
        let m = x.max_over(2);
        ((x - m).exp().sum(2).log() + m).reshape(&[x.shape().dim(0)])
    }),
    eval: |_, shape, src| {
        Tensor::new(
            shape,
            src[0].data.chunks(src[0].shape.row()).map(lse).collect(),
        )
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let shape = lw.ty(node.src[0]).shape;
        let x = lw.buf(node.src[0]);
        let out = lw.out(id);
        let label = lw.label(id);
        lw.step(
            &rows::LSE,
            row_params(shape.dim(0), shape.dim(1)),
            &[x],
            &[out],
            &label,
        );
    },
    cases: || {
        vec![
            Case::new(Op::Lse, &[&[3, 1]]),
            Case::new(Op::Lse, &[&[7, 5]]),
            Case::new(Op::Lse, &[&[5, 67]]),
        ]
    },
};

fn lse(x: &[f64]) -> f64 {
    let m = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    m + x.iter().map(|v| (v - m).exp()).sum::<f64>().ln()
}

/// (x[n, c], target[n]) -> cross-entropy, [n].
pub static XENT: OpDef = OpDef {
    name: "xent",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 2)?;
        need(
            src[0].shape.rank() == 2 && src[1].shape.dims() == [src[0].shape.dim(0)],
            "needs x [n,c], target [n]",
        )?;
        need(src[1].dtype == DType::U32, "targets must be u32")?;
        Ok(Type::f32(&[src[0].shape.dim(0)])) // a loss is f32 whatever the logits are
    },
    vjp: Vjp::Rule(|y, g| {
        let (x, target) = (y.src(0), y.src(1));
        vec![
            Some(x.op(Op::XentGrad, &[target, x.op(Op::Lse, &[]), g])),
            None,
        ]
    }),
    expand: None,
    eval: |_, shape, src| {
        let c = src[0].shape.row();
        let rows = src[0].data.chunks(c).zip(&src[1].data);
        Tensor::new(shape, rows.map(|(x, &t)| lse(x) - x[t as usize]).collect())
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let shape = lw.ty(node.src[0]).shape;
        let (x, target) = (lw.buf(node.src[0]), lw.buf(node.src[1]));
        let lse = lw.lowered(Op::Lse, &node.src[..1]);
        let out = lw.out(id);
        let label = lw.label(id);
        lw.step(
            &rows::XENT,
            row_params(shape.dim(0), shape.dim(1)),
            &[x, target, lse],
            &[out],
            &label,
        );
    },
    cases: || {
        vec![
            Case::new(Op::Xent, &[&[3, 1], &[3]]).ids(1, 1),
            Case::new(Op::Xent, &[&[7, 5], &[7]]).ids(1, 5),
            Case::new(Op::Xent, &[&[5, 67], &[5]]).ids(1, 67),
        ]
    },
};

/// (x, target, lse, g[n]) -> (exp(x - lse) - [target]) * g.
pub static XENT_GRAD: OpDef = OpDef {
    name: "xent_grad",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 4)?;
        let n = [src[0].shape.dim(0)];
        need(
            src[1..].iter().all(|t| t.shape.dims() == n),
            "target, lse and g must be [n]",
        )?;
        Ok(src[0])
    },
    // With p = exp(x - lse): linear in g; by x and lse, p * (g u) and its negative row sum.
    vjp: Vjp::Rule(|y, u| {
        let (x, lse, g) = (y.src(0), y.src(2), y.src(3));
        let n = x.shape().dim(0);
        let dx = (x - lse.reshape(&[n, 1])).exp() * (u * g.reshape(&[n, 1]));
        let dlse = -(dx.sum(2).reshape(&[n]));
        let one = x.g.constant(1.0, DType::F32).broadcast(g.shape());
        let unit = x.op(Op::XentGrad, &[y.src(1), lse, one]);
        let dg = (unit * u).sum(2).reshape(&[n]);
        vec![Some(dx), None, Some(dlse), Some(dg)]
    }),
    expand: None,
    eval: |_, shape, src| {
        let c = shape.row();
        let mut out = Tensor::full(shape, 0.0);
        for i in 0..shape.elems() {
            let r = i / c;
            let hit = (src[1].data[r] as usize == i % c) as u8 as f64;
            out.data[i] = ((src[0].data[i] - src[2].data[r]).exp() - hit) * src[3].data[r];
        }
        out
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
        let out = lw.out(id);
        let label = lw.label(id);
        lw.step(
            &rows::XENT_GRAD,
            row_params(node.ty.shape.dim(0), node.ty.shape.dim(1)),
            &reads,
            &[out],
            &label,
        );
    },
    cases: || {
        let lse = Fill::Uniform(2.0, 4.0);
        let case = |n: usize, c: usize| {
            Case::new(Op::XentGrad, &[&[n, c], &[n], &[n], &[n]])
                .ids(1, c as u32)
                .fill(2, lse)
        };
        vec![case(3, 1), case(7, 5), case(5, 67)]
    },
};
