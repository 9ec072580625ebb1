//! The end of a product: each element goes through a pointwise expression, and into a packed target.

use super::{Gemm, Out};
use crate::dtype::DType;
use crate::kernels::packed::pack;
use crate::kernels::pointwise::Bound;
use std::ops::Range;

/// An expression for the elements of a product, whose first element is number `start` of the
/// expression's operands.
#[derive(Clone, Copy)]
pub struct Epilogue<'a> {
    /// The expression; the element is its first input.
    pub bound: &'a Bound<'a>,
    /// Number of the product's first element (products of a batch follow each other).
    pub start: usize,
}

/// Where a product goes.
pub enum Target<'a> {
    /// `[m, n]`, row-major.
    F32(&'a mut [f32]),
    /// `[m, n]`, packed two to a word, rows padded to whole words. Needs an epilogue.
    Packed(DType, &'a mut [u32]),
}

/// An epilogue and its target, which tasks write in disjoint parts.
pub(super) struct Finish<'a> {
    epilogue: Epilogue<'a>,
    n: usize,
    /// Type and first word of a packed target.
    packed: Option<(DType, *mut u32)>,
}

// SAFETY: the pointer comes from a `&mut [u32]` that outlives the product; tasks write disjoint words
// of it (see `Finish::packed`).
unsafe impl Sync for Finish<'_> {}

/// Checks the target's length; returns C, where sums may be kept there, and what ends the product.
pub(super) fn split<'a>(
    g: &Gemm,
    epilogue: Option<Epilogue<'a>>,
    c: Target<'a>,
) -> (Option<Out>, Option<Finish<'a>>) {
    let finish = |packed| {
        epilogue.map(|epilogue| Finish {
            epilogue,
            n: g.n,
            packed,
        })
    };
    match c {
        Target::F32(c) => {
            assert_eq!(Some(c.len()), g.m.checked_mul(g.n), "C is not [m,n]");
            let out = Out {
                at: c.as_mut_ptr(),
                stride: g.n,
                row: 0,
                col: 0,
            };
            (Some(out), finish(None))
        }
        Target::Packed(dtype, words) => {
            let need = g.m.checked_mul(g.n.div_ceil(2));
            assert_eq!(Some(words.len()), need, "C is not [m,n], packed");
            assert!(epilogue.is_some(), "a packed product has an epilogue");
            (None, finish(Some((dtype, words.as_mut_ptr()))))
        }
    }
}

impl Finish<'_> {
    /// Ends rows and columns of C where they are.
    ///
    /// # Safety
    /// `c` is C, `[m, n]`, with these rows and columns, and no other task uses them.
    pub unsafe fn in_place(&self, c: *mut f32, rows: Range<usize>, cols: Range<usize>) {
        let mut run = self.epilogue.bound.evaluator();
        // Whole rows lie one after the other.
        let (count, len) = if cols.len() == self.n {
            (1, rows.len() * self.n)
        } else {
            (rows.len(), cols.len())
        };
        for r in 0..count {
            let at = (rows.start + r) * self.n + cols.start;
            // SAFETY: these elements lie in C, and this task alone uses them.
            let part = unsafe { std::slice::from_raw_parts_mut(c.add(at), len) };
            run.apply(self.epilogue.start + at, part);
        }
    }

    /// Ends a task's sums, `[rows, cols]`, and packs them into the target.
    pub fn packed(&self, sums: &mut [f32], rows: Range<usize>, cols: Range<usize>) {
        let (dtype, words) = self.packed.expect("a packed target");
        let mut run = self.epilogue.bound.evaluator();
        let (pitch, len) = (self.n.div_ceil(2), cols.len());
        assert!(cols.start.is_multiple_of(2) && cols.end <= self.n);
        if len == self.n {
            run.apply(self.epilogue.start + rows.start * len, sums);
        }
        for (r, row) in rows.zip(sums.chunks_exact_mut(len)) {
            if len != self.n {
                run.apply(self.epilogue.start + r * self.n + cols.start, row);
            }
            // SAFETY: row r of the target, `pitch` words, has these; a task's columns begin at an even
            // number and end at the row's end or where the next task's begin, which is even too, so
            // no other task writes one of these words.
            let to = unsafe {
                let at = words.add(r * pitch + cols.start / 2);
                std::slice::from_raw_parts_mut(at, len.div_ceil(2))
            };
            pack(dtype, row, to);
        }
    }
}
