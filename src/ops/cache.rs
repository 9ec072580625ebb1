//! Operations of generation: attention over a cache of past rows, and the write into it.

use super::{Case, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::Type;
use crate::graph::eval::Tensor;
use crate::kernels::Params;
use crate::kernels::cache as kernels;

/// (r, t, w) of new rows [r, w], a cache [t, w] and positions [r].
fn extents(x: Type, cache: Type, at: Type) -> Result<(usize, usize, usize), String> {
    need(
        x.shape.rank() == 2 && cache.shape.rank() == 2 && at.shape.rank() == 1,
        "needs rows [r,w], a cache [t,w] and positions [r]",
    )?;
    let (r, t, w) = (x.shape.dim(0), cache.shape.dim(0), x.shape.dim(1));
    need(cache.shape.dim(1) == w, "rows and cache differ in width")?;
    need(x.dtype == cache.dtype, "rows and cache differ in type")?;
    need(
        at.dtype == DType::U32 && at.shape.dim(0) == r,
        "positions must be u32, one a row",
    )?;
    Ok((r, t, w))
}

fn heads(op: &Op) -> usize {
    match op {
        Op::AttentionCached(h) => *h as usize,
        _ => unreachable!("not attention over a cache"),
    }
}

/// (qkv[r, 3c], cache[t, 3c], at[r]) -> [r, c].
pub static ATTENTION_CACHED: OpDef = OpDef {
    name: "attention_cached",
    numeric: Numeric::Low,
    infer: |op, src| {
        arity(src, 3)?;
        let (r, _, w) = extents(src[0], src[1], src[2])?;
        let h = heads(op);
        need(
            h > 0 && w.is_multiple_of(3 * h),
            "three times the heads must divide the width",
        )?;
        Ok(Type::new(&[r, w / 3], src[0].dtype))
    },
    vjp: Vjp::Stop("a cache serves generation alone: train with the attention of whole sequences"),
    expand: None,
    eval: |op, shape, src| {
        let (h, c) = (heads(op), shape.dim(1));
        let (d, t) = (c / h, src[1].shape.dim(0));
        let first = (src[2].data[0] as usize).min(t);
        // Row j of q, k, v by position.
        let row = |j: usize| {
            if j < first {
                &src[1].data[j * 3 * c..][..3 * c]
            } else {
                &src[0].data[(j - first) * 3 * c..][..3 * c]
            }
        };
        let mut out = Tensor::full(shape, 0.0);
        for i in 0..shape.dim(0) {
            for head in 0..h {
                let q = &row(first + i)[head * d..][..d];
                let keys = 0..=first + i;
                let score = |j: usize| {
                    let k = &row(j)[c + head * d..][..d];
                    q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt()
                };
                let s: Vec<f64> = keys.map(score).collect();
                let max = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = s.iter().map(|s| (s - max).exp()).sum();
                for (j, s) in s.iter().enumerate() {
                    let p = (s - max).exp() / total;
                    for x in 0..d {
                        out.data[i * c + head * d + x] += p * row(j)[2 * c + head * d + x];
                    }
                }
            }
        }
        out
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let (qkv, cache) = (lw.ty(node.src[0]).shape, lw.ty(node.src[1]).shape);
        let h = heads(&node.op);
        let p = kernels::attention_params(qkv.dim(0), cache.dim(0), h, qkv.dim(1) / 3 / h);
        let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
        let out = lw.out_wide(id);
        let label = lw.label(id);
        lw.step(&kernels::ATTENTION_CACHED, p, &reads, &[out], &label);
        lw.narrow(id, out);
    },
    cases: || {
        let case = |r: usize, t: usize, h: usize, d: usize| {
            let w = 3 * h * d;
            Case::new(Op::AttentionCached(h as u32), &[&[r, w], &[t, w], &[r]])
                .ids(2, t as u32 + 2)
                .tol(1e-5)
                .not_differentiable()
        };
        vec![
            case(1, 1, 1, 1),
            case(1, 5, 2, 3),
            case(1, 64, 4, 32),
            case(1, 97, 1, 40),
            case(7, 33, 2, 5),
            case(32, 64, 2, 16),
            case(33, 96, 3, 5).narrow(&[0, 1]),
            case(1, 70, 2, 16).narrow(&[0, 1]),
            case(33, 96, 3, 5).narrow_to(DType::F16, &[0, 1]),
            case(1, 70, 2, 16).narrow_to(DType::F16, &[0, 1]),
        ]
    },
};

/// (cache[t, w], x[r, w], at[r]) -> the cache with the rows from `at[0]` on replaced.
pub static PUT_ROWS: OpDef = OpDef {
    name: "put_rows",
    numeric: Numeric::Follow,
    infer: |_, src| {
        arity(src, 3)?;
        extents(src[1], src[0], src[2])?;
        Ok(src[0])
    },
    vjp: Vjp::Stop("a cache serves generation alone: it has no gradient"),
    expand: None,
    eval: |_, shape, src| {
        let (t, w) = (shape.dim(0), shape.dim(1));
        let first = src[2].data[0] as usize;
        let mut out = src[0].clone();
        for (i, row) in src[1].data.chunks_exact(w).enumerate() {
            if first + i < t {
                out.data[(first + i) * w..][..w].copy_from_slice(row);
            }
        }
        out
    },
    // Reached only where the result is not simply the state's update, which is done in place.
    lower: |lw, id| {
        let node = lw.node(id);
        let label = lw.label(id);
        let out = lw.out(id);
        lw.copy_to(node.src[0], out, &label);
        let (x, at) = (lw.buf(node.src[1]), lw.buf(node.src[2]));
        let p = put_params(lw.ty(node.src[1]), lw.ty(node.src[0]));
        lw.step(&kernels::PUT_ROWS, p, &[x, at], &[out], &label);
    },
    cases: || {
        let case = |r: usize, t: usize, w: usize| {
            Case::new(Op::PutRows, &[&[t, w], &[r, w], &[r]])
                .ids(2, t as u32 + 1)
                .tol(0.0)
                .not_differentiable()
        };
        let narrow = case(3, 11, 7).narrow(&[0, 1]).tol(0.0);
        vec![case(1, 1, 1), case(1, 64, 96), case(13, 17, 5), narrow]
    },
};

/// The uniform block of a write of rows into a cache.
pub(crate) fn put_params(x: Type, cache: Type) -> Params {
    let rows = x.shape.dim(0);
    let words = x.shape.words(x.dtype) / rows.max(1);
    Params::new(&[rows as u32, words as u32, cache.shape.dim(0) as u32])
}
