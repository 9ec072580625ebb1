//! What the values of every operation look like to narrower types, and which loss scale would suit the
//! gradients.

use super::sums::{Add, over};
use super::updates::{log2_floor, power};
use crate::dtype::DType;
use crate::graph::Phase;
use crate::plan::{BufId, Plan, Step};
use crate::report::sheets::{Sheet, Sheets, fraction, maybe};
use std::collections::HashMap;

/// fp16's least normal number and least subnormal one, and its largest (IEEE 754-2019, 3.6).
const NORMAL: f64 = 1.0 / 16_384.0;
const LEAST: f64 = 1.0 / 16_777_216.0;
const LARGEST: f64 = 65_504.0;
/// Below this the operands of products count as zero (`kernels::math`).
const FLOOR: f64 = 1.0 / (1u64 << 55) as f64;
/// A recommended scale leaves the largest gradient so far below [`LARGEST`]: gradients grow between looks.
const HEADROOM: f64 = 4.0;
/// The largest scale that is recommended: what a run caps its scale at by default.
const CAP: i32 = 24;

/// Sums over the values of one or several tensors.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Range {
    elements: u64,
    zero: u64,
    below_normal: u64,
    below_least: u64,
    above: u64,
    below_floor: u64,
    not_finite: u64,
    max: f64,
    /// Squares of the values, and of what rounding takes from them: to bf16, fp16, e4m3.
    power: f64,
    errors: [f64; 3],
    /// Significant bits that bf16 and fp16 have for the values, together.
    bits: [u64; 2],
    /// Values that are neither zero nor below 2^-149, by floor(log2).
    exponents: HashMap<i32, u64>,
}

impl Add for Range {
    fn add(&mut self, o: Range) {
        self.elements += o.elements;
        self.zero += o.zero;
        self.below_normal += o.below_normal;
        self.below_least += o.below_least;
        self.above += o.above;
        self.below_floor += o.below_floor;
        self.not_finite += o.not_finite;
        self.max = self.max.max(o.max);
        self.power += o.power;
        self.errors
            .iter_mut()
            .zip(o.errors)
            .for_each(|(a, b)| *a += b);
        self.bits.iter_mut().zip(o.bits).for_each(|(a, b)| *a += b);
        for (e, n) in o.exponents {
            *self.exponents.entry(e).or_default() += n;
        }
    }
}

/// Rounds a magnitude to fp8's e4m3 (Micikevicius et al., arXiv:2209.05433), to nearest even; infinite
/// past 448.
fn e4m3(a: f64) -> f64 {
    if a == 0.0 {
        return 0.0;
    }
    let step = power(log2_floor(a).max(-6) - 3);
    match (a / step).round_ties_even() * step {
        q if q > 448.0 => f64::INFINITY,
        q => q,
    }
}

/// Significant bits of a type around 2^e: `most`, fewer below its least normal number 2^`normal`.
fn significant(e: i32, most: i32, normal: i32) -> u64 {
    (most + (e - normal).min(0)).clamp(0, most) as u64
}

impl Range {
    /// Of a tensor's values.
    pub fn of(values: &[f32]) -> Range {
        over(values.len(), |range| {
            let mut out = Range::default();
            values[range].iter().for_each(|&x| out.push(x));
            out
        })
    }

    fn push(&mut self, x: f32) {
        self.elements += 1;
        if !x.is_finite() {
            self.not_finite += 1;
            return;
        }
        let a = f64::from(x.abs());
        if a == 0.0 {
            self.zero += 1;
            return;
        }
        let e = log2_floor(a);
        self.below_normal += u64::from(a < NORMAL);
        self.below_least += u64::from(a < LEAST);
        self.above += u64::from(a > LARGEST);
        self.below_floor += u64::from(a < FLOOR);
        self.max = self.max.max(a);
        self.power += a * a;
        let narrow = [DType::Bf16, DType::F16].map(|t| f64::from(t.round(x.abs())));
        let rounded = [narrow[0], narrow[1], e4m3(a)];
        for (sum, q) in self.errors.iter_mut().zip(rounded) {
            *sum += (a - q) * (a - q);
        }
        self.bits[0] += significant(e, 8, -126);
        self.bits[1] += match a > LARGEST {
            true => 0,
            false => significant(e, 11, -14),
        };
        *self.exponents.entry(e).or_default() += 1;
    }

    /// The columns from `elements` on.
    fn columns(&self) -> [String; 13] {
        let share = |n: u64| fraction(n as f64 / self.elements.max(1) as f64);
        let there = self.elements - self.zero - self.not_finite;
        let db = |error: f64| match (self.power > 0.0, error > 0.0) {
            (false, _) => String::new(),
            (true, false) => "inf".into(),
            (true, true) if error.is_infinite() => "-inf".into(),
            (true, true) => format!("{:.3}", 10.0 * libm::log10(self.power / error)),
        };
        let bits = |n: u64| (there > 0).then(|| n as f64 / there as f64);
        let [bf16, fp16, fp8] = self.errors.map(db);
        [
            self.elements.to_string(),
            share(self.zero),
            share(self.below_normal),
            share(self.below_least),
            share(self.above),
            share(self.below_floor),
            share(self.not_finite),
            format!("{:.6e}", self.max),
            bf16,
            fp16,
            fp8,
            maybe(bits(self.bits[0]), |b| format!("{b:.3}")),
            maybe(bits(self.bits[1]), |b| format!("{b:.3}")),
        ]
    }

    /// Share of the values that are not zero below 2^`e`.
    fn below(&self, e: i32) -> Option<f64> {
        let all: u64 = self.exponents.values().sum();
        let below = self.exponents.iter().filter(|x| *x.0 < e);
        let below: u64 = below.map(|x| x.1).sum();
        (all > 0).then(|| below as f64 / all as f64)
    }
}

/// log2 of the largest power of two that keeps `max` below fp16's largest number with headroom.
fn suitable(max: f64) -> i32 {
    log2_floor(LARGEST / HEADROOM / max).clamp(0, CAP)
}

/// Which operation's values.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    phase: Phase,
    place: String,
    op: String,
    tensor: String,
    dtype: DType,
}

/// All operations of a step, in the order of their first launches.
#[derive(Default)]
pub struct Ranges {
    rows: Vec<(Key, Range)>,
    index: HashMap<Key, usize>,
    /// Rows that a type narrower than f32 would hold, of the backward pass.
    narrow: Vec<usize>,
}

impl Ranges {
    /// Takes in what a launch has written; `low` is the type of narrow operands under the run's policy.
    pub fn watch(&mut self, low: DType, plan: &Plan, step: &Step, wrote: &[(BufId, Vec<u32>)]) {
        let origin = &step.origin;
        if origin.phase == Phase::Update || origin.op.is_empty() {
            return;
        }
        for (buf, words) in wrote {
            let ty = plan.buf(*buf).ty;
            // Partial sums and other by-products have other shapes.
            if !ty.dtype.is_float() || origin.shape != Some(ty.shape) {
                continue;
            }
            let key = Key {
                phase: origin.phase,
                place: step.label.clone(),
                op: origin.op.clone(),
                tensor: plan.tensor(*buf).unwrap_or_default(),
                dtype: ty.dtype,
            };
            let range = Range::of(&ty.dtype.unpack(ty.shape.row(), words));
            let at = *self.index.entry(key.clone()).or_insert(self.rows.len());
            if at == self.rows.len() {
                let narrow = match low {
                    DType::F32 => origin.low,
                    _ => ty.dtype.is_low(),
                };
                if narrow && origin.phase == Phase::Backward {
                    self.narrow.push(at);
                }
                self.rows.push((key, Range::default()));
            }
            self.rows[at].1.add(range);
        }
    }

    /// Writes the rows of a step that used a loss scale.
    pub fn write(&self, sheets: &mut Sheets, step: usize, scale: f64) {
        for (key, range) in &self.rows {
            let mut row = vec![
                step.to_string(),
                key.phase.name().into(),
                key.place.clone(),
                key.op.clone(),
                key.tensor.clone(),
                key.dtype.name().into(),
            ];
            row.extend(range.columns());
            sheets.push(Sheet::Ranges, &row);
        }
        if let Some(columns) = self.advice(scale) {
            let mut row = vec![step.to_string()];
            row.extend(columns);
            sheets.push(Sheet::LossScale, &row);
        }
    }

    /// The columns of the recommended scale from `loss_scale` on.
    fn advice(&self, scale: f64) -> Option<[String; 9]> {
        let mut all = Range::default();
        let mut top: Option<&(Key, Range)> = None;
        for row in self.narrow.iter().map(|&i| &self.rows[i]) {
            all.add(row.1.clone());
            if top.is_none_or(|t| row.1.max > t.1.max) {
                top = Some(row);
            }
        }
        let (key, _) = top?;
        // The values of the step bear its scale, a power of two.
        let shift = log2_floor(scale);
        let best = (all.not_finite == 0 && all.max > 0.0).then(|| suitable(all.max / scale));
        let lost = |log2: i32| all.below(-25 + shift - log2);
        Some([
            scale.to_string(),
            match all.not_finite {
                0 => format!("{:.6e}", all.max / scale),
                _ => "inf".into(),
            },
            key.op.clone(),
            key.place.clone(),
            key.tensor.clone(),
            maybe(lost(0), fraction),
            maybe(lost(shift), fraction),
            maybe(best.and_then(lost), fraction),
            maybe(best, |b| power(b).to_string()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_counted_on_the_right_side() {
        let two = |e: i32| power(e) as f32;
        let x = [
            0.0,
            -0.0,
            two(-14),  // normal
            -two(-15), // subnormal
            two(-24),  // the least
            two(-25),  // below it
            -two(-56), // below the floor
            65504.0,
            -65505.0,
            f32::INFINITY,
        ];
        let r = Range::of(&x);
        let counts = (r.elements, r.zero, r.below_normal, r.below_least);
        assert_eq!(counts, (10, 2, 4, 2));
        assert_eq!((r.above, r.below_floor, r.not_finite), (1, 1, 1));
        assert_eq!(r.max, 65505.0);
        let c = r.columns();
        assert_eq!(
            c[..5],
            ["10", "0.200000", "0.400000", "0.200000", "0.100000"]
        );
        assert_eq!(c[5..8], ["0.100000", "0.100000", "6.550500e4"]);
        // 11 for the normal ones, 10 and 1 below, nothing for the rest; of seven that are there.
        assert_eq!(c[12], format!("{:.3}", 33.0 / 7.0));
        assert_eq!(c[11], "8.000");
    }

    #[test]
    fn noise_is_what_rounding_takes() {
        // 1 + 2^-9 is a quarter of a bf16 step above 1, exact in fp16, and lost in e4m3.
        let x = [1.0 + 1.0 / 512.0];
        let c = Range::of(&x).columns();
        let db = 20.0 * (f64::from(x[0]) * 512.0).log10();
        assert_eq!(
            c[8..11],
            [format!("{db:.3}"), "inf".into(), format!("{db:.3}")]
        );
        let c = Range::of(&[1e6, 1.0]).columns();
        assert_eq!(c[9..11], ["-inf", "-inf"]);
        let c = Range::of(&[0.0]).columns();
        assert_eq!((c[8].as_str(), c[11].as_str()), ("", ""));
    }

    #[test]
    fn e4m3_is_the_papers() {
        for x in [0.0, 1.0, 1.125, 448.0, 1.0 / 512.0, 240.0] {
            assert_eq!(e4m3(x), x);
        }
        assert_eq!(e4m3(1.0625), 1.0); // a tie, to even
        assert_eq!(e4m3(1.1875), 1.25);
        assert_eq!(e4m3(464.0), 448.0);
        assert_eq!(e4m3(464.1), f64::INFINITY);
        assert_eq!(e4m3(1.0 / 1024.0), 0.0);
    }

    #[test]
    fn a_suitable_scale_keeps_the_largest_below_with_headroom() {
        for max in [1e-9, 3.1e-5, 1.0, 7.3, 16376.0] {
            let s = power(suitable(max));
            assert!(max * s * HEADROOM <= LARGEST, "{max} {s}");
            assert!(
                s == power(CAP) || 2.0 * max * s * HEADROOM > LARGEST,
                "{max} {s}"
            );
        }
        assert_eq!(
            (suitable(16376.0), suitable(16377.0), suitable(1e9)),
            (0, 0, 0)
        );
        assert_eq!(suitable(16376.0 / 1024.0), 10);
    }

    #[test]
    fn the_scale_of_the_step_is_taken_out() {
        let key = |op: &str| Key {
            phase: Phase::Backward,
            place: "blocks.0.fc".into(),
            op: op.into(),
            tensor: String::new(),
            dtype: DType::F16,
        };
        // Scaled by 2^10: 2^-20 is 2^-30 without, lost in fp16; 8 is 2^-7.
        let ranges = Ranges {
            rows: vec![
                (key("a"), Range::of(&[power(-20) as f32, 1.0])),
                (key("b"), Range::of(&[8.0, 0.0])),
            ],
            index: HashMap::new(),
            narrow: vec![0, 1],
        };
        let a = ranges.advice(1024.0).expect("gradients");
        // 65504 / 4 / 2^-7 = 2^20.999: a scale of 2^20, at which nothing is lost.
        let third = "0.333333";
        assert_eq!(
            a,
            [
                "1024",
                "7.812500e-3",
                "b",
                "blocks.0.fc",
                "",
                third,
                "0.000000",
                "0.000000",
                "1048576"
            ]
        );
        let bad = Ranges {
            rows: vec![(key("a"), Range::of(&[f32::INFINITY, 1.0]))],
            index: HashMap::new(),
            narrow: vec![0],
        };
        let a = bad.advice(1.0).expect("gradients");
        assert_eq!((a[1].as_str(), a[8].as_str()), ("inf", ""));
    }
}
