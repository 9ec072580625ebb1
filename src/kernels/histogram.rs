//! Counts of magnitudes by range: the gradient histogram.

use super::{Host, KernelDef, Params, View, ViewMut, read, write_u32};
use rayon::prelude::*;

/// Elements that one row of counts covers.
pub const BLOCK: usize = 4096;
/// Number of ranges.
pub const BINS: usize = 56;

/// `x[n], edges[BINS + 1] -> counts[ceil(n / BLOCK), BINS]`: how many |x| of each block lie in
/// `edges[k] <= |x| < edges[k + 1]`; the last range holds its right edge too. The host adds the blocks.
/// Uniform words: n.
pub static HISTOGRAM: KernelDef = KernelDef {
    name: "histogram",
    bindings: &[read("x"), read("edges"), write_u32("counts")],
    host: Host::No,
    cpu: histogram,
};

/// The uniform block.
pub fn params(n: usize) -> Params {
    Params::new(&[n as u32])
}

fn histogram(_: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (x, edges) = (reads[0].f32(), reads[1].f32());
    let counts = writes[0].words.par_chunks_mut(BINS);
    x.par_chunks(BLOCK).zip(counts).for_each(|(x, counts)| {
        counts.fill(0);
        for v in x.iter().map(|v| v.abs()) {
            // The number of edges at or below v; none or all of them: outside.
            let k = edges.partition_point(|&e| e <= v);
            if k >= 1 && (k <= BINS || v == edges[BINS]) {
                counts[k.min(BINS) - 1] += 1;
            }
        }
    });
}
