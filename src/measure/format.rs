//! Number formats of a matrix product, and the one definition of rounding to those that no tensor here
//! has: TF32, the two 8-bit floats, and int8. (bf16 and fp16 are in [`crate::dtype`].)
//!
//! Sources: "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, for E4M3 and E5M2; NVIDIA's
//! "TensorFloat-32": 8 bits of exponent, 10 of fraction. All round to nearest, ties to even, in integer
//! code.

use crate::dtype::DType;
use crate::error::{Error, usage};

/// A format that operands are given in. Sums are f32 in all of them (int32 for int8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// IEEE binary32.
    Fp32,
    /// f32 with 10 bits of fraction.
    Tf32,
    /// bfloat16; the product is rounded to bfloat16 too, as PyTorch's is.
    Bf16,
    /// IEEE binary16.
    Fp16,
    /// Whole numbers from -127 to 127 times one scale a matrix.
    Int8,
    /// 8-bit float with 4 bits of exponent.
    E4m3,
    /// 8-bit float with 5 bits of exponent.
    E5m2,
}

impl Format {
    /// All, in the order of the table.
    pub const ALL: [Format; 7] = [
        Format::Fp32,
        Format::Tf32,
        Format::Bf16,
        Format::Fp16,
        Format::Int8,
        Format::E4m3,
        Format::E5m2,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Format::Fp32 => "fp32",
            Format::Tf32 => "tf32",
            Format::Bf16 => "bf16",
            Format::Fp16 => "fp16",
            Format::Int8 => "int8",
            Format::E4m3 => "fp8_e4m3",
            Format::E5m2 => "fp8_e5m2",
        }
    }

    /// The formats of a comma-separated list; `fp8` stands for both kinds.
    ///
    /// # Errors
    /// An unknown name, one that is there twice, or none at all.
    pub fn list(text: &str) -> Result<Vec<Format>, Error> {
        let mut out = Vec::new();
        for name in text.split(',').map(str::trim) {
            let lower = name.to_lowercase();
            let is = |f: &Format| f.name() == lower || (lower == "fp8" && f.is_fp8());
            let some: Vec<Format> = Format::ALL.into_iter().filter(is).collect();
            if some.is_empty() {
                return usage(format!(
                    "--dtypes {text}: there is no type {name:?}; name fp32, tf32, bf16, fp16, int8, fp8 (both kinds), fp8_e4m3 or fp8_e5m2"
                ));
            }
            if let Some(twice) = some.iter().find(|f| out.contains(*f)) {
                return usage(format!("--dtypes {text}: {} is there twice", twice.name()));
            }
            out.extend(some);
        }
        Ok(out)
    }

    /// Whether it is one of the 8-bit floats.
    pub fn is_fp8(self) -> bool {
        matches!(self, Format::E4m3 | Format::E5m2)
    }

    /// How the project's own kernels hold the operands.
    pub fn storage(self) -> DType {
        match self {
            Format::Bf16 => DType::Bf16,
            _ => DType::F32,
        }
    }

    /// The scale of a matrix: what its rounded elements are multiplied by. 1 for all but int8, where the
    /// largest magnitude becomes 127 (symmetric, one scale a tensor).
    pub fn scale(self, x: &[f32]) -> f32 {
        let largest = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        match self {
            Format::Int8 if largest > 0.0 => largest / 127.0,
            _ => 1.0,
        }
    }

    /// Rounds an element to the format and widens it again. For int8 it is the whole number.
    pub fn round(self, x: f32, scale: f32) -> f32 {
        match self {
            Format::Fp32 => x,
            Format::Tf32 => round_tf32(x),
            Format::Bf16 => DType::Bf16.round(x),
            Format::Fp16 => DType::F16.round(x),
            Format::Int8 => f32_to_int8(x, scale) as f32,
            Format::E4m3 => e4m3_to_f32(f32_to_e4m3(x)),
            Format::E5m2 => e5m2_to_f32(f32_to_e5m2(x)),
        }
    }
}

/// Rounds to 10 bits of fraction, nearest even. NaN stays a quiet NaN.
pub fn round_tf32(x: f32) -> f32 {
    let u = x.to_bits();
    if u & 0x7fff_ffff > 0x7f80_0000 {
        return f32::from_bits((u | 0x0040_0000) & 0xffff_e000);
    }
    f32::from_bits(u.wrapping_add(0xfff + (u >> 13 & 1)) & 0xffff_e000)
}

/// The magnitude code of a float with `m` bits of fraction and a bias, nearest even, without regard to the
/// end of its range. `a` are the bits of a magnitude that is no NaN.
fn code(a: u32, m: i32, bias: i32) -> u32 {
    // A subnormal f32 is far below the smallest code of any format here.
    let (biased, fraction) = ((a >> 23) as i32, a & 0x007f_ffff);
    if biased == 0 {
        return 0;
    }
    let significand = fraction | 0x0080_0000;
    let exponent = (biased - 127).max(1 - bias);
    // One step of the result is 2^(exponent - m), one of the significand 2^(biased - 150).
    let shift = exponent - m - (biased - 150);
    if shift > 25 {
        return 0;
    }
    let (kept, rest) = (significand >> shift, significand & ((1 << shift) - 1));
    let half = 1u32 << (shift - 1);
    let up = rest > half || (rest == half && kept & 1 == 1);
    // A carry out of the fraction runs into the exponent, as it should.
    ((exponent + bias) as u32 * (1 << m) + kept + u32::from(up)) - (1 << m)
}

/// The value of a magnitude code that is finite.
fn value(code: u32, m: i32, bias: i32) -> f32 {
    let (exponent, fraction) = ((code >> m) as i32, code & ((1 << m) - 1));
    // Every value is a whole number of steps, and a step is a normal f32.
    let (whole, power) = match exponent {
        0 => (fraction, 1 - bias - m),
        e => (fraction | 1 << m, e - bias - m),
    };
    whole as f32 * f32::from_bits(((power + 127) as u32) << 23)
}

/// Rounds to E4M3 (bias 7, largest 448, no infinity, NaN is S.1111.111). The specification's saturating
/// conversion: everything larger, infinity too, becomes 448. NaN stays NaN.
pub fn f32_to_e4m3(x: f32) -> u8 {
    narrow(x, 3, 7, 0x7e, 0x7f)
}

/// The value of an E4M3 code; exact.
pub fn e4m3_to_f32(c: u8) -> f32 {
    let v = match c & 0x7f {
        0x7f => f32::NAN,
        a => value(a as u32, 3, 7),
    };
    if c & 0x80 != 0 { -v } else { v }
}

/// Rounds to E5M2 (bias 15, largest 57344, with infinities and NaNs as binary16). The specification's
/// saturating conversion: everything larger, infinity too, becomes 57344. NaN stays a quiet NaN.
pub fn f32_to_e5m2(x: f32) -> u8 {
    narrow(x, 2, 15, 0x7b, 0x7e)
}

/// The value of an E5M2 code; exact.
pub fn e5m2_to_f32(c: u8) -> f32 {
    let v = match c & 0x7f {
        0x7d.. => f32::NAN,
        0x7c => f32::INFINITY,
        a => value(a as u32, 2, 15),
    };
    if c & 0x80 != 0 { -v } else { v }
}

fn narrow(x: f32, m: i32, bias: i32, largest: u32, nan: u32) -> u8 {
    let u = x.to_bits();
    let a = u & 0x7fff_ffff;
    let c = match a {
        0x7f80_0001.. => nan,
        // Past any format's range; what `code` makes of it must not overflow.
        0x4f00_0000.. => largest,
        _ => code(a, m, bias).min(largest),
    };
    (u >> 24 & 0x80 | c) as u8
}

/// `x / scale` rounded to the nearest whole number, ties to even, kept within -127 to 127 (the range is
/// symmetric: -128 is not used). NaN becomes 0. The quotient is f64 and rounded once: it is within 2^-46
/// of the true one.
pub fn f32_to_int8(x: f32, scale: f32) -> i8 {
    let q = x as f64 / scale as f64;
    // A saturating cast: NaN is 0.
    libm::rint(q).clamp(-127.0, 127.0) as i8
}

#[cfg(test)]
mod tests;
