//! The operands of the micro-kernels.

use super::micro::{ABS, MAGIC, SIGN, Triple, bits, f, w};
use crate::kernels::rng::Stream;

/// Vectors of a row, besides its hand-picked ones.
const RANDOM: usize = 240;

/// Random words, the same on every machine.
pub(super) fn stream(salt: u32) -> impl FnMut() -> u32 {
    let mut s = Stream::new(0x1505_b175, salt);
    move || s.bits() as u32
}

/// A number with the significand and sign of random bits and an exponent within `spread` of `middle`.
pub(super) fn number(u: u32, middle: i32, spread: u32, v: u32) -> u32 {
    let exponent = (127 + middle - spread as i32) as u32 + v % (2 * spread + 1);
    (u & (SIGN | 0x7f_ffff)) | exponent << 23
}

pub(super) fn randoms(salt: u32, middle: i32, spread: u32) -> Vec<Triple> {
    let mut next = stream(salt);
    let mut one = || number(next(), middle, spread, next());
    (0..RANDOM).map(|_| [one(), one(), one()]).collect()
}

pub(super) fn with(picked: &[[f32; 3]], mut rest: Vec<Triple>) -> Vec<Triple> {
    let mut out: Vec<Triple> = picked.iter().map(|t| t.map(f32::to_bits)).collect();
    out.append(&mut rest);
    out
}

pub(super) const fn two_to(n: i32) -> f32 {
    f32::from_bits(((127 + n) as u32) << 23)
}

pub(super) fn sums() -> Vec<Triple> {
    let (ulp, tie) = (two_to(-23), two_to(-24));
    let picked = [
        [1.0, tie, 1.0],
        [1.0 + ulp, tie, -1.0],
        [-1.0, -tie, 1.0],
        [-1.0 - ulp, -tie, tie],
        [1.0, tie + two_to(-47), 3.0],
        [1.0, -tie, 1.0],
        [1e8, 1.0, -1e8],
        [-1e8, 1.0, 1e8],
        [16_777_216.0, 1.0, -1.0],
        [3.0, MAGIC, 0.5],
    ];
    with(&picked, randoms(1, 0, 14))
}

pub(super) fn sums_and_zeros() -> Vec<Triple> {
    with(
        &[[0.0, -0.0, 0.0], [-0.0, 0.0, 0.0], [1.0, -0.0, 0.0]],
        sums(),
    )
}

pub(super) fn products() -> Vec<Triple> {
    let half_way = 1.0 + two_to(-12); // its square is 1 + 2^-11 + 2^-24: a tie
    let odd = 1.0 + two_to(-11) + two_to(-23);
    with(
        &[
            [half_way, half_way, 1.0],
            [odd, 1.5, -1.5],
            [3.0, 1.0 / 3.0, -1.0],
            [-half_way, half_way, half_way],
        ],
        randoms(2, 0, 12),
    )
}

/// c near -a * b, so that a product's lost half decides.
pub(super) fn cancelling() -> Vec<Triple> {
    let x = 1.0 + two_to(-12);
    let mut next = stream(3);
    let rest = randoms(4, 0, 8).into_iter().map(|[a, b, _]| {
        let p = f(a) * f(b);
        // Off by up to three units, at times not at all.
        [a, b, (-p).to_bits() ^ (next() & 3)]
    });
    with(&[[x, x, -(1.0 + two_to(-11))]], rest.collect())
}

/// c near the root of a * b.
pub(super) fn squares() -> Vec<Triple> {
    let rest = randoms(5, 0, 6).into_iter().map(|[a, b, _]| {
        let (a, b) = (a & ABS, b & ABS);
        [a, b, bits(libm::sqrt(w(a) * w(b)))]
    });
    rest.collect()
}

pub(super) fn small() -> Vec<Triple> {
    with(
        &[
            [0.5, 0.0, 0.0],
            [1.5, 0.0, 0.0],
            [2.5, 0.0, 0.0],
            [-0.5, 0.0, 0.0],
            [-1.5, 0.0, 0.0],
            [0.75, 0.0, 0.0],
        ],
        randoms(6, 4, 12),
    )
}

/// Pairs of bf16 within the floors' and the ceiling's reach, and an accumulator.
pub(super) fn packed() -> Vec<Triple> {
    let mut next = stream(7);
    let mut half = |v: u32| number(next(), 0, 20, v) >> 16;
    let mut out = Vec::new();
    let mut more = stream(8);
    for i in 0..RANDOM as u32 {
        let a = half(more()) | half(more()) << 16;
        let b = half(more()) | half(more()) << 16;
        let low = f(a << 16) * f(b << 16);
        // Half of them cancel the first product.
        let c = if i % 2 == 0 {
            (-low).to_bits()
        } else {
            number(more(), 0, 12, more())
        };
        out.push([a, b, c]);
    }
    out
}

pub(super) fn tiny_products() -> Vec<Triple> {
    let mut out = with(
        // 1e-20 squared is 1e-40.
        &[
            [1e-20, 1e-20, 0.0],
            [two_to(-62), two_to(-63), 0.0],
            [two_to(-63), two_to(-63), 0.0],
            [-two_to(-64), two_to(-63), 0.0],
        ],
        randoms(9, -62, 3),
    );
    out.extend(tiny());
    out
}

/// Subnormals, the smallest normals and zeros among each other and with numbers.
pub(super) fn tiny() -> Vec<Triple> {
    const EDGE: [u32; 11] = [
        0,
        SIGN,
        1,
        SIGN | 1,
        0x007f_ffff,
        0x0080_0000,
        SIGN | 0x0080_0000,
        0x00ff_ffff,
        0x0100_0000,
        SIGN | 0x0100_0001,
        0x3f80_0000,
    ];
    EDGE.iter().flat_map(|&a| EDGE.map(|b| [a, b, 0])).collect()
}

pub(super) fn around_floors() -> Vec<Triple> {
    let mut out = tiny();
    for power in [-51, -55, -102, -125] {
        let edge = two_to(power).to_bits();
        for u in [edge - 1, edge, edge + 1, edge - (1 << 23)] {
            out.extend([[u, 0, 0], [u | SIGN, 0, 0]]);
        }
    }
    out
}

pub(super) fn words() -> Vec<Triple> {
    let mut next = stream(10);
    let mut out: Vec<Triple> = (0..RANDOM).map(|_| [next(), next(), next()]).collect();
    out.extend([
        [0, 0, 0],
        [u32::MAX; 3],
        [SIGN, u32::MAX, 1],
        [SIGN, 31, ABS],
        [1, 32, 2],
    ]);
    out
}

const SPECIALS: [u32; 12] = [
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xff80_0001,
    0x7fc0_0000,
    0x7fff_ffff,
    0x7f7f_ffff,
    0,
    SIGN,
    1,
    0x8000_0001,
    0x3f80_0000,
];

pub(super) fn specials() -> Vec<Triple> {
    let pairs = SPECIALS
        .iter()
        .flat_map(|&a| SPECIALS.map(|b| [a, b, a ^ (b >> 1)]));
    pairs.collect()
}

pub(super) fn roundings() -> Vec<Triple> {
    // 3.14 and two ties that both go to 1.015625; halfway to infinity and just below.
    let picked = [
        [f32::from_bits(0x4048_f5c3), 261.0 / 256.0, 0.0],
        [259.0 / 256.0, 1.007_812_5, 0.0],
        [f32::MAX, -f32::MAX, 0.0],
    ];
    let mut out = with(&picked, randoms(11, 0, 60));
    out.extend(specials());
    out.extend([
        [0x7f7f_7fff, 0x7f7f_8000, 0],
        [0x3f80_8000, 0x3f81_8000, 0],
        [0x3f80_8001, 0x3f80_7fff, 0],
    ]);
    out
}

/// Words of two bf16 that are normal or zero.
pub(super) fn widenings() -> Vec<Triple> {
    let halves = |[a, b, c]: Triple| [(a >> 16) | (b & 0xffff_0000), c, 0];
    randoms(12, 0, 100).into_iter().map(halves).collect()
}

pub(super) fn arguments() -> Vec<Triple> {
    with(
        &[
            [0.0, 0.0, 0.0],
            [13.24, 0.0, 0.0],
            [-13.24, 0.0, 0.0],
            [89.0, 0.0, 0.0],
            [-89.0, 0.0, 0.0],
            [-88.5, 0.0, 0.0],
            [88.7, 0.0, 0.0],
            [two_to(-30), 0.0, 0.0],
            [1.0, 0.0, 0.0],
        ],
        randoms(13, -2, 7),
    )
}

pub(super) fn positive() -> Vec<Triple> {
    let mut rest = randoms(14, 0, 40);
    rest.iter_mut().for_each(|t| t[0] &= ABS);
    with(
        &[
            [1.0, 0.0, 0.0],
            [2.0, 0.0, 0.0],
            [f32::MAX, 0.0, 0.0],
            [1.0 + two_to(-23), 0.0, 0.0],
        ],
        rest,
    )
}

/// Numbers whose sum depends on the order.
pub(super) fn tree(n: usize) -> Vec<u32> {
    let mut next = stream(15);
    (0..n).map(|_| number(next(), 0, 12, next())).collect()
}
