//! Matrix products on the CPU, the reference for every other executor.
//!
//! # The order that defines the bits
//! Every output element is **one** f32 accumulator. It starts at +0 and folds over ascending k,
//! one product per step: `acc = acc + a * b`.
//!
//! * f32 operands: the product is rounded before the add (fused only where [`super::simd::with_fused`]
//!   gave leave, outside of this order). An operand with
//!   |x| < 2^-51 counts as +0, so a rounded product is 0 or at least 2^-102 and no step of the
//!   fold meets a subnormal.
//! * bf16 operands (both of them): a product is exact in f32, so fused and unfused steps agree.
//!   An operand with |x| < 2^-55 counts as +0.
//! * One of each: the bf16 operand is widened and the f32 rules hold for both.
//!
//! Register tiles, cache blocks, the instruction set and the number of threads are free: an
//! accumulator that is stored to C between two k blocks and loaded again is still the same fold.
//! Values past the contract's range (infinity, NaN, bf16 operands of 2^63 and more) are outside
//! the promise here as everywhere.
//!
//! # How it is computed
//! The operand on the shorter side of C is packed whole into panels that all threads share. The
//! longer side is cut into tasks; a task packs its own part of the other operand, block of k by
//! block of k, and runs a register kernel over the pairs of panels.
//!
//! A single row times a matrix of rows `[k,n]` needs no packing: its sums run side by side along n.
//!
//! Work is spread over the current rayon pool. A call from outside of the pool pays for a thread
//! hand-over each time, so a training loop should run inside `ThreadPool::install`.

mod finish;
mod micro;
mod pack;
mod row;
pub(super) mod small;
mod task;
#[cfg(test)]
mod tests;
mod work;

use std::ops::Range;

use super::math::{FLOOR_BF16_OPERAND, FLOOR_F32_OPERAND};
use super::simd::{Isa, fused, isa};
use finish::Finish;
pub use finish::{Epilogue, Target};
use micro::Kernels;
use pack::{Data, Panels, Source};
use work::{SHARED, for_each_task, with_scratch};

/// Packed elements of the shared operand per pass (8 MiB of f32).
const SHARED_ELEMS: usize = 2 << 20;
/// Extent of the shared operand per pass.
const SHARED_EXTENT: usize = 4096;
/// Multiply-adds below which a product is not worth a second thread.
const SERIAL_WORK: usize = 1 << 19;
/// Panels of the shared operand that are packed together.
const GROUP: usize = 8;
/// Elements below which the shared operand is packed by the calling thread.
const SERIAL_PACK: usize = 1 << 14;

/// A stored operand and its element type.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// Row-major f32.
    F32(&'a [f32]),
    /// Row-major bf16, two per word, low half first; each row is padded to an even length.
    Bf16(&'a [u32]),
}

/// The shape of `C[m,n] = op(A) * op(B)`, all row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// The stored length of the summed axis.
    pub k: usize,
    /// A is stored as `[k,m]` instead of `[m,k]`.
    pub ta: bool,
    /// B is stored as `[n,k]` instead of `[k,n]`.
    pub tb: bool,
}

impl Gemm {
    /// Whether C is one row and B lies as `[k,n]`: read as it lies, with no packing.
    pub fn single_row(&self) -> bool {
        self.m == 1 && !self.ta && !self.tb
    }
}

/// `C[m,n] = op(A)[m, k0..k1] * op(B)[k0..k1, n]`, C overwritten.
///
/// The range of k lets a caller cut a long sum into chunks; an empty range gives zeros.
///
/// # Panics
/// If a slice is too short for its shape, `c` is not `m * n` long, or the range leaves `0..k`.
pub fn gemm(g: &Gemm, k0: usize, k1: usize, a: Operand, b: Operand, c: &mut [f32]) {
    if g.single_row() {
        assert!(k0 <= k1 && k1 <= g.k && c.len() == g.n);
        return row::product(k0..k1, g.n, (a, b), floor(a, b).1, c);
    }
    run(isa(), g, k0..k1, a, b, None, Target::F32(c));
}

/// Whether products are exact, and the bits of the magnitude below which an operand counts as 0.
fn floor(a: Operand, b: Operand) -> (bool, u32) {
    match (a, b) {
        (Operand::Bf16(_), Operand::Bf16(_)) => (true, FLOOR_BF16_OPERAND),
        _ => (false, FLOOR_F32_OPERAND),
    }
}

/// The whole product, each element through an epilogue on its way to the target.
///
/// # Panics
/// As [`gemm`].
pub fn gemm_then(g: &Gemm, a: Operand, b: Operand, epilogue: Epilogue, c: Target) {
    run(isa(), g, 0..g.k, a, b, Some(epilogue), c);
}

/// [`gemm`] on a given instruction set, which must be available.
fn run(
    isa: Isa,
    g: &Gemm,
    ks: Range<usize>,
    a: Operand,
    b: Operand,
    epilogue: Option<Epilogue>,
    c: Target,
) {
    assert!(
        ks.start <= ks.end && ks.end <= g.k,
        "k range {ks:?} of {}",
        g.k
    );
    let (out, finish) = finish::split(g, epilogue, c);
    if g.m * g.n == 0 {
        return;
    }
    let (exact, floor) = floor(a, b);
    let kernels = Kernels::of(isa, exact || fused());
    let (m, n, k) = (g.m, g.n, g.k);
    let plan = Plan {
        kernels,
        a: source(a, m, k, g.ta, floor),
        b: source(b, n, k, !g.tb, floor),
        share_b: m >= n,
        m,
        n,
        out,
        finish,
    };
    plan.product(ks);
}

/// Views an operand as `extent` rows of `k` values (`swapped`: stored as k rows of `extent`).
fn source(op: Operand, extent: usize, k: usize, swapped: bool, floor: u32) -> Source {
    let (rows, cols) = if swapped { (k, extent) } else { (extent, k) };
    let (data, stride) = match op {
        Operand::F32(s) => (Data::F32(s), cols),
        Operand::Bf16(s) => (
            Data::Bf16(bytemuck::cast_slice(s)),
            cols.next_multiple_of(2),
        ),
    };
    let need = rows.checked_mul(stride);
    assert!(
        need.is_some_and(|need| data.len() >= need),
        "operand shorter than {rows} x {cols}"
    );
    Source {
        data,
        stride,
        swapped,
        floor,
    }
}

/// Where sums are kept: C, or a task's part of it. Tasks write disjoint parts.
#[derive(Clone, Copy)]
struct Out {
    at: *mut f32,
    /// Floats between two rows.
    stride: usize,
    /// Row and column of C that lie at `at`.
    row: usize,
    col: usize,
}

// SAFETY: the pointer comes from a `&mut [f32]` that outlives the product, and the tasks that
// share it write disjoint row or column ranges (see `Plan::pass`).
unsafe impl Sync for Out {}

/// One product, ready to run.
struct Plan<'a> {
    kernels: &'static Kernels,
    a: Source<'a>,
    b: Source<'a>,
    /// B is packed once for all tasks, which split the rows of C; else A is, and they split the
    /// columns.
    share_b: bool,
    m: usize,
    n: usize,
    /// C, where sums may be kept there: not if it is packed.
    out: Option<Out>,
    finish: Option<Finish<'a>>,
}

/// One pass: a block of the shared operand's extent and of k.
struct Pass<'a> {
    /// The packed shared operand: for each k block its panels.
    shared: &'a [f32],
    /// The panels of the shared operand.
    panels: Panels<'a>,
    ks: Range<usize>,
    /// The fold starts here (else C holds the sums so far).
    first: bool,
    /// The fold ends here.
    last: bool,
}

impl Plan<'_> {
    /// Cuts the product into passes whose shared panels have a bounded size.
    fn product(&self, ks: Range<usize>) {
        let work = self.m * self.n * ks.len();
        let threads = if work < SERIAL_WORK {
            1
        } else {
            rayon::current_num_threads()
        };
        let (extent, full, widths) = if self.share_b {
            (self.n, self.kernels.nr, &self.kernels.widths[..])
        } else {
            (self.m, self.kernels.mr, self.kernels.heights)
        };
        let mut step = SHARED_EXTENT / full * full;
        if self.out.is_none() {
            // Sums that are kept outside of C go over all of k in one pass.
            step = step.min((SHARED_ELEMS / ks.len().max(1) / full).max(1) * full);
        }
        for start in (0..extent).step_by(step) {
            let panels = Panels {
                start,
                end: extent.min(start + step),
                full,
                widths,
            };
            let kq = match self.out {
                Some(_) => {
                    (SHARED_ELEMS / panels.padded()).max(self.kernels.kc) / self.kernels.kc
                        * self.kernels.kc
                }
                None => ks.len().max(1),
            };
            let mut q = ks.start;
            loop {
                let range = q..ks.end.min(q + kq);
                let last = range.end == ks.end;
                self.pass(panels, range, q == ks.start, last, threads);
                q += kq;
                if last {
                    break;
                }
            }
        }
    }

    /// Packs the shared operand, then runs the tasks.
    fn pass(&self, panels: Panels, ks: Range<usize>, first: bool, last: bool, threads: usize) {
        let len = panels.padded() * ks.len();
        with_scratch(&SHARED, len, |shared| {
            self.pack_shared(panels, ks.clone(), shared, threads);
            let pass = Pass {
                shared,
                panels,
                ks,
                first,
                last,
            };
            let (extent, full) = if self.share_b {
                (self.m, self.kernels.mr)
            } else {
                (self.n, self.kernels.nr)
            };
            let blocks = self.blocks(extent, full, threads);
            for_each_task(threads, blocks.len(), &|task| {
                self.task(&pass, blocks[task].clone());
            });
        });
    }

    /// What the tasks take of `0..extent`: whole panels, of a bounded packed size, and ever fewer
    /// towards the end, so that the threads end together.
    fn blocks(&self, extent: usize, full: usize, threads: usize) -> Vec<Range<usize>> {
        let most = if self.share_b { 96 } else { 192 };
        let mut blocks = Vec::new();
        let mut start = 0;
        while start < extent {
            let share = (extent - start).div_ceil(if threads == 1 { 1 } else { threads * 2 });
            let end = extent.min(start + share.min(most).next_multiple_of(full));
            blocks.push(start..end);
            start = end;
        }
        blocks
    }

    /// Packs all panels of the shared operand.
    fn pack_shared(&self, panels: Panels, ks: Range<usize>, to: &mut [f32], threads: usize) {
        let source = if self.share_b { &self.b } else { &self.a };
        let threads = if to.len() < SERIAL_PACK { 1 } else { threads };
        let padded = panels.padded();
        let groups = panels.count().div_ceil(GROUP);
        let dest = Dest(to.as_mut_ptr());
        for_each_task(
            threads,
            groups * ks.len().div_ceil(self.kernels.kc),
            &|task| {
                let (group, from) = (task % groups, task / groups * self.kernels.kc);
                let kc = self.kernels.kc.min(ks.len() - from);
                let offset = group * GROUP * panels.full;
                let start = panels.start + offset;
                let end = panels.end.min(start + GROUP * panels.full);
                let part = Panels {
                    start,
                    end,
                    ..panels
                };
                let (at, len) = (from * padded + offset * kc, part.padded() * kc);
                assert!(at + len <= padded * ks.len());
                // SAFETY: the assert keeps the range inside `to`, which is borrowed for the whole
                // call. Ranges of different tasks are disjoint: block `from` owns
                // [from * padded, (from + kc) * padded), and in it a group's panels end where the
                // next group's begin, as only the last panel of all is narrower than `full`.
                let packed = unsafe { std::slice::from_raw_parts_mut(dest.get().add(at), len) };
                let first = ks.start + from;
                pack::panels(self.kernels.simd, source, part, first..first + kc, packed);
            },
        );
    }
}

/// A destination that tasks write in disjoint parts.
struct Dest(*mut f32);

// SAFETY: only used in `pack_shared`, where the parts are disjoint.
unsafe impl Sync for Dest {}

impl Dest {
    fn get(&self) -> *mut f32 {
        self.0
    }
}
