//! Leaves and operations that move elements without computing with them.

use super::{Case, Numeric, Op, OpDef, Vjp, arity, need};
use crate::graph::eval::{Tensor, broadcast_index};
use crate::graph::{Tx, Type};
use crate::shape::Shape;

/// States and inputs; their values come from outside.
pub static LEAF: OpDef = OpDef {
    name: "leaf",
    numeric: Numeric::Follow,
    infer: |_, _| Err("a leaf is declared, not added".into()),
    vjp: Vjp::Leaf,
    expand: None,
    eval: |_, _, _| unreachable!("the evaluator supplies leaves"),
    lower: |_, _| {},
    cases: Vec::new,
};

/// One constant element.
pub static CONST: OpDef = OpDef {
    name: "const",
    numeric: Numeric::Follow,
    infer: |op, src| {
        arity(src, 0)?;
        let Op::Const(_, dtype) = op else {
            unreachable!()
        };
        Ok(Type {
            shape: Shape::scalar(),
            dtype: *dtype,
        })
    },
    vjp: Vjp::Leaf,
    expand: None,
    eval: |op, shape, _| {
        let Op::Const(bits, _) = op else {
            unreachable!()
        };
        Tensor::full(shape, f32::from_bits(*bits) as f64)
    },
    lower: |_, _| {}, // read in place by its users
    cases: Vec::new,
};

/// The same elements under another shape.
pub static RESHAPE: OpDef = OpDef {
    name: "reshape",
    numeric: Numeric::Follow,
    infer: |op, src| {
        arity(src, 1)?;
        let Op::Reshape(shape) = op else {
            unreachable!()
        };
        need(
            shape.elems() == src[0].shape.elems(),
            &format!("cannot become {shape}"),
        )?;
        Ok(Type {
            shape: *shape,
            dtype: src[0].dtype,
        })
    },
    vjp: Vjp::Rule(|y, g| vec![Some(g.reshape(&y.src(0).shape().dims()))]),
    expand: None,
    eval: |_, shape, src| Tensor::new(shape, src[0].data.clone()),
    lower: |_, _| {}, // an alias of its source
    cases: || vec![Case::new(Op::Reshape(Shape::new(&[6, 5])), &[&[2, 3, 5]])],
};

/// Repetition to a larger shape.
pub static BROADCAST: OpDef = OpDef {
    name: "broadcast",
    numeric: Numeric::Follow,
    infer: |op, src| {
        arity(src, 1)?;
        let Op::Broadcast(shape) = op else {
            unreachable!()
        };
        need(
            src[0].shape.broadcasts_to(*shape),
            &format!("does not broadcast to {shape}"),
        )?;
        Ok(Type {
            shape: *shape,
            dtype: src[0].dtype,
        })
    },
    vjp: Vjp::Rule(|y, g| vec![Some(unbroadcast(g, y.src(0).shape()))]),
    expand: None,
    eval: |_, shape, src| {
        let data = (0..shape.elems())
            .map(|i| src[0].data[broadcast_index(src[0].shape, shape, i)])
            .collect();
        Tensor::new(shape, data)
    },
    lower: |_, _| {}, // read with strides by pointwise users, copied for others
    cases: || {
        vec![
            Case::new(Op::Broadcast(Shape::new(&[5, 3])), &[&[3]]),
            Case::new(Op::Broadcast(Shape::new(&[5, 3])), &[&[5, 1]]),
            Case::new(Op::Broadcast(Shape::new(&[5, 4, 3])), &[&[4, 1]]),
            Case::new(Op::Broadcast(Shape::new(&[2, 5, 2, 3])), &[&[2, 1, 2, 1]]),
            Case::new(Op::Broadcast(Shape::new(&[7])), &[&[]]),
        ]
    },
};

/// Sums a cotangent back to the shape that was broadcast.
fn unbroadcast(g: Tx, to: Shape) -> Tx {
    let have = g.shape();
    let want = to.padded(have.rank());
    let mask = (0..have.rank())
        .filter(|&i| want[i] == 1 && have.dim(i) != 1)
        .fold(0u8, |m, i| m | 1 << i);
    let g = if mask == 0 { g } else { g.sum(mask) };
    g.reshape(&to.dims())
}

/// Axes in another order.
pub static PERMUTE: OpDef = OpDef {
    name: "permute",
    numeric: Numeric::Follow,
    infer: |op, src| {
        arity(src, 1)?;
        let order = order(op, src[0].shape.rank());
        let mut seen = order.clone();
        seen.sort_unstable();
        need(
            seen.iter().enumerate().all(|(i, &a)| i == a),
            &format!("{order:?} is not a permutation"),
        )?;
        let dims: Vec<usize> = order.iter().map(|&a| src[0].shape.dim(a)).collect();
        Ok(Type::new(&dims, src[0].dtype))
    },
    vjp: Vjp::Rule(|y, g| {
        let order = order(&y.node().op, y.shape().rank());
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &a)| inverse[a] = i);
        vec![Some(g.permute(&inverse))]
    }),
    expand: None,
    eval: |op, shape, src| {
        let order = order(op, shape.rank());
        let strides = src[0].shape.strides();
        let data = (0..shape.elems())
            .map(|i| {
                let (mut rest, mut at) = (i, 0);
                for d in (0..shape.rank()).rev() {
                    at += rest % shape.dim(d) * strides[order[d]];
                    rest /= shape.dim(d);
                }
                src[0].data[at]
            })
            .collect();
        Tensor::new(shape, data)
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let from = lw.ty(node.src[0]).shape;
        let strides = from.strides();
        let by_axis: Vec<usize> = order(&node.op, from.rank())
            .iter()
            .map(|&a| strides[a])
            .collect();
        let x = lw.buf(node.src[0]);
        lw.copy(id, x, &node.ty.shape.dims(), &by_axis);
    },
    cases: || {
        vec![
            Case::new(Op::Permute([1, 0, 0, 0, 0, 0]), &[&[3, 5]]),
            Case::new(Op::Permute([0, 2, 1, 3, 0, 0]), &[&[2, 3, 5, 7]]),
            Case::new(Op::Permute([0, 1, 0, 0, 0, 0]), &[&[1, 257]]),
        ]
    },
};

/// The order of axes that a permutation holds, for a given rank.
fn order(op: &Op, rank: usize) -> Vec<usize> {
    let Op::Permute(o) = op else { unreachable!() };
    o[..rank].iter().map(|&a| a as usize).collect()
}
