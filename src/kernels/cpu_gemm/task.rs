//! One task of a product: its own panels against the shared ones, tile by tile.

use std::ops::Range;

use super::micro::{MAX_TILE, Steps, prefetch};
use super::pack::{self, Panels};
use super::work::{LOCAL, OWN, with_scratch};
use super::{Out, Pass, Plan};

/// Packed elements of a task's own operand (512 KiB): they stay in the second-level cache.
const OWN_ELEMS: usize = 128 << 10;
/// Columns of B that a thread visits before it returns to the first row panel.
const NB: usize = 512;

impl Plan<'_> {
    /// Computes rows (or columns) `span` of the pass's part of C, and ends what is complete.
    pub(super) fn task(&self, pass: &Pass, span: Range<usize>) {
        let shared = pass.panels.start..pass.panels.end;
        let (rows, cols) = if self.share_b {
            (span.clone(), shared)
        } else {
            (shared, span.clone())
        };
        match (self.out, &self.finish) {
            (Some(out), finish) => {
                self.sums(pass, span, out);
                if let (true, Some(finish)) = (pass.last, finish) {
                    // SAFETY: `out` is C, and this task alone uses these rows and columns of it.
                    unsafe { finish.in_place(out.at, rows, cols) };
                }
            }
            (None, Some(finish)) => {
                with_scratch(&LOCAL, rows.len() * cols.len(), |sums| {
                    let out = Out {
                        at: sums.as_mut_ptr(),
                        stride: cols.len(),
                        row: rows.start,
                        col: cols.start,
                    };
                    self.sums(pass, span, out);
                    finish.packed(sums, rows, cols);
                });
            }
            (None, None) => unreachable!("sums are kept in C or finished"),
        }
    }

    /// The sums of a task over the pass's range of k.
    fn sums(&self, pass: &Pass, span: Range<usize>, out: Out) {
        let (source, full, widths) = if self.share_b {
            (&self.a, self.kernels.mr, self.kernels.heights)
        } else {
            (&self.b, self.kernels.nr, &self.kernels.widths[..])
        };
        let own = Panels {
            start: span.start,
            end: span.end,
            full,
            widths,
        };
        let (kc, len) = (self.kernels.kc, pass.ks.len());
        let deep = (OWN_ELEMS / own.padded()).max(kc) / kc * kc;
        with_scratch(&OWN, own.padded() * deep.min(len), |buffer| {
            // An empty range of k still writes its zeros.
            for from in (0..len.max(1)).step_by(deep) {
                let steps = deep.min(len - from);
                let first = pass.ks.start + from;
                if steps > 0 {
                    pack::panels(self.kernels.simd, source, own, first..first + steps, buffer);
                }
                let own = Packed {
                    panels: own,
                    values: buffer,
                    steps,
                    at: 0,
                };
                self.slab(pass, from, own, out);
            }
        });
    }

    /// All tiles of a task over the steps that `own` holds, the first of which is step `from` of the
    /// pass. A group of columns goes through all its blocks of k before the next, so that its part
    /// of C stays in the cache.
    fn slab(&self, pass: &Pass, from: usize, own: Packed, out: Out) {
        let columns = match self.share_b {
            true => pass.panels.count(),
            false => own.panels.count(),
        };
        let group = NB / self.kernels.nr;
        for j0 in (0..columns).step_by(group) {
            let js = j0..columns.min(j0 + group);
            for at in (0..own.steps.max(1)).step_by(self.kernels.kc) {
                let kc = self.kernels.kc.min(own.steps - at);
                let shared = Packed {
                    panels: pass.panels,
                    values: &pass.shared[(from + at) * pass.panels.padded()..],
                    steps: kc,
                    at: 0,
                };
                let own = Packed { at, ..own };
                let (a, b) = match self.share_b {
                    true => (own, shared),
                    false => (shared, own),
                };
                self.block_product(kc, a, b, js.clone(), pass.first && from + at == 0, out);
            }
        }
    }

    /// All pairs of a row panel with one of the column panels `js`, over one block of k.
    fn block_product(
        &self,
        kc: usize,
        a: Packed,
        b: Packed,
        js: Range<usize>,
        fresh: bool,
        out: Out,
    ) {
        for i in 0..a.panels.count() {
            let left = a.panel(i, kc);
            for j in js.clone() {
                self.tile(kc, left.clone(), b.panel(j, kc), fresh, out);
            }
        }
    }

    /// One register tile: `C[rows, cols] (+)= left * right`.
    #[inline]
    fn tile(&self, kc: usize, a: PanelRef, b: PanelRef, fresh: bool, out: Out) {
        let ((rows, height, left), (cols, width, right)) = (a, b);
        let kernel = self.kernels.tiles[self.kernels.height_index[height]]
            [usize::from(width == self.kernels.nr)];
        let n = out.stride;
        assert!(left.len() == height * kc && right.len() == width * kc);
        assert!(rows.end <= self.m && cols.end <= self.n);
        assert!(rows.len() <= height && cols.len() <= width);
        // SAFETY: the element (rows.start, cols.start) lies in C by the asserts (both ranges are
        // nonempty, as no panel is empty), or in the task's own part of it, which begins at
        // (out.row, out.col) and has all rows and columns of the task.
        let c = unsafe {
            out.at
                .add((rows.start - out.row) * n + cols.start - out.col)
        };
        let (left, right) = (
            Steps {
                at: left.as_ptr(),
                stride: height,
            },
            Steps {
                at: right.as_ptr(),
                stride: width,
            },
        );
        // The next tile lies beside this one.
        prefetch(c.wrapping_add(width), (height, width), n);
        if rows.len() == height && cols.len() == width {
            // SAFETY: the panels hold `height` and `width` values for each of kc steps; the tile
            // of C is height x width with row stride n and lies inside it, and no other task
            // writes it. `Kernels::of` gave kernels that this machine can run.
            unsafe { kernel(kc, left, right, c, n, fresh) };
            return;
        }
        let mut whole = [0.0f32; MAX_TILE];
        for r in 0..if fresh { 0 } else { rows.len() } {
            // SAFETY: row r of the tile, cols.len() values inside C; this task alone uses them.
            let row = unsafe { std::slice::from_raw_parts(c.add(r * n), cols.len()) };
            whole[r * width..][..cols.len()].copy_from_slice(row);
        }
        assert!(height * width <= MAX_TILE);
        // SAFETY: as above, with a complete tile of row stride `width` on the stack.
        unsafe { kernel(kc, left, right, whole.as_mut_ptr(), width, fresh) };
        for r in 0..rows.len() {
            // SAFETY: row r of the tile, cols.len() values inside C; this task alone uses them.
            let row = unsafe { std::slice::from_raw_parts_mut(c.add(r * n), cols.len()) };
            row.copy_from_slice(&whole[r * width..][..cols.len()]);
        }
    }
}

/// Packed panels, and the step of them where a block of k begins.
#[derive(Clone, Copy)]
struct Packed<'a> {
    panels: Panels<'a>,
    values: &'a [f32],
    /// Steps of k that a panel holds.
    steps: usize,
    at: usize,
}

impl<'a> Packed<'a> {
    /// Panel i over `kc` steps.
    #[inline]
    fn panel(&self, i: usize, kc: usize) -> PanelRef<'a> {
        let (range, width) = self.panels.panel(i);
        let start = i * self.panels.full * self.steps + self.at * width;
        (range, width, &self.values[start..][..width * kc])
    }
}

/// A packed panel: what it covers, its padded width, its values (k-major).
type PanelRef<'a> = (Range<usize>, usize, &'a [f32]);
