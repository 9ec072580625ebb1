//! What a device does where nothing holds it: the passport's facts. No fact decides whether a device is
//! portable; kernels avoid all of this.

use super::micro::Triple;

/// One fact.
pub struct Fact {
    /// What is asked.
    pub name: &'static str,
    /// Its number in `probe/facts.wgsl`, or from 30 on in `probe/halves.wgsl`.
    pub op: u32,
    /// What Rust does.
    pub cpu: fn(Triple) -> u32,
    /// How the answers read.
    pub reading: Reading,
    /// The questions.
    pub vectors: &'static [[u32; 3]],
}

/// An answer and what computes it.
pub type Candidate = (&'static str, fn(Triple) -> u32);

/// How answers are put in words.
pub enum Reading {
    /// The first candidate that gives all answers.
    OneOf(&'static [Candidate]),
    /// The largest distance from a function, in units in the last place.
    Error(fn(Triple) -> f64),
}

fn f(u: u32) -> f32 {
    f32::from_bits(u)
}

fn w(u: u32) -> f64 {
    f(u) as f64
}

const fn b(x: f32) -> u32 {
    x.to_bits()
}

const ONE: u32 = 0x3f80_0000;
const ZERO: u32 = 0;
const MINUS_ZERO: u32 = 0x8000_0000;
const NAN: u32 = 0x7fc0_0000;
const TINY: u32 = 0x0000_1234;
const MAGIC: f32 = 12_582_912.0;

fn separate([a, b, c]: Triple) -> u32 {
    (f(a) * f(b) + f(c)).to_bits()
}

fn fused([a, b, c]: Triple) -> u32 {
    f(a).mul_add(f(b), f(c)).to_bits()
}

const NEAR: &[[u32; 3]] = &[
    [0x3f80_0800, 0x3f80_0800, 0xbf80_1000],
    [0x3f81_2345, 0x3f87_6543, 0xbf88_9abc],
    [0x4049_0fdb, 0x402d_f854, 0xc108_a2c0],
];
const POINTS: &[[u32; 3]] = &[
    [b(0.1), b(3.0), 0],
    [b(0.7), b(1.1), 0],
    [b(1.0001), b(7.0), 0],
    [b(2.5), b(0.3), 0],
    [b(9.99), b(123.4), 0],
    [b(33.3), b(1e-3), 0],
    [b(87.0), b(6.02e5), 0],
    [b(1e-4), b(2.9), 0],
];

/// Every fact.
pub static TABLE: &[Fact] = &[
    Fact {
        name: "a * b + c, unfenced",
        op: 0,
        cpu: separate,
        vectors: NEAR,
        reading: Reading::OneOf(&[("two roundings", separate), ("contracted to one", fused)]),
    },
    Fact {
        name: "fma(a, b, c)",
        op: 1,
        cpu: fused,
        vectors: NEAR,
        reading: Reading::OneOf(&[("fused", fused), ("a product and a sum", separate)]),
    },
    Fact {
        name: "(x + C) - C, unfenced",
        op: 2,
        cpu: |[a, _, _]| ((f(a) + MAGIC) - MAGIC).to_bits(),
        vectors: &[[b(1.25), 0, 0], [b(2.75), 0, 0], [b(-7.1), 0, 0]],
        reading: Reading::OneOf(&[
            ("rounds", |[a, _, _]| ((f(a) + MAGIC) - MAGIC).to_bits()),
            ("cancelled to x", |[a, _, _]| a),
        ]),
    },
    Fact {
        name: "(a + b) - a, unfenced",
        op: 3,
        cpu: |[a, b, _]| ((f(a) + f(b)) - f(a)).to_bits(),
        vectors: &[[b(1e8), b(1.0), 0], [b(3e7), b(0.7), 0]],
        reading: Reading::OneOf(&[
            ("rounds", |[a, b, _]| ((f(a) + f(b)) - f(a)).to_bits()),
            ("cancelled to b", |[_, b, _]| b),
        ]),
    },
    Fact {
        name: "a / b",
        op: 4,
        cpu: |[a, b, _]| (f(a) / f(b)).to_bits(),
        vectors: POINTS,
        reading: Reading::Error(|[a, b, _]| w(a) / w(b)),
    },
    Fact {
        name: "sqrt",
        op: 5,
        cpu: |[a, _, _]| f(a).sqrt().to_bits(),
        vectors: POINTS,
        reading: Reading::Error(|[a, _, _]| libm::sqrt(w(a))),
    },
    Fact {
        name: "inverseSqrt",
        op: 6,
        cpu: |[a, _, _]| (1.0 / f(a).sqrt()).to_bits(),
        vectors: POINTS,
        reading: Reading::Error(|[a, _, _]| 1.0 / libm::sqrt(w(a))),
    },
    Fact {
        name: "exp",
        op: 7,
        cpu: |[a, _, _]| libm::expf(f(a)).to_bits(),
        vectors: POINTS,
        reading: Reading::Error(|[a, _, _]| libm::exp(w(a))),
    },
    Fact {
        name: "log",
        op: 8,
        cpu: |[a, _, _]| libm::logf(f(a)).to_bits(),
        vectors: POINTS,
        reading: Reading::Error(|[a, _, _]| libm::log(w(a))),
    },
    Fact {
        name: "tanh",
        op: 9,
        cpu: |[a, _, _]| libm::tanhf(f(a)).to_bits(),
        vectors: POINTS,
        reading: Reading::Error(|[a, _, _]| libm::tanh(w(a))),
    },
    Fact {
        name: "tanh(89)",
        op: 9,
        cpu: |[a, _, _]| libm::tanhf(f(a)).to_bits(),
        vectors: &[[b(89.0), 0, 0]],
        reading: Reading::OneOf(&[("1", |_| ONE)]),
    },
    Fact {
        name: "subnormal operands",
        op: 10,
        cpu: |[a, b, _]| (f(a) * f(b)).to_bits(),
        vectors: &[[TINY, 0x6f80_0000, 0], [0x007f_ffff, 0x4000_0000, 0]],
        reading: Reading::OneOf(&[
            ("kept", |[a, b, _]| (f(a) * f(b)).to_bits()),
            ("flushed", |_| 0),
        ]),
    },
    Fact {
        name: "subnormal products",
        op: 10,
        cpu: |[a, b, _]| (f(a) * f(b)).to_bits(),
        vectors: &[[b(1e-20), b(1e-20), 0], [b(3e-30), b(2e-9), 0]],
        reading: Reading::OneOf(&[
            ("kept", |[a, b, _]| (f(a) * f(b)).to_bits()),
            ("flushed", |_| 0),
        ]),
    },
    Fact {
        name: "subnormal sums",
        op: 11,
        cpu: |[a, b, _]| (f(a) + f(b)).to_bits(),
        vectors: &[[0x00a0_0000, 0x8080_0000, 0], [0x0090_0001, 0x8080_0000, 0]],
        reading: Reading::OneOf(&[
            ("kept", |[a, b, _]| (f(a) + f(b)).to_bits()),
            ("flushed", |_| 0),
        ]),
    },
    Fact {
        name: "subnormals that are only moved",
        op: 26,
        cpu: |[a, b, _]| if a == b { b } else { a },
        vectors: &[[TINY, 1, 0], [0x807f_ffff, 2, 0]],
        reading: Reading::OneOf(&[
            ("kept", |[a, _, _]| a),
            ("flushed", |[a, _, _]| a & MINUS_ZERO),
        ]),
    },
    Fact {
        name: "min(-0, +0) and min(+0, -0)",
        op: 12,
        cpu: |[a, b, _]| if f(a) < f(b) { a } else { b },
        vectors: &[[MINUS_ZERO, ZERO, 0], [ZERO, MINUS_ZERO, 0]],
        reading: Reading::OneOf(&[
            ("-0, -0", |_| MINUS_ZERO),
            ("+0, +0", |_| ZERO),
            ("the second", |[_, b, _]| b),
            ("the first", |[a, _, _]| a),
        ]),
    },
    Fact {
        name: "max(-0, +0) and max(+0, -0)",
        op: 13,
        cpu: |[a, b, _]| if f(a) > f(b) { a } else { b },
        vectors: &[[MINUS_ZERO, ZERO, 0], [ZERO, MINUS_ZERO, 0]],
        reading: Reading::OneOf(&[
            ("+0, +0", |_| ZERO),
            ("-0, -0", |_| MINUS_ZERO),
            ("the second", |[_, b, _]| b),
            ("the first", |[a, _, _]| a),
        ]),
    },
    Fact {
        name: "min(NaN, 1) and min(1, NaN)",
        op: 12,
        cpu: |[a, b, _]| f(a).min(f(b)).to_bits(),
        vectors: &[[NAN, ONE, 0], [ONE, NAN, 0]],
        reading: Reading::OneOf(&[
            ("1, 1", |_| ONE),
            ("NaN, NaN", |_| NAN),
            ("the second", |[_, b, _]| b),
            ("the first", |[a, _, _]| a),
        ]),
    },
    Fact {
        name: "round of ties",
        op: 14,
        cpu: |[a, _, _]| f(a).round_ties_even().to_bits(),
        vectors: &[
            [b(0.5), 0, 0],
            [b(1.5), 0, 0],
            [b(2.5), 0, 0],
            [b(-3.5), 0, 0],
        ],
        reading: Reading::OneOf(&[
            ("to even", |[a, _, _]| f(a).round_ties_even().to_bits()),
            ("away from zero", |[a, _, _]| f(a).round().to_bits()),
        ]),
    },
    Fact {
        name: "dot of four",
        op: 15,
        cpu: |t| dot(t, [0, 1, 2, 3]),
        vectors: &[
            [b(1.0001), b(2.3007), b(-3.777)],
            [b(0.31), b(7.77), b(1.013)],
            [b(11.1), b(-0.0123), b(5.4321)],
            [b(3.3), b(4.7), b(0.9)],
        ],
        reading: Reading::OneOf(&[
            ("x, y, z, w in order", |t| dot(t, [0, 1, 2, 3])),
            ("w, z, y, x in order", |t| dot(t, [3, 2, 1, 0])),
            ("in pairs", pairs),
        ]),
    },
    Fact {
        name: "NaN != NaN",
        op: 20,
        cpu: |[a, _, _]| (f(a) != f(a)) as u32,
        vectors: &[[NAN, 0, 0], [0x7f80_0001, 0, 0]],
        reading: Reading::OneOf(&[("true", |_| 1), ("false", |_| 0)]),
    },
    Fact {
        name: "f32(u32) past 2^24",
        op: 21,
        cpu: |[a, _, _]| (a as f32).to_bits(),
        vectors: &[
            [16_777_217, 0, 0],
            [16_777_219, 0, 0],
            [0xffff_ff7f, 0, 0],
            [u32::MAX, 0, 0],
            [0x8000_0081, 0, 0],
        ],
        reading: Reading::OneOf(&[
            ("to nearest even", |[a, _, _]| (a as f32).to_bits()),
            ("toward zero", toward_zero),
        ]),
    },
    Fact {
        name: "f32(i32) past 2^24",
        op: 22,
        cpu: |[a, _, _]| (a as i32 as f32).to_bits(),
        vectors: &[[16_777_217, 0, 0], [0x7fff_ffbf, 0, 0], [0x8000_0041, 0, 0]],
        reading: Reading::OneOf(&[("to nearest even", |[a, _, _]| (a as i32 as f32).to_bits())]),
    },
    Fact {
        name: "u32(f32) out of range",
        op: 23,
        cpu: |[a, _, _]| f(a) as u32,
        vectors: &[[b(-1.5), 0, 0], [b(1e20), 0, 0]],
        reading: Reading::OneOf(&[
            ("saturates", |[a, _, _]| f(a) as u32),
            ("saturates to the largest f32 below 2^32", |[a, _, _]| {
                (f(a) as u32).min(0xffff_ff00)
            }),
        ]),
    },
    Fact {
        name: "pack2x16float",
        op: 30,
        cpu: |[a, b, _]| {
            half::f16::from_f32(f(a)).to_bits() as u32
                | (half::f16::from_f32(f(b)).to_bits() as u32) << 16
        },
        vectors: &[
            [b(65519.0), b(65520.0), 0],
            [b(1e30), b(-1e30), 0],
            [0x3300_0000, 0x3300_0001, 0],
            [b(1.0 / 3.0), b(6e-8), 0],
        ],
        reading: Reading::OneOf(&[("rounds as IEEE", |[a, b, _]| {
            crate::dtype::f32_to_f16(f(a)) as u32 | (crate::dtype::f32_to_f16(f(b)) as u32) << 16
        })]),
    },
    Fact {
        name: "unpack2x16float of subnormals",
        op: 31,
        cpu: |[a, _, _]| crate::dtype::f16_to_f32(a as u16).to_bits(),
        vectors: &[[0x0001, 0, 0], [0x83ff, 0, 0]],
        reading: Reading::OneOf(&[
            ("exact", |[a, _, _]| {
                crate::dtype::f16_to_f32(a as u16).to_bits()
            }),
            ("flushed", |[a, _, _]| (a & 0x8000) << 16),
        ]),
    },
];

/// dot((a, b, c, a), (b, c, a, c)), folded in an order.
fn dot([a, b, c]: Triple, order: [usize; 4]) -> u32 {
    let p = [f(a) * f(b), f(b) * f(c), f(c) * f(a), f(a) * f(c)];
    let [i, j, k, l] = order;
    (((p[i] + p[j]) + p[k]) + p[l]).to_bits()
}

fn pairs([a, b, c]: Triple) -> u32 {
    let p = [f(a) * f(b), f(b) * f(c), f(c) * f(a), f(a) * f(c)];
    ((p[0] + p[1]) + (p[2] + p[3])).to_bits()
}

fn toward_zero([a, _, _]: Triple) -> u32 {
    let x = a as f32;
    let over = x as f64 > a as f64;
    x.to_bits() - over as u32
}

impl Fact {
    /// Whether it is in `probe/halves.wgsl`.
    pub fn halves(&self) -> bool {
        self.op >= 30
    }

    /// The answers in words.
    pub fn say(&self, answers: &[u32]) -> String {
        match &self.reading {
            Reading::OneOf(candidates) => {
                let fits = |c: &&Candidate| {
                    let mut all = self.vectors.iter().zip(answers);
                    all.all(|(t, &a)| same(c.1(*t), a))
                };
                match candidates.iter().find(fits) {
                    Some((name, _)) => (*name).to_string(),
                    None => {
                        let hex: Vec<String> = answers.iter().map(|a| format!("{a:08x}")).collect();
                        format!("other: {}", hex.join(" "))
                    }
                }
            }
            Reading::Error(exact) => {
                let all = self.vectors.iter().zip(answers);
                let worst = all.map(|(t, &a)| ulps(a, exact(*t))).fold(0.0, f64::max);
                format!("at most {worst:.2} ULP off on {} points", answers.len())
            }
        }
    }
}

/// Equal bits, or both no number.
fn same(a: u32, b: u32) -> bool {
    a == b || (f(a).is_nan() && f(b).is_nan())
}

/// Distance of a result from an exact value, in units in the last place of that value as f32.
fn ulps(have: u32, exact: f64) -> f64 {
    let near = (exact as f32).abs();
    let ulp = f(near.to_bits() + 1) as f64 - near as f64;
    let off = (w(have) - exact).abs() / ulp;
    if off.is_nan() { f64::INFINITY } else { off }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_itself_reads_as_it_should() {
        for t in TABLE {
            let answers: Vec<u32> = t.vectors.iter().map(|v| (t.cpu)(*v)).collect();
            let said = t.say(&answers);
            println!("{}: {said}", t.name);
            assert!(!said.starts_with("other"), "{}: {said}", t.name);
        }
        assert!(
            TABLE[0]
                .say(&NEAR.iter().map(|v| fused(*v)).collect::<Vec<_>>())
                .contains("contracted")
        );
    }
}
