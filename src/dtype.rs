//! Element types and the one definition of rounding between them.
//!
//! Every conversion to a narrow type is integer code with round to nearest, ties to even, so that the
//! shaders can repeat it exactly.

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// bfloat16, two to a word, rows padded to an even number of elements.
    Bf16,
    /// IEEE binary16, two to a word, rows padded to an even number of elements.
    F16,
    /// Unsigned integers: token ids, row orders, digests.
    U32,
}

impl DType {
    /// The name used in printed graphs, plans and files.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::U32 => "u32",
        }
    }

    /// Whether two elements share one 32-bit word.
    pub fn packed(self) -> bool {
        matches!(self, DType::Bf16 | DType::F16)
    }

    /// Whether the elements are floating-point numbers.
    pub fn is_float(self) -> bool {
        self != DType::U32
    }

    /// Whether this is one of the narrow float types.
    pub fn is_low(self) -> bool {
        matches!(self, DType::Bf16 | DType::F16)
    }

    /// Rounds rows of `row` elements to this type and packs them into words, each row padded to whole
    /// words. f32 elements are their own words.
    pub fn pack(self, row: usize, x: &[f32]) -> Vec<u32> {
        if !self.packed() {
            return x.iter().map(|v| v.to_bits()).collect();
        }
        let narrow = |v: f32| match self {
            DType::Bf16 => f32_to_bf16(v) as u32,
            _ => f32_to_f16(v) as u32,
        };
        let pair = |p: &[f32]| narrow(p[0]) | p.get(1).map_or(0, |&v| narrow(v)) << 16;
        x.chunks(row.max(1))
            .flat_map(|r| r.chunks(2).map(pair))
            .collect()
    }

    /// Undoes [`DType::pack`].
    pub fn unpack(self, row: usize, words: &[u32]) -> Vec<f32> {
        let widen = |h: u32| match self {
            DType::Bf16 => bf16_to_f32(h as u16),
            _ => f16_to_f32(h as u16),
        };
        if !self.packed() {
            return words.iter().map(|&w| f32::from_bits(w)).collect();
        }
        let rows = words.chunks(row.div_ceil(2).max(1));
        rows.flat_map(|r| (0..row).map(move |c| widen(r[c / 2] >> (16 * (c % 2)))))
            .collect()
    }

    /// Rounds a value to this type and widens it back (identity for `F32` and `U32`).
    pub fn round(self, x: f32) -> f32 {
        match self {
            DType::Bf16 => bf16_to_f32(f32_to_bf16(x)),
            DType::F16 => f16_to_f32(f32_to_f16(x)),
            DType::F32 | DType::U32 => x,
        }
    }
}

/// Rounds to bfloat16, nearest even. NaN stays a quiet NaN; values past the largest finite bf16 become
/// infinity.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let u = x.to_bits();
    let rounded = (u.wrapping_add(0x7fff + ((u >> 16) & 1))) >> 16;
    let quiet = (u >> 16) | 0x40;
    (if (u & 0x7fff_ffff) > 0x7f80_0000 {
        quiet
    } else {
        rounded
    }) as u16
}

/// Widens a bfloat16 bit pattern; exact.
#[inline(always)]
pub fn bf16_to_f32(b: u16) -> f32 {
    f32::from_bits((b as u32) << 16)
}

/// Rounds to binary16, nearest even, subnormals included (IEEE 754-2019, 3.4). 65520 and above become
/// infinity, NaN stays a quiet NaN. No branch, so that a loop over it is vectorised.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let u = x.to_bits();
    let sign = (u >> 16) & 0x8000;
    let a = u & 0x7fff_ffff;
    // Normal in binary16: rebias the exponent (127 - 15) and round the low 13 bits.
    let normal = a
        .wrapping_sub(0x3800_0000)
        .wrapping_add(0xfff + ((a >> 13) & 1))
        >> 13;
    // Subnormal: next to 0.5 an f32 counts in units of 2^-24, so that the sum rounds as it must.
    let subnormal = (f32::from_bits(a) + 0.5)
        .to_bits()
        .wrapping_sub(0x3f00_0000);
    let finite = if a < 0x3880_0000 { subnormal } else { normal };
    let bounded = if a >= 0x477f_f000 { 0x7c00 } else { finite };
    let result = if a > 0x7f80_0000 { 0x7e00 } else { bounded };
    (sign | result) as u16
}

/// Widens a binary16 bit pattern; exact. A subnormal is a normal f32.
#[inline(always)]
pub fn f16_to_f32(h: u16) -> f32 {
    const STEP: f32 = 1.0 / 16_777_216.0; // 2^-24, what a subnormal counts in
    let (sign, a) = (u32::from(h & 0x8000) << 16, u32::from(h & 0x7fff));
    let normal = (a << 13) + 0x3800_0000;
    let special = (a << 13) + 0x7000_0000; // infinity, NaN
    let subnormal = (a as f32 * STEP).to_bits();
    let finite = if a < 0x400 { subnormal } else { normal };
    f32::from_bits(sign | if a >= 0x7c00 { special } else { finite })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_types_agree_with_the_half_crate() {
        let mut x = 0x1234_5678u32;
        for i in 0..2_000_000u32 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223) ^ (i << 3);
            let f = f32::from_bits(x);
            if f.is_nan() {
                assert!(bf16_to_f32(f32_to_bf16(f)).is_nan());
                assert!(f16_to_f32(f32_to_f16(f)).is_nan());
                continue;
            }
            assert_eq!(f32_to_bf16(f), half::bf16::from_f32(f).to_bits(), "{x:08x}");
            assert_eq!(f32_to_f16(f), half::f16::from_f32(f).to_bits(), "{x:08x}");
        }
        for h in 0..=u16::MAX {
            let f = f16_to_f32(h);
            let theirs = half::f16::from_bits(h).to_f32();
            assert!(f.to_bits() == theirs.to_bits() || (f.is_nan() && theirs.is_nan()));
            if !f.is_nan() {
                assert_eq!(f32_to_f16(f), h);
            }
        }
    }

    #[test]
    fn packing_round_trips() {
        let x: Vec<f32> = (0..15).map(|i| i as f32 - 7.0).collect();
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            for row in [3, 5, 15, 1] {
                assert_eq!(
                    dtype.unpack(row, &dtype.pack(row, &x)),
                    x,
                    "{dtype:?} {row}"
                );
            }
        }
        assert_eq!(DType::Bf16.pack(3, &x[..6]).len(), 4);
    }

    #[test]
    fn boundaries_of_the_contract() {
        assert!(bf16_to_f32(f32_to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
        assert_eq!(bf16_to_f32(f32_to_bf16(f32::MAX)), f32::INFINITY);
        // Case 17 of the public bug reports: rounding, not truncation; ties to even from both sides.
        assert_eq!(DType::Bf16.round(f32::from_bits(0x4048_f5c3)), 3.140625); // 3.14
        assert_eq!(DType::Bf16.round(1.015625 + 1.0 / 256.0), 1.015625);
        assert_eq!(DType::Bf16.round(1.015625 - 1.0 / 256.0), 1.015625);
        assert_eq!(DType::F16.round(65519.0), 65504.0);
        assert_eq!(DType::F16.round(65520.0), f32::INFINITY);
        assert_eq!(DType::F16.round(2f32.powi(-25)), 0.0);
        assert_eq!(DType::F16.round(2f32.powi(-25) * 1.0001), 2f32.powi(-24));
        assert_eq!(f32_to_f16(f32::from_bits(0xff80_0001)) & 0x7fff, 0x7e00);
        assert_eq!(f32_to_f16(f32::from_bits(1)), 0);
    }
}
