//! Register kernels: one tile of C over one block of k.
//!
//! A kernel holds MR x (NV vectors) accumulators in registers. For each step of k it adds one
//! product to each of them, in place: the fold of the contract, in all lanes at once.

use super::super::simd::Isa;

/// Values of an operand, those of a step of k side by side, and how far the next step's are.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pub at: *const f32,
    pub stride: usize,
}

/// `kernel(k, left, right, c, stride, fresh)`: `c[i * stride + j]` for the tile's MR rows i and NR
/// columns j starts at +0 (`fresh`) or at its present value, and takes
/// `left[p * left.stride + i] * right[p * right.stride + j]` for p ascending.
///
/// # Safety
/// `left` has MR values and `right` NR for each of `k` steps; all of `c`'s tile may be read and
/// written; the machine has the kernel's instruction set.
pub(super) type Micro = unsafe fn(usize, Steps, Steps, *mut f32, usize, bool);

/// The largest tile of any instruction set.
pub(super) const MAX_TILE: usize = 14 * 32;

/// The kernels of one instruction set for one kind of product.
pub(super) struct Kernels {
    /// Rows of a full tile.
    pub mr: usize,
    /// Columns of a full tile.
    pub nr: usize,
    /// Row counts that have a kernel, ascending.
    pub heights: &'static [usize],
    /// For each of `heights` its index.
    pub height_index: [usize; 25],
    /// Column counts that have a kernel: half and full.
    pub widths: [usize; 2],
    /// Per height and width.
    pub tiles: &'static [[Micro; 2]],
    /// Length of a k block: a left panel of it fits in half of the first-level cache.
    pub kc: usize,
    /// Panels are packed with AVX2.
    pub simd: bool,
}

impl Kernels {
    /// The kernels of an instruction set that may fuse a product with its sum, or that round each
    /// product before the sum.
    ///
    /// # Panics
    /// If this machine cannot run it.
    pub fn of(isa: Isa, fuse: bool) -> &'static Kernels {
        assert!(isa.available(), "this machine has no {isa:?}");
        match (isa, fuse) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, false) => &avx512::ROUNDED,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, true) => &avx512::FUSED,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, false) => &avx2::ROUNDED,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, true) => &avx2::FUSED,
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            (Isa::Neon, false) => &neon::ROUNDED,
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            (Isa::Neon, true) => &neon::FUSED,
            _ => &portable::ROUNDED,
        }
    }
}

/// Steps of k between a right panel's use and the request for it.
#[allow(dead_code)] // on targets with nothing but the portable kernels
const AHEAD: usize = 16;

/// Asks for a cache line that is used soon. Nothing is read: any address will do.
#[inline(always)]
fn ahead(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which never faults; every x86-64 machine has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    let _ = at;
}

/// Asks for a tile of C that is used next.
#[inline]
pub(super) fn prefetch(c: *const f32, (rows, cols): (usize, usize), stride: usize) {
    for row in 0..rows {
        for col in (0..cols).step_by(16) {
            ahead(c.wrapping_add(row * stride + col));
        }
    }
}

/// The inverse of a list of heights.
const fn invert(heights: &[usize]) -> [usize; 25] {
    let mut index = [usize::MAX; 25];
    let mut i = 0;
    while i < heights.len() {
        index[heights[i]] = i;
        i += 1;
    }
    index
}

/// The table of a set's kernels: `tile::<rows, vectors, fused>` for both column counts.
macro_rules! table {
    ($name:ident, $fuse:literal, $lanes:literal, [$($mr:literal),*], $full:literal, $half:literal,
     $kc:literal, $simd:literal) => {
        pub(in super::super) static $name: Kernels = {
            const HEIGHTS: &[usize] = &[$($mr),*];
            Kernels {
                mr: HEIGHTS[HEIGHTS.len() - 1],
                nr: $full * $lanes,
                heights: HEIGHTS,
                height_index: invert(HEIGHTS),
                widths: [$half * $lanes, $full * $lanes],
                tiles: &[$([tile::<$mr, $half, $fuse>, tile::<$mr, $full, $fuse>]),*],
                kc: $kc,
                simd: $simd,
            }
        };
    };
}

/// The kernel `tile::<MR, NV, FUSED>` over a set's vector operations.
#[allow(unused_macros)] // on targets with nothing but the portable kernels
macro_rules! tile {
    ($feature:literal, $lanes:literal, $zero:expr, $load:ident, $store:ident, $splat:ident,
     $mul:ident, $add:ident, $fma:expr) => {
        /// See [`Micro`](super::Micro): MR rows, NV vectors of columns.
        ///
        /// # Safety
        /// As [`Micro`](super::Micro) says.
        #[target_feature(enable = $feature)]
        unsafe fn tile<const MR: usize, const NV: usize, const FUSED: bool>(
            k: usize,
            left: Steps,
            right: Steps,
            c: *mut f32,
            stride: usize,
            fresh: bool,
        ) {
            let mut acc = [[$zero; NV]; MR];
            if !fresh {
                for i in 0..MR {
                    for j in 0..NV {
                        // SAFETY: inside the tile of C, which the caller lends.
                        acc[i][j] = unsafe { $load(c.add(i * stride + j * $lanes)) };
                    }
                }
            }
            let (mut a_at, mut b_at) = (left.at, right.at);
            for _ in 0..k {
                let mut b = [$zero; NV];
                for j in 0..NV {
                    // SAFETY: `right` has NV * lanes values for each of the k steps.
                    b[j] = unsafe { $load(b_at.add(j * $lanes)) };
                    if FUSED && NV > 1 {
                        // Two multiply-adds a cycle outrun the second-level cache, where a wide
                        // right panel lies.
                        super::ahead(b_at.wrapping_add(super::AHEAD * NV * $lanes + j * $lanes));
                    }
                }
                for i in 0..MR {
                    // SAFETY: `left` has MR values for each of the k steps.
                    let a = $splat(unsafe { *a_at.add(i) });
                    for j in 0..NV {
                        acc[i][j] = if FUSED {
                            $fma(a, b[j], acc[i][j])
                        } else {
                            $add(acc[i][j], $mul(a, b[j]))
                        };
                    }
                }
                // Never read past the last step, where they may point outside of the operands.
                a_at = a_at.wrapping_add(left.stride);
                b_at = b_at.wrapping_add(right.stride);
            }
            for i in 0..MR {
                for j in 0..NV {
                    // SAFETY: inside the tile of C, which the caller lends.
                    unsafe { $store(c.add(i * stride + j * $lanes), acc[i][j]) };
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::needless_range_loop)]
mod avx512 {
    use super::{Kernels, Steps, invert};
    use std::arch::x86_64::*;

    tile!(
        "avx512f",
        16,
        _mm512_setzero_ps(),
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_set1_ps,
        _mm512_mul_ps,
        _mm512_add_ps,
        _mm512_fmadd_ps
    );
    // One vector of columns: each value of the left panel is used once per step, so its broadcast
    // becomes a memory operand of the multiplication, and separate multiplications and additions
    // fill both pipes.
    table!(
        ROUNDED,
        false,
        16,
        [1, 2, 4, 8, 12, 16, 24],
        1,
        1,
        384,
        true
    );
    // Half as many instructions: loads would be the limit, so each value of the left panel serves
    // two vectors (1.4 times as fast as 24 x 16 where another thread shares the core).
    table!(FUSED, true, 16, [1, 2, 4, 6, 8, 12, 14], 2, 1, 256, true);
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::needless_range_loop)]
mod avx2 {
    use super::{Kernels, Steps, invert};
    use std::arch::x86_64::*;

    tile!(
        "avx2,fma",
        8,
        _mm256_setzero_ps(),
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_set1_ps,
        _mm256_mul_ps,
        _mm256_add_ps,
        _mm256_fmadd_ps
    );
    table!(ROUNDED, false, 8, [1, 2, 4, 6], 2, 1, 384, true);
    table!(FUSED, true, 8, [1, 2, 4, 6], 2, 1, 384, true);
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
#[allow(clippy::needless_range_loop)]
mod neon {
    use super::{Kernels, Steps, invert};
    use std::arch::aarch64::*;

    /// a * b + c, fused.
    #[inline]
    #[target_feature(enable = "neon")]
    fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        vfmaq_f32(c, a, b)
    }

    tile!(
        "neon",
        4,
        vdupq_n_f32(0.0),
        vld1q_f32,
        vst1q_f32,
        vdupq_n_f32,
        vmulq_f32,
        vaddq_f32,
        fma
    );
    table!(ROUNDED, false, 4, [1, 2, 4, 6], 4, 2, 384, false);
    table!(FUSED, true, 4, [1, 2, 4, 6], 4, 2, 384, false);
}

/// Arrays that the compiler turns into whatever vectors the build target has.
#[allow(clippy::needless_range_loop)]
mod portable {
    use super::{Kernels, Steps, invert};

    /// See [`Micro`](super::Micro): MR rows, NV groups of four columns. Nothing is fused.
    ///
    /// # Safety
    /// As [`Micro`](super::Micro) says.
    unsafe fn tile<const MR: usize, const NV: usize, const FUSED: bool>(
        k: usize,
        left: Steps,
        right: Steps,
        c: *mut f32,
        stride: usize,
        fresh: bool,
    ) {
        let mut acc = [[[0.0f32; 4]; NV]; MR];
        if !fresh {
            for i in 0..MR {
                // SAFETY: row i of the tile of C; an array of floats needs only their alignment.
                acc[i] = unsafe { *c.add(i * stride).cast::<[[f32; 4]; NV]>() };
            }
        }
        for p in 0..k {
            // SAFETY: the operands have MR and NV * 4 values for each of the k steps; arrays of floats
            // need only their alignment.
            let (a, b) = unsafe {
                let a = &*left.at.add(p * left.stride).cast::<[f32; MR]>();
                (a, &*right.at.add(p * right.stride).cast::<[[f32; 4]; NV]>())
            };
            for i in 0..MR {
                for j in 0..NV {
                    for l in 0..4 {
                        acc[i][j][l] += a[i] * b[j][l];
                    }
                }
            }
        }
        for i in 0..MR {
            // SAFETY: row i of the tile of C; an array of floats needs only their alignment.
            unsafe { *c.add(i * stride).cast::<[[f32; 4]; NV]>() = acc[i] };
        }
    }
    table!(ROUNDED, false, 4, [1, 2, 4], 2, 1, 384, false);
}
