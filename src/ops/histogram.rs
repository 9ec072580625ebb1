//! Counts of magnitudes by range as a graph operation.

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::Type;
use crate::graph::eval::Tensor;
use crate::kernels::histogram::{BINS, BLOCK, HISTOGRAM as KERNEL, params};

/// (x, edges[BINS + 1], ascending) -> counts of |x|, u32[blocks, BINS].
pub static HISTOGRAM: OpDef = OpDef {
    name: "histogram",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 2)?;
        need(
            src[1].shape.dims() == [BINS + 1],
            "needs an edge more than ranges",
        )?;
        Ok(Type::new(
            &[src[0].shape.elems().div_ceil(BLOCK), BINS],
            DType::U32,
        ))
    },
    vjp: Vjp::Stop("a histogram is not differentiable"),
    expand: None,
    eval: |_, shape, src| {
        let (x, edges) = (&src[0].data, &src[1].data);
        let mut out = Tensor::full(shape, 0.0);
        for (i, v) in x.iter().map(|v| v.abs()).enumerate() {
            let k = (0..BINS).find(|&k| edges[k] <= v && v < edges[k + 1]);
            let k = if v == edges[BINS] { Some(BINS - 1) } else { k };
            if let Some(k) = k {
                out.data[i / BLOCK * BINS + k] += 1.0;
            }
        }
        out
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let n = lw.ty(node.src[0]).shape.elems();
        let (x, edges) = (lw.buf(node.src[0]), lw.buf(node.src[1]));
        let out = lw.out(id);
        lw.step(&KERNEL, params(n), &[x, edges], &[out], "histogram");
    },
    cases: || {
        let case = |n: usize| {
            let edges = Fill::Ascending(0.1, 0.07);
            Case::new(Op::Histogram, &[&[n], &[BINS + 1]])
                .fill(1, edges)
                .tol(0.0)
                .not_differentiable()
        };
        vec![case(1), case(257), case(BLOCK + 1)]
    },
};
