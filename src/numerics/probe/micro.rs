//! The micro-kernels: one row a property, its vectors, and the bits that they must give.
//!
//! Expected bits of sums, products, quotients and roots come from f64 arithmetic rounded once: with 53
//! bits of significand against 24 that is the correctly rounded f32 result. The CPU executor runs the
//! rows in f32, so that it is tested too, and not against itself.

use super::vectors::*;
use crate::dtype::{bf16_to_f32, f32_to_bf16};
use crate::kernels::lanes::{max2, min2};
use crate::kernels::rng::threefry;
use crate::kernels::{math, math::floor_to, math::ftz};
use crate::numerics::passport::Kind;

/// Operands of one call, as bits.
pub type Triple = [u32; 3];

/// Which shader holds a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    /// `probe/arithmetic.wgsl`.
    Arithmetic,
    /// `probe/functions.wgsl`.
    Functions,
}

/// One micro-kernel.
pub struct Micro {
    /// What is established.
    pub name: &'static str,
    /// Its shader.
    pub file: File,
    /// Its number there.
    pub op: u32,
    /// What it decides.
    pub kind: Kind,
    /// The CPU executor's own computation.
    pub cpu: fn(Triple) -> u32,
    /// The bits that are right.
    pub want: fn(Triple) -> u32,
    /// The operands.
    pub vectors: fn() -> Vec<Triple>,
}

pub(super) fn f(u: u32) -> f32 {
    f32::from_bits(u)
}

/// An exact or double-rounded value as f32; see the module's text.
fn r(x: f64) -> f64 {
    x as f32 as f64
}

pub(super) fn w(u: u32) -> f64 {
    f(u) as f64
}

pub(super) fn bits(x: f64) -> u32 {
    (x as f32).to_bits()
}

/// Fence and flush, of a value computed in f64.
fn rn(x: f64) -> f64 {
    ftz(x as f32) as f64
}

const fn row(
    name: &'static str,
    op: u32,
    cpu: fn(Triple) -> u32,
    want: fn(Triple) -> u32,
    vectors: fn() -> Vec<Triple>,
) -> Micro {
    Micro {
        name,
        file: File::Arithmetic,
        op,
        kind: Kind::Required,
        cpu,
        want,
        vectors,
    }
}

const fn function(
    name: &'static str,
    op: u32,
    cpu: fn(Triple) -> u32,
    want: fn(Triple) -> u32,
    vectors: fn() -> Vec<Triple>,
) -> Micro {
    Micro {
        file: File::Functions,
        ..row(name, op, cpu, want, vectors)
    }
}

const fn control(
    name: &'static str,
    op: u32,
    cpu: fn(Triple) -> u32,
    want: fn(Triple) -> u32,
    vectors: fn() -> Vec<Triple>,
) -> Micro {
    Micro {
        kind: Kind::Control,
        ..row(name, op, cpu, want, vectors)
    }
}

const fn note(
    name: &'static str,
    op: u32,
    cpu: fn(Triple) -> u32,
    want: fn(Triple) -> u32,
    vectors: fn() -> Vec<Triple>,
) -> Micro {
    Micro {
        kind: Kind::Note,
        ..row(name, op, cpu, want, vectors)
    }
}

/// Every micro-kernel.
pub static TABLE: &[Micro] = &[
    row(
        "sum, rounded to nearest, ties to even",
        0,
        |[a, b, _]| (f(a) + f(b)).to_bits(),
        |[a, b, _]| bits(w(a) + w(b)),
        sums,
    ),
    row(
        "difference, rounded likewise",
        1,
        |[a, b, _]| (f(a) - f(b)).to_bits(),
        |[a, b, _]| bits(w(a) - w(b)),
        sums,
    ),
    row(
        "product, rounded likewise",
        2,
        |[a, b, _]| (f(a) * f(b)).to_bits(),
        |[a, b, _]| bits(w(a) * w(b)),
        products,
    ),
    row(
        "fence: a * b + c is not contracted",
        3,
        |[a, b, c]| (f(a) * f(b) + f(c)).to_bits(),
        |[a, b, c]| bits(r(w(a) * w(b)) + w(c)),
        cancelling,
    ),
    row(
        "fence: a * b - c * c is not contracted",
        4,
        |[a, b, c]| (f(a) * f(b) - f(c) * f(c)).to_bits(),
        |[a, b, c]| bits(r(w(a) * w(b)) - r(w(c) * w(c))),
        squares,
    ),
    row(
        "fence: (x + C) - C is not cancelled",
        5,
        |[a, _, _]| ((f(a) + MAGIC) - MAGIC).to_bits(),
        |[a, _, _]| bits(r(w(a) + MAGIC as f64) - MAGIC as f64),
        small,
    ),
    row(
        "fence: (a + b) - b is not cancelled",
        6,
        |[a, b, _]| ((f(a) + f(b)) - f(b)).to_bits(),
        |[a, b, _]| bits(r(w(a) + w(b)) - w(b)),
        sums,
    ),
    row(
        "fence: a * b + a * c is not factored",
        7,
        |[a, b, c]| (f(a) * f(b) + f(a) * f(c)).to_bits(),
        |[a, b, c]| bits(r(w(a) * w(b)) + r(w(a) * w(c))),
        products,
    ),
    row(
        "a chain of sums keeps its order",
        8,
        |[a, b, c]| (((f(a) + f(b)) + f(c)) + f(a) * f(b)).to_bits(),
        chain,
        sums,
    ),
    note(
        "(note) the same chain in one expression",
        18,
        |[a, b, c]| (((f(a) + f(b)) + f(c)) + f(a) * f(b)).to_bits(),
        chain,
        sums,
    ),
    row(
        "products of bf16 are exact, folded in order",
        32,
        |t| halves(t).to_bits(),
        |t| halves_exact(t).to_bits(),
        packed,
    ),
    row(
        "flush: products below 2^-125 are +0",
        9,
        |[a, b, _]| ftz(ftz(f(a)) * ftz(f(b))).to_bits(),
        |[a, b, _]| bits(rn(rn(w(a)) * rn(w(b)))),
        tiny_products,
    ),
    row(
        "flush: sums of what is below 2^-125 are +0",
        10,
        |[a, b, _]| ftz(ftz(f(a)) + ftz(f(b))).to_bits(),
        |[a, b, _]| bits(rn(rn(w(a)) + rn(w(b)))),
        tiny,
    ),
    row(
        "floor: f32 operands at 2^-51",
        11,
        |[a, _, _]| floor_to(f(a), math::FLOOR_F32_OPERAND).to_bits(),
        |[a, _, _]| floored(a, -51),
        around_floors,
    ),
    row(
        "floor: bf16 operands at 2^-55",
        12,
        |[a, _, _]| floor_to(f(a), math::FLOOR_BF16_OPERAND).to_bits(),
        |[a, _, _]| floored(a, -55),
        around_floors,
    ),
    row(
        "floor: terms of sums at 2^-102",
        13,
        |[a, _, _]| floor_to(f(a), math::FLOOR_SUM).to_bits(),
        |[a, _, _]| floored(a, -102),
        around_floors,
    ),
    row(
        "maximum by comparison",
        14,
        |[a, b, _]| max2(f(a), f(b)).to_bits(),
        |[a, b, _]| if w(a) > w(b) { a } else { b },
        sums,
    ),
    row(
        "minimum by comparison",
        15,
        |[a, b, _]| min2(f(a), f(b)).to_bits(),
        |[a, b, _]| if w(a) < w(b) { a } else { b },
        sums,
    ),
    row(
        "absolute value",
        16,
        |[a, _, _]| f(a).abs().to_bits(),
        |[a, _, _]| a & ABS,
        sums,
    ),
    row(
        "negation",
        17,
        |[a, _, _]| (-f(a)).to_bits(),
        |[a, _, _]| a ^ !ABS,
        sums,
    ),
    row(
        "comparisons, zeros of both signs equal",
        27,
        compare,
        |[a, b, _]| {
            (w(a) < w(b)) as u32 | ((w(a) == w(b)) as u32) << 1 | ((w(a) <= w(b)) as u32) << 2
        },
        sums_and_zeros,
    ),
    row(
        "integer product and sum, modulo 2^32",
        20,
        |[a, b, c]| a.wrapping_mul(b).wrapping_add(c),
        |[a, b, c]| (a as u64 * b as u64 + c as u64) as u32,
        words,
    ),
    row(
        "integer shifts",
        21,
        |[a, b, c]| (a << (b & 31)) ^ (c >> (b & 31)),
        |[a, b, c]| ((a as u64) << (b % 32)) as u32 ^ (c as u64 >> (b % 32)) as u32,
        words,
    ),
    row(
        "signed product and difference",
        22,
        |[a, b, c]| (a as i32).wrapping_mul(b as i32).wrapping_sub(c as i32) as u32,
        |[a, b, c]| (a as i32 as i64 * b as i32 as i64 - c as i32 as i64) as u32,
        words,
    ),
    row(
        "signed and unsigned comparison",
        23,
        |[a, b, _]| ((a as i32) < b as i32) as u32 | ((a < b) as u32) << 1,
        |[a, b, _]| ((a ^ SIGN) < (b ^ SIGN)) as u32 | ((a < b) as u32) << 1,
        words,
    ),
    row(
        "integers to 2^24 as f32",
        24,
        |[a, _, _]| ((a & 0xff_ffff) as f32).to_bits(),
        |[a, _, _]| bits((a & 0xff_ffff) as f64),
        words,
    ),
    row(
        "f32 to integer, toward zero",
        25,
        |[a, _, _]| f(a) as i32 as u32,
        |[a, _, _]| w(a).trunc() as i64 as u32,
        small,
    ),
    row(
        "NaN and infinity by their bits",
        26,
        |[a, b, _]| class(a) | class(b) << 2,
        |[a, b, _]| nan_class(a) | nan_class(b) << 2,
        specials,
    ),
    row(
        "words through a selection keep their bits",
        28,
        |[a, b, c]| if c & 1 == 0 { a } else { b },
        |[a, b, c]| [a, b][(c % 2) as usize],
        specials,
    ),
    row(
        "bf16: rounding, ties, NaN, largest value",
        29,
        |[a, _, _]| f32_to_bf16(f(a)) as u32,
        |[a, _, _]| nearest_bf16(a),
        roundings,
    ),
    row(
        "bf16: two to a word",
        30,
        |[a, b, _]| f32_to_bf16(f(a)) as u32 | (f32_to_bf16(f(b)) as u32) << 16,
        |[a, b, _]| nearest_bf16(a) | nearest_bf16(b) << 16,
        roundings,
    ),
    row(
        "bf16: widening",
        31,
        |[a, b, _]| bf16_to_f32((a >> (16 * (b & 1))) as u16).to_bits(),
        |[a, b, _]| if b & 1 == 1 { a & 0xffff_0000 } else { a << 16 },
        widenings,
    ),
    function(
        "exp",
        0,
        |[a, _, _]| math::exp(f(a)).to_bits(),
        |[a, _, _]| math::exp(f(a)).to_bits(),
        arguments,
    ),
    function(
        "log",
        1,
        |[a, _, _]| math::log(f(a)).to_bits(),
        |[a, _, _]| math::log(f(a)).to_bits(),
        positive,
    ),
    function(
        "tanh",
        2,
        |[a, _, _]| math::tanh(f(a)).to_bits(),
        |[a, _, _]| math::tanh(f(a)).to_bits(),
        arguments,
    ),
    function(
        "erf",
        3,
        |[a, _, _]| math::erf(f(a)).to_bits(),
        |[a, _, _]| math::erf(f(a)).to_bits(),
        arguments,
    ),
    function(
        "normal distribution",
        4,
        |[a, _, _]| math::normal_cdf(f(a)).to_bits(),
        |[a, _, _]| math::normal_cdf(f(a)).to_bits(),
        arguments,
    ),
    function(
        "gelu",
        5,
        |[a, _, _]| math::gelu(f(a)).to_bits(),
        |[a, _, _]| math::gelu(f(a)).to_bits(),
        arguments,
    ),
    function(
        "gelu's gradient",
        6,
        |[a, _, _]| math::gelu_grad(f(a)).to_bits(),
        |[a, _, _]| math::gelu_grad(f(a)).to_bits(),
        arguments,
    ),
    function(
        "division, correctly rounded",
        7,
        |[a, b, _]| math::div(f(a), f(b)).to_bits(),
        |[a, b, _]| bits(rn(w(a) / w(b))),
        products,
    ),
    function(
        "square root, correctly rounded",
        8,
        |[a, _, _]| math::sqrt(f(a)).to_bits(),
        |[a, _, _]| bits(libm::sqrt(w(a))),
        positive,
    ),
    function(
        "1 / square root",
        9,
        |[a, _, _]| math::rsqrt(f(a)).to_bits(),
        |[a, _, _]| math::rsqrt(f(a)).to_bits(),
        positive,
    ),
    function("random words (Threefry)", 10, random, random, words),
    control(
        "control: a fused a * b + c",
        40,
        |[a, b, c]| f(a).mul_add(f(b), f(c)).to_bits(),
        |[a, b, c]| bits(r(w(a) * w(b)) + w(c)),
        cancelling,
    ),
    control(
        "control: a sum in another order",
        41,
        |[a, b, c]| (f(a) + ((f(b) + f(c)) + 0.0)).to_bits(),
        |[a, b, c]| bits(r(w(a) + w(b)) + w(c)),
        sums,
    ),
    control(
        "control: bf16 by truncation",
        42,
        |[a, _, _]| a >> 16,
        |[a, _, _]| nearest_bf16(a),
        roundings,
    ),
    control(
        "control: one unit in the last place",
        43,
        |[a, b, _]| ftz(ftz(f(a)) * ftz(f(b))).to_bits() + 1,
        |[a, b, _]| bits(rn(rn(w(a)) * rn(w(b)))),
        products,
    ),
];

pub(super) const ABS: u32 = 0x7fff_ffff;
pub(super) const SIGN: u32 = 0x8000_0000;
/// 1.5 * 2^23: adding it rounds to an integer.
pub(super) const MAGIC: f32 = 12_582_912.0;

fn chain([a, b, c]: Triple) -> u32 {
    bits(r(r(w(a) + w(b)) + w(c)) + r(w(a) * w(b)))
}

fn halves([a, b, c]: Triple) -> f32 {
    let half = |u: u32, h: u32| bf16_to_f32((u >> (16 * h)) as u16);
    let low = f(c) + half(a, 0) * half(b, 0);
    low + half(a, 1) * half(b, 1)
}

fn halves_exact([a, b, c]: Triple) -> f32 {
    let half = |u: u32, h: u32| f(if h == 1 { u & 0xffff_0000 } else { u << 16 }) as f64;
    let low = r(w(c) + half(a, 0) * half(b, 0));
    (low + half(a, 1) * half(b, 1)) as f32
}

/// `u` with magnitudes below 2^power, and -0, as +0.
fn floored(u: u32, power: i32) -> u32 {
    let keeps = w(u).abs() >= libm::ldexp(1.0, power);
    if keeps { u } else { 0 }
}

fn compare([a, b, _]: Triple) -> u32 {
    let (a, b) = (f(a), f(b));
    (a < b) as u32 | ((a == b) as u32) << 1 | ((a <= b) as u32) << 2
}

fn class(u: u32) -> u32 {
    match u & ABS {
        0x7f80_0000 => 1,
        m if m > 0x7f80_0000 => 2,
        _ => 0,
    }
}

fn nan_class(u: u32) -> u32 {
    if f(u).is_nan() {
        2
    } else {
        f(u).is_infinite() as u32
    }
}

/// bf16 by choosing the nearer of two neighbours in f64, ties to the even one.
fn nearest_bf16(u: u32) -> u32 {
    if f(u).is_nan() {
        return (u >> 16) | 0x40;
    }
    let down = u >> 16;
    let up = down + 1;
    // 2^128 stands for the infinity above the largest value.
    let value = |h: u32| match h & 0x7fff {
        0x7f80 => libm::ldexp(1.0, 128).copysign(f(h << 16) as f64),
        _ => w(h << 16),
    };
    if f(u).is_infinite() {
        return down;
    }
    let (below, above) = ((w(u) - value(down)).abs(), (value(up) - w(u)).abs());
    let tie = below == above && down & 1 == 1;
    if above < below || tie { up } else { down }
}

fn random([a, b, c]: Triple) -> u32 {
    let x = threefry([a, b], [c, 7]);
    x[0] ^ x[1].rotate_left(16)
}

#[cfg(test)]
mod tests;
