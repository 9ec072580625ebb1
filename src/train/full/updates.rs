//! What one update did to a tensor, and what bf16 would make of it.

use super::sums::{Add, Directions, over};
use crate::dtype::DType;
use crate::report::sheets::{fraction, maybe};
use std::collections::BTreeMap;

/// log2 of the narrowest and widest updates, in units of the last place, that have a range of their own;
/// what lies beyond counts there.
pub const ULPS: std::ops::RangeInclusive<i32> = -24..=8;

/// One update of a tensor, element by element.
pub struct Update<'a> {
    /// The weight before it.
    pub before: &'a [f32],
    /// The weight after it, computed in f32 and not yet rounded to its type.
    pub exact: &'a [f32],
    /// What the weight as it is stored, compensation included, has changed by.
    pub applied: &'a [f64],
    /// What AdamW's formula gives in f64 from the same gradient, moments and weight.
    pub intended: &'a [f64],
}

/// What is counted and summed of an update.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sums {
    elements: u64,
    zero: u64,
    below_half: u64,
    rounded_away: u64,
    /// Squares: of swallowed updates, of all, of the weights.
    swallowed: f64,
    delta: f64,
    weight: f64,
    direction: Directions,
    /// Updates by log2 of their size in units of the last place.
    pub ulps: BTreeMap<i32, u64>,
}

impl Add for Sums {
    fn add(&mut self, o: Sums) {
        self.elements += o.elements;
        self.zero += o.zero;
        self.below_half += o.below_half;
        self.rounded_away += o.rounded_away;
        self.swallowed += o.swallowed;
        self.delta += o.delta;
        self.weight += o.weight;
        self.direction.add(o.direction);
        for (k, n) in o.ulps {
            *self.ulps.entry(k).or_default() += n;
        }
    }
}

/// The distance of bf16 numbers around `x`: of those of its binade. That of subnormals around 0.
pub fn ulp_bf16(x: f32) -> f64 {
    let exponent = (x.to_bits() >> 23 & 0xff).max(1) as i32 - 127;
    power(exponent - 7)
}

/// 2^e, of a normal f64.
pub fn power(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// floor(log2 |x|) of a normal f64.
pub fn log2_floor(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

impl Sums {
    /// Of one update.
    pub fn of(u: &Update) -> Sums {
        over(u.before.len(), |range| {
            let mut s = Sums::default();
            range.for_each(|i| s.push(u.before[i], u.exact[i], u.applied[i], u.intended[i]));
            s
        })
    }

    fn push(&mut self, before: f32, exact: f32, applied: f64, intended: f64) {
        // As in the program that counts swallowed updates on the device.
        let delta = exact - before;
        let base = DType::Bf16.round(before);
        let swallowed = DType::Bf16.round(base + delta) == base;
        let (wide, ulp) = (f64::from(delta), ulp_bf16(base));
        self.elements += 1;
        self.weight += f64::from(before) * f64::from(before);
        self.delta += wide * wide;
        self.direction.push(applied, intended);
        if swallowed {
            self.swallowed += wide * wide;
            match delta {
                0.0 => self.zero += 1,
                _ if wide.abs() < 0.5 * ulp => self.below_half += 1,
                _ => self.rounded_away += 1,
            }
        }
        if delta != 0.0 && delta.is_finite() {
            let k = log2_floor(wide.abs() / ulp).clamp(*ULPS.start(), *ULPS.end());
            *self.ulps.entry(k).or_default() += 1;
        }
    }

    fn share(&self, count: u64) -> String {
        fraction(count as f64 / self.elements.max(1) as f64)
    }

    fn norms(top: f64, bottom: f64) -> Option<f64> {
        (bottom > 0.0).then(|| libm::sqrt(top) / libm::sqrt(bottom))
    }

    /// The columns from `elements` to `update_to_weight`, and `cosine`.
    pub fn columns(&self) -> ([String; 7], String) {
        let swallowed = self.zero + self.below_half + self.rounded_away;
        let first = [
            self.elements.to_string(),
            self.share(swallowed),
            self.share(self.zero),
            self.share(self.below_half),
            self.share(self.rounded_away),
            maybe(Sums::norms(self.swallowed, self.delta), fraction),
            maybe(Sums::norms(self.delta, self.weight), |x| format!("{x:.6e}")),
        ];
        (first, maybe(self.direction.cosine(), fraction))
    }
}

/// What AdamW's formula takes from one element: `h` as of [`crate::kernels::optim::ADAMW`], gradient, weight
/// and moments before the update. In f64, where nothing of it is lost.
pub fn intended(h: &[f32; 8], scale: f32, g: f32, w: f64, m: f32, v: f32) -> f64 {
    let h = h.map(f64::from);
    let g = f64::from(g) * f64::from(scale);
    let m = h[3] * f64::from(m) + h[4] * g;
    let v = h[5] * f64::from(v) + h[6] * g * g;
    w * (h[0] - 1.0) - h[1] * m / (libm::sqrt(v) * h[2] + h[7])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_last_place() {
        assert_eq!(ulp_bf16(1.0), power(-7));
        assert_eq!(ulp_bf16(-1.99), power(-7));
        assert_eq!(ulp_bf16(0.75), power(-8));
        assert_eq!(ulp_bf16(0.0), power(-133));
        assert_eq!(ulp_bf16(f32::from_bits(1)), power(-133));
        assert_eq!(
            (log2_floor(1.0), log2_floor(0.99), log2_floor(6.0)),
            (0, -1, 2)
        );
    }

    /// Around 1 the step of bf16 is 2^-7 upwards and 2^-8 downwards.
    #[test]
    fn every_update_is_classed() {
        let ulp = 1.0f32 / 128.0;
        let before = [1.0f32; 7];
        let deltas = [
            0.0,          // no update
            0.25 * ulp,   // below half an ULP
            0.5 * ulp,    // a tie, to the even 1.0: rounded away
            0.625 * ulp,  // moves
            -0.375 * ulp, // three quarters of the step downwards: moves
            -0.25 * ulp,  // a tie downwards, to the even 1.0: below half an ULP of 1.0
            4.0 * ulp,    // moves
        ];
        let exact: Vec<f32> = deltas.iter().map(|d| 1.0 + d).collect();
        let wide: Vec<f64> = deltas.iter().map(|&d| f64::from(d)).collect();
        let s = Sums::of(&Update {
            before: &before,
            exact: &exact,
            applied: &wide,
            intended: &wide,
        });
        assert_eq!(
            (s.elements, s.zero, s.below_half, s.rounded_away),
            (7, 1, 2, 1)
        );
        let squares: f64 = [0.25f64, 0.5, 0.25].iter().map(|x| x * x).sum();
        let all: f64 = deltas.iter().map(|d| f64::from(d / ulp).powi(2)).sum();
        let (columns, cosine) = s.columns();
        assert_eq!(
            columns[..5],
            ["7", "0.571429", "0.142857", "0.285714", "0.142857"]
        );
        assert_eq!(columns[5], format!("{:.6}", (squares / all).sqrt()));
        assert_eq!(columns[6], format!("{:.6e}", (all / 7.0).sqrt() / 128.0));
        assert_eq!(cosine, "1.000000");
        let ulps: Vec<(i32, u64)> = s.ulps.into_iter().collect();
        assert_eq!(ulps, [(-2, 3), (-1, 2), (2, 1)]);
    }

    /// A weight that bf16 does not hold is rounded first, as in the seed's ledger.
    #[test]
    fn the_base_is_the_rounded_weight() {
        let before = [1.0 + 1.0 / 1024.0];
        let exact = [before[0] + 1.0 / 512.0];
        let s = Sums::of(&Update {
            before: &before,
            exact: &exact,
            applied: &[0.0],
            intended: &[1.0],
        });
        assert_eq!((s.below_half, s.direction.cosine()), (1, None));
    }

    #[test]
    fn nothing_divides_by_nothing() {
        let s = Sums::of(&Update {
            before: &[0.0; 2],
            exact: &[0.0; 2],
            applied: &[0.0; 2],
            intended: &[0.0; 2],
        });
        let (columns, cosine) = s.columns();
        assert_eq!(
            columns[1..5],
            ["1.000000", "1.000000", "0.000000", "0.000000"]
        );
        assert_eq!(
            (columns[5].as_str(), columns[6].as_str(), cosine.as_str()),
            ("", "", "")
        );
    }

    /// The first step of Adam is the learning rate, whatever the gradient's size; decay comes on top.
    #[test]
    fn the_formula_is_adamws() {
        // decay 0.1 at a rate of 0.01; betas 0.9 and 0.95 after one update.
        let h = [
            0.999f32,
            0.01 / 0.1,
            1.0 / 0.05f32.sqrt(),
            0.9,
            0.1,
            0.95,
            0.05,
            1e-8,
        ];
        for g in [0.5, -2.0] {
            let d = intended(&h, 1.0, g, 3.0, 0.0, 0.0);
            let expected = -0.003 - 0.01 * f64::from(g.signum());
            assert!((d - expected).abs() < 1e-6, "{d} {expected}");
        }
        let half = intended(&h, 0.5, 2.0, 0.0, 0.1, 0.2);
        assert_eq!(half, intended(&h, 1.0, 1.0, 0.0, 0.1, 0.2));
    }
}
