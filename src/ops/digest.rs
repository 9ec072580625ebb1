//! The digest of a tensor as a graph operation.

use super::{Case, Numeric, Op, OpDef, Vjp, arity};
use crate::dtype::DType;
use crate::graph::Type;
use crate::graph::eval::Tensor;
use crate::kernels::digest::{BLOCK, DIGEST as KERNEL, element, params};

/// (x) -> two sums of each block, u32[blocks, 2].
pub static DIGEST: OpDef = OpDef {
    name: "digest",
    numeric: Numeric::Follow,
    infer: |_, src| {
        arity(src, 1)?;
        Ok(Type::new(
            &[src[0].shape.words(src[0].dtype).div_ceil(BLOCK), 2],
            DType::U32,
        ))
    },
    vjp: Vjp::Stop("a digest is not differentiable"),
    expand: None,
    eval: |op, shape, src| {
        let Op::Digest(tensor) = op else {
            unreachable!()
        };
        let mut out = Tensor::full(shape, 0.0);
        for (b, block) in src[0].data.chunks(BLOCK).enumerate() {
            let (mut p, mut q) = (0u32, 0u32);
            for (i, &v) in block.iter().enumerate() {
                let (x, y) = element(*tensor, (b * BLOCK + i) as u32, (v as f32).to_bits());
                (p, q) = (p.wrapping_add(x), q.wrapping_add(y));
            }
            (out.data[2 * b], out.data[2 * b + 1]) = (p as f64, q as f64);
        }
        out
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let Op::Digest(tensor) = node.op else {
            unreachable!()
        };
        let ty = lw.ty(node.src[0]);
        let x = lw.buf(node.src[0]);
        let out = lw.out(id);
        lw.step(
            &KERNEL,
            params(ty.shape.words(ty.dtype), tensor),
            &[x],
            &[out],
            "digest",
        );
    },
    cases: || {
        let case = |n: usize| {
            Case::new(Op::Digest(7), &[&[n]])
                .tol(0.0)
                .not_differentiable()
        };
        vec![case(1), case(257), case(4096), case(4097)]
    },
};
