//! Sums and maxima over one axis, in the contract's order (see [`super::lanes`]).

use super::lanes::{Lanes, max, max2, sum, tree};
use super::math::{FLOOR_SUM, floor_to, ftz};
use super::order::LANES;
use super::{KernelDef, Params, View, ViewMut, read, write};
use rayon::prelude::*;

/// `x[outer, n, inner] -> out[outer, ceil(n / chunk), inner]`. Uniform words: outer, n, inner, chunk.
/// Specialisation `OP`: 0 sum, 1 maximum.
pub static REDUCE: KernelDef = KernelDef {
    name: "reduce",
    bindings: &[read("x"), write("out")],
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

fn reduce(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (n, inner, chunk, is_max) = (p.at(1), p.at(2), p.at(3), p.spec("OP") == 1);
    let (x, out) = (reads[0].f32(), writes[0].f32());
    let chunks = n.div_ceil(chunk).max(1);
    out.par_chunks_mut(inner).enumerate().for_each(|(r, row)| {
        let (o, c) = (r / chunks, r % chunks);
        let (first, last) = (c * chunk, ((c + 1) * chunk).min(n));
        let x = &x[(o * n + first) * inner..(o * n + last) * inner];
        if inner == 1 {
            contiguous(x, is_max, &mut row[0]);
        } else {
            row.par_chunks_mut(COLUMNS)
                .enumerate()
                .for_each(|(b, out)| {
                    columns(x, inner, b * COLUMNS, is_max, out);
                });
        }
    });
}

crate::multiversion! {
    fn contiguous(x: &[f32], is_max: bool, out: &mut f32) {
        *out = if is_max { max(x.len(), |i| ftz(x[i])) } else { sum(x.len(), |i| x[i]) };
    }

    fn columns(x: &[f32], inner: usize, first: usize, is_max: bool, out: &mut [f32]) {
        let identity = if is_max { f32::NEG_INFINITY } else { 0.0 };
        let mut acc = [[identity; COLUMNS]; LANES];
        for (i, row) in x.chunks_exact(inner).enumerate() {
            let acc = &mut acc[i % LANES];
            let row = &row[first..first + out.len()];
            if is_max {
                acc.iter_mut().zip(row).for_each(|(a, &v)| *a = max2(*a, ftz(v)));
            } else {
                acc.iter_mut().zip(row).for_each(|(a, &v)| *a += floor_to(v, FLOOR_SUM));
            }
        }
        for (c, o) in out.iter_mut().enumerate() {
            let mut lanes: Lanes = [0.0; LANES];
            for (l, a) in lanes.iter_mut().zip(&acc) {
                *l = a[c];
            }
            *o = if is_max { tree(lanes, max2) } else { tree(lanes, |a, b| a + b) };
        }
    }
}
