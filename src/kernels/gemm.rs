//! Matrix products. Every output element is one accumulator folded over ascending k (see
//! [`super::cpu_gemm`]); a long k with few outputs is cut into chunks of a constant length whose sums
//! a fixed tree combines.

use super::cpu_gemm::{Epilogue, Gemm, Operand, Target, gemm as fold, gemm_then};
use super::order::{GEMM_CHUNK, GEMM_CHUNK_MAX_OUTPUTS};
use super::packed::pitch;
use super::pointwise::{Bound, store};
use super::{Host, KernelDef, Params, View, ViewMut, read, write};
use crate::dtype::DType;
use rayon::prelude::*;
use std::borrow::Cow;

/// `c[z, m, n] = a[z] * b[z]`, z over batches or, in a chunked product, over chunks of k. Uniform
/// words: m, n, k, chunk, batch. A chunked product hosts no epilogue: its tree does. Specialisations `TA`, `TB`: the operand is stored transposed
/// (`a[k, m]`, `b[n, k]`).
pub static GEMM: KernelDef = KernelDef {
    name: "gemm",
    bindings: &[read("a"), read("b"), write("c")],
    host: Host::Epilogue,
    cpu: gemm,
};

/// `out[n] = sum over chunks of x[chunks, n]`, halving tree over chunks. Uniform words: n, chunks.
pub static GEMM_TREE: KernelDef = KernelDef {
    name: "gemm_tree",
    bindings: &[read("x"), write("out")],
    host: Host::Epilogue,
    cpu: gemm_tree,
};

/// Length of the k-chunks for a product of these extents; k itself where it is not chunked.
pub fn chunk_length(m: usize, n: usize, k: usize, batch: usize) -> usize {
    let long = k > GEMM_CHUNK && batch == 1 && m * n <= GEMM_CHUNK_MAX_OUTPUTS;
    if long { GEMM_CHUNK } else { k.max(1) }
}

/// The uniform block of [`GEMM`].
pub fn params(m: usize, n: usize, k: usize, batch: usize, ta: bool, tb: bool) -> Params {
    chunked(m, n, k, chunk_length(m, n, k, batch), batch, ta, tb)
}

/// The uniform block of [`GEMM`] for `x[m, k] * w[k, n]` where every row is summed as if it were alone:
/// k is cut as it would be for one row, however many there are.
pub fn row_params(m: usize, n: usize, k: usize) -> Params {
    chunked(m, n, k, chunk_length(1, n, k, 1), 1, false, false)
}

fn chunked(m: usize, n: usize, k: usize, chunk: usize, batch: usize, ta: bool, tb: bool) -> Params {
    let words = [m as u32, n as u32, k as u32, chunk as u32, batch as u32];
    Params {
        spec: vec![("TA", ta as u32), ("TB", tb as u32)],
        ..Params::new(&words)
    }
}

/// Rows of an operand, each of `row` elements: a reshape is an alias, so the buffer's own may be others.
fn operand<'a>(v: &View<'a>, row: usize, rows: std::ops::Range<usize>) -> Operand<'a> {
    if v.dtype == DType::Bf16 {
        let words = row.div_ceil(2);
        return Operand::Bf16(&v.words[rows.start * words..rows.end * words]);
    }
    Operand::F32(&v.f32()[rows.start * row..rows.end * row])
}

/// An operand as the products take it: f16 is widened. Products of two f16 values are exact in f32 and
/// none is below the floor, so the f32 rules give the bits of any other way.
fn readied<'a>(v: &View<'a>) -> Cow<'a, [u32]> {
    match v.dtype {
        DType::F16 => match v.widened() {
            Cow::Owned(wide) => Cow::Owned(bytemuck::cast_vec(wide)),
            Cow::Borrowed(wide) => Cow::Borrowed(bytemuck::cast_slice(wide)),
        },
        _ => Cow::Borrowed(v.words),
    }
}

/// The view of words that [`readied`] made.
fn view<'a>(v: &View, words: &'a [u32]) -> View<'a> {
    let dtype = match v.dtype {
        DType::F16 => DType::F32,
        other => other,
    };
    View {
        dtype,
        row: v.row,
        words,
    }
}

fn gemm(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (m, n, k, chunk, batch) = (p.at(0), p.at(1), p.at(2), p.at(3), p.at(4));
    let g = Gemm {
        m,
        n,
        k,
        ta: p.spec("TA") == 1,
        tb: p.spec("TB") == 1,
    };
    let (rows_a, rows_b) = (if g.ta { k } else { m }, if g.tb { n } else { k });
    let (row_a, row_b) = (if g.ta { m } else { k }, if g.tb { k } else { n });
    if m * n == 0 {
        return;
    }
    let (words_a, words_b) = (readied(&reads[0]), readied(&reads[1]));
    let (view_a, view_b) = (view(&reads[0], &words_a), view(&reads[1], &words_b));
    let of = |z: usize| {
        let a = operand(&view_a, row_a, z * rows_a..(z + 1) * rows_a);
        (a, operand(&view_b, row_b, z * rows_b..(z + 1) * rows_b))
    };
    if let Some(bound) = Bound::new(p, true, reads) {
        let out = &mut writes[0];
        let pitch = pitch(out.dtype, n);
        for (z, words) in out.words.chunks_exact_mut(m * pitch).enumerate() {
            let (a, b) = of(z);
            if g.single_row() {
                store(out.dtype, n, words, |c| {
                    fold(&g, 0, k, a, b, c);
                    bound.evaluator().apply(z * n, c);
                });
                continue;
            }
            let epilogue = Epilogue {
                bound: &bound,
                start: z * m * n,
            };
            let target = match out.dtype {
                DType::F32 => Target::F32(bytemuck::cast_slice_mut(words)),
                narrow => Target::Packed(narrow, words),
            };
            gemm_then(&g, a, b, epilogue, target);
        }
        return;
    }
    let chunks = k.div_ceil(chunk).max(1);
    for (z, c) in writes[0].f32().chunks_exact_mut(m * n).enumerate() {
        let (b, ks) = if batch > 1 {
            (z, (0, k))
        } else {
            let first = (z % chunks) * chunk;
            (0, (first, (first + chunk).min(k)))
        };
        let (a, bm) = of(b);
        fold(&g, ks.0, ks.1, a, bm, c);
    }
}

fn gemm_tree(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (n, chunks) = (p.at(0), p.at(1));
    let x = reads[0].f32();
    let bound = Bound::new(p, true, reads);
    let sums = |from: usize, out: &mut [f32]| {
        let mut parts: Vec<Vec<f32>> = (0..chunks)
            .map(|c| x[c * n + from..][..out.len()].to_vec())
            .collect();
        let mut half = chunks.next_power_of_two() / 2;
        while half > 0 {
            let (low, high) = parts.split_at_mut(half.min(chunks));
            for (l, h) in low.iter_mut().zip(high.iter()) {
                l.iter_mut().zip(h).for_each(|(l, h)| *l += h);
            }
            half /= 2;
        }
        out.copy_from_slice(&parts[0]);
        if let Some(bound) = &bound {
            bound.evaluator().apply(from, out);
        }
    };
    // Whole rows, since a packed row is padded to whole words.
    const BLOCK: usize = 1024;
    let out = &mut writes[0];
    let (dtype, row) = (out.dtype, out.row.max(1));
    let rows = (BLOCK / row).max(1);
    let pitch = pitch(dtype, row);
    let blocks = out.words.par_chunks_mut(rows * pitch).enumerate();
    blocks.for_each(|(b, words)| store(dtype, row, words, |out| sums(b * rows * row, out)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_of_k_does_not_depend_on_the_number_of_rows() {
        assert_ne!(
            params(2048, 1024, 2048, 1, false, false).at(3),
            params(1, 1024, 2048, 1, false, false).at(3)
        );
        for (n, k) in [(1024, 2048), (65_535, 1025), (3, 1024), (2_000_000, 5000)] {
            for m in [2, 64, 2048] {
                assert_eq!(row_params(m, n, k).at(3), row_params(1, n, k).at(3));
                assert_eq!(
                    row_params(1, n, k).at(3),
                    params(1, n, k, 1, false, false).at(3)
                );
            }
        }
    }
}
