//! Packing: a panel holds, for each step of k, the values of a few neighbouring rows of an
//! operand, as f32, with the floor of the contract applied and zeros for missing rows.

use std::ops::Range;

/// An operand's values; bf16 in memory order (the low half of a word comes first).
#[derive(Clone, Copy)]
pub(super) enum Data<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
}

impl Data<'_> {
    pub fn len(&self) -> usize {
        match self {
            Data::F32(s) => s.len(),
            Data::Bf16(s) => s.len(),
        }
    }
}

/// An operand as rows of k values: value (row, p) is at `row * stride + p`, or, if `swapped`, at
/// `p * stride + row`.
pub(super) struct Source<'a> {
    pub data: Data<'a>,
    pub stride: usize,
    pub swapped: bool,
    /// Values whose magnitude bits are below this count as +0.
    pub floor: u32,
}

/// Rows `start..end` of an operand cut into panels of `full` rows; the last one may be narrower
/// and is padded to the least of `widths` (ascending, the last is `full`) that holds it.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    pub start: usize,
    pub end: usize,
    pub full: usize,
    pub widths: &'a [usize],
}

impl Panels<'_> {
    pub fn count(&self) -> usize {
        (self.end - self.start).div_ceil(self.full)
    }

    /// The rows of panel i and its padded width.
    #[inline]
    pub fn panel(&self, i: usize) -> (Range<usize>, usize) {
        let start = self.start + i * self.full;
        let rows = start..self.end.min(start + self.full);
        if rows.len() == self.full {
            return (rows, self.full);
        }
        let width = self.widths.iter().copied().find(|&w| w >= rows.len());
        (rows, width.unwrap_or(self.full))
    }

    /// The padded widths of all panels together.
    pub fn padded(&self) -> usize {
        let last = self.count() - 1;
        last * self.full + self.panel(last).1
    }
}

/// A stored element.
trait Element: Copy {
    /// The bits of its value as f32.
    fn bits(self) -> u32;
    /// The bits of eight of them.
    ///
    /// # Safety
    /// `at` points to eight elements; the machine has AVX2.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load8(at: *const Self) -> std::arch::x86_64::__m256i;
}

impl Element for f32 {
    #[inline(always)]
    fn bits(self) -> u32 {
        self.to_bits()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load8(at: *const Self) -> std::arch::x86_64::__m256i {
        // SAFETY: the caller's eight elements are 32 bytes; no alignment is needed.
        unsafe { std::arch::x86_64::_mm256_loadu_si256(at.cast()) }
    }
}

impl Element for u16 {
    #[inline(always)]
    fn bits(self) -> u32 {
        u32::from(self) << 16
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load8(at: *const Self) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller's eight elements are 16 bytes; no alignment is needed.
        let halves = unsafe { _mm_loadu_si128(at.cast()) };
        _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))
    }
}

/// The value of some bits, +0 below the floor.
#[inline(always)]
fn floored(bits: u32, floor: u32) -> f32 {
    f32::from_bits(if bits & 0x7fff_ffff < floor { 0 } else { bits })
}

/// Packs all of `panels`, one after the other: in panel i, at `i * full * ks.len()`, value
/// `p * width + r` is (row r of the panel, ks.start + p), 0 past its rows.
/// `simd`: the machine has AVX2.
pub(super) fn panels(
    simd: bool,
    source: &Source,
    panels: Panels,
    ks: Range<usize>,
    to: &mut [f32],
) {
    let k = ks.len();
    // Rows of an operand that lie along the panels are read a few at a time over all panels, so
    // that the reads run on in memory.
    let step = if source.swapped { STEPS } else { k };
    for from in (0..k).step_by(step) {
        let steps = from..k.min(from + step);
        for i in 0..panels.count() {
            let (rows, width) = panels.panel(i);
            let part = &mut to[i * panels.full * k..][steps.start * width..steps.end * width];
            panel(simd, source, rows, width, ks.start + steps.start, part);
        }
    }
}

/// Steps of k that are packed at a time where an operand lies along the panels.
const STEPS: usize = 16;

/// Packs the part of one panel that starts at step `k0`.
fn panel(simd: bool, source: &Source, rows: Range<usize>, width: usize, k0: usize, to: &mut [f32]) {
    let Source {
        stride,
        swapped,
        floor,
        ..
    } = *source;
    let at = if swapped {
        k0 * stride + rows.start
    } else {
        rows.start * stride + k0
    };
    let shape = Shape {
        stride,
        rows: rows.len(),
        width,
        floor,
    };
    match source.data {
        Data::F32(s) => elements(simd, swapped, &s[at..], shape, to),
        Data::Bf16(s) => elements(simd, swapped, &s[at..], shape, to),
    }
}

/// What a panel's part looks like: the source's row stride, the rows that exist, the padded width.
#[derive(Clone, Copy)]
struct Shape {
    stride: usize,
    rows: usize,
    width: usize,
    floor: u32,
}

/// `to[p * width + i] = from[i * stride + p]` for i below `rows`, 0 from there on.
pub(super) fn transposed(
    simd: bool,
    from: &[f32],
    stride: usize,
    (rows, width): (usize, usize),
    to: &mut [f32],
) {
    let shape = Shape {
        stride,
        rows,
        width,
        floor: 0,
    };
    elements(simd, false, from, shape, to);
}

fn elements<E: Element>(simd: bool, swapped: bool, from: &[E], shape: Shape, to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if simd {
        // SAFETY: `simd` says that the machine has AVX2.
        unsafe {
            if swapped {
                avx2::copy(from, shape, to);
            } else {
                avx2::transpose(from, shape, to);
            }
        }
        return;
    }
    let _ = simd;
    if swapped {
        copy(from, shape, to);
    } else {
        transpose(from, shape, to);
    }
}

/// Values that lie along the panel: row p of `from` gives the values of step p.
#[inline(always)]
fn copy<E: Element>(from: &[E], shape: Shape, to: &mut [f32]) {
    let Shape {
        stride,
        rows,
        width,
        floor,
    } = shape;
    match (rows, width) {
        (32, 32) => copy_full::<E, 32>(from, stride, floor, to),
        (24, 24) => copy_full::<E, 24>(from, stride, floor, to),
        (16, 16) => copy_full::<E, 16>(from, stride, floor, to),
        (14, 14) => copy_full::<E, 14>(from, stride, floor, to),
        (12, 12) => copy_full::<E, 12>(from, stride, floor, to),
        (8, 8) => copy_full::<E, 8>(from, stride, floor, to),
        (6, 6) => copy_full::<E, 6>(from, stride, floor, to),
        (4, 4) => copy_full::<E, 4>(from, stride, floor, to),
        _ => {
            for (p, line) in to.chunks_exact_mut(width).enumerate() {
                let (values, rest) = line.split_at_mut(rows);
                for (value, x) in values.iter_mut().zip(&from[p * stride..][..rows]) {
                    *value = floored(x.bits(), floor);
                }
                rest.fill(0.0);
            }
        }
    }
}

/// [`copy`] for a panel that is full.
#[inline(always)]
fn copy_full<E: Element, const W: usize>(from: &[E], stride: usize, floor: u32, to: &mut [f32]) {
    for (p, line) in to.as_chunks_mut::<W>().0.iter_mut().enumerate() {
        let values: &[E] = &from[p * stride..][..W];
        for (value, x) in line.iter_mut().zip(values) {
            *value = floored(x.bits(), floor);
        }
    }
}

/// Values that lie across the panel: row i of `from` gives value i of every step.
#[inline(always)]
fn transpose<E: Element>(from: &[E], shape: Shape, to: &mut [f32]) {
    let Shape {
        stride,
        rows,
        width,
        floor,
    } = shape;
    let k = to.len() / width;
    if rows < width {
        to.fill(0.0);
    }
    for p0 in (0..k).step_by(8) {
        let steps = 8.min(k - p0);
        for i in 0..rows {
            let values = &from[i * stride + p0..][..steps];
            for (p, x) in values.iter().enumerate() {
                to[(p0 + p) * width + i] = floored(x.bits(), floor);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Element, Shape, floored};
    use std::arch::x86_64::*;

    /// [`copy`](super::copy), compiled for AVX2.
    #[target_feature(enable = "avx2")]
    pub fn copy<E: Element>(from: &[E], shape: Shape, to: &mut [f32]) {
        super::copy(from, shape, to);
    }

    /// [`transpose`](super::transpose) in blocks of 8 x 8.
    #[target_feature(enable = "avx2")]
    pub fn transpose<E: Element>(from: &[E], shape: Shape, to: &mut [f32]) {
        let Shape {
            stride,
            rows,
            width,
            floor,
        } = shape;
        let k = to.len() / width;
        // One check for all loads below: they stay inside the first k values of `rows` rows.
        assert!(from.len() >= (rows - 1) * stride + k && to.len() == k * width);
        for i0 in (0..width).step_by(8) {
            let lanes = 8.min(width - i0);
            let live = rows.saturating_sub(i0).min(lanes);
            for p in (0..k & !7).step_by(8) {
                // SAFETY: rows i0..i0 + live exist, and steps p..p + 8 are below k.
                let block =
                    unsafe { load(from.as_ptr().add(i0 * stride + p), stride, live, floor) };
                for (s, v) in block.into_iter().enumerate() {
                    let line = &mut to[(p + s) * width + i0..][..lanes];
                    store(line, v);
                }
            }
            for p in k & !7..k {
                for i in 0..lanes {
                    let at = (i0 + i) * stride + p;
                    to[p * width + i0 + i] = if i < live {
                        floored(from[at].bits(), floor)
                    } else {
                        0.0
                    };
                }
            }
        }
    }

    /// Loads eight values of each of `live` rows, floors them and transposes the block.
    ///
    /// # Safety
    /// `at + i * stride` points to eight elements for each i below `live`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load<E: Element>(
        at: *const E,
        stride: usize,
        live: usize,
        floor: u32,
    ) -> [__m256; 8] {
        let mut rows = [_mm256_setzero_ps(); 8];
        if live == 8 {
            for (i, row) in rows.iter_mut().enumerate() {
                // SAFETY: i < live; AVX2 is enabled here.
                *row = floor8(unsafe { E::load8(at.add(i * stride)) }, floor);
            }
        } else {
            for (i, row) in rows.iter_mut().enumerate().take(live) {
                // SAFETY: i < live; AVX2 is enabled here.
                *row = floor8(unsafe { E::load8(at.add(i * stride)) }, floor);
            }
        }
        transpose8(rows)
    }

    /// [`floored`] for eight values. The floor is a positive i32.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn floor8(bits: __m256i, floor: u32) -> __m256 {
        let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff_ffff));
        let keep = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(floor as i32 - 1));
        _mm256_castsi256_ps(_mm256_and_si256(bits, keep))
    }

    /// Stores the first `line.len()` lanes (1 to 8).
    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(line: &mut [f32], v: __m256) {
        let at = line.as_mut_ptr();
        let low = _mm256_castps256_ps128(v);
        // SAFETY: each store writes at most line.len() lanes.
        unsafe {
            match line.len() {
                8 => _mm256_storeu_ps(at, v),
                4 => _mm_storeu_ps(at, low),
                6 => {
                    _mm_storeu_ps(at, low);
                    _mm_storel_pd(
                        at.add(4).cast(),
                        _mm_castps_pd(_mm256_extractf128_ps::<1>(v)),
                    );
                }
                len => {
                    let mut lanes = [0.0; 8];
                    _mm256_storeu_ps(lanes.as_mut_ptr(), v);
                    line.copy_from_slice(&lanes[..len]);
                }
            }
        }
    }

    /// Transposes eight rows of eight.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose8(r: [__m256; 8]) -> [__m256; 8] {
        let mut pairs = [_mm256_setzero_ps(); 8];
        let mut quads = pairs;
        for i in 0..4 {
            pairs[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        for i in 0..2 {
            for h in 0..2 {
                let (x, y) = (pairs[4 * i + h], pairs[4 * i + 2 + h]);
                quads[4 * i + 2 * h] = _mm256_shuffle_ps::<0x44>(x, y);
                quads[4 * i + 2 * h + 1] = _mm256_shuffle_ps::<0xee>(x, y);
            }
        }
        let mut columns = pairs;
        for i in 0..4 {
            columns[i] = _mm256_permute2f128_ps::<0x20>(quads[i], quads[4 + i]);
            columns[4 + i] = _mm256_permute2f128_ps::<0x31>(quads[i], quads[4 + i]);
        }
        columns
    }
}
