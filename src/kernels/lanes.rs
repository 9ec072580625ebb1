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

/// Folds `f` of the elements of `N` slices of one length into lanes that start at `identity`. Whole
/// groups of lanes go through arrays, whose loops the compiler turns into vectors.
#[inline(always)]
fn fold<const N: usize>(
    x: [&[f32]; N],
    identity: f32,
    step: impl Fn(f32, [f32; N]) -> f32,
) -> Lanes {
    let mut acc = [identity; LANES];
    let n = x.first().map_or(0, |x| x.len());
    let x = x.map(|x| x[..n].as_chunks::<LANES>());
    for i in 0..n / LANES {
        let group: [&Lanes; N] = std::array::from_fn(|k| &x[k].0[i]);
        for (l, a) in acc.iter_mut().enumerate() {
            *a = step(*a, std::array::from_fn(|k| group[k][l]));
        }
    }
    for (l, a) in acc.iter_mut().enumerate().take(n % LANES) {
        *a = step(*a, std::array::from_fn(|k| x[k].1[l]));
    }
    acc
}

/// Sum of `f` over the elements of slices of one length, in the contract's order, each term floored at
/// 2^-102 so that no partial sum is subnormal.
#[inline(always)]
pub fn sum<const N: usize>(x: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let acc = fold(x, 0.0, |a, x| a + floor_to(f(x), FLOOR_SUM));
    tree(acc, |a, b| a + b)
}

/// Maximum of `f` over a slice's elements, of which there is at least one.
#[inline(always)]
pub fn max(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    tree(fold([x], f32::NEG_INFINITY, |a, [x]| max2(a, f(x))), max2)
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
