//! Small products of operands that lie in the cache as they are: no packing, no tasks. Attention is made
//! of them.

use super::micro::{Kernels, Steps};
use super::pack;
use crate::kernels::simd::{Isa, fused, isa};

/// What multiplies on this thread: chosen once for many products.
#[derive(Clone, Copy)]
pub struct Small {
    kernels: &'static Kernels,
}

/// Values of an operand: those of step p begin at `p * stride`.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The values.
    pub data: &'a [f32],
    /// Floats from a step to the next.
    pub stride: usize,
}

impl Small {
    /// Columns of a product are a multiple of this.
    pub const COLUMNS: usize = 16;

    /// For operands whose products are exact, or not. Values are taken as they are, unfloored.
    pub fn new(exact: bool) -> Small {
        Small::with(isa(), exact)
    }

    /// On a given instruction set, which must be available.
    pub fn with(isa: Isa, exact: bool) -> Small {
        Small {
            kernels: Kernels::of(isa, exact || fused()),
        }
    }

    /// `c[i, j] = (0 or c[i, j]) + sum of left[p, i] * right[p, j]` over ascending p below `k`, for i
    /// below `rows` and j below `cols`; row i of c begins at `i * stride`. Every element is one
    /// accumulator, as in all products.
    ///
    /// # Panics
    /// If a slice is too short or `cols` is not a multiple of [`Small::COLUMNS`].
    #[allow(clippy::too_many_arguments)]
    pub fn product(
        self,
        k: usize,
        left: Side,
        right: Side,
        (rows, cols): (usize, usize),
        c: &mut [f32],
        stride: usize,
        fresh: bool,
    ) {
        let holds = |len: usize, steps: usize, stride: usize, width: usize| {
            steps == 0 || width == 0 || len >= (steps - 1) * stride + width
        };
        assert!(cols.is_multiple_of(Small::COLUMNS) && holds(c.len(), rows, stride, cols));
        assert!(holds(left.data.len(), k, left.stride, rows));
        assert!(holds(right.data.len(), k, right.stride, cols));
        let nr = self.kernels.nr;
        let mut i = 0;
        while i < rows {
            let height = self.height(rows - i);
            let mut j = 0;
            while j < cols {
                // What is left is a multiple of COLUMNS: a full tile, or half of a wide one.
                let whole = usize::from(cols - j >= nr);
                let side = |s: Side, at: usize| Steps {
                    at: s.data.as_ptr().wrapping_add(at),
                    stride: s.stride,
                };
                // SAFETY: by the asserts the operands have values i.. of the height and j.. of the
                // width for each step, and c has the tile: nr divides COLUMNS, which divides cols, or
                // is twice that, and the half is then COLUMNS. `Kernels::of` gave kernels that this
                // machine can run.
                unsafe {
                    let c = c.as_mut_ptr().add(i * stride + j);
                    let tile = self.kernels.tiles[height][whole];
                    tile(k, side(left, i), side(right, j), c, stride, fresh);
                }
                j += self.kernels.widths[whole];
            }
            i += self.kernels.heights[height];
        }
    }

    /// The index of the height of the next tile of so many rows: tiles of about equal heights, as a low
    /// one has too few sums to keep the machine busy.
    fn height(self, rows: usize) -> usize {
        let heights = self.kernels.heights;
        let even = rows.div_ceil(rows.div_ceil(self.kernels.mr));
        let high = heights.iter().position(|&h| h >= even && h <= rows);
        // Heights begin with 1, so one fits.
        high.or_else(|| heights.iter().rposition(|&h| h <= rows))
            .unwrap_or(0)
    }

    /// `to[p, i] = from[i, p]`: the `rows` rows of `from`, `stride` apart, become columns of `to`, whose
    /// rows of `width` values end in zeros.
    pub fn transpose(self, from: &[f32], stride: usize, rows: usize, width: usize, to: &mut [f32]) {
        pack::transposed(self.kernels.simd, from, stride, (rows, width), to);
    }
}

const _: () = assert!(Small::COLUMNS == 16);

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of bf16: products are exact, sums are not.
    fn value(i: usize) -> f32 {
        let x = ((i * 2_654_435_761) % 1009) as f32 / 97.0 - 5.0;
        f32::from_bits(x.to_bits() & 0xffff_0000)
    }

    #[test]
    fn a_product_is_one_fold_over_ascending_k() {
        let sets = Isa::ALL.into_iter().filter(|i| i.available());
        for (isa, exact) in sets.flat_map(|i| [(i, false), (i, true)]) {
            let small = Small::with(isa, exact);
            for (rows, cols, k) in [
                (1, 16, 1),
                (16, 32, 5),
                (32, 16, 7),
                (13, 48, 3),
                (29, 16, 0),
            ] {
                let (ls, rs, cs) = (rows + 3, cols + 1, cols + 2);
                let left: Vec<f32> = (0..(k + 1) * ls).map(value).collect();
                let right: Vec<f32> = (0..(k + 1) * rs).map(|i| value(i + 7)).collect();
                for fresh in [true, false] {
                    let before: Vec<f32> = (0..rows * cs).map(|i| value(i + 3)).collect();
                    let mut c = before.clone();
                    let side = |data, stride| Side { data, stride };
                    let (l, r) = (side(&left[..], ls), side(&right[..], rs));
                    small.product(k, l, r, (rows, cols), &mut c, cs, fresh);
                    for i in 0..rows {
                        for j in 0..cs {
                            let mut want = before[i * cs + j];
                            if j < cols {
                                want = if fresh { 0.0 } else { want };
                                (0..k).for_each(|p| want += left[p * ls + i] * right[p * rs + j]);
                            }
                            assert_eq!(c[i * cs + j].to_bits(), want.to_bits(), "{isa:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_transposition_moves_every_element() {
        for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
            for (rows, cols, more) in [(16, 32, 0), (1, 1, 0), (5, 11, 4), (32, 16, 16), (33, 9, 1)]
            {
                let width = rows + more;
                let from: Vec<f32> = (0..rows * (cols + 2)).map(value).collect();
                let mut to = vec![f32::NAN; width * cols];
                Small::with(isa, false).transpose(&from, cols + 2, rows, width, &mut to);
                for (p, line) in to.chunks_exact(width).enumerate() {
                    for (i, x) in line.iter().enumerate() {
                        let want = if i < rows {
                            from[i * (cols + 2) + p]
                        } else {
                            0.0
                        };
                        assert_eq!(x.to_bits(), want.to_bits(), "{isa:?}");
                    }
                }
            }
        }
    }
}
