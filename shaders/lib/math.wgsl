//#include lib/fence.wgsl
// Scalar f32 math whose bits do not depend on the device: the twin, operation by
// operation, of src/kernels/math.rs, which defines the bits and states error
// bounds, edge cases and the sources of the polynomials.
//
// An include file. The including shader declares `var<uniform> P` with a struct
// whose first field is `zero: u32`, which must be 0 at run time. `fence` and `rn`
// are in fence.wgsl.
//
// Rules of this file:
// * One rounded operation per `fence`: a compiler can neither contract nor
//   reassociate across it. Every product that feeds an add and every add is
//   fenced.
// * NaN is tested by bits (compilers fold `a != a`); the bits of NaN and infinity
//   are combined with `P.zero`, because a constant expression of that value is
//   rejected by some compilers.
// * Infinities and NaNs are clamped away before any float arithmetic. A subnormal
//   intermediate occurs only where it vanishes in a sum or is flushed afterwards.
// * No built-in math. Hardware division and square root serve as a first guess
//   only, in `guess_div` and `guess_sqrt`, and integers make the result exact.
// * No integer above 2^24 is converted to float (one driver rounds that wrongly).

const MATH_ABS: u32 = 0x7fffffffu;
const MATH_SIGN: u32 = 0x80000000u;
const MATH_INF: u32 = 0x7f800000u;
const MATH_NAN: u32 = 0x7fc00000u;
const MATH_ONE: u32 = 0x3f800000u;
const MATH_ROUND: f32 = 12582912.0; // 1.5 * 2^23
const MATH_EXP_CLAMP: u32 = 0x42b1999au; // 88.8
const MATH_TAIL_CLAMP: u32 = 0x41540000u; // 13.25
const MATH_ERF_CLAMP: u32 = 0x4115c28fu; // 9.36
const MATH_2_SQRT_PI: f32 = 1.1283792; // 2 / sqrt(pi)
const MATH_SQRT_2: f32 = 1.4142135;
const MATH_INV_SQRT_2PI: f32 = 0.3989423;

// a * b + c with both roundings.
fn math_mad(a: f32, b: f32, c: f32) -> f32 {
    return fence(fence(a * b) + c);
}

// `bits` as a float, or the canonical NaN where `cond` holds.
fn math_nan_if(cond: bool, bits: u32) -> f32 {
    return bitcast<f32>(select(bits, MATH_NAN, cond) ^ P.zero);
}

fn math_exp_bits(hi: f32, lo: f32) -> i32 {
    let n = math_mad(hi, 1.442695, MATH_ROUND);
    let k = bitcast<i32>(n) - 0x4b400000;
    let kf = fence(n - MATH_ROUND);
    var r = fence(hi - fence(kf * 0.6933594));
    r = fence(r - fence(kf * -2.1219444e-4));
    r = fence(r + lo);
    var p = math_mad(1.9875691e-4, r, 1.3981999e-3);
    p = math_mad(p, r, 8.333452e-3);
    p = math_mad(p, r, 4.1665796e-2);
    p = math_mad(p, r, 1.6666666e-1);
    p = math_mad(p, r, 0.5);
    let y = fence(math_mad(p, fence(r * r), r) + 1.0);
    return bitcast<i32>(y) + (k << 23u);
}

fn exp_(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    let mag = u & MATH_ABS;
    let c = min(mag, MATH_EXP_CLAMP) | (u & MATH_SIGN);
    let b = math_exp_bits(bitcast<f32>(c), 0.0);
    let flushed = select(b, 0, b < i32(FTZ_LIMIT));
    let y = min(flushed, i32(MATH_INF));
    return math_nan_if(mag > MATH_INF, bitcast<u32>(y));
}

fn log_(x: f32) -> f32 {
    let u = bitcast<u32>(ftz(x));
    let frac = u & 0x007fffffu;
    let low = frac < 0x003504f3u;
    let e = i32(u >> 23u) - select(126, 127, low);
    let m = fence(bitcast<f32>(frac | select(0x3f000000u, MATH_ONE, low)) - 1.0);
    let z = fence(m * m);
    var p = math_mad(7.0376836e-2, m, -1.151461e-1);
    p = math_mad(p, m, 1.1676998e-1);
    p = math_mad(p, m, -1.2420141e-1);
    p = math_mad(p, m, 1.4249323e-1);
    p = math_mad(p, m, -1.6668057e-1);
    p = math_mad(p, m, 2.0000714e-1);
    p = math_mad(p, m, -2.4999994e-1);
    p = math_mad(p, m, 3.333333e-1);
    let fe = f32(e);
    var t = fence(fence(m * z) * p);
    t = math_mad(fe, -2.1219444e-4, t);
    t = fence(t - fence(0.5 * z));
    t = math_mad(fe, 0.6933594, fence(m + t));
    var y = bitcast<u32>(ftz(t));
    y = select(y, MATH_INF, u == MATH_INF);
    y = select(y, MATH_INF | MATH_SIGN, u == 0u);
    return math_nan_if(u > MATH_INF, y);
}

fn math_recip_newton(d: f32) -> f32 {
    var y = bitcast<f32>(0x7ef31000u - bitcast<u32>(d));
    var e = fence(1.0 - fence(d * y));
    y = math_mad(y, math_mad(e, e, e), y);
    e = fence(1.0 - fence(d * y));
    return math_mad(y, e, y);
}

fn tanh_(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    let mag = u & MATH_ABS;
    let a = bitcast<f32>(min(mag, 0x41140000u));
    let z = fence(a * a);
    var p = math_mad(-5.7049887e-3, z, 2.0639088e-2);
    p = math_mad(p, z, -5.3739715e-2);
    p = math_mad(p, z, 1.3331442e-1);
    p = math_mad(p, z, -3.333328e-1);
    let small = math_mad(fence(p * z), a, a);
    let t = bitcast<f32>(math_exp_bits(fence(a + a), 0.0));
    let w = math_recip_newton(fence(t + 1.0));
    let large = fence(1.0 - fence(2.0 * w));
    let y = select(bitcast<u32>(large), bitcast<u32>(small), mag < 0x3f200000u);
    let v = bitcast<f32>(y | (u & MATH_SIGN));
    return math_nan_if(mag > MATH_INF, bitcast<u32>(ftz(v)));
}

fn math_exp_neg_square(a: f32, scale: f32) -> f32 {
    let h = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
    let hi = fence(-scale * fence(h * h));
    let lo = fence(-scale * fence(fence(a - h) * fence(a + h)));
    let b = math_exp_bits(hi, lo);
    return bitcast<f32>(select(b, 0, b < i32(FTZ_LIMIT)));
}

fn math_scaled_tail(a: f32) -> f32 {
    let w = math_recip_newton(fence(a + 3.0));
    let q = fence(fence(a - 3.0) * w);
    var p = math_mad(-2.7741605e-4, q, -9.1987674e-4);
    p = math_mad(p, q, 1.0800005e-3);
    p = math_mad(p, q, 6.9370335e-3);
    p = math_mad(p, q, -1.0479803e-2);
    p = math_mad(p, q, -4.7259364e-2);
    p = math_mad(p, q, 2.3001936e-1);
    p = math_mad(p, q, -5.0933206e-1);
    p = math_mad(p, q, 7.2908366e-1);
    return fence(p * w);
}

fn math_erfc_tail(a: f32) -> f32 {
    let r = math_scaled_tail(fence(a * MATH_SQRT_2));
    return rn(fence(2.0 * math_exp_neg_square(a, 1.0)) * r);
}

fn math_erf_small(a: f32) -> f32 {
    let z = fence(a * a);
    var p = math_mad(7.806966e-5, z, -7.997853e-4);
    p = math_mad(p, z, 5.187162e-3);
    p = math_mad(p, z, -2.6853347e-2);
    p = math_mad(p, z, 1.1283579e-1);
    p = math_mad(p, z, -3.7612626e-1);
    p = math_mad(p, z, 1.2837917e-1);
    let y = math_mad(a, p, a);
    // Below 2^-60 the linear term alone: a * p could be subnormal there.
    let linear = fence(a * MATH_2_SQRT_PI);
    return select(y, linear, bitcast<u32>(a) < 0x21800000u);
}

fn erf_(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    let mag = u & MATH_ABS;
    let a = bitcast<f32>(min(mag, MATH_ERF_CLAMP));
    let small = math_erf_small(a);
    let large = fence(1.0 - math_erfc_tail(a));
    let y = select(bitcast<u32>(large), bitcast<u32>(small), mag < MATH_ONE);
    let v = bitcast<f32>(y | (u & MATH_SIGN));
    return math_nan_if(mag > MATH_INF, bitcast<u32>(ftz(v)));
}

fn erfc_(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    let mag = u & MATH_ABS;
    let t = math_erfc_tail(bitcast<f32>(min(mag, MATH_ERF_CLAMP)));
    let y = select(fence(2.0 - t), t, u < MATH_SIGN);
    return math_nan_if(mag > MATH_INF, bitcast<u32>(y));
}

fn math_cdf_from(a: f32, negative: bool, e: f32) -> f32 {
    let t = rn(e * math_scaled_tail(a));
    return select(fence(1.0 - t), t, negative);
}

fn normal_cdf(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    let mag = u & MATH_ABS;
    let a = bitcast<f32>(min(mag, MATH_TAIL_CLAMP));
    let y = math_cdf_from(a, u >= MATH_SIGN, math_exp_neg_square(a, 0.5));
    return math_nan_if(mag > MATH_INF, bitcast<u32>(y));
}

fn normal_pdf(x: f32) -> f32 {
    let mag = bitcast<u32>(x) & MATH_ABS;
    let a = bitcast<f32>(min(mag, MATH_TAIL_CLAMP));
    let y = rn(math_exp_neg_square(a, 0.5) * MATH_INV_SQRT_2PI);
    return math_nan_if(mag > MATH_INF, bitcast<u32>(y));
}

fn gelu(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    let mag = u & MATH_ABS;
    let a = bitcast<f32>(min(mag, MATH_TAIL_CLAMP));
    let phi = math_cdf_from(a, u >= MATH_SIGN, math_exp_neg_square(a, 0.5));
    let y = bitcast<u32>(rn(bitcast<f32>(bitcast<u32>(a) | (u & MATH_SIGN)) * phi));
    let far = select(0u, u, u < MATH_SIGN);
    return math_nan_if(mag > MATH_INF, select(y, far, mag > MATH_TAIL_CLAMP));
}

fn gelu_grad(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    let mag = u & MATH_ABS;
    let a = bitcast<f32>(min(mag, MATH_TAIL_CLAMP));
    let e = math_exp_neg_square(a, 0.5);
    let phi = math_cdf_from(a, u >= MATH_SIGN, e);
    let xc = bitcast<f32>(bitcast<u32>(a) | (u & MATH_SIGN));
    let d = rn(xc * rn(e * MATH_INV_SQRT_2PI));
    return math_nan_if(mag > MATH_INF, bitcast<u32>(rn(phi + d)));
}

// Hardware a / b for a and b in [1, 2): a first guess, at most 14 units of the
// quotient's last place (2^-24 below 1, 2^-23 above) off.
fn guess_div(a: f32, b: f32) -> f32 {
    return a / b;
}

// Hardware square root for x in [1, 4): a first guess, at most 14 * 2^-23 off.
fn guess_sqrt(x: f32) -> f32 {
    return sqrt(x);
}

// a / b, correctly rounded: q = floor(ma * 2^sh / mb) in [2^23, 2^24) from the
// guess, lowered by 16, by five digits of restoring division, the products and
// remainder taken mod 2^32; then one rounding. A tie is impossible: with
// mb * (2q + 1) = ma * 2^(sh + 1), 2^24 would divide mb, which is smaller.
fn div_(a: f32, b: f32) -> f32 {
    let ua = bitcast<u32>(ftz(a));
    let ub = bitcast<u32>(ftz(b));
    let abs_a = ua & MATH_ABS;
    let abs_b = ub & MATH_ABS;
    let sign = (ua ^ ub) & MATH_SIGN;
    let fa = ua & 0x007fffffu;
    let fb = ub & 0x007fffffu;
    let mb = fb | 0x00800000u;
    let lt = select(0u, 1u, fa < fb);
    let sh = 23u + lt;
    let g = guess_div(bitcast<f32>(fa | MATH_ONE), bitcast<f32>(fb | MATH_ONE));
    var q = u32(g * bitcast<f32>((127u + sh) << 23u)) - 16u;
    var r = ((fa | 0x00800000u) << sh) - q * mb;
    var c = r >= (mb << 4u);
    r -= select(0u, mb << 4u, c);
    q += select(0u, 16u, c);
    c = r >= (mb << 3u);
    r -= select(0u, mb << 3u, c);
    q += select(0u, 8u, c);
    c = r >= (mb << 2u);
    r -= select(0u, mb << 2u, c);
    q += select(0u, 4u, c);
    c = r >= (mb << 1u);
    r -= select(0u, mb << 1u, c);
    q += select(0u, 2u, c);
    c = r >= mb;
    r -= select(0u, mb, c);
    q += select(0u, 1u, c);
    q += select(0u, 1u, 2u * r > mb);
    // Biased exponent of the result, clamped to where its bits are flushed or
    // overflow; a carry out of the rounding moves into it by itself.
    let e = i32(abs_a >> 23u) - i32(abs_b >> 23u) + 127 - i32(lt);
    let n = (u32(clamp(e, 0, 255)) << 23u) + (q - 0x00800000u);
    var y = sign | min(n, MATH_INF);
    y = select(y, 0u, n < FTZ_LIMIT || abs_a == 0u || abs_b == MATH_INF);
    y = select(y, sign | MATH_INF, abs_a == MATH_INF || abs_b == 0u);
    let invalid = (abs_a == abs_b && (abs_a == 0u || abs_a == MATH_INF));
    return math_nan_if(invalid || abs_a > MATH_INF || abs_b > MATH_INF, y);
}

fn recip_(x: f32) -> f32 {
    return div_(1.0, x);
}

// sqrt(x), correctly rounded: q = floor(sqrt(m * 2^23)) in [2^23, 2^24), where x =
// m * 2^(even - 23), from the guess as in `div_`. It rounds up where the
// remainder exceeds q, that is where the radicand exceeds (q + 1/2)^2.
fn sqrt_(x: f32) -> f32 {
    let u = bitcast<u32>(ftz(x));
    let frac = u & 0x007fffffu;
    let biased = u >> 23u;
    let odd = (biased + 1u) & 1u;
    let g = guess_sqrt(bitcast<f32>(frac | ((127u + odd) << 23u)));
    var q = u32(g * 8388608.0) - 16u;
    var r = ((frac | 0x00800000u) << (23u + odd)) - q * q;
    var t = (2u * q + 16u) * 16u;
    var c = r >= t;
    r -= select(0u, t, c);
    q += select(0u, 16u, c);
    t = (2u * q + 8u) * 8u;
    c = r >= t;
    r -= select(0u, t, c);
    q += select(0u, 8u, c);
    t = (2u * q + 4u) * 4u;
    c = r >= t;
    r -= select(0u, t, c);
    q += select(0u, 4u, c);
    t = (2u * q + 2u) * 2u;
    c = r >= t;
    r -= select(0u, t, c);
    q += select(0u, 2u, c);
    t = 2u * q + 1u;
    c = r >= t;
    r -= select(0u, t, c);
    q += select(0u, 1u, c);
    q += select(0u, 1u, r > q);
    var y = (((biased - odd + 127u) >> 1u) << 23u) + (q - 0x00800000u);
    y = select(y, u, u == 0u || u == MATH_INF);
    return math_nan_if(u > MATH_INF, y);
}

fn rsqrt_(x: f32) -> f32 {
    return div_(1.0, sqrt_(x));
}
