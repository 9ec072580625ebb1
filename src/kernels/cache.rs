//! What generation needs besides the training kernels: a cache of past rows, and attention over it.
//!
//! A cache holds rows of q, k and v as the projection gives them (`[t, 3c]`, one a position), so that a
//! row is whole words in every type. A query sees the same keys in the same order, in blocks counted from
//! position 0, as it does in [`super::attention`] over the whole sequence: the bits are the same.

use super::attention::{Dims, Head, Rows, forward, params, scatter};
use super::packed::pitch;
use super::scratch::Scratch;
use super::{Host, KernelDef, Params, View, ViewMut, read, read_u32, update, write};
use rayon::prelude::*;

/// `qkv[r, 3c], cache[t, 3c], at[r] -> y[r, c]`: row i stands at position `at[0] + i` and attends to the
/// cache's rows before `at[0]` and the rows 0 to i. Uniform words: r, t, heads, head width, scale (bits).
pub static ATTENTION_CACHED: KernelDef = KernelDef {
    name: "attention_cached",
    bindings: &[read("qkv"), read("cache"), read_u32("at"), write("y")],
    host: Host::No,
    cpu: attention_cached,
};

/// `x[r, w], at[r] -> cache[t, w]`: row i becomes the cache's row `at[0] + i`; rows past its end are
/// dropped. Uniform words: r, words in a row, t.
pub static PUT_ROWS: KernelDef = KernelDef {
    name: "put_rows",
    bindings: &[read("x"), read_u32("at"), update("cache")],
    host: Host::No,
    cpu: put_rows,
};

/// Products of queries and keys below which heads are not worth a second thread.
const SERIAL_WORK: usize = 1 << 16;

/// The uniform block of [`ATTENTION_CACHED`].
pub fn attention_params(r: usize, t: usize, heads: usize, width: usize) -> Params {
    let mut p = params(r, t, heads, width);
    // As attention's, whose t is the number of queries.
    (p.words[1], p.words[2]) = (r as u32, t as u32);
    p
}

/// The first rows of a buffer.
fn first_rows<'a>(v: &View<'a>, rows: usize) -> Rows<'a> {
    Rows {
        dtype: v.dtype,
        row: v.row,
        words: &v.words[..rows * pitch(v.dtype, v.row)],
    }
}

fn attention_cached(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (r, t) = (p.at(0), p.at(1));
    let mut n = Dims::of(p, reads[0].dtype);
    n.t = r;
    let first = (reads[2].words[0] as usize).min(t);
    let qkv = first_rows(&reads[0], r);
    let before = first_rows(&reads[1], first);
    let (y, c) = (writes[0].f32(), n.c());
    let one = |h: usize| {
        let mut out = Scratch::zeros(n.queries() * n.padded());
        let mut lse = vec![0f32; r];
        let head = Head::after_rows(n, before, qkv, h, false);
        forward(n, first, &head, &mut out, &mut lse);
        out
    };
    let heads: Vec<Scratch> = if r * (first + r) * c < SERIAL_WORK {
        (0..n.heads).map(one).collect()
    } else {
        (0..n.heads).into_par_iter().map(one).collect()
    };
    for (h, out) in heads.iter().enumerate() {
        scatter(n, out, y, c, h * n.d);
    }
}

fn put_rows(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (w, t) = (p.at(1), p.at(2));
    let first = reads[1].words[0] as usize;
    let rows = writes[0].words[..t * w].chunks_exact_mut(w);
    for (to, from) in rows.skip(first).zip(reads[0].words.chunks_exact(w)) {
        to.copy_from_slice(from);
    }
}
