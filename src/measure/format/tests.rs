//! The roundings against the `half` crate, input by input, and against the tables of the OCP
//! specification.

use super::*;
use crate::dtype::{f32_to_bf16, f32_to_f16};
use rayon::prelude::*;

/// Every f32 there is, in blocks for the threads.
fn every_f32(holds: impl Fn(f32) -> bool + Sync) {
    let wrong = (0..1u32 << 16).into_par_iter().find_map_first(|high| {
        let bits = (0..1u32 << 16).map(|low| high << 16 | low);
        bits.into_iter().find(|&u| !holds(f32::from_bits(u)))
    });
    assert_eq!(wrong, None, "first wrong input");
}

#[test]
fn bf16_agrees_with_half_everywhere() {
    every_f32(|x| {
        let c = f32_to_bf16(x);
        match x.is_nan() {
            true => c & 0x7fff > 0x7f80 && c & 0x40 != 0,
            false => c == half::bf16::from_f32(x).to_bits(),
        }
    });
}

#[test]
fn fp16_agrees_with_half_everywhere() {
    every_f32(|x| {
        let c = f32_to_f16(x);
        match x.is_nan() {
            true => c & 0x7fff > 0x7c00 && c & 0x200 != 0,
            false => c == half::f16::from_f32(x).to_bits(),
        }
    });
}

/// OFP8, table 1 and the values that follow from it.
#[test]
fn fp8_values_are_those_of_the_specification() {
    let p = |e: i32| 2f64.powi(e);
    let e4m3: [(u8, f64); 9] = [
        (0x00, 0.0),
        (0x01, p(-9)),         // smallest subnormal
        (0x07, 0.875 * p(-6)), // largest subnormal
        (0x08, p(-6)),         // smallest normal
        (0x38, 1.0),
        (0x40, 2.0),
        (0x77, 240.0),
        (0x7e, 448.0), // largest normal: S.1111.110
        (0xfe, -448.0),
    ];
    for (c, v) in e4m3 {
        assert_eq!(e4m3_to_f32(c) as f64, v, "{c:02x}");
    }
    let e5m2: [(u8, f64); 9] = [
        (0x00, 0.0),
        (0x01, p(-16)),        // smallest subnormal
        (0x03, 0.75 * p(-14)), // largest subnormal
        (0x04, p(-14)),        // smallest normal
        (0x3c, 1.0),
        (0x40, 2.0),
        (0x7b, 57344.0), // largest normal: S.11110.11
        (0xfb, -57344.0),
        (0x7c, f64::INFINITY),
    ];
    for (c, v) in e5m2 {
        assert_eq!(e5m2_to_f32(c) as f64, v, "{c:02x}");
    }
    assert!(e4m3_to_f32(0x7f).is_nan() && e4m3_to_f32(0xff).is_nan());
    for c in [0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff] {
        assert!(e5m2_to_f32(c).is_nan(), "{c:02x}");
    }
    // Every E5M2 code is the upper half of a binary16 code.
    for c in 0..=u8::MAX {
        let wide = half::f16::from_bits(u16::from(c) << 8).to_f32();
        let v = e5m2_to_f32(c);
        assert!(v.to_bits() == wide.to_bits() || v.is_nan() && wide.is_nan());
    }
}

/// The nearest code by search over all finite values in f64, ties to the even code; past the largest, the
/// largest.
fn nearest(x: f32, values: &[(u8, f64)]) -> u8 {
    // Far beyond the largest, f64 would not tell the distances apart.
    let a = (x as f64).abs().min(values[values.len() - 1].1);
    let mut best = values[0];
    for &(c, v) in values {
        let (new, old) = ((v - a).abs(), (best.1 - a).abs());
        if new < old || new == old && c % 2 == 0 {
            best = (c, v);
        }
    }
    best.0 | ((x.to_bits() >> 24) & 0x80) as u8
}

fn rounds_to_nearest(to: fn(f32) -> u8, from: fn(u8) -> f32, largest: u8, nans: &[u8]) {
    let values: Vec<(u8, f64)> = (0..=largest).map(|c| (c, from(c) as f64)).collect();
    let check = |x: f32| assert_eq!(to(x), nearest(x, &values), "{x:e}");
    for w in values.windows(2) {
        // A value, its neighbours, the tie above it and the neighbours of that.
        for v in [w[0].1, (w[0].1 + w[1].1) / 2.0, w[1].1] {
            let u = (v as f32).to_bits();
            for u in [u.wrapping_sub(1), u, u + 1] {
                if u < 0x7f80_0000 {
                    check(f32::from_bits(u));
                    check(f32::from_bits(u | 0x8000_0000));
                }
            }
        }
    }
    let mut s = crate::kernels::rng::Stream::new(7, 8);
    for _ in 0..200_000 {
        let u = s.bits() as u32;
        if u & 0x7fff_ffff < 0x7f80_0000 {
            check(f32::from_bits(u));
        }
        check(((s.unit() - 0.5) * 2f64.powi((s.below(40) as i32) - 22)) as f32);
    }
    // Saturation, infinities, NaN, zeros, subnormals.
    for x in [f32::MAX, f32::INFINITY, from(largest) * 1.5, from(largest)] {
        assert_eq!((to(x), to(-x)), (largest, largest | 0x80));
    }
    for u in [0x7fc0_0000u32, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff] {
        let c = to(f32::from_bits(u));
        assert!(from(c).is_nan() && nans.contains(&(c & 0x7f)), "{u:08x}");
        assert_eq!(c & 0x80 != 0, u >> 31 == 1);
    }
    assert_eq!((to(0.0), to(-0.0)), (0, 0x80));
    assert_eq!((to(f32::from_bits(1)), to(-f32::MIN_POSITIVE)), (0, 0x80));
    for c in (0..=largest).chain(0x80..=largest | 0x80) {
        assert_eq!(to(from(c)), c);
    }
}

#[test]
fn fp8_rounds_to_nearest_even_and_saturates() {
    rounds_to_nearest(f32_to_e4m3, e4m3_to_f32, 0x7e, &[0x7f]);
    rounds_to_nearest(f32_to_e5m2, e5m2_to_f32, 0x7b, &[0x7d, 0x7e, 0x7f]);
    // 464 is half way to what would be the next value, 480: it saturates all the same.
    assert_eq!(e4m3_to_f32(f32_to_e4m3(464.0)), 448.0);
    assert_eq!(e5m2_to_f32(f32_to_e5m2(61440.0)), 57344.0);
}

#[test]
fn tf32_keeps_ten_bits() {
    every_f32(|x| {
        let y = round_tf32(x);
        let clean = y.to_bits() & 0x1fff == 0;
        if x.is_nan() {
            return y.is_nan() && clean;
        }
        let step = 2f64.powi((x.abs().to_bits() >> 23).max(1) as i32 - 127 - 10);
        let apart = (y as f64 - x as f64).abs();
        let tie_to_even = apart < step / 2.0 || y.to_bits() >> 13 & 1 == 0;
        let past = y.is_infinite() && x.abs().to_bits() >= 0x7f7f_f000;
        clean && (past || apart <= step / 2.0 && tie_to_even)
    });
}

#[test]
fn int8_is_symmetric_and_saturates() {
    assert_eq!(f32_to_int8(1.0, 1.0), 1);
    assert_eq!(
        [0.5, 1.5, 2.5, -0.5, -1.5].map(|x| f32_to_int8(x, 1.0)),
        [0, 2, 2, 0, -2]
    );
    assert_eq!(
        [127.4, 200.0, f32::INFINITY].map(|x| f32_to_int8(x, 1.0)),
        [127; 3]
    );
    assert_eq!([-127.6, -200.0].map(|x| f32_to_int8(x, 1.0)), [-127; 2]);
    assert_eq!(f32_to_int8(f32::NAN, 1.0), 0);
    let x = [0.3f32, -2.0, 1.1];
    let scale = Format::Int8.scale(&x);
    assert_eq!(x.map(|v| f32_to_int8(v, scale)), [19, -127, 70]);
    assert_eq!(Format::Int8.scale(&[0.0; 4]), 1.0);
}

#[test]
fn lists_name_types() {
    use Format::*;
    assert_eq!(
        Format::list("fp8, FP32").expect("named"),
        [E4m3, E5m2, Fp32]
    );
    for bad in ["", "fp4", "fp32,", "bf16,bf16", "fp8,fp8_e4m3"] {
        assert!(Format::list(bad).is_err(), "{bad}");
    }
}
