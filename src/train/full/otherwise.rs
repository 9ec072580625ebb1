//! What other ways of storing a weight would have made of an update of its fp32 master.

use super::sums::{Add, Directions, over};
use crate::dtype::{DType, bf16_to_f32};
use crate::kernels::math::ftz;
use crate::kernels::optim_low::round_stochastic;
use crate::kernels::rng::threefry;
use crate::report::sheets::{fraction, maybe};

/// The ways, as they are named in the file.
pub const WAYS: [&str; 4] = ["bf16", "bf16-sr", "bf16-kahan", "fp16"];

/// An update of a master.
pub struct Master<'a> {
    /// Before.
    pub before: &'a [f32],
    /// After.
    pub after: &'a [f32],
    /// Length of a row.
    pub row: usize,
    /// Number of the tensor, for the random bits.
    pub tensor: u32,
    /// The update's key, for the random bits.
    pub key: [u32; 2],
}

/// What came of an update in one way of storing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    elements: u64,
    swallowed: u64,
    /// Of what was stored against the master's update.
    direction: Directions,
}

/// Of all ways.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcomes([Outcome; 4]);

impl Add for Outcomes {
    fn add(&mut self, o: Outcomes) {
        for (a, b) in self.0.iter_mut().zip(o.0) {
            a.elements += b.elements;
            a.swallowed += b.swallowed;
            a.direction.add(b.direction);
        }
    }
}

/// Whether nothing of an update is left, and what has been stored of it.
type Stored = (bool, f64);

fn nearest(dtype: DType, before: f32, delta: f32) -> Stored {
    let base = dtype.round(before);
    let new = dtype.round(base + delta);
    (new == base, f64::from(new) - f64::from(base))
}

fn stochastic(before: f32, delta: f32, random: u32) -> Stored {
    let base = DType::Bf16.round(before);
    let new = bf16_to_f32(round_stochastic(base + delta, random));
    (new == base, f64::from(new) - f64::from(base))
}

/// The compensation is what bf16 lacks of the master, itself rounded to bf16: what a compensated run would
/// have kept that had followed the same weights.
fn compensated(before: f32, delta: f32) -> Stored {
    let round = |x: f32| DType::Bf16.round(x);
    let base = round(before);
    let kept = round(before - base);
    let exact = ftz(ftz(base) + ftz(kept)) + delta;
    let new = round(exact);
    let rest = round(ftz(exact - new));
    let sum = |w: f32, c: f32| f64::from(w) + f64::from(c);
    (
        new == base && rest == kept,
        sum(new, rest) - sum(base, kept),
    )
}

impl Outcomes {
    /// Of one update of a tensor.
    pub fn of(u: &Master) -> Outcomes {
        // Places in the packed tensor, whose rows have an even number of elements.
        let padded = u.row.next_multiple_of(2);
        over(u.before.len(), |range| {
            let mut out = Outcomes::default();
            for i in range {
                let (before, delta) = (u.before[i], u.after[i] - u.before[i]);
                let place = (i / u.row * padded + i % u.row) as u32;
                let [random, _] = threefry(u.key, [place, u.tensor]);
                let ways = [
                    nearest(DType::Bf16, before, delta),
                    stochastic(before, delta, random),
                    compensated(before, delta),
                    nearest(DType::F16, before, delta),
                ];
                for (o, (swallowed, stored)) in out.0.iter_mut().zip(ways) {
                    o.elements += 1;
                    o.swallowed += u64::from(swallowed);
                    o.direction.push(stored, f64::from(delta));
                }
            }
            out
        })
    }

    /// The columns from `stored_as` on, a row a way.
    pub fn rows(&self) -> impl Iterator<Item = [String; 4]> {
        self.0.iter().zip(WAYS).map(|(o, way)| {
            [
                way.to_string(),
                fraction(o.swallowed as f64 / o.elements.max(1) as f64),
                maybe(o.direction.cosine(), fraction),
                maybe(o.direction.ratio(), fraction),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ULP: f32 = 1.0 / 128.0;

    #[test]
    fn nearest_swallows_what_is_small_against_the_weight() {
        assert_eq!(nearest(DType::Bf16, 1.0, 0.25 * ULP), (true, 0.0));
        assert_eq!(
            nearest(DType::Bf16, 1.0, 0.75 * ULP),
            (false, f64::from(ULP))
        );
        // fp16 has three bits more, and next to nothing near zero.
        assert_eq!(
            nearest(DType::F16, 1.0, 0.25 * ULP),
            (false, f64::from(0.25 * ULP))
        );
        assert_eq!(nearest(DType::F16, 0.0, 1e-8), (true, 0.0));
        assert!(!nearest(DType::Bf16, 0.0, 1e-8).0);
    }

    #[test]
    fn random_bits_decide_by_the_part_that_is_cut_off() {
        // A quarter of an ULP is 0x4000 of the 16 bits that are cut off.
        let up = |random| stochastic(1.0, 0.25 * ULP, random);
        assert_eq!(up(0xbfff), (true, 0.0));
        assert_eq!(up(0xc000), (false, f64::from(ULP)));
    }

    #[test]
    fn a_compensation_keeps_what_rounding_takes() {
        assert_eq!(compensated(1.0, 0.25 * ULP), (false, f64::from(0.25 * ULP)));
        // The compensation has 8 bits too: next to 0.25 ULP its step is 2^-9 ULP.
        let master = 1.0 + 0.25 * ULP;
        let least = ULP / 512.0;
        assert_eq!(compensated(master, 0.25 * least), (true, 0.0));
        assert_eq!(compensated(master, least), (false, f64::from(least)));
        assert_eq!(compensated(1.0, 0.0), (true, 0.0));
    }

    #[test]
    fn shares_and_angles_of_a_tensor() {
        let before = [1.0f32; 4];
        let after = [1.0 + 0.25 * ULP, 1.0 + ULP, 1.0, 1.0 - ULP];
        let out = Outcomes::of(&Master {
            before: &before,
            after: &after,
            row: 3,
            tensor: 5,
            key: [1, 2],
        });
        let rows: Vec<[String; 4]> = out.rows().collect();
        // bf16 stores ULP and -ULP of (1/4, 1, 0, -1) ULP.
        let length = (2.0f64 + 1.0 / 16.0).sqrt();
        let cosine = 2.0 / (2.0f64.sqrt() * length);
        assert_eq!(
            rows[0],
            [
                "bf16",
                "0.500000",
                &fraction(cosine),
                &fraction(2.0f64.sqrt() / length)
            ]
        );
        assert_eq!(rows[2], ["bf16-kahan", "0.250000", "1.000000", "1.000000"]);
        assert_eq!(rows[3], ["fp16", "0.250000", "1.000000", "1.000000"]);
        // The second row begins at the fourth place of the packed tensor.
        let [random, _] = threefry([1, 2], [0, 5]);
        let first = stochastic(1.0, 0.25 * ULP, random).0;
        let expected = if first { "0.500000" } else { "0.250000" };
        assert_eq!(rows[1][1], expected);
    }
}
