//! Strided copies: permutations and general broadcasts. Bits are copied, never computed with.

use super::{Host, KernelDef, Params, View, ViewMut, read, write};
use crate::shape::MAX_DIMS;
use rayon::prelude::*;

/// `out[i] = x[sum over d of index_d(i) * stride_d]`. Uniform words: n, six extents (padded with ones in
/// front), six strides.
pub static COPY: KernelDef = KernelDef {
    name: "copy",
    bindings: &[read("x"), write("out")],
    host: Host::No,
    cpu: copy,
};

/// The uniform block: extents of the output and, for each, the step in the input (0 to repeat).
pub fn params(dims: &[usize], strides: &[usize]) -> Params {
    let n: usize = dims.iter().product();
    let mut words = vec![n as u32];
    let pad = MAX_DIMS - dims.len();
    words.extend(std::iter::repeat_n(1, pad).chain(dims.iter().map(|&d| d as u32)));
    words.extend(std::iter::repeat_n(0, pad).chain(strides.iter().map(|&s| s as u32)));
    Params::new(&words)
}

fn copy(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let dims: [usize; MAX_DIMS] = std::array::from_fn(|d| p.at(1 + d));
    let strides: [usize; MAX_DIMS] = std::array::from_fn(|d| p.at(1 + MAX_DIMS + d));
    let x = reads[0].words;
    const TASK: usize = 8192;
    writes[0]
        .words
        .par_chunks_mut(TASK)
        .enumerate()
        .for_each(|(t, out)| {
            for (i, o) in out.iter_mut().enumerate() {
                let (mut rest, mut at) = (t * TASK + i, 0);
                for d in (0..MAX_DIMS).rev() {
                    at += rest % dims[d] * strides[d];
                    rest /= dims[d];
                }
                *o = x[at];
            }
        });
}
