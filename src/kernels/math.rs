//! Scalar f32 math whose bits do not depend on the machine.
//!
//! This file *defines* the bits: `shaders/lib/math.wgsl` repeats it operation by
//! operation. What every function obeys:
//!
//! * Only `+ - *`, comparisons of bits, selects and integer operations (plus the
//!   IEEE `/` and `sqrt`, which are correctly rounded, in `div` and `sqrt`).
//!   Plain expressions are the definition: rustc neither contracts nor
//!   reassociates. Never `mul_add`, never the system's math library.
//! * No branch, loop or table, so that a loop over a slice is vectorised when it
//!   is compiled inside a function with AVX2 or AVX-512 enabled.
//! * A result below 2^-125 is `+0`, and `-0` is `+0`: devices that flush
//!   subnormals and devices that do not then agree. Subnormal inputs count as
//!   `+0`. An intermediate may be subnormal only where it vanishes in a sum with
//!   a far larger term, or where the result is flushed anyway.
//! * A NaN result is always [`NAN_BITS`]. Infinities are kept out of the
//!   arithmetic by clamping the magnitude first.
//!
//! | function | error bound in ULP, from about 10^8 inputs each |
//! |---|---|
//! | `exp` | 1 |
//! | `log` | 0.9 |
//! | `tanh` | 1.8 |
//! | `erf` | 1.4 |
//! | `erfc` | 7.5 |
//! | `normal_cdf` | 7.5 |
//! | `normal_pdf` | 2.3 |
//! | `gelu` | 7.5 (1.2e-7 * max(1, abs(x)) absolute) |
//! | `gelu_grad` | 2.6e-7 absolute |
//! | `div`, `sqrt`, `recip` | 0.5 (correctly rounded) |
//! | `rsqrt` | 1.5 |

/// Bits of the one NaN these functions return.
pub const NAN_BITS: u32 = 0x7fc0_0000;
/// Bits of 2^-125: anything smaller is flushed to `+0`.
pub const FTZ_LIMIT: u32 = 0x0100_0000;
/// Bits of 2^-51, the floor for f32 operands of a product-sum: rounded products
/// are then at least 2^-102, and their sums multiples of 2^-125.
pub const FLOOR_F32_OPERAND: u32 = (127 - 51) << 23;
/// Bits of 2^-55, the floor for bf16 operands of a product-sum: products and
/// partial sums are then 0 or multiples of 2^-124.
pub const FLOOR_BF16_OPERAND: u32 = (127 - 55) << 23;
/// Bits of 2^-102, the floor for the terms of a sum: partial sums are then 0 or
/// multiples of 2^-125.
pub const FLOOR_SUM: u32 = (127 - 102) << 23;

const ABS: u32 = 0x7fff_ffff;
const SIGN: u32 = 0x8000_0000;
const INF: u32 = 0x7f80_0000;
const ONE: u32 = 0x3f80_0000;

/// `x` with magnitudes below the f32 whose bits are `limit_bits` (and `-0`)
/// replaced by `+0`. NaN and infinities pass.
#[inline(always)]
pub fn floor_to(x: f32, limit_bits: u32) -> f32 {
    if x.to_bits() & ABS < limit_bits {
        0.0
    } else {
        x
    }
}

/// Flush to zero: `x` with magnitudes below 2^-125 (and `-0`) replaced by `+0`.
#[inline(always)]
pub fn ftz(x: f32) -> f32 {
    floor_to(x, FTZ_LIMIT)
}

/// `y`, or the canonical NaN where `cond` holds.
#[inline(always)]
fn nan_if(cond: bool, y: f32) -> f32 {
    f32::from_bits(if cond { NAN_BITS } else { y.to_bits() })
}

/// The integer-valued float added to round to an integer: 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;

/// Bits of e^(hi + lo) as a signed integer that keeps counting past the ends of
/// the exponent: above 0x7f7f_ffff means overflow, below [`FTZ_LIMIT`] zero.
/// For |hi| <= 88.8 and |lo| <= 0.05.
///
/// Reduction and polynomial of Cephes `expf` (S. L. Moshier); `lo` joins after
/// the reduction, where it costs no precision.
#[inline(always)]
fn exp_bits(hi: f32, lo: f32) -> i32 {
    let n = hi * std::f32::consts::LOG2_E + ROUND;
    let k = n.to_bits() as i32 - 0x4b40_0000;
    let kf = n - ROUND;
    let r = hi - kf * 0.693_359_4;
    let r = r - kf * -2.121_944_4e-4;
    let r = r + lo;
    let p = 1.987_569_1e-4 * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_6e-1;
    let p = p * r + 0.5;
    let y = (p * (r * r) + r) + 1.0;
    y.to_bits() as i32 + (k << 23)
}

/// Bits of 88.8, past which e^x overflows and e^-x is flushed.
const EXP_CLAMP: u32 = 0x42b1_999a;

/// e^x. At most 1 ULP. Overflow gives infinity, results below 2^-125 give 0.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let u = x.to_bits();
    let mag = u & ABS;
    let b = exp_bits(f32::from_bits(mag.min(EXP_CLAMP) | (u & SIGN)), 0.0);
    let b = if b < FTZ_LIMIT as i32 { 0 } else { b };
    let b = if b > INF as i32 { INF as i32 } else { b };
    nan_if(mag > INF, f32::from_bits(b as u32))
}

/// Natural logarithm. At most 0.9 ULP, near 1 as well. `log(0)` is negative
/// infinity (anything below 2^-125 counts as 0), `log` of a negative is NaN.
///
/// Reduction and polynomial of Cephes `logf` (S. L. Moshier).
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let u = ftz(x).to_bits();
    // x = 2^e * (1 + m), with 1 + m in [sqrt(1/2), sqrt(2)).
    let frac = u & 0x007f_ffff;
    let low = frac < 0x0035_04f3;
    let e = (u >> 23) as i32 - if low { 127 } else { 126 };
    let m = f32::from_bits(frac | if low { ONE } else { 0x3f00_0000 }) - 1.0;
    let z = m * m;
    let p = 7.037_683_6e-2 * m + -1.151_461e-1;
    let p = p * m + 1.167_699_8e-1;
    let p = p * m + -1.242_014_1e-1;
    let p = p * m + 1.424_932_3e-1;
    let p = p * m + -1.666_805_7e-1;
    let p = p * m + 2.000_071_4e-1;
    let p = p * m + -2.499_999_4e-1;
    let p = p * m + 3.333_333e-1;
    let fe = e as f32;
    let y = (m * z) * p;
    let y = fe * -2.121_944_4e-4 + y;
    let y = y - 0.5 * z;
    let y = ftz(fe * 0.693_359_4 + (m + y)).to_bits();
    let y = if u == INF { INF } else { y };
    let y = if u == 0 { INF | SIGN } else { y };
    nan_if(u > INF, f32::from_bits(y))
}

/// 1/d within about 1 ULP, for normal d in [1, 2^100], without a division (a
/// device would have to correct one with integers).
///
/// Integer seed (relative error 0.0505), one step of third order, one of second.
#[inline(always)]
fn recip_newton(d: f32) -> f32 {
    let y = f32::from_bits(0x7ef3_1000u32.wrapping_sub(d.to_bits()));
    let e = 1.0 - d * y;
    let y = y + y * (e + e * e);
    let e = 1.0 - d * y;
    y + y * e
}

/// Hyperbolic tangent. At most 1.8 ULP; odd.
///
/// Below 0.625 the odd polynomial of Cephes `tanhf` (S. L. Moshier), above it
/// 1 - 2 / (e^2x + 1).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let u = x.to_bits();
    let mag = u & ABS;
    // From 9.02 on tanh rounds to 1; 9.25 keeps the exponential in range.
    let a = f32::from_bits(mag.min(0x4114_0000));
    let z = a * a;
    let p = -5.704_988_7e-3 * z + 2.063_908_8e-2;
    let p = p * z + -5.373_971_5e-2;
    let p = p * z + 1.333_144_2e-1;
    let p = p * z + -3.333_328e-1;
    let small = (p * z) * a + a;
    let t = f32::from_bits(exp_bits(a + a, 0.0) as u32);
    let large = 1.0 - 2.0 * recip_newton(t + 1.0);
    let y = if mag < 0x3f20_0000 { small } else { large };
    let y = ftz(f32::from_bits(y.to_bits() | (u & SIGN)));
    nan_if(mag > INF, y)
}

/// e^(-scale * a^2) for a in [0, 13.25] and `scale` a power of two, flushed to 0
/// below 2^-125. The square is split in two so that its rounding costs nothing:
/// a^2 = h^2 + (a - h)(a + h), where h keeps 12 bits and h^2 is exact.
#[inline(always)]
fn exp_neg_square(a: f32, scale: f32) -> f32 {
    let h = f32::from_bits(a.to_bits() & 0xffff_f000);
    let hi = -scale * (h * h);
    let lo = -scale * ((a - h) * (a + h));
    let b = exp_bits(hi, lo);
    f32::from_bits(if b < FTZ_LIMIT as i32 { 0 } else { b as u32 })
}

/// e^(a^2/2) * Phi(-a), the scaled tail of the normal distribution, for a in
/// [0, 13.25].
///
/// P(q) / (a + 3) with q = (a - 3) / (a + 3). P has degree 8, fitted to mpmath
/// values in the minimax sense for the relative error (iteratively reweighted
/// least squares in a Chebyshev basis, coefficients rounded to f32 one at a
/// time and the rest refitted): 4.8e-8.
#[inline(always)]
fn scaled_tail(a: f32) -> f32 {
    let w = recip_newton(a + 3.0);
    let q = (a - 3.0) * w;
    let p = -2.774_160_5e-4 * q + -9.198_767_4e-4;
    let p = p * q + 1.080_000_5e-3;
    let p = p * q + 6.937_033_5e-3;
    let p = p * q + -1.047_980_3e-2;
    let p = p * q + -4.725_936_4e-2;
    let p = p * q + 2.300_193_6e-1;
    let p = p * q + -5.093_320_6e-1;
    let p = p * q + 7.290_836_6e-1;
    p * w
}

/// Bits of 13.25: at and past it Phi(-a) and its density are flushed to 0.
const TAIL_CLAMP: u32 = 0x4154_0000;
/// Bits of 9.36, the same for erfc: sqrt(2) * 9.36 < 13.25.
const ERF_CLAMP: u32 = 0x4115_c28f;

/// erfc(a) for a in [0, 9.36].
#[inline(always)]
fn erfc_tail(a: f32) -> f32 {
    let r = scaled_tail(a * std::f32::consts::SQRT_2);
    ftz((2.0 * exp_neg_square(a, 1.0)) * r)
}

/// erf(a) for a in [0, 1], as a + a * P(a^2). P has degree 6, fitted as in
/// [`scaled_tail`] for the error relative to erf: 1.7e-9. Keeping 1 out of P's
/// constant term keeps the rounding of 2/sqrt(pi) out of the result.
#[inline(always)]
fn erf_small(a: f32) -> f32 {
    let z = a * a;
    let p = 7.806_966e-5 * z + -7.997_853e-4;
    let p = p * z + 5.187_162e-3;
    let p = p * z + -2.685_334_7e-2;
    let p = p * z + 1.128_357_9e-1;
    let p = p * z + -3.761_262_6e-1;
    let p = p * z + 1.283_791_7e-1;
    let y = a + a * p;
    // Below 2^-60 the linear term alone: a * p could be subnormal there.
    let linear = a * std::f32::consts::FRAC_2_SQRT_PI;
    if a.to_bits() < 0x2180_0000 { linear } else { y }
}

/// Error function. At most 1.4 ULP; odd.
///
/// Below 1 an odd polynomial, above it 1 - erfc.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let u = x.to_bits();
    let mag = u & ABS;
    let a = f32::from_bits(mag.min(ERF_CLAMP));
    let small = erf_small(a);
    let large = 1.0 - erfc_tail(a);
    let y = if mag < ONE { small } else { large };
    let y = ftz(f32::from_bits(y.to_bits() | (u & SIGN)));
    nan_if(mag > INF, y)
}

/// Complementary error function. At most 7.5 ULP, also far into the tail; below
/// 2^-125 it is 0.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    let u = x.to_bits();
    let mag = u & ABS;
    let t = erfc_tail(f32::from_bits(mag.min(ERF_CLAMP)));
    let y = if u < SIGN { t } else { 2.0 - t };
    nan_if(mag > INF, y)
}

/// Phi(x) of the magnitude a and the sign of x, given e^(-a^2/2).
#[inline(always)]
fn cdf_from(a: f32, negative: bool, e: f32) -> f32 {
    let t = ftz(e * scaled_tail(a));
    if negative { t } else { 1.0 - t }
}

/// Phi(x), the distribution function of the standard normal. At most 7.5 ULP,
/// also far into the lower tail; below 2^-125 it is 0.
#[inline(always)]
pub fn normal_cdf(x: f32) -> f32 {
    let u = x.to_bits();
    let mag = u & ABS;
    let a = f32::from_bits(mag.min(TAIL_CLAMP));
    let y = cdf_from(a, u >= SIGN, exp_neg_square(a, 0.5));
    nan_if(mag > INF, y)
}

/// 1 / sqrt(2 pi).
const INV_SQRT_2PI: f32 = 0.398_942_3;

/// phi(x), the density of the standard normal. At most 2.3 ULP.
#[inline(always)]
pub fn normal_pdf(x: f32) -> f32 {
    let mag = x.to_bits() & ABS;
    let a = f32::from_bits(mag.min(TAIL_CLAMP));
    let y = ftz(exp_neg_square(a, 0.5) * INV_SQRT_2PI);
    nan_if(mag > INF, y)
}

/// The exact GELU, x * Phi(x), accurate in the negative tail too: at most 7.5 ULP
/// while Phi(x) is at least 2^-125 (x > -12.89), and 0 below.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let u = x.to_bits();
    let mag = u & ABS;
    let a = f32::from_bits(mag.min(TAIL_CLAMP));
    let phi = cdf_from(a, u >= SIGN, exp_neg_square(a, 0.5));
    let y = ftz(f32::from_bits(a.to_bits() | (u & SIGN)) * phi);
    // Past the clamp x itself, infinity included, or 0.
    let far = if u < SIGN { x } else { 0.0 };
    nan_if(mag > INF, if mag > TAIL_CLAMP { far } else { y })
}

/// The derivative of the exact GELU, Phi(x) + x * phi(x). Absolute error at most
/// 2.6e-7.
#[inline(always)]
pub fn gelu_grad(x: f32) -> f32 {
    let u = x.to_bits();
    let mag = u & ABS;
    let a = f32::from_bits(mag.min(TAIL_CLAMP));
    let e = exp_neg_square(a, 0.5);
    let phi = cdf_from(a, u >= SIGN, e);
    let d = ftz(e * INV_SQRT_2PI);
    let d = ftz(f32::from_bits(a.to_bits() | (u & SIGN)) * d);
    nan_if(mag > INF, ftz(phi + d))
}

/// a / b, correctly rounded. Operands below 2^-125 count as `+0`, so that
/// `1 / -0` is positive infinity; results below 2^-125 are `+0`.
#[inline(always)]
pub fn div(a: f32, b: f32) -> f32 {
    let y = ftz(ftz(a) / ftz(b));
    nan_if(y.to_bits() & ABS > INF, y)
}

/// 1 / x, correctly rounded: `div(1, x)`.
#[inline(always)]
pub fn recip(x: f32) -> f32 {
    div(1.0, x)
}

/// Square root, correctly rounded; NaN below 0 (anything below 2^-125 is 0).
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    let y = ftz(x).sqrt();
    nan_if(y.to_bits() & ABS > INF, y)
}

/// 1 / sqrt(x) as two correctly rounded operations; infinity at 0.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    div(1.0, sqrt(x))
}

#[cfg(test)]
#[path = "math_tests.rs"]
mod tests;
