//! Reductions over axes, which stay with extent 1.

use super::{Case, Fill, Numeric, Op, OpDef, ReduceOp, Vjp, arity, need};
use crate::graph::eval::{Tensor, broadcast_index};
use crate::graph::{NodeId, Type};
use crate::kernels::order::REDUCE_CHUNK;
use crate::kernels::reduce::{REDUCE, params};
use crate::passes::lower::Lower;
use crate::shape::Shape;

const fn reduction(name: &'static str, vjp: Vjp, cases: fn() -> Vec<Case>) -> OpDef {
    OpDef {
        name,
        numeric: Numeric::Guard,
        infer,
        vjp,
        expand: None,
        eval,
        lower,
        cases,
    }
}

/// Sum.
pub static SUM: OpDef = reduction(
    "sum",
    Vjp::Rule(|y, g| vec![Some(g.broadcast(y.src(0).shape()))]),
    || {
        let sum = |mask| Op::Reduce(ReduceOp::Sum, mask);
        vec![
            Case::new(sum(1), &[&[1]]),
            Case::new(sum(1), &[&[31]]),
            Case::new(sum(2), &[&[3, 257]]),
            Case::new(sum(1), &[&[257, 3]]),
            Case::new(sum(2), &[&[2, 67, 19]]),
            Case::new(sum(3), &[&[5, 7, 3]]),
            Case::new(sum(5), &[&[5, 7, 3]]),
            Case::new(sum(1), &[&[20011]])
                .tol(1e-5)
                .not_differentiable(),
        ]
    },
);

/// Maximum. Where elements tie, each gets the whole cotangent divided by their number.
pub static MAX: OpDef = reduction(
    "max_over",
    Vjp::Rule(|y, g| {
        let x = y.src(0);
        let Op::Reduce(_, mask) = y.node().op else {
            unreachable!()
        };
        let (zero, one) = (g.constant(0.0), g.constant(1.0));
        let hit = y.gt(x).select(zero, one);
        vec![Some(hit * (g / hit.sum(mask)))]
    }),
    || {
        let max = |mask| Op::Reduce(ReduceOp::Max, mask);
        vec![
            Case::new(max(1), &[&[1]]),
            Case::new(max(2), &[&[3, 33]]),
            Case::new(max(1), &[&[129, 2]]),
            Case::new(max(2), &[&[2, 37]]).fill(0, Fill::Uniform(-9.0, -1.0)),
        ]
    },
);

fn infer(op: &Op, src: &[Type]) -> Result<Type, String> {
    arity(src, 1)?;
    let Op::Reduce(_, mask) = op else {
        unreachable!()
    };
    need(
        *mask != 0 && (*mask as usize) < 1 << src[0].shape.rank(),
        "the axes are not those of the operand",
    )?;
    need(src[0].dtype.is_float(), "needs floating-point elements")?;
    Ok(Type {
        shape: src[0].shape.reduced(*mask),
        dtype: src[0].dtype,
    })
}

fn eval(op: &Op, shape: Shape, src: &[&Tensor]) -> Tensor {
    let Op::Reduce(kind, _) = op else {
        unreachable!()
    };
    let start = if *kind == ReduceOp::Sum {
        0.0
    } else {
        f64::NEG_INFINITY
    };
    let mut out = Tensor::full(shape, start);
    for (i, &v) in src[0].data.iter().enumerate() {
        let o = &mut out.data[broadcast_index(shape, src[0].shape, i)];
        *o = if *kind == ReduceOp::Sum {
            *o + v
        } else {
            o.max(v)
        };
    }
    out
}

/// Runs of adjacent axes are reduced together, innermost run first; a long run in chunks.
fn lower(lw: &mut Lower, id: NodeId) {
    let node = lw.node(id);
    let Op::Reduce(kind, mask) = node.op else {
        unreachable!()
    };
    let mut dims = lw.ty(node.src[0]).shape.dims();
    let mut from = lw.buf(node.src[0]);
    let label = lw.label(id);
    let in_mask = |a: usize| mask >> a & 1 == 1;
    let mut todo = Vec::new(); // (outer, n, inner), innermost run first
    let mut axis = dims.len();
    while axis > 0 {
        axis -= 1;
        if in_mask(axis) {
            let last = axis;
            while axis > 0 && in_mask(axis - 1) {
                axis -= 1;
            }
            let n: usize = dims[axis..=last].iter().product();
            todo.push((
                dims[..axis].iter().product::<usize>(),
                n,
                dims[last + 1..].iter().product::<usize>(),
            ));
            dims[axis..=last].fill(1);
        }
    }
    let runs = todo.len();
    for (r, (outer, mut n, inner)) in todo.into_iter().enumerate() {
        loop {
            let chunk = n.clamp(1, REDUCE_CHUNK);
            let chunks = n.div_ceil(chunk).max(1);
            let done = r + 1 == runs && chunks == 1;
            let out = if done {
                lw.out(id)
            } else {
                lw.scratch(Type::f32(&[outer * chunks * inner]), &label)
            };
            lw.step(
                &REDUCE,
                params(outer, n, inner, chunk, kind == ReduceOp::Max),
                &[from],
                &[out],
                &label,
            );
            (from, n) = (out, chunks);
            if chunks == 1 {
                break;
            }
        }
    }
}
