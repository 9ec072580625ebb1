//! Gather of rows by id, and its gradient.

use super::{Case, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::Type;
use crate::graph::eval::Tensor;
use crate::kernels::Params;
use crate::kernels::gather as kernels;

/// (table[v, c], idx[n]) -> [n, c].
pub static GATHER: OpDef = OpDef {
    name: "gather",
    numeric: Numeric::Follow,
    infer: |_, src| {
        arity(src, 2)?;
        need(
            src[0].shape.rank() == 2 && src[1].shape.rank() == 1,
            "needs a table [v,c] and ids [n]",
        )?;
        need(src[1].dtype == DType::U32, "ids must be u32")?;
        Ok(Type::new(
            &[src[1].shape.dim(0), src[0].shape.dim(1)],
            src[0].dtype,
        ))
    },
    vjp: Vjp::Rule(|y, g| {
        let rows = y.src(0).shape().dim(0) as u32;
        let dtype = y.src(0).ty().dtype;
        vec![
            Some(y.src(1).op(Op::GatherGrad(rows), &[g.f32()]).cast(dtype)),
            None,
        ]
    }),
    expand: None,
    eval: |_, shape, src| {
        let c = shape.dim(1);
        let data = src[1]
            .data
            .iter()
            .flat_map(|&i| src[0].data[i as usize * c..][..c].to_vec())
            .collect();
        Tensor::new(shape, data)
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let table = lw.ty(node.src[0]).shape;
        let (t, idx) = (lw.buf(node.src[0]), lw.buf(node.src[1]));
        let out = lw.out(id);
        let words = [
            node.ty.shape.dim(0) as u32,
            lw.words_per_row(node.src[0]) as u32,
            table.dim(0) as u32,
        ];
        let label = lw.label(id);
        lw.step(
            &kernels::GATHER,
            Params::new(&words),
            &[t, idx],
            &[out],
            &label,
        );
    },
    cases: || {
        vec![
            Case::new(Op::Gather, &[&[1, 1], &[1]]).ids(1, 1),
            Case::new(Op::Gather, &[&[7, 5], &[13]]).ids(1, 7),
            Case::new(Op::Gather, &[&[3, 65], &[257]]).ids(1, 3),
            Case::new(Op::Gather, &[&[9, 33], &[70]])
                .ids(1, 9)
                .narrow(&[0]),
        ]
    },
};

/// (idx[n], g[n, c]) -> [rows, c]: rows of g summed by id, in ascending order of position.
pub static GATHER_GRAD: OpDef = OpDef {
    name: "gather_grad",
    numeric: Numeric::Guard,
    infer: |op, src| {
        arity(src, 2)?;
        let Op::GatherGrad(rows) = op else {
            unreachable!()
        };
        need(
            src[0].shape.rank() == 1 && src[1].shape.rank() == 2,
            "needs ids [n] and rows [n,c]",
        )?;
        need(
            src[0].dtype == DType::U32 && src[0].shape.dim(0) == src[1].shape.dim(0),
            "ids and rows do not fit",
        )?;
        Ok(Type::new(
            &[*rows as usize, src[1].shape.dim(1)],
            src[1].dtype,
        ))
    },
    vjp: Vjp::Rule(|y, g| vec![None, Some(g.op(Op::Gather, &[y.src(0)]))]),
    expand: None,
    eval: |_, shape, src| {
        let c = shape.dim(1);
        let mut out = Tensor::full(shape, 0.0);
        for (n, &i) in src[0].data.iter().enumerate() {
            for j in 0..c {
                out.data[i as usize * c + j] += src[1].data[n * c + j];
            }
        }
        out
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let (n, rows, c) = (
            lw.ty(node.src[0]).shape.elems(),
            node.ty.shape.dim(0),
            node.ty.shape.dim(1),
        );
        let (idx, g) = (lw.buf(node.src[0]), lw.buf(node.src[1]));
        let label = lw.label(id);
        let order = lw.scratch(Type::new(&[n], DType::U32), &label);
        let start = lw.scratch(Type::new(&[rows + 1], DType::U32), &label);
        lw.step(
            &kernels::ROW_ORDER,
            Params::new(&[n as u32, rows as u32]),
            &[idx],
            &[order, start],
            &label,
        );
        let out = lw.out(id);
        let p = Params::new(&[rows as u32, c as u32]);
        lw.step(&kernels::GATHER_GRAD, p, &[g, order, start], &[out], &label);
    },
    cases: || {
        vec![
            Case::new(Op::GatherGrad(1), &[&[1], &[1, 1]]).ids(0, 1),
            Case::new(Op::GatherGrad(7), &[&[53], &[53, 5]]).ids(0, 7),
            Case::new(Op::GatherGrad(300), &[&[257], &[257, 33]]).ids(0, 300),
        ]
    },
};
