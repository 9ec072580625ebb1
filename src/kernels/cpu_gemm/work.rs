//! Tasks that the threads of the pool take in turn, and the buffers that a thread keeps for them.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

/// Runs `body` for each task; free threads of the pool take the next one.
pub(super) fn for_each_task(threads: usize, tasks: usize, body: &(impl Fn(usize) + Sync)) {
    if threads <= 1 || tasks <= 1 {
        return (0..tasks).for_each(body);
    }
    let next = AtomicUsize::new(0);
    (0..threads.min(tasks))
        .into_par_iter()
        .with_max_len(1)
        .for_each(|_| {
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                body(task);
            }
        });
}

/// A cache line, so that packed panels start on one.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([f32; 16]);

// SAFETY: all zeros is a value of sixteen floats.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: sixteen floats, 64 bytes at an alignment of 64: no padding, and any bits are a value.
unsafe impl bytemuck::Pod for Line {}

pub(super) type Scratch = std::thread::LocalKey<Cell<Vec<Line>>>;

thread_local! {
    pub(super) static SHARED: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    pub(super) static OWN: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    pub(super) static LOCAL: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Lends `len` floats of this thread's buffer. The buffer is taken out while it is lent: a thread
/// that waits inside may start another product, which then gets a buffer of its own.
pub(super) fn with_scratch(scratch: &'static Scratch, len: usize, body: impl FnOnce(&mut [f32])) {
    let mut lines = scratch.take();
    if lines.len() * 16 < len {
        lines.resize(len.div_ceil(16), Line([0.0; 16]));
    }
    body(&mut bytemuck::cast_slice_mut::<Line, f32>(&mut lines)[..len]);
    scratch.set(lines);
}
