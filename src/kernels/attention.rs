//! Causal self-attention without a T x T matrix.
//!
//! Order (part of the contract): a score is one accumulator folded over ascending d, then scaled; keys
//! go by in blocks of [`KEY_BLOCK`], ascending, under a running maximum; a block's exponentials are
//! summed by a halving tree, and the weighted values folded over ascending keys. The backward pass
//! recomputes the probabilities from the saved log-sum-exp; dQ folds over ascending keys, dK and dV over
//! ascending queries. Operands of product-sums are floored at 2^-51, as in GEMM.
//!
//! The running softmax is that of Milakov and Gimelshein, arXiv:1805.02867, with the blocking of
//! FlashAttention, arXiv:2205.14135.

use super::lanes::{max2, tree};
use super::math::{FLOOR_BF16_OPERAND, FLOOR_F32_OPERAND, FLOOR_SUM, div, exp, floor_to, ftz, log};
use super::order::KEY_BLOCK;
use super::{Host, KernelDef, Params, View, ViewMut, read, write};
use crate::dtype::{DType, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use rayon::prelude::*;

/// `qkv[b, t, 3c] -> y[b, t, c], lse[b, h, t]`. Rows of qkv hold q, k, v, each h heads of c/h. Uniform
/// words: b, t, heads, head width, scale (bits).
pub static ATTENTION: KernelDef = KernelDef {
    name: "attention",
    bindings: &[read("qkv"), write("y"), write("lse")],
    host: Host::No,
    cpu: attention,
};

/// `qkv, lse[b, h, t], delta[b, t, h], g[b, t, c] -> dqkv[b, t, 3c]`, delta the row sums of g * y.
/// Uniform words as [`ATTENTION`].
pub static ATTENTION_GRAD: KernelDef = KernelDef {
    name: "attention_grad",
    bindings: &[
        read("qkv"),
        read("lse"),
        read("delta"),
        read("g"),
        write("dqkv"),
    ],
    host: Host::No,
    cpu: attention_grad,
};

/// The uniform block: scale is 1/sqrt(head width), rounded once from f64.
pub fn params(b: usize, t: usize, heads: usize, width: usize) -> Params {
    let scale = (1.0 / libm::sqrt(width as f64)) as f32;
    Params::new(&[
        b as u32,
        t as u32,
        heads as u32,
        width as u32,
        scale.to_bits(),
    ])
}

/// What a launch computes with.
#[derive(Clone, Copy)]
pub(super) struct Dims {
    /// Queries of a sequence.
    pub(super) t: usize,
    pub(super) heads: usize,
    /// Width of a head.
    pub(super) d: usize,
    scale: f32,
    /// Type of the operands of product-sums.
    dtype: DType,
}

impl Dims {
    pub(super) fn of(p: &Params, dtype: DType) -> Dims {
        Dims {
            t: p.at(1),
            heads: p.at(2),
            d: p.at(3),
            scale: p.float(4),
            dtype,
        }
    }

    /// A probability or score gradient as an operand: rounded to the operands' type, floored.
    #[inline(always)]
    fn operand(&self, x: f32) -> f32 {
        // All roundings and a select, so that the loop over keys is vectorised.
        let rounded = match self.dtype {
            DType::Bf16 => bf16_to_f32(f32_to_bf16(x)),
            DType::F16 => f16_to_f32(f32_to_f16(x)),
            DType::F32 | DType::U32 => x,
        };
        floor_to(rounded, self.floor())
    }

    /// Operands below this count as zero; no f16 is.
    fn floor(&self) -> u32 {
        if self.dtype.is_low() {
            FLOOR_BF16_OPERAND
        } else {
            FLOOR_F32_OPERAND
        }
    }

    pub(super) fn c(&self) -> usize {
        self.heads * self.d
    }
}

type Block = [f32; KEY_BLOCK];
/// Queries that go through a key block together, so that independent sums hide latency.
const QUERIES: usize = 4;

/// One head's operands, floored; keys and values also transposed in blocks: `[block][d][key]`.
pub(super) struct Head {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    kt: Vec<f32>,
    vt: Vec<f32>,
}

impl Head {
    fn gather(n: Dims, qkv: &[f32], h: usize) -> Head {
        let part = |which: usize| rows_of(n, qkv, 3 * n.c(), which * n.c() + h * n.d);
        let (q, k, v) = (part(0), part(1), part(2));
        let (kt, vt) = (blocked(&k, n), blocked(&v, n));
        Head { q, k, v, kt, vt }
    }

    /// The queries of `qkv`; keys and values of the rows `before`, then of `qkv`. No transposed values.
    pub(super) fn after_rows(n: Dims, before: &[f32], qkv: &[f32], h: usize) -> Head {
        let part = |x: &[f32], which: usize| rows_of(n, x, 3 * n.c(), which * n.c() + h * n.d);
        let both = |which: usize| [part(before, which), part(qkv, which)].concat();
        let (q, k, v) = (part(qkv, 0), both(1), both(2));
        let (kt, vt) = (blocked(&k, n), Vec::new());
        Head { q, k, v, kt, vt }
    }
}

/// Rows of `d` floored elements out of a wider matrix.
fn rows_of(n: Dims, x: &[f32], stride: usize, offset: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len() / stride * n.d);
    for row in x.chunks_exact(stride) {
        out.extend(row[offset..][..n.d].iter().map(|&x| floor_to(x, n.floor())));
    }
    out
}

/// `[t, d]` as `[t / KEY_BLOCK][d][KEY_BLOCK]`, padded with zeros.
fn blocked(x: &[f32], n: Dims) -> Vec<f32> {
    let mut out = vec![0.0; (x.len() / n.d).div_ceil(KEY_BLOCK) * n.d * KEY_BLOCK];
    for (j, row) in x.chunks_exact(n.d).enumerate() {
        let block = &mut out[j / KEY_BLOCK * n.d * KEY_BLOCK..];
        for (d, &v) in row.iter().enumerate() {
            block[d * KEY_BLOCK + j % KEY_BLOCK] = v;
        }
    }
    out
}

/// Dot products of up to four rows with the keys of one transposed block, folded over ascending d.
#[inline(always)]
fn dots(rows: [&[f32]; QUERIES], block: &[f32]) -> [Block; QUERIES] {
    let mut s = [[0f32; KEY_BLOCK]; QUERIES];
    let [r0, r1, r2, r3] = rows;
    for ((((col, &a), &b), &c), &d) in block
        .chunks_exact(KEY_BLOCK)
        .zip(r0)
        .zip(r1)
        .zip(r2)
        .zip(r3)
    {
        for j in 0..KEY_BLOCK {
            s[0][j] += a * col[j];
            s[1][j] += b * col[j];
            s[2][j] += c * col[j];
            s[3][j] += d * col[j];
        }
    }
    s
}

/// Four rows of `x` from row `i` on; rows past the end repeat the last one and are not used.
#[inline(always)]
fn four(x: &[f32], i: usize, t: usize, d: usize) -> [&[f32]; QUERIES] {
    std::array::from_fn(|a| &x[(i + a).min(t - 1) * d..][..d])
}

#[inline(always)]
fn add_scaled(out: &mut [f32], x: &[f32], by: f32) {
    out.iter_mut().zip(x).for_each(|(o, &x)| *o += by * x);
}

/// What one query carries from block to block.
struct Running {
    max: f32,
    sum: f32,
}

crate::multiversion! {
    /// Query i stands at position `first + i` and sees the keys up to there.
    pub(super) fn forward(n: Dims, first: usize, head: &Head, y: &mut [f32], lse: &mut [f32]) {
        let blocks = n.d * KEY_BLOCK;
        for i in (0..n.t).step_by(QUERIES) {
            let live = QUERIES.min(n.t - i);
            let mut run: [Running; QUERIES] = std::array::from_fn(|_| Running { max: 0.0, sum: 0.0 });
            for b in 0..(first + i + live - 1) / KEY_BLOCK + 1 {
                let mut s = dots(four(&head.q, i, n.t, n.d), &head.kt[b * blocks..(b + 1) * blocks]);
                for a in 0..live {
                    let keys = (first + i + a + 1).saturating_sub(b * KEY_BLOCK).min(KEY_BLOCK);
                    if keys > 0 {
                        let out = &mut y[(i + a) * n.d..(i + a + 1) * n.d];
                        fold_block(n, &mut s[a], keys, b == 0, &mut run[a], out, &head.v[b * blocks..]);
                    }
                }
            }
            for (a, r) in run.iter().enumerate().take(live) {
                y[(i + a) * n.d..(i + a + 1) * n.d].iter_mut().for_each(|y| *y = div(*y, r.sum));
                lse[i + a] = ftz(r.max + log(r.sum));
            }
        }
    }
}

/// Adds one block of keys to a query's running softmax.
#[inline(always)]
fn fold_block(
    n: Dims,
    s: &mut Block,
    keys: usize,
    first: bool,
    run: &mut Running,
    out: &mut [f32],
    v: &[f32],
) {
    s.iter_mut().for_each(|x| *x = ftz(*x * n.scale));
    let masked: Block = std::array::from_fn(|j| if j < keys { s[j] } else { f32::NEG_INFINITY });
    let block_max = tree(masked, max2);
    let new_max = if first {
        block_max
    } else {
        max2(run.max, block_max)
    };
    let mut p = [0f32; KEY_BLOCK];
    for j in 0..KEY_BLOCK {
        let e = exp(ftz(s[j] - new_max));
        p[j] = if j < keys { e } else { 0.0 };
    }
    let block_sum = tree(p.map(|p| floor_to(p, FLOOR_SUM)), |a, b| a + b);
    if first {
        run.sum = block_sum;
        out.fill(0.0);
    } else {
        let alpha = exp(ftz(run.max - new_max));
        run.sum = floor_to(run.sum * alpha, FLOOR_SUM) + block_sum;
        out.iter_mut()
            .for_each(|o| *o = floor_to(*o * alpha, FLOOR_SUM));
    }
    run.max = new_max;
    for j in 0..keys {
        add_scaled(out, &v[j * n.d..(j + 1) * n.d], n.operand(p[j]));
    }
}

fn attention(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let n = Dims::of(p, reads[0].dtype);
    let qkv = reads[0].widened();
    let [y, lse] = writes else {
        unreachable!("attention writes two buffers")
    };
    let c = n.c();
    // A task is one sequence and head; its rows of y are strided, so they are copied in at the end.
    (
        y.f32().par_chunks_mut(n.t * c),
        lse.f32().par_chunks_mut(n.heads * n.t),
        qkv.par_chunks(n.t * 3 * c),
    )
        .into_par_iter()
        .for_each(|(y, lse, qkv)| {
            let heads: Vec<Vec<f32>> = lse
                .par_chunks_mut(n.t)
                .enumerate()
                .map(|(h, lse)| {
                    let mut out = vec![0f32; n.t * n.d];
                    forward(n, 0, &Head::gather(n, qkv, h), &mut out, lse);
                    out
                })
                .collect();
            for (h, out) in heads.iter().enumerate() {
                scatter(n, out, y, c, h * n.d);
            }
        });
}

/// Copies a head's rows into a wider matrix.
pub(super) fn scatter(n: Dims, from: &[f32], to: &mut [f32], stride: usize, offset: usize) {
    for (i, row) in from.chunks_exact(n.d).enumerate() {
        to[i * stride + offset..][..n.d].copy_from_slice(row);
    }
}

/// The parts of one head's gradient.
struct Grads {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

crate::multiversion! {
    fn backward(n: Dims, head: &Head, g: &[f32], lse: &[f32], delta: &[f32], out: &mut Grads) {
        let blocks = n.d * KEY_BLOCK;
        for b in 0..n.t.div_ceil(KEY_BLOCK) {
            let first = b * KEY_BLOCK;
            let (kt, vt) = (&head.kt[b * blocks..(b + 1) * blocks], &head.vt[b * blocks..(b + 1) * blocks]);
            for i in (first..n.t).step_by(QUERIES) {
                let live = QUERIES.min(n.t - i);
                let s = dots(four(&head.q, i, n.t, n.d), kt);
                let dp = dots(four(g, i, n.t, n.d), vt);
                for a in 0..live {
                    let i = i + a;
                    let keys = (i + 1 - first).min(KEY_BLOCK);
                    let (p, ds) = probabilities(n, &s[a], &dp[a], keys, lse[i], delta[i]);
                    let (q, g) = (&head.q[i * n.d..(i + 1) * n.d], &g[i * n.d..(i + 1) * n.d]);
                    for j in 0..keys {
                        let at = (first + j) * n.d..(first + j + 1) * n.d;
                        add_scaled(&mut out.q[i * n.d..(i + 1) * n.d], &head.k[at.clone()], ds[j]);
                        add_scaled(&mut out.v[at.clone()], g, p[j]);
                        add_scaled(&mut out.k[at], q, ds[j]);
                    }
                }
            }
        }
        for x in [&mut out.q, &mut out.k] {
            x.iter_mut().for_each(|x| *x = ftz(*x * n.scale));
        }
    }
}

/// The probabilities of one query over a block of keys and the gradients of its (unscaled) scores, both
/// floored for the products they go into.
#[inline(always)]
fn probabilities(
    n: Dims,
    s: &Block,
    dp: &Block,
    keys: usize,
    lse: f32,
    delta: f32,
) -> (Block, Block) {
    let (mut p, mut ds) = ([0f32; KEY_BLOCK], [0f32; KEY_BLOCK]);
    for j in 0..KEY_BLOCK {
        let e = exp(ftz(ftz(s[j] * n.scale) - ftz(lse)));
        let e = if j < keys { e } else { 0.0 };
        p[j] = n.operand(e);
        ds[j] = n.operand(e * ftz(dp[j] - ftz(delta)));
    }
    (p, ds)
}

fn attention_grad(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let n = Dims::of(p, reads[0].dtype);
    let c = n.c();
    let (qkv, g) = (reads[0].widened(), reads[3].widened());
    let [_, lse, delta, _] = reads else {
        unreachable!("attention_grad reads four buffers")
    };
    (
        writes[0].f32().par_chunks_mut(n.t * 3 * c),
        qkv.par_chunks(n.t * 3 * c),
        lse.f32().par_chunks(n.heads * n.t),
        delta.f32().par_chunks(n.heads * n.t),
        g.par_chunks(n.t * c),
    )
        .into_par_iter()
        .for_each(|(out, qkv, lse, delta, g)| {
            let heads: Vec<Grads> = (0..n.heads)
                .into_par_iter()
                .map(|h| {
                    let zeros = || vec![0f32; n.t * n.d];
                    let mut grads = Grads {
                        q: zeros(),
                        k: zeros(),
                        v: zeros(),
                    };
                    let g = rows_of(n, g, c, h * n.d);
                    let delta: Vec<f32> = (0..n.t).map(|i| delta[i * n.heads + h]).collect();
                    backward(
                        n,
                        &Head::gather(n, qkv, h),
                        &g,
                        &lse[h * n.t..(h + 1) * n.t],
                        &delta,
                        &mut grads,
                    );
                    grads
                })
                .collect();
            for (h, grads) in heads.iter().enumerate() {
                for (which, part) in [&grads.q, &grads.k, &grads.v].into_iter().enumerate() {
                    scatter(n, part, out, 3 * c, which * c + h * n.d);
                }
            }
        });
}
