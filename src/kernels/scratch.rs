//! Buffers that a thread keeps between tasks, so that a step allocates nothing once it is warm.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Buffers that a thread keeps at most.
const KEPT: usize = 24;

thread_local! {
    static POOL: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Floats on loan; they go back to the pool of the thread that drops them.
pub struct Scratch(Vec<f32>);

impl Scratch {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Scratch {
        let mut buffer = POOL
            .with_borrow_mut(|pool| {
                // The least that is large enough, else the largest, which grows.
                let fits = |v: &Vec<f32>| (v.capacity() < len, v.capacity().abs_diff(len));
                let best = (0..pool.len()).min_by_key(|&i| fits(&pool[i]));
                best.map(|i| pool.swap_remove(i))
            })
            .unwrap_or_default();
        buffer.clear();
        buffer.resize(len, 0.0);
        Scratch(buffer)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        // A thread that is ending has no pool any more.
        let _ = POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut()
                && pool.len() < KEPT
            {
                pool.push(buffer);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_is_zeros_whatever_was_there() {
        for len in [5, 100, 3, 0, 64] {
            let mut x = Scratch::zeros(len);
            assert!(x.len() == len && x.iter().all(|&v| v == 0.0));
            x.fill(7.0);
        }
        let held: Vec<Scratch> = (0..2 * KEPT).map(Scratch::zeros).collect();
        drop(held);
        assert!(POOL.with_borrow(|p| p.len()) <= KEPT);
    }
}
