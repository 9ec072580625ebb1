//! The one order in which rows are reduced: element i goes to lane i mod [`LANES`], ascending, then the
//! lanes are combined by a halving tree. Lanes without elements hold the identity.

use super::math::{FLOOR_SUM, floor_to};
use super::order::LANES;

/// The lanes of one reduction.
pub type Lanes = [f32; LANES];

/// Combines the lanes: 16, 8, 4, 2, 1.
#[inline(always)]
pub fn tree(mut a: Lanes, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            a[i] = f(a[i], a[i + half]);
        }
        half /= 2;
    }
    a[0]
}

/// Sum of `n` values `f(i)` in the contract's order, each floored at 2^-102 so that no partial sum is
/// subnormal.
#[inline(always)]
pub fn sum(n: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut acc = [0f32; LANES];
    let whole = n / LANES * LANES;
    let mut i = 0;
    while i < whole {
        for (l, a) in acc.iter_mut().enumerate() {
            *a += floor_to(f(i + l), FLOOR_SUM);
        }
        i += LANES;
    }
    for (l, a) in acc.iter_mut().enumerate().take(n - whole) {
        *a += floor_to(f(i + l), FLOOR_SUM);
    }
    tree(acc, |a, b| a + b)
}

/// Maximum of `n` values `f(i)`, `n` at least 1.
#[inline(always)]
pub fn max(n: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut acc = [f32::NEG_INFINITY; LANES];
    let whole = n / LANES * LANES;
    let mut i = 0;
    while i < whole {
        for (l, a) in acc.iter_mut().enumerate() {
            *a = max2(*a, f(i + l));
        }
        i += LANES;
    }
    for (l, a) in acc.iter_mut().enumerate().take(n - whole) {
        *a = max2(*a, f(i + l));
    }
    tree(acc, max2)
}

/// The larger of two numbers by one comparison (what a shader's `select(b, a, a > b)` gives).
#[inline(always)]
pub fn max2(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The smaller of two numbers by one comparison.
#[inline(always)]
pub fn min2(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}
