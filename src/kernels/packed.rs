//! Between f32 and the narrow types, two elements to a word.

use crate::dtype::{DType, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use rayon::prelude::*;

// Two halves of a word are read as two 16-bit values, the low one first.
#[cfg(target_endian = "big")]
compile_error!("packed elements need a little-endian target");

/// Elements per task.
const TASK: usize = 1 << 15;

crate::multiversion! {
    /// Rounds a row to a narrow type, two elements a word; a last odd half is zero.
    pub fn pack(dtype: DType, wide: &[f32], words: &mut [u32]) {
        let narrow = |x: f32| if dtype == DType::Bf16 { f32_to_bf16(x) } else { f32_to_f16(x) } as u32;
        let pairs = wide.chunks_exact(2);
        if let ([x], Some(last)) = (pairs.remainder(), words.last_mut()) {
            *last = narrow(*x);
        }
        for (w, p) in words.iter_mut().zip(pairs) {
            *w = narrow(p[0]) | narrow(p[1]) << 16;
        }
    }

    /// Widens elements that lie one after the other, from the first half of `words` on.
    pub fn widen(dtype: DType, words: &[u32], wide: &mut [f32]) {
        let halves: &[u16] = bytemuck::cast_slice(words);
        if dtype == DType::Bf16 {
            for (w, &h) in wide.iter_mut().zip(halves) {
                *w = bf16_to_f32(h);
            }
        } else {
            for (w, &h) in wide.iter_mut().zip(halves) {
                *w = f16_to_f32(h);
            }
        }
    }
}

/// Words of a row of `row` elements.
pub fn pitch(dtype: DType, row: usize) -> usize {
    if dtype.packed() { row.div_ceil(2) } else { row }
}

/// Widens rows of `row` elements, each padded to whole words.
pub fn widened(dtype: DType, row: usize, words: &[u32]) -> Vec<f32> {
    let (row, pitch) = (row.max(1), row.div_ceil(2).max(1));
    let mut out = vec![0f32; words.len() / pitch * row];
    let rows = (TASK / row).max(1);
    let tasks = out
        .par_chunks_mut(rows * row)
        .zip(words.par_chunks(rows * pitch));
    tasks.for_each(|(out, words)| {
        if row.is_multiple_of(2) {
            return widen(dtype, words, out);
        }
        let rows = out.chunks_exact_mut(row).zip(words.chunks_exact(pitch));
        rows.for_each(|(out, words)| widen(dtype, words, out));
    });
    out
}
