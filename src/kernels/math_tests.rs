//! Error bounds against f64 references, edge cases, subnormals.

use super::*;

/// Every float pattern a stride of `STRIDE` reaches: an odd number, so that low
/// mantissa bits vary.
const STRIDE: usize = 40_009;

fn patterns() -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(STRIDE).map(f32::from_bits)
}

/// `n` equidistant values in [lo, hi].
fn dense(lo: f64, hi: f64, n: u32) -> impl Iterator<Item = f32> {
    (0..=n).map(move |i| (lo + (hi - lo) * f64::from(i) / f64::from(n)) as f32)
}

const TINY: f64 = 2.350_988_701_644_575e-38; // 2^-125

/// Error in units of the last place of the f32 nearest to `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let exponent = ((want.abs().max(TINY).to_bits() >> 52) & 0x7ff) as i32 - 1023;
    (f64::from(got) - want).abs() / libm::exp2(f64::from(exponent - 23))
}

/// Largest error of `f` in ULP over `inputs` where the reference is a normal
/// f32 above the flush limit; there must be neither NaN nor infinity.
fn worst(f: fn(f32) -> f32, r: fn(f64) -> f64, inputs: impl Iterator<Item = f32>) -> f64 {
    let (mut bad, mut at) = (0.0, 0.0);
    for x in inputs {
        let want = r(f64::from(x));
        let in_range = want.abs() > TINY && want.abs() < f64::from(f32::MAX);
        if x.is_finite() && in_range && (x == 0.0 || x.abs() as f64 >= TINY) {
            let e = ulps(f(x), want);
            assert!(e.is_finite(), "f({x:e}) = {:e}, want {want:e}", f(x));
            if e > bad {
                (bad, at) = (e, x);
            }
        }
    }
    println!("max {bad:.3} ULP at {at:e}");
    bad
}

/// Largest `|f - r| / max(1, |x|)`.
fn worst_abs(f: fn(f32) -> f32, r: fn(f64) -> f64, inputs: impl Iterator<Item = f32>) -> f64 {
    inputs.filter(|x| x.is_finite()).fold(0.0, |bad: f64, x| {
        let e = (f64::from(f(x)) - r(f64::from(x))).abs() / f64::from(x.abs().max(1.0));
        assert!(e.is_finite(), "f({x:e}) = {:e}", f(x));
        bad.max(e)
    })
}

fn cdf64(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn pdf64(x: f64) -> f64 {
    libm::exp(-0.5 * x * x) / (2.0 * std::f64::consts::PI).sqrt()
}

fn gelu64(x: f64) -> f64 {
    x * cdf64(x)
}

fn gelu_grad64(x: f64) -> f64 {
    cdf64(x) + x * pdf64(x)
}

const N: u32 = 200_000;

#[test]
fn exp_error() {
    let inputs = patterns()
        .chain(dense(-88.0, 89.0, N))
        .chain(dense(-1.0, 1.0, N));
    assert!(worst(exp, libm::exp, inputs) < 1.0);
}

#[test]
fn log_error() {
    let inputs = patterns().filter(|x| *x > 0.0);
    assert!(worst(log, libm::log, inputs.chain(dense(0.4, 2.5, N))) < 0.9);
    // Every float next to 1.
    let near = (0x3f7f_0000..0x3f81_0000).map(f32::from_bits);
    assert!(worst(log, libm::log, near) < 0.6);
}

#[test]
fn tanh_error() {
    let inputs = patterns()
        .chain(dense(-10.0, 10.0, N))
        .chain(dense(0.5, 1.0, N));
    assert!(worst(tanh, libm::tanh, inputs) < 1.8);
}

#[test]
fn erf_error() {
    let inputs = || {
        patterns()
            .chain(dense(-5.0, 5.0, N))
            .chain(dense(0.8, 1.2, N))
    };
    assert!(worst(erf, libm::erf, inputs()) < 1.4);
    assert!(worst(erfc, libm::erfc, inputs().chain(dense(0.0, 9.2, N))) < 7.5);
}

#[test]
fn normal_error() {
    let inputs = || {
        patterns()
            .chain(dense(-14.0, 14.0, N))
            .chain(dense(-1.0, 1.0, N))
    };
    assert!(worst(normal_pdf, pdf64, inputs()) < 2.3);
    assert!(worst(normal_cdf, cdf64, inputs()) < 7.5);
}

#[test]
fn gelu_error() {
    let inputs = || {
        patterns()
            .chain(dense(-14.0, 14.0, N))
            .chain(dense(-1.0, 1.0, N))
    };
    assert!(worst_abs(gelu, gelu64, inputs()) < 1.2e-7);
    assert!(worst_abs(gelu_grad, gelu_grad64, inputs()) < 2.6e-7);
    assert!(worst(gelu, gelu64, inputs().filter(|x| *x > -12.8)) < 7.5);
}

#[test]
fn roots_and_quotients_are_correctly_rounded() {
    let mut s = 1u32;
    let mut next = || {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(s ^ (s >> 15))
    };
    // f64 has more than twice the bits, so rounding twice is rounding once.
    let check = |got: f32, want: f64| {
        let want = want as f32;
        let want = if want.is_nan() {
            f32::from_bits(NAN_BITS)
        } else {
            ftz(want)
        };
        assert_eq!(got.to_bits(), want.to_bits(), "{got:e} {want:e}");
    };
    for _ in 0..N {
        let (a, b) = (next(), next());
        let (x, y) = (f64::from(ftz(a)), f64::from(ftz(b)));
        check(div(a, b), x / y);
        check(recip(b), 1.0 / y);
        check(sqrt(a), x.sqrt());
        check(rsqrt(a), 1.0 / f64::from(x.sqrt() as f32));
    }
    assert!(worst(rsqrt, |x| 1.0 / x.sqrt(), patterns().filter(|x| *x > 0.0)) < 1.5);
}

#[test]
fn flush_and_floors() {
    let two = |e: i32| libm::exp2f(e as f32);
    for (f, e) in [
        (FTZ_LIMIT, -125),
        (FLOOR_F32_OPERAND, -51),
        (FLOOR_BF16_OPERAND, -55),
        (FLOOR_SUM, -102),
    ] {
        let limit = two(e);
        assert_eq!(f, limit.to_bits());
        for s in [1.0, -1.0] {
            assert_eq!(floor_to(s * limit, f), s * limit);
            let below = f32::from_bits((s * limit).to_bits() - 1);
            assert_eq!(floor_to(below, f).to_bits(), 0);
        }
        assert_eq!(floor_to(-0.0, f).to_bits(), 0);
        assert_eq!(floor_to(f32::NEG_INFINITY, f), f32::NEG_INFINITY);
        assert_eq!(
            floor_to(f32::from_bits(0xff80_0001), f).to_bits(),
            0xff80_0001
        );
    }
}

/// `f(x)` has exactly the bits of `want`.
fn same(f: fn(f32) -> f32, x: f32, want: f32) {
    assert_eq!(
        f(x).to_bits(),
        want.to_bits(),
        "f({x:e}) = {:e}, want {want:e}",
        f(x)
    );
}

const ALL: [fn(f32) -> f32; 14] = [
    exp,
    log,
    tanh,
    erf,
    erfc,
    normal_cdf,
    normal_pdf,
    gelu,
    gelu_grad,
    sqrt,
    rsqrt,
    recip,
    |x| div(x, 3.0),
    |x| div(3.0, x),
];

#[test]
fn nan_in_canonical_nan_out() {
    for f in ALL {
        for bits in [
            0x7fc0_0000,
            0xffc0_0000,
            0x7f80_0001,
            0xff80_0001,
            0x7fff_ffff,
            0xffff_ffff,
        ] {
            assert_eq!(f(f32::from_bits(bits)).to_bits(), NAN_BITS);
        }
    }
}

#[test]
fn results_are_flushed_and_tiny_inputs_are_zero() {
    for f in ALL {
        for x in patterns() {
            let y = f(x).to_bits();
            assert!(y == 0 || y & ABS >= FTZ_LIMIT, "f({x:e}) = {:e}", f(x));
            assert!(y & ABS <= INF || y == NAN_BITS);
        }
        for bits in [1, 0x0040_0000, 0x007f_ffff] {
            for b in [bits, bits | SIGN, SIGN] {
                assert_eq!(f(f32::from_bits(b)).to_bits(), f(0.0).to_bits());
            }
        }
    }
}

#[test]
fn edges() {
    let (inf, nan) = (f32::INFINITY, f32::from_bits(NAN_BITS));
    for (x, want) in [
        (0.0, 1.0),
        (88.73, inf),
        (1e30, inf),
        (inf, inf),
        (-86.7, 0.0),
        (-1e30, 0.0),
        (-inf, 0.0),
    ] {
        same(exp, x, want);
    }
    assert!(exp(88.72).is_finite() && exp(-86.6) > 0.0);
    for (x, want) in [
        (1.0, 0.0),
        (0.0, -inf),
        (-0.0, -inf),
        (inf, inf),
        (-1.0, nan),
        (-inf, nan),
        (-1e-44, -inf),
    ] {
        same(log, x, want);
    }
    for x in [9.1, 89.0, 1e30, inf] {
        same(tanh, x, 1.0);
        same(tanh, -x, -1.0);
        same(erf, x, 1.0);
        same(erf, -x, -1.0);
    }
    for x in [9.4, 14.0, 1e30, inf] {
        same(erfc, x, 0.0);
        same(erfc, -x, 2.0);
    }
    for x in [13.24, 13.25, 13.26, 1e30, inf] {
        same(normal_cdf, x, 1.0);
        same(normal_cdf, -x, 0.0);
        same(normal_pdf, x, 0.0);
        same(normal_pdf, -x, 0.0);
        same(gelu, x, x);
        same(gelu, -x, 0.0);
        same(gelu_grad, x, 1.0);
        same(gelu_grad, -x, 0.0);
    }
    same(gelu_grad, 0.0, normal_cdf(0.0));
    assert!((normal_cdf(0.0) - 0.5).abs() < 1e-7);
    for (x, want) in [
        (0.0, 0.0),
        (-0.0, 0.0),
        (-1.0, nan),
        (-inf, nan),
        (inf, inf),
        (4.0, 2.0),
        (-1e-44, 0.0),
    ] {
        same(sqrt, x, want);
    }
    for (x, want) in [(0.0, inf), (-0.0, inf), (-1.0, nan), (inf, 0.0), (4.0, 0.5)] {
        same(rsqrt, x, want);
    }
    for (x, want) in [
        (0.0, inf),
        (-0.0, inf),
        (inf, 0.0),
        (-inf, 0.0),
        (-4.0, -0.25),
        (3e38, 0.0),
    ] {
        same(recip, x, want);
    }
    let quotients = [
        (0.0, 0.0, nan),
        (inf, inf, nan),
        (inf, -inf, nan),
        (-1.0, 0.0, -inf),
        (-1.0, -0.0, -inf),
        (0.0, -5.0, 0.0),
        (inf, 0.0, inf),
        (-inf, 2.0, -inf),
        (inf, -2.0, -inf),
        (-2.0, inf, 0.0),
        (3e38, 1e-3, inf),
        (-3e38, 1e-3, -inf),
        (1e-20, 1e20, 0.0),
        (1.0, 3.0, 1.0 / 3.0),
    ];
    for (a, b, want) in quotients {
        assert_eq!(div(a, b).to_bits(), want.to_bits(), "{a:e} / {b:e}");
    }
}
