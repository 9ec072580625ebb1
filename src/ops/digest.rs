//! The digest of some tensors as a graph operation.

use super::{Case, Numeric, Op, OpDef, Vjp, need};
use crate::dtype::DType;
use crate::graph::eval::Tensor;
use crate::graph::{NodeId, Type};
use crate::kernels::digest::{BLOCK, DIGEST as KERNEL, TENSORS, element, params};
use crate::passes::lower::Lower;
use crate::plan::BufId;

/// Blocks of a tensor.
pub fn blocks(ty: Type) -> usize {
    ty.shape.words(ty.dtype).div_ceil(BLOCK)
}

/// (sums, x...) -> sums with the two of each block of the tensors, which have the ids from 0 on:
/// u32[blocks, 2].
pub static DIGEST: OpDef = OpDef {
    name: "digest",
    numeric: Numeric::Follow,
    infer: |_, src| {
        need(src.len() >= 2, "takes the sums and at least one tensor")?;
        let all: usize = src[1..].iter().map(|&t| blocks(t)).sum();
        let sums = Type::new(&[all, 2], DType::U32);
        need(src[0] == sums, "the sums must have a pair for each block")?;
        Ok(sums)
    },
    vjp: Vjp::Stop("a digest is not differentiable"),
    expand: None,
    eval: |_, shape, src| {
        let mut out = Tensor::full(shape, 0.0);
        let mut at = 0;
        for (tensor, x) in src[1..].iter().enumerate() {
            for (b, block) in x.data.chunks(BLOCK).enumerate() {
                let (mut p, mut q) = (0u32, 0u32);
                for (i, &v) in block.iter().enumerate() {
                    let index = (b * BLOCK + i) as u32;
                    let (x, y) = element(tensor as u32, index, (v as f32).to_bits());
                    (p, q) = (p.wrapping_add(x), q.wrapping_add(y));
                }
                (out.data[at], out.data[at + 1]) = (p as f64, q as f64);
                at += 2;
            }
        }
        out
    },
    // Reached only where the sums are not a state of their own, which is written in place: works on a
    // copy.
    lower: |lw, id| {
        let node = lw.node(id);
        let tensors: Vec<BufId> = node.src[1..].iter().map(|&s| lw.buf(s)).collect();
        let out = lw.out(id);
        lw.copy_to(node.src[0], out, "digest");
        steps(lw, &node.src[1..], &tensors, out);
    },
    cases: || {
        let case = |lengths: &[usize]| {
            let all = lengths.iter().map(|n| n.div_ceil(BLOCK)).sum();
            let sums = [all, 2];
            let mut shapes: Vec<&[usize]> = vec![&sums];
            shapes.extend(lengths.chunks(1));
            Case::new(Op::Digest, &shapes)
                .ids(0, 9)
                .tol(0.0)
                .not_differentiable()
        };
        vec![
            case(&[1]),
            case(&[257]),
            case(&[4096]),
            case(&[4097]),
            case(&[3, 8193, 1, 4096, 700, 5000, 9, 4095]),
        ]
    },
};

/// Emits the launches that digest tensors in `bufs`, of the types of `nodes`, into `out`.
pub(crate) fn steps(lw: &mut Lower, nodes: &[NodeId], bufs: &[BufId], out: BufId) {
    let mut first = 0;
    let mut tensor = 0;
    for (nodes, bufs) in nodes.chunks(TENSORS).zip(bufs.chunks(TENSORS)) {
        let types: Vec<Type> = nodes.iter().map(|&n| lw.ty(n)).collect();
        let lengths: Vec<usize> = types.iter().map(|t| t.shape.words(t.dtype)).collect();
        let mut reads = bufs.to_vec();
        reads.resize(TENSORS, bufs[0]);
        lw.step(
            &KERNEL,
            params(first, tensor, &lengths),
            &reads,
            &[out],
            "digest",
        );
        first += types.iter().map(|&t| blocks(t)).sum::<usize>();
        tensor += nodes.len() as u32;
    }
}
