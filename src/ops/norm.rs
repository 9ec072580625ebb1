//! Layer norm without bias, its statistics and its fused gradient. The variance is the biased one and
//! eps stands inside the root (Ba et al., arXiv:1607.06450; PyTorch's LayerNorm).

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::graph::eval::Tensor;
use crate::graph::{Tx, Type};
use crate::kernels::rows::{NORM_DX, NORM_FWD, NORM_STATS, norm_params};
use crate::shape::Shape;

const EPS: u32 = 0x3727_c5ac; // 1e-5

fn eps(op: &Op) -> u32 {
    match op {
        Op::LayerNorm(e) | Op::NormMean(e) | Op::NormRstd(e) | Op::LayerNormGrad(e) => *e,
        _ => unreachable!("not a norm"),
    }
}

/// Type of a row statistic: the last axis becomes 1.
fn per_row(t: Type) -> Result<Type, String> {
    need(t.shape.rank() >= 1, "needs at least one axis")?;
    Ok(Type {
        shape: t.shape.reduced(1 << (t.shape.rank() - 1)),
        dtype: t.dtype,
    })
}

fn row_stats(x: &[f64], eps: f64) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    (mean, 1.0 / (var + eps).sqrt())
}

/// (x[.., c], gain[c]) -> normalised rows times gain.
pub static LAYER_NORM: OpDef = OpDef {
    name: "layer_norm",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 2)?;
        need(
            src[0].shape.rank() >= 1 && src[1].shape.dims() == [src[0].shape.row()],
            "gain must be [c] for x [..,c]",
        )?;
        Ok(src[0])
    },
    vjp: Vjp::Rule(|y, g| {
        let e = eps(&y.node().op);
        let (x, gain) = (y.src(0), y.src(1));
        let (mean, rstd) = (x.op(Op::NormMean(e), &[]), x.op(Op::NormRstd(e), &[]));
        let dx = x.op(Op::LayerNormGrad(e), &[gain, mean, rstd, g]);
        let c = x.shape().row();
        let rows = x.shape().rows();
        let dgain = (g * ((x - mean) * rstd))
            .reshape(&[rows, c])
            .sum(1)
            .reshape(&[c]);
        vec![Some(dx), Some(dgain)]
    }),
    expand: Some(|y| {
        let e = eps(&y.node().op);
        let (x, gain) = (y.src(0), y.src(1));
        (x - x.op(Op::NormMean(e), &[])) * x.op(Op::NormRstd(e), &[]) * gain
    }),
    eval: |op, shape, src| {
        let c = shape.row();
        let e = f32::from_bits(eps(op)) as f64;
        let data = src[0].data.chunks(c).flat_map(|x| {
            let (mean, rstd) = row_stats(x, e);
            x.iter()
                .zip(&src[1].data)
                .map(|(v, g)| (v - mean) * rstd * g)
                .collect::<Vec<_>>()
        });
        Tensor::new(shape, data.collect())
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let e = eps(&node.op);
        let (x, gain) = (lw.buf(node.src[0]), lw.buf(node.src[1]));
        let y = lw.out(id);
        // The statistics come out of the same pass over x, for whoever wants them.
        let mean = lw.sibling(Op::NormMean(e), &node.src[..1]);
        let rstd = lw.sibling(Op::NormRstd(e), &node.src[..1]);
        let p = norm_params(node.ty.shape.rows(), node.ty.shape.row(), f32::from_bits(e));
        let label = lw.label(id);
        lw.step(&NORM_FWD, p, &[x, gain], &[y, mean, rstd], &label);
    },
    cases: || {
        let ln = Op::LayerNorm(EPS);
        vec![
            Case::new(ln.clone(), &[&[3, 1], &[1]]),
            Case::new(ln.clone(), &[&[5, 7], &[7]]),
            Case::new(ln.clone(), &[&[2, 3, 37], &[37]]),
            Case::new(ln.clone(), &[&[3, 257], &[257]]).tol(1e-5),
            Case::new(ln, &[&[2, 1280], &[1280]])
                .fill(0, Fill::Uniform(-8.0, 8.0))
                .tol(1e-5)
                .not_differentiable(),
        ]
    },
};

/// (x[.., c]) -> mean[.., 1].
pub static NORM_MEAN: OpDef = OpDef {
    name: "norm_mean",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 1)?;
        per_row(src[0])
    },
    vjp: Vjp::ViaExpand,
    expand: Some(|y| y.src(0).mean_last()),
    eval: |op, shape, src| {
        let e = f32::from_bits(eps(op)) as f64;
        Tensor::new(
            shape,
            src[0]
                .data
                .chunks(src[0].shape.row())
                .map(|x| row_stats(x, e).0)
                .collect(),
        )
    },
    lower: lower_stats,
    cases: || {
        vec![
            Case::new(Op::NormMean(EPS), &[&[5, 7]]),
            Case::new(Op::NormMean(EPS), &[&[2, 3, 65]]),
        ]
    },
};

/// (x[.., c]) -> 1 / sqrt(variance + eps), [.., 1].
pub static NORM_RSTD: OpDef = OpDef {
    name: "norm_rstd",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 1)?;
        per_row(src[0])
    },
    vjp: Vjp::ViaExpand,
    expand: Some(|y| {
        let x = y.src(0);
        let d = x - x.mean_last();
        ((d * d).mean_last() + x.constant(f32::from_bits(eps(&y.node().op)))).rsqrt()
    }),
    eval: |op, shape, src| {
        let e = f32::from_bits(eps(op)) as f64;
        Tensor::new(
            shape,
            src[0]
                .data
                .chunks(src[0].shape.row())
                .map(|x| row_stats(x, e).1)
                .collect(),
        )
    },
    lower: lower_stats,
    cases: || {
        vec![
            Case::new(Op::NormRstd(EPS), &[&[5, 7]]),
            Case::new(Op::NormRstd(EPS), &[&[2, 3, 65]]),
        ]
    },
};

fn lower_stats(lw: &mut crate::passes::lower::Lower, id: crate::graph::NodeId) {
    let node = lw.node(id);
    let e = eps(&node.op);
    let x = lw.buf(node.src[0]);
    let mean = lw.sibling(Op::NormMean(e), &node.src);
    let rstd = lw.sibling(Op::NormRstd(e), &node.src);
    let shape: Shape = lw.ty(node.src[0]).shape;
    let label = lw.label(id);
    lw.step(
        &NORM_STATS,
        norm_params(shape.rows(), shape.row(), f32::from_bits(e)),
        &[x],
        &[mean, rstd],
        &label,
    );
}

/// (x, gain, mean, rstd, g) -> gradient of layer norm by x.
pub static LAYER_NORM_GRAD: OpDef = OpDef {
    name: "layer_norm_grad",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 5)?;
        need(
            src[4].shape == src[0].shape,
            "the cotangent must have the input's shape",
        )?;
        need(
            src[1].shape.dims() == [src[0].shape.row()],
            "gain must be [c]",
        )?;
        let stat = per_row(src[0])?.shape;
        need(
            src[2].shape == stat && src[3].shape == stat,
            "statistics must be one a row",
        )?;
        Ok(src[0])
    },
    vjp: Vjp::ViaExpand,
    expand: Some(expand_grad),
    eval: |_, shape, src| {
        let c = shape.row();
        let [x, gain, mean, rstd, g] = src else {
            unreachable!()
        };
        let mut out = Tensor::full(shape, 0.0);
        for r in 0..shape.rows() {
            let h = |i: usize| (x.data[r * c + i] - mean.data[r]) * rstd.data[r];
            let u = |i: usize| g.data[r * c + i] * gain.data[i];
            let mean_u = (0..c).map(u).sum::<f64>() / c as f64;
            let mean_uh = (0..c).map(|i| u(i) * h(i)).sum::<f64>() / c as f64;
            for i in 0..c {
                out.data[r * c + i] = (u(i) - mean_u - h(i) * mean_uh) * rstd.data[r];
            }
        }
        out
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
        let out = lw.out(id);
        let p = norm_params(
            node.ty.shape.rows(),
            node.ty.shape.row(),
            f32::from_bits(eps(&node.op)),
        );
        let label = lw.label(id);
        lw.step(&NORM_DX, p, &reads, &[out], &label);
    },
    cases: || {
        let stat = Fill::Uniform(0.5, 1.5);
        let case = |n: usize, c: usize| {
            Case::new(
                Op::LayerNormGrad(EPS),
                &[&[n, c], &[c], &[n, 1], &[n, 1], &[n, c]],
            )
            .fill(3, stat)
        };
        vec![case(3, 1), case(5, 7), case(2, 257).tol(1e-5)]
    },
};

fn expand_grad(y: Tx) -> Tx {
    let [x, gain, mean, rstd, g] = [0, 1, 2, 3, 4].map(|i| y.src(i));
    let h = (x - mean) * rstd;
    let u = g * gain;
    (u - u.mean_last() - h * (u * h).mean_last()) * rstd
}
