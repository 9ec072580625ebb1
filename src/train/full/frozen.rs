//! Since when each element has had its value, from one look of the full ledger to the next.

use crate::train::checkpoint::{Role, State};

/// What the looks before have seen of every weight's stored value, weights in the model's order. It is part
/// of a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct Frozen {
    /// Step at which the first value was taken.
    pub start: u64,
    /// The value at the last look.
    pub seen: Vec<f32>,
    /// The look at which it was first seen, from then on at every one.
    pub since: Vec<u32>,
}

/// How long a tensor's elements have stood still.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Standing {
    /// Steps that each element has been seen to have its value, in ascending order.
    steps: Vec<u32>,
    /// Elements whose value is that of the last look.
    still: u64,
    /// Elements that no look has seen move.
    unmoved: u64,
}

impl Frozen {
    /// At a run's beginning: after `step` steps, before the first look.
    pub fn start(states: &[State], step: usize) -> Frozen {
        let weights = states.iter().filter(|s| s.role == Role::Weight);
        let seen: Vec<f32> = weights.flat_map(State::values).collect();
        Frozen {
            start: step as u64,
            since: vec![step as u32; seen.len()],
            seen,
        }
    }

    /// A look at `step` at the elements from `first` on, whose values are `now`.
    pub fn look(&mut self, step: usize, first: usize, now: &[f32]) -> Standing {
        let seen = &mut self.seen[first..first + now.len()];
        let since = &mut self.since[first..first + now.len()];
        let mut out = Standing::default();
        for ((seen, since), &now) in seen.iter_mut().zip(since.iter_mut()).zip(now) {
            // Bits, so that every change counts and the same NaN is the same.
            if now.to_bits() == seen.to_bits() {
                out.still += 1;
            } else {
                (*seen, *since) = (now, step as u32);
            }
            out.unmoved += u64::from(u64::from(*since) == self.start);
            out.steps.push(step as u32 - *since);
        }
        out.steps.sort_unstable();
        out
    }
}

impl Standing {
    /// Both tensors together.
    pub fn add(&mut self, o: &Standing) {
        self.steps.extend(&o.steps);
        self.steps.sort_unstable();
        self.still += o.still;
        self.unmoved += o.unmoved;
    }

    fn share(&self, count: u64) -> f64 {
        count as f64 / self.steps.len().max(1) as f64
    }

    /// Share of the elements whose value is that of the last look.
    pub fn still(&self) -> f64 {
        self.share(self.still)
    }

    /// Share of the elements that no look has seen move.
    pub fn unmoved(&self) -> f64 {
        self.share(self.unmoved)
    }

    /// Median of the steps that the elements have been seen to stand still; the lower one of two.
    pub fn median(&self) -> u32 {
        let n = self.steps.len();
        self.steps
            .get(n.saturating_sub(1) / 2)
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_followed_from_look_to_look() {
        let mut f = Frozen {
            start: 0,
            seen: vec![1.0, 2.0, 3.0, 4.0, 5.0],
            since: vec![0; 5],
        };
        // The tensor from element 1 on; the first one is another's.
        let s = f.look(10, 1, &[2.0, 3.5, 4.0, 5.5]);
        assert_eq!((s.still(), s.unmoved(), s.median()), (0.5, 0.5, 0));
        assert_eq!(f.since, [0, 0, 10, 0, 10]);
        let s = f.look(20, 1, &[2.0, 3.5, 4.5, 5.5]);
        // Standing still for 20, 10, 0 and 10 steps.
        assert_eq!((s.still(), s.unmoved(), s.median()), (0.75, 0.25, 10));
        // Back to where it was is a movement too.
        let s = f.look(30, 1, &[2.0, 3.0, 4.5, 5.5]);
        assert_eq!((s.still(), s.unmoved(), s.median()), (0.75, 0.25, 10));
        assert_eq!(f.since, [0, 0, 30, 20, 10]);
    }

    #[test]
    fn a_later_start_is_a_start() {
        let mut f = Frozen {
            start: 7,
            seen: vec![1.0, 2.0],
            since: vec![7; 2],
        };
        let mut a = f.look(8, 0, &[1.0]);
        assert_eq!((a.unmoved(), a.median()), (1.0, 1));
        let b = f.look(8, 1, &[2.5]);
        assert_eq!((b.unmoved(), b.median()), (0.0, 0));
        a.add(&b);
        assert_eq!((a.unmoved(), a.still(), a.median()), (0.5, 0.5, 0));
    }
}
