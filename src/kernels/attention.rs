//! Causal self-attention without a T x T matrix.
//!
//! Order (part of the contract): a score is one accumulator folded over ascending d, then scaled; keys
//! go by in blocks of [`KEY_BLOCK`], ascending, under a running maximum; a block's exponentials are
//! summed by a halving tree, and the weighted values folded over ascending keys. The backward pass
//! recomputes the probabilities from the saved log-sum-exp; dQ folds over ascending keys, dK and dV over
//! ascending queries. Operands of product-sums are floored at 2^-51, as in GEMM.
//!
//! Here sixteen queries go through a block together, and a key that one of them does not see has the weight
//! 0 for it: a product with 0 added to a sum that began at +0 leaves its bits alone, so that the masked
//! pairs, which shaders skip, need no test.
//!
//! The running softmax is that of Milakov and Gimelshein, arXiv:1805.02867, with the blocking of
//! FlashAttention, arXiv:2205.14135.

use super::cpu_gemm::small::{Side, Small};
use super::lanes::max2;
use super::math::{FLOOR_BF16_OPERAND, FLOOR_F32_OPERAND, FLOOR_SUM, div, exp, floor_to, ftz, log};
use super::order::KEY_BLOCK;
use super::packed::pitch;
use super::scratch::Scratch;
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

    /// Probabilities or score gradients as operands: rounded to the operands' type, floored. A loop for each
    /// type, so that each is vectorised.
    #[inline(always)]
    fn operands(&self, block: &mut Block) {
        let all = block.as_flattened_mut();
        match self.dtype {
            DType::Bf16 => {
                for x in all {
                    *x = floor_to(bf16_to_f32(f32_to_bf16(*x)), FLOOR_BF16_OPERAND);
                }
            }
            DType::F16 => {
                for x in all {
                    *x = floor_to(f16_to_f32(f32_to_f16(*x)), FLOOR_BF16_OPERAND);
                }
            }
            DType::F32 | DType::U32 => {
                for x in all {
                    *x = floor_to(*x, FLOOR_F32_OPERAND);
                }
            }
        }
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

/// Queries that go through a key block together, a lane each: scores lie as `[key][query]`, so that all
/// that is done along the keys is done for these at once.
const QUERIES: usize = Small::COLUMNS;

/// A number for each of the queries.
type Lanes = [f32; QUERIES];
/// The scores of a block of keys.
type Block = [Lanes; KEY_BLOCK];

/// One head's operands, floored, in rows of [`Dims::padded`] columns, and transposed: keys and values in
/// blocks `[block][d][key]`, queries as `[d][query]`, padded to whole blocks with zeros.
pub(super) struct Head {
    q: Scratch,
    qt: Scratch,
    k: Scratch,
    v: Scratch,
    kt: Scratch,
    vt: Scratch,
}

impl Head {
    fn gather(n: Dims, qkv: Rows, h: usize) -> Head {
        Head::after_rows(n, Rows { words: &[], ..qkv }, qkv, h, true)
    }

    /// The queries of `qkv`; keys and values of the rows `before`, then of `qkv`. Transposed values where
    /// `values`.
    pub(super) fn after_rows(n: Dims, before: Rows, qkv: Rows, h: usize, values: bool) -> Head {
        let at = |which: usize| which * n.c() + h * n.d;
        let both = |which: usize| rows_of(n, &[before, qkv], at(which));
        let (q, k, v) = (rows_of(n, &[qkv], at(0)), both(1), both(2));
        Head {
            qt: n.transposed(&q, n.queries()),
            kt: n.transposed(&k, KEY_BLOCK),
            vt: n.transposed(if values { &v } else { &[] }, KEY_BLOCK),
            q,
            k,
            v,
        }
    }
}

/// Stored rows, each of `row` elements.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) dtype: DType,
    pub(super) row: usize,
    pub(super) words: &'a [u32],
}

impl Rows<'_> {
    fn count(&self) -> usize {
        self.words.len() / pitch(self.dtype, self.row).max(1)
    }
}

/// A head's columns, from `offset` on, of rows and of more rows, floored and padded with zeros.
fn rows_of(n: Dims, parts: &[Rows], offset: usize) -> Scratch {
    let count: usize = parts.iter().map(Rows::count).sum();
    let mut out = Scratch::zeros(count * n.padded());
    let mut rest = &mut out[..];
    for part in parts {
        let (these, others) = rest.split_at_mut(part.count() * n.padded());
        match part.dtype {
            DType::Bf16 | DType::F16 => copy_narrow(n, *part, offset, these),
            DType::F32 | DType::U32 => copy_wide(n, *part, offset, these),
        }
        rest = others;
    }
    out
}

crate::multiversion! {
    fn copy_wide(n: Dims, x: Rows, offset: usize, out: &mut [f32]) {
        let stride = x.row;
        let x: &[f32] = bytemuck::cast_slice(x.words);
        for (row, out) in x.chunks_exact(stride).zip(out.chunks_exact_mut(n.padded())) {
            for (o, &x) in out.iter_mut().zip(&row[offset..][..n.d]) {
                *o = floor_to(x, n.floor());
            }
        }
    }

    fn copy_narrow(n: Dims, x: Rows, offset: usize, out: &mut [f32]) {
        let stride = 2 * x.row.div_ceil(2);
        let x: &[u16] = bytemuck::cast_slice(x.words);
        for (row, out) in x.chunks_exact(stride).zip(out.chunks_exact_mut(n.padded())) {
            for (o, &x) in out.iter_mut().zip(&row[offset..][..n.d]) {
                let wide = if n.dtype == DType::Bf16 { bf16_to_f32(x) } else { f16_to_f32(x) };
                *o = floor_to(wide, n.floor());
            }
        }
    }
}

impl Dims {
    /// Columns of a head's row in memory.
    pub(super) fn padded(&self) -> usize {
        self.d.next_multiple_of(Small::COLUMNS)
    }

    /// Rows of what is kept for each query.
    pub(super) fn queries(&self) -> usize {
        self.t.next_multiple_of(QUERIES)
    }

    /// What multiplies its operands.
    fn small(&self) -> Small {
        Small::new(self.dtype.is_low())
    }

    /// Padded rows as `[rows / columns][d][columns]`, zeros past the rows there are.
    fn transposed(&self, rows: &[f32], columns: usize) -> Scratch {
        let blocks = rows.chunks(columns * self.padded());
        let mut out = Scratch::zeros(blocks.len() * self.d * columns);
        for (rows, out) in blocks.zip(out.chunks_exact_mut(self.d * columns)) {
            let live = rows.len() / self.padded();
            self.small()
                .transpose(rows, self.padded(), live, columns, out);
        }
        out
    }

    /// Scores of the keys of a transposed block with the queries from `i` on: `s[key][query]`, folded over
    /// ascending d, for the first `keys` of them.
    fn dots(&self, block: &[f32], queries: &[f32], i: usize, keys: usize, s: &mut Block) {
        let left = Side {
            data: block,
            stride: KEY_BLOCK,
        };
        let right = Side {
            data: &queries[i..],
            stride: self.queries(),
        };
        let s = s.as_flattened_mut();
        self.small()
            .product(self.d, left, right, (keys, QUERIES), s, QUERIES, true);
    }

    /// `out[i] += sum of left[p][i] * rows[p]` over ascending p below `k`, for `out`'s first `count` rows.
    fn fold(&self, k: usize, left: Side, rows: &[f32], count: usize, out: &mut [f32]) {
        let width = self.padded();
        let right = Side {
            data: rows,
            stride: width,
        };
        let small = self.small();
        small.product(k, left, right, (count, width), out, width, false);
    }
}

/// How many keys of a block each query sees; none where there is no query.
fn seen(n: Dims, position: usize, i: usize, keys: usize) -> [u32; QUERIES] {
    std::array::from_fn(|a| {
        let all = (position + a + 1).saturating_sub(keys).min(KEY_BLOCK);
        if i + a < n.t { all as u32 } else { 0 }
    })
}

/// Query i stands at position `first + i` and sees the keys up to there. `y[queries, padded]` begins as
/// zeros.
pub(super) fn forward(n: Dims, first: usize, head: &Head, y: &mut [f32], lse: &mut [f32]) {
    let (width, block) = (n.padded(), n.d * KEY_BLOCK);
    let mut s = [[0f32; QUERIES]; KEY_BLOCK];
    for (i, lse) in (0..n.t).step_by(QUERIES).zip(lse.chunks_mut(QUERIES)) {
        let out = &mut y[i * width..(i + QUERIES) * width];
        let mut run = Running::default();
        let last = first + i + lse.len();
        for b in 0..last.div_ceil(KEY_BLOCK) {
            let keys = (last - b * KEY_BLOCK).min(KEY_BLOCK);
            n.dots(
                &head.kt[b * block..(b + 1) * block],
                &head.qt,
                i,
                keys,
                &mut s,
            );
            let seen = seen(n, first + i, i, b * KEY_BLOCK);
            weights(n, &mut s, &seen, b == 0, &mut run, out);
            let left = Side {
                data: s.as_flattened(),
                stride: QUERIES,
            };
            n.fold(keys, left, &head.v[b * KEY_BLOCK * width..], QUERIES, out);
        }
        finish(n, &run, out, lse);
    }
}

/// What the queries carry from block to block.
#[derive(Default)]
struct Running {
    max: Lanes,
    sum: Lanes,
}

/// The halving tree over the keys of a block, for every query. Two halves are two runs of memory: as loops
/// over keys and queries the compiler makes gathers of them.
#[inline(always)]
fn over_keys(x: &mut Block, f: impl Fn(f32, f32) -> f32) -> Lanes {
    let mut half = KEY_BLOCK / 2;
    while half > 0 {
        let (low, high) = x.as_flattened_mut().split_at_mut(half * QUERIES);
        for (l, &h) in low.iter_mut().zip(high.iter()) {
            *l = f(*l, h);
        }
        half /= 2;
    }
    x[0]
}

/// A key's number, of which the compiler knows nothing: else it takes several keys at a time, with gathers,
/// in place of the queries that lie side by side.
#[inline(always)]
fn along_queries(key: usize) -> usize {
    std::hint::black_box(key)
}

crate::multiversion! {
    /// Turns raw scores into the weights of a block's values, and brings what the queries have so far
    /// under their new maxima. A query that sees no key of the block keeps what it has.
    fn weights(n: Dims, s: &mut Block, seen: &[u32; QUERIES], first: bool, run: &mut Running, out: &mut [f32]) {
        let mut masked = [[f32::NEG_INFINITY; QUERIES]; KEY_BLOCK];
        for (j, (s, masked)) in s.iter_mut().zip(&mut masked).enumerate() {
            let j = along_queries(j);
            for a in 0..QUERIES {
                s[a] = ftz(s[a] * n.scale);
                masked[a] = if (j as u32) < seen[a] { s[a] } else { f32::NEG_INFINITY };
            }
        }
        let block_max = over_keys(&mut masked, max2);
        let mut new_max = block_max;
        for a in 0..QUERIES {
            let larger = if first { block_max[a] } else { max2(run.max[a], block_max[a]) };
            new_max[a] = if seen[a] > 0 { larger } else { run.max[a] };
        }
        let mut terms = [[0f32; QUERIES]; KEY_BLOCK];
        for (j, (s, terms)) in s.iter_mut().zip(&mut terms).enumerate() {
            let j = along_queries(j);
            for a in 0..QUERIES {
                let e = exp(ftz(s[a] - new_max[a]));
                let e = if (j as u32) < seen[a] { e } else { 0.0 };
                terms[a] = floor_to(e, FLOOR_SUM);
                s[a] = e;
            }
        }
        n.operands(s);
        let block_sum = over_keys(&mut terms, |a, b| a + b);
        let mut alpha = [1f32; QUERIES];
        for a in 0..QUERIES {
            let by = exp(ftz(run.max[a] - new_max[a]));
            let sum = floor_to(run.sum[a] * by, FLOOR_SUM) + block_sum[a];
            let sum = if first { block_sum[a] } else { sum };
            run.sum[a] = if seen[a] > 0 { sum } else { run.sum[a] };
            alpha[a] = if seen[a] > 0 { by } else { 1.0 };
        }
        run.max = new_max;
        if !first {
            for (out, &by) in out.chunks_exact_mut(n.padded()).zip(&alpha) {
                for o in out {
                    *o = floor_to(*o * by, FLOOR_SUM);
                }
            }
        }
    }

    /// Divides the weighted values by the sums of the weights, and gives the log of those.
    fn finish(n: Dims, run: &Running, out: &mut [f32], lse: &mut [f32]) {
        for (out, &sum) in out.chunks_exact_mut(n.padded()).zip(&run.sum).take(lse.len()) {
            for y in out {
                *y = div(*y, sum);
            }
        }
        for ((lse, &max), &sum) in lse.iter_mut().zip(&run.max).zip(&run.sum) {
            *lse = ftz(max + log(sum));
        }
    }
}

/// Words of a sequence's rows.
fn sequence(n: Dims, x: &View) -> usize {
    n.t * pitch(x.dtype, x.row)
}

fn attention(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let n = Dims::of(p, reads[0].dtype);
    let qkv = &reads[0];
    let [y, lse] = writes else {
        unreachable!("attention writes two buffers")
    };
    let c = n.c();
    // A task is one sequence and head; its rows of y are strided, so they are copied in at the end.
    (
        y.f32().par_chunks_mut(n.t * c),
        lse.f32().par_chunks_mut(n.heads * n.t),
        qkv.words.par_chunks(sequence(n, qkv)),
    )
        .into_par_iter()
        .for_each(|(y, lse, words)| {
            let qkv = Rows {
                dtype: qkv.dtype,
                row: qkv.row,
                words,
            };
            let heads: Vec<Scratch> = lse
                .par_chunks_mut(n.t)
                .enumerate()
                .map(|(h, lse)| {
                    let mut out = Scratch::zeros(n.queries() * n.padded());
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
    for (i, row) in from.chunks_exact(n.padded()).take(n.t).enumerate() {
        to[i * stride + offset..][..n.d].copy_from_slice(&row[..n.d]);
    }
}

/// The parts of one head's gradient.
struct Grads {
    q: Scratch,
    k: Scratch,
    v: Scratch,
}

fn backward(n: Dims, head: &Head, g: &[f32], lse: &[f32], delta: &[f32], out: &mut Grads) {
    let (width, block, small) = (n.padded(), n.d * KEY_BLOCK, n.small());
    let gt = n.transposed(g, n.queries());
    let mut p = [[0f32; QUERIES]; KEY_BLOCK];
    let mut ds = [[0f32; QUERIES]; KEY_BLOCK];
    let mut by_query = [0f32; QUERIES * KEY_BLOCK];
    for b in 0..n.t.div_ceil(KEY_BLOCK) {
        let first = b * KEY_BLOCK;
        let part = b * block..(b + 1) * block;
        for i in (first / QUERIES * QUERIES..n.t).step_by(QUERIES) {
            let live = QUERIES.min(n.t - i);
            let keys = (i + live - first).min(KEY_BLOCK);
            n.dots(&head.kt[part.clone()], &head.qt, i, keys, &mut p);
            n.dots(&head.vt[part.clone()], &gt, i, keys, &mut ds);
            let (lse, delta) = (&lse[i..i + live], &delta[i..i + live]);
            probabilities(n, &mut p, &mut ds, &seen(n, i, i, first), lse, delta);
            let left = Side {
                data: ds.as_flattened(),
                stride: QUERIES,
            };
            n.fold(
                keys,
                left,
                &head.k[first * width..],
                QUERIES,
                &mut out.q[i * width..],
            );
            for (x, rows, out) in [(&p, g, &mut out.v), (&ds, &head.q, &mut out.k)] {
                small.transpose(
                    x.as_flattened(),
                    QUERIES,
                    KEY_BLOCK,
                    KEY_BLOCK,
                    &mut by_query,
                );
                let left = Side {
                    data: &by_query,
                    stride: KEY_BLOCK,
                };
                n.fold(
                    live,
                    left,
                    &rows[i * width..],
                    keys,
                    &mut out[first * width..],
                );
            }
        }
    }
    scale(n.scale, &mut out.q);
    scale(n.scale, &mut out.k);
}

crate::multiversion! {
    fn scale(by: f32, x: &mut [f32]) {
        for x in x {
            *x = ftz(*x * by);
        }
    }

    /// Turns raw scores over a block of keys into probabilities, and the products of the cotangents with
    /// the values into the gradients of the (unscaled) scores, both floored for the products they go into.
    fn probabilities(n: Dims, s: &mut Block, dp: &mut Block, seen: &[u32; QUERIES], lse: &[f32], delta: &[f32]) {
        let lanes = |x: &[f32]| -> Lanes { std::array::from_fn(|a| x.get(a).map_or(0.0, |&x| ftz(x))) };
        let (lse, delta) = (lanes(lse), lanes(delta));
        for (j, (s, dp)) in s.iter_mut().zip(dp.iter_mut()).enumerate() {
            let j = along_queries(j);
            for a in 0..QUERIES {
                let e = exp(ftz(ftz(s[a] * n.scale) - lse[a]));
                let e = if (j as u32) < seen[a] { e } else { 0.0 };
                s[a] = e;
                dp[a] = e * ftz(dp[a] - delta[a]);
            }
        }
        n.operands(s);
        n.operands(dp);
    }
}

fn attention_grad(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let n = Dims::of(p, reads[0].dtype);
    let c = n.c();
    let [qkv, lse, delta, g] = reads else {
        unreachable!("attention_grad reads four buffers")
    };
    (
        writes[0].f32().par_chunks_mut(n.t * 3 * c),
        qkv.words.par_chunks(sequence(n, qkv)),
        lse.f32().par_chunks(n.heads * n.t),
        delta.f32().par_chunks(n.heads * n.t),
        g.words.par_chunks(sequence(n, g)),
    )
        .into_par_iter()
        .for_each(|(out, words, lse, delta, g_words)| {
            let rows = |x: &View, words| Rows {
                dtype: x.dtype,
                row: x.row,
                words,
            };
            let (qkv, g) = (rows(qkv, words), rows(g, g_words));
            let heads: Vec<Grads> = (0..n.heads)
                .into_par_iter()
                .map(|h| {
                    let zeros = || Scratch::zeros(n.queries() * n.padded());
                    let mut grads = Grads {
                        q: zeros(),
                        k: zeros(),
                        v: zeros(),
                    };
                    let g = rows_of(n, &[g], h * n.d);
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
