//! Sums and maxima over one axis, in the contract's order (see [`super::lanes`]).

use super::lanes::{Lanes, max, max2, sum, tree};
use super::math::{FLOOR_SUM, floor_to, ftz};
use super::order::LANES;
use super::pointwise::Bound;
use super::scratch::Scratch;
use super::{Host, KernelDef, Params, View, ViewMut, read, write};
use rayon::prelude::*;

/// `x[outer, n, inner] -> out[outer, ceil(n / chunk), inner]`. Uniform words: outer, n, inner, chunk.
/// Specialisation `OP`: 0 sum, 1 maximum.
pub static REDUCE: KernelDef = KernelDef {
    name: "reduce",
    bindings: &[read("x"), write("out")],
    host: Host::Prologue,
    cpu: reduce,
};

/// The uniform block of [`REDUCE`].
pub fn params(outer: usize, n: usize, inner: usize, chunk: usize, max: bool) -> Params {
    let words = [outer as u32, n as u32, inner as u32, chunk as u32];
    Params {
        spec: vec![("OP", max as u32)],
        ..Params::new(&words)
    }
}

/// Columns that one pass of the CPU keeps lanes for.
const COLUMNS: usize = 16;
/// Elements of a task of whole rows, about.
const ROW_TASK: usize = 8192;
/// Parts into which the lanes of a hosted expression's columns are cut for the threads.
const HOSTED_PARTS: usize = 4;
/// Elements below which they are not.
const HOSTED_TASK: usize = 8192;

fn reduce(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (n, inner, chunk, is_max) = (p.at(1), p.at(2), p.at(3), p.spec("OP") == 1);
    let out = writes[0].f32();
    let chunks = n.div_ceil(chunk).max(1);
    let bound = Bound::new(p, false, reads);
    if inner == 1 && chunks == 1 {
        return whole_rows(bound.as_ref(), reads, n, is_max, out);
    }
    out.par_chunks_mut(inner).enumerate().for_each(|(r, row)| {
        let (o, c) = (r / chunks, r % chunks);
        let (first, last) = (c * chunk, ((c + 1) * chunk).min(n));
        let part = (o * n + first) * inner..(o * n + last) * inner;
        match (&bound, inner) {
            (None, 1) => contiguous(&reads[0].f32()[part], last - first, is_max, row),
            (None, _) => {
                let x = &reads[0].f32()[part];
                let blocks = row.par_chunks_mut(COLUMNS).enumerate();
                blocks.for_each(|(b, out)| {
                    let mut acc = start(is_max);
                    columns(x, inner, b * COLUMNS, is_max, &mut acc[..]);
                    combine(&acc[..], is_max, out);
                });
            }
            (Some(bound), 1) => {
                let mut x = Scratch::zeros(part.len());
                bound.evaluator().fill(part.start, &mut x);
                contiguous(&x, last - first, is_max, row);
            }
            (Some(bound), _) => hosted_columns(bound, part.start, last - first, is_max, row),
        }
    });
}

/// Rows that lie one after the other and are reduced whole, several to a task.
fn whole_rows(bound: Option<&Bound>, reads: &[View], n: usize, is_max: bool, out: &mut [f32]) {
    let rows = (ROW_TASK / n.max(1)).max(1);
    out.par_chunks_mut(rows).enumerate().for_each(|(t, out)| {
        let (first, len) = (t * rows * n, out.len() * n);
        match bound {
            None => contiguous(&reads[0].f32()[first..first + len], n, is_max, out),
            Some(bound) => {
                let mut x = Scratch::zeros(len);
                bound.evaluator().fill(first, &mut x);
                contiguous(&x, n, is_max, out);
            }
        }
    });
}

/// Columns of an expression's values, `n` rows of `out`'s width from element `at` on. A task has some of
/// the lanes, which are rows that follow each other: these are evaluated, then folded, and so on.
fn hosted_columns(bound: &Bound, at: usize, n: usize, is_max: bool, out: &mut [f32]) {
    let inner = out.len();
    let lanes = if n * inner < HOSTED_TASK {
        LANES
    } else {
        LANES / HOSTED_PARTS
    };
    let mut acc = Scratch::zeros(LANES * inner);
    let tasks = acc.par_chunks_mut(lanes * inner).enumerate();
    tasks.for_each(|(t, acc)| {
        acc.fill(if is_max { f32::NEG_INFINITY } else { 0.0 });
        let mut run = bound.evaluator();
        let mut x = Scratch::zeros(acc.len());
        for first in (t * lanes..n).step_by(LANES) {
            let x = &mut x[..lanes.min(n - first) * inner];
            run.fill(at + first * inner, x);
            rows(x, is_max, acc);
        }
    });
    for (b, out) in out.chunks_mut(COLUMNS).enumerate() {
        let mut part = start(is_max);
        for (part, acc) in part.iter_mut().zip(acc.chunks_exact(inner)) {
            part[..out.len()].copy_from_slice(&acc[b * COLUMNS..][..out.len()]);
        }
        combine(&part[..], is_max, out);
    }
}

/// The lanes of some columns.
type Acc = Box<[[f32; COLUMNS]; LANES]>;

fn start(is_max: bool) -> Acc {
    let identity = if is_max { f32::NEG_INFINITY } else { 0.0 };
    Box::new([[identity; COLUMNS]; LANES])
}

crate::multiversion! {
    /// Rows of `n` elements, one after the other.
    fn contiguous(x: &[f32], n: usize, is_max: bool, out: &mut [f32]) {
        for (r, out) in out.iter_mut().enumerate() {
            let x = &x[r * n..(r + 1) * n];
            *out = if is_max { max(x, ftz) } else { sum([x], |[x]| x) };
        }
    }

    /// Folds rows of columns `first..` into their lanes; row 0 goes to lane 0.
    fn columns(x: &[f32], inner: usize, first: usize, is_max: bool, acc: &mut [[f32; COLUMNS]]) {
        let width = COLUMNS.min(inner - first);
        for (i, row) in x.chunks_exact(inner).enumerate() {
            let acc = &mut acc[i % LANES];
            let row = &row[first..first + width];
            if is_max {
                for (a, &v) in acc.iter_mut().zip(row) {
                    *a = max2(*a, ftz(v));
                }
            } else {
                for (a, &v) in acc.iter_mut().zip(row) {
                    *a += floor_to(v, FLOOR_SUM);
                }
            }
        }
    }

    /// Folds rows into lanes of the same width, from the first on.
    fn rows(x: &[f32], is_max: bool, acc: &mut [f32]) {
        if is_max {
            for (a, &v) in acc.iter_mut().zip(x) {
                *a = max2(*a, ftz(v));
            }
        } else {
            for (a, &v) in acc.iter_mut().zip(x) {
                *a += floor_to(v, FLOOR_SUM);
            }
        }
    }

    /// The tree over the lanes of each column.
    fn combine(acc: &[[f32; COLUMNS]], is_max: bool, out: &mut [f32]) {
        for (c, o) in out.iter_mut().enumerate() {
            let mut lanes: Lanes = [0.0; LANES];
            for (l, a) in lanes.iter_mut().zip(acc) {
                *l = a[c];
            }
            *o = if is_max { tree(lanes, max2) } else { tree(lanes, |a, b| a + b) };
        }
    }
}
