//! Causal self-attention over packed q, k, v, and its fused gradient.

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::eval::Tensor;
use crate::graph::{NodeId, Type};
use crate::kernels::attention as kernels;
use crate::passes::lower::Lower;
use crate::shape::Shape;

fn heads(op: &Op) -> usize {
    match op {
        Op::Attention(h) | Op::AttentionLse(h) | Op::AttentionGrad(h) => *h as usize,
        _ => unreachable!("not attention"),
    }
}

/// (b, t, c) of packed q, k, v.
fn extents(op: &Op, qkv: Type) -> Result<(usize, usize, usize), String> {
    need(
        qkv.shape.rank() == 3 && qkv.shape.dim(2).is_multiple_of(3),
        "needs qkv [b,t,3c]",
    )?;
    let (b, t, c) = (qkv.shape.dim(0), qkv.shape.dim(1), qkv.shape.dim(2) / 3);
    need(
        heads(op) > 0 && c.is_multiple_of(heads(op)),
        "the heads must divide the width",
    )?;
    Ok((b, t, c))
}

/// (qkv[b, t, 3c]) -> [b, t, c].
pub static ATTENTION: OpDef = OpDef {
    name: "attention",
    numeric: Numeric::Low,
    infer: |op, src| {
        arity(src, 1)?;
        let (b, t, c) = extents(op, src[0])?;
        Ok(Type::new(&[b, t, c], src[0].dtype))
    },
    vjp: Vjp::Rule(|y, g| {
        let h = heads(&y.node().op);
        let qkv = y.src(0);
        let lse = qkv.op(Op::AttentionLse(h as u32), &[]);
        let (b, t, c) = (y.shape().dim(0), y.shape().dim(1), y.shape().dim(2));
        let delta = (g.f32() * y.f32())
            .reshape(&[b, t, h, c / h])
            .sum(1 << 3)
            .reshape(&[b, t, h]);
        vec![Some(qkv.op(Op::AttentionGrad(h as u32), &[lse, delta, g]))]
    }),
    expand: None,
    eval: |op, shape, src| {
        let n = Naive::new(op, src[0]);
        let mut out = Tensor::full(shape, 0.0);
        n.each(|b, h, i| {
            let p = n.probabilities(b, h, i);
            for d in 0..n.d {
                out.data[(b * n.t + i) * n.c + h * n.d + d] =
                    (0..=i).map(|j| p[j] * n.at(b, j, 2, h, d)).sum();
            }
        });
        out
    },
    lower: lower_forward,
    cases: || {
        let case = |b: usize, t: usize, h: u32, d: usize| {
            Case::new(Op::Attention(h), &[&[b, t, 3 * h as usize * d]])
        };
        let mut out = vec![case(1, 1, 1, 1), case(2, 5, 2, 3), case(1, 37, 1, 4)];
        out.push(case(2, 67, 3, 5).narrow(&[0]));
        out.push(case(1, 33, 2, 16).narrow(&[0]));
        out.push(case(2, 67, 3, 5).narrow_to(DType::F16, &[0]));
        out.push(case(1, 33, 2, 16).narrow_to(DType::F16, &[0]));
        for t in [255, 256, 257] {
            out.push(case(1, t, 2, 8).tol(1e-5).not_differentiable());
        }
        out.push(
            case(1, 70, 1, 16)
                .fill(0, Fill::Normal(4.0))
                .tol(2e-5)
                .not_differentiable(),
        );
        out
    },
};

/// (qkv) -> log-sum-exp of the scaled scores, [b, heads, t].
pub static ATTENTION_LSE: OpDef = OpDef {
    name: "attention_lse",
    numeric: Numeric::Low,
    infer: |op, src| {
        arity(src, 1)?;
        let (b, t, _) = extents(op, src[0])?;
        Ok(Type::f32(&[b, heads(op), t]))
    },
    vjp: Vjp::Stop(
        "the log-sum-exp of attention has no second derivative yet: express the attention by matmul and softmax",
    ),
    expand: None,
    eval: |op, shape, src| {
        let n = Naive::new(op, src[0]);
        let mut out = Tensor::full(shape, 0.0);
        n.each(|b, h, i| out.data[(b * n.h + h) * n.t + i] = n.lse(b, h, i));
        out
    },
    lower: lower_forward,
    cases: || vec![Case::new(Op::AttentionLse(2), &[&[2, 67, 18]]).not_differentiable()],
};

/// One kernel gives both results.
fn lower_forward(lw: &mut Lower, id: NodeId) {
    let node = lw.node(id);
    let h = heads(&node.op);
    let qkv = lw.ty(node.src[0]);
    let (b, t, c) = extents(&node.op, qkv).expect("the shape rule has been checked");
    let x = lw.buf(node.src[0]);
    let y_id = lw.add(Op::Attention(h as u32), &node.src);
    let fresh = !lw.has(y_id);
    let y = if fresh {
        lw.out_wide(y_id)
    } else {
        lw.scratch(Type::f32(&[b, t, c]), "attention")
    };
    let lse = lw.sibling(Op::AttentionLse(h as u32), &node.src);
    let label = lw.label(id);
    lw.step(
        &kernels::ATTENTION,
        kernels::params(b, t, h, c / h),
        &[x],
        &[y, lse],
        &label,
    );
    if fresh {
        lw.narrow(y_id, y);
    }
}

/// (qkv, lse, delta[b, t, heads], g[b, t, c]) -> gradient by qkv.
pub static ATTENTION_GRAD: OpDef = OpDef {
    name: "attention_grad",
    numeric: Numeric::Low,
    infer: |op, src| {
        arity(src, 4)?;
        let (b, t, c) = extents(op, src[0])?;
        let h = heads(op);
        need(src[1].shape.dims() == [b, h, t], "lse must be [b,heads,t]")?;
        need(
            src[2].shape.dims() == [b, t, h],
            "delta must be [b,t,heads]",
        )?;
        need(
            src[3].shape.dims() == [b, t, c],
            "the cotangent must be [b,t,c]",
        )?;
        Ok(src[0])
    },
    vjp: Vjp::Stop(
        "attention's gradient cannot be differentiated again yet: express the attention by matmul and softmax",
    ),
    expand: None,
    eval: |op, shape, src| {
        let n = Naive::new(op, src[0]);
        let (lse, delta, g) = (&src[1].data, &src[2].data, &src[3].data);
        let mut out = Tensor::full(shape, 0.0);
        let at = |b: usize, i: usize, which: usize, h: usize, d: usize| n.index(b, i, which, h, d);
        n.each(|b, h, i| {
            let gi = |d: usize| g[(b * n.t + i) * n.c + h * n.d + d];
            for j in 0..=i {
                let p = (n.score(b, h, i, j) - lse[(b * n.h + h) * n.t + i]).exp();
                let dp: f64 = (0..n.d).map(|d| gi(d) * n.at(b, j, 2, h, d)).sum();
                let ds = p * (dp - delta[(b * n.t + i) * n.h + h]) * n.scale;
                for d in 0..n.d {
                    out.data[at(b, i, 0, h, d)] += ds * n.at(b, j, 1, h, d);
                    out.data[at(b, j, 1, h, d)] += ds * n.at(b, i, 0, h, d);
                    out.data[at(b, j, 2, h, d)] += p * gi(d);
                }
            }
        });
        out
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let h = heads(&node.op);
        let (b, t, c) = extents(&node.op, node.ty).expect("the shape rule has been checked");
        let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
        let out = lw.out_wide(id);
        let label = lw.label(id);
        lw.step(
            &kernels::ATTENTION_GRAD,
            kernels::params(b, t, h, c / h),
            &reads,
            &[out],
            &label,
        );
        lw.narrow(id, out);
    },
    cases: || {
        let case = |b: usize, t: usize, h: usize, d: usize| {
            let c = h * d;
            let shapes: [&[usize]; 4] = [&[b, t, 3 * c], &[b, h, t], &[b, t, h], &[b, t, c]];
            Case::new(Op::AttentionGrad(h as u32), &shapes)
                .fill(1, Fill::Uniform(4.0, 6.0))
                .not_differentiable()
        };
        vec![
            case(1, 1, 1, 1),
            case(2, 5, 2, 3),
            case(1, 65, 2, 8).tol(1e-5),
            case(1, 257, 1, 8).tol(1e-5),
            case(2, 67, 3, 5).narrow(&[0, 3]),
            case(1, 33, 2, 16).narrow(&[0, 3]),
            case(2, 67, 3, 5).narrow_to(DType::F16, &[0, 3]),
            case(1, 33, 2, 16).narrow_to(DType::F16, &[0, 3]),
        ]
    },
};

/// The textbook definition, with the T x T matrix.
struct Naive<'a> {
    x: &'a [f64],
    b: usize,
    t: usize,
    c: usize,
    h: usize,
    d: usize,
    scale: f64,
}

impl<'a> Naive<'a> {
    fn new(op: &Op, qkv: &'a Tensor) -> Naive<'a> {
        let s: Shape = qkv.shape;
        let (h, c) = (heads(op), s.dim(2) / 3);
        Naive {
            x: &qkv.data,
            b: s.dim(0),
            t: s.dim(1),
            c,
            h,
            d: c / h,
            scale: 1.0 / ((c / h) as f64).sqrt(),
        }
    }

    fn index(&self, b: usize, i: usize, which: usize, h: usize, d: usize) -> usize {
        (b * self.t + i) * 3 * self.c + which * self.c + h * self.d + d
    }

    fn at(&self, b: usize, i: usize, which: usize, h: usize, d: usize) -> f64 {
        self.x[self.index(b, i, which, h, d)]
    }

    fn score(&self, b: usize, h: usize, i: usize, j: usize) -> f64 {
        (0..self.d)
            .map(|d| self.at(b, i, 0, h, d) * self.at(b, j, 1, h, d))
            .sum::<f64>()
            * self.scale
    }

    fn lse(&self, b: usize, h: usize, i: usize) -> f64 {
        let s: Vec<f64> = (0..=i).map(|j| self.score(b, h, i, j)).collect();
        let m = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        m + s.iter().map(|v| (v - m).exp()).sum::<f64>().ln()
    }

    fn probabilities(&self, b: usize, h: usize, i: usize) -> Vec<f64> {
        let lse = self.lse(b, h, i);
        (0..=i)
            .map(|j| (self.score(b, h, i, j) - lse).exp())
            .collect()
    }

    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        for b in 0..self.b {
            for h in 0..self.h {
                (0..self.t).for_each(|i| f(b, h, i));
            }
        }
    }
}
