//! Sums over a tensor's elements that have the same bits on any number of threads: chunks of one length,
//! added in their order.

use rayon::prelude::*;
use std::ops::Range;

/// Elements that are summed together.
const CHUNK: usize = 8192;

/// Something that partial results of are added up.
pub trait Add: Default + Send {
    /// Adds another part.
    fn add(&mut self, other: Self);
}

/// The sum of what `part` gives for each range of `n` elements.
pub fn over<T: Add>(n: usize, part: impl Fn(Range<usize>) -> T + Sync) -> T {
    let chunks = (0..n.div_ceil(CHUNK)).into_par_iter();
    let parts: Vec<T> = chunks
        .map(|c| part(c * CHUNK..n.min((c + 1) * CHUNK)))
        .collect();
    let mut out = T::default();
    parts.into_iter().for_each(|p| out.add(p));
    out
}

/// Two directions against each other: lengths and cosine.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Directions {
    ab: f64,
    aa: f64,
    bb: f64,
}

impl Directions {
    /// Adds a coordinate of both.
    #[inline(always)]
    pub fn push(&mut self, a: f64, b: f64) {
        self.ab += a * b;
        self.aa += a * a;
        self.bb += b * b;
    }

    /// The cosine of the angle between them; none where one has no length.
    pub fn cosine(&self) -> Option<f64> {
        // Each root by itself: the product of the squares may underflow.
        let lengths = libm::sqrt(self.aa) * libm::sqrt(self.bb);
        (lengths > 0.0).then(|| (self.ab / lengths).clamp(-1.0, 1.0))
    }

    /// The first one's length over the second one's; none where that has none.
    pub fn ratio(&self) -> Option<f64> {
        (self.bb > 0.0).then(|| libm::sqrt(self.aa) / libm::sqrt(self.bb))
    }
}

impl Add for Directions {
    fn add(&mut self, o: Directions) {
        self.ab += o.ab;
        self.aa += o.aa;
        self.bb += o.bb;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sum(f64);

    impl Add for Sum {
        fn add(&mut self, o: Sum) {
            self.0 += o.0;
        }
    }

    #[test]
    fn every_element_counts_once_in_one_order() {
        let n = 3 * CHUNK + 17;
        let sum = over(n, |r| Sum(r.map(|i| 1.0 / (i + 1) as f64).sum()));
        let again = over(n, |r| Sum(r.map(|i| 1.0 / (i + 1) as f64).sum()));
        assert_eq!(sum.0.to_bits(), again.0.to_bits());
        assert_eq!(over(n, |r| Sum(r.len() as f64)).0, n as f64);
        assert_eq!(over(0, |r| Sum(r.len() as f64)).0, 0.0);
    }

    #[test]
    fn angles_and_lengths() {
        let of = |pairs: &[(f64, f64)]| {
            let mut d = Directions::default();
            pairs.iter().for_each(|p| d.push(p.0, p.1));
            d
        };
        assert_eq!(of(&[(3.0, 3.0), (4.0, 4.0)]).cosine(), Some(1.0));
        assert_eq!(of(&[(1.0, 0.0), (0.0, 2.0)]).cosine(), Some(0.0));
        assert_eq!(of(&[(1.0, -2.0)]).cosine(), Some(-1.0));
        assert_eq!(of(&[(0.0, 2.0)]).cosine(), None);
        assert_eq!(of(&[(3.0, 0.0), (4.0, 2.5)]).ratio(), Some(2.0));
        assert_eq!(of(&[(3.0, 0.0)]).ratio(), None);
        // Squares of these vanish in f32, and the product of their sums in f64 would too.
        assert_eq!(of(&[(1e-100, 1e-100)]).cosine(), Some(1.0));
    }
}
