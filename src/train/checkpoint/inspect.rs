//! What a safetensors file holds: each tensor's extents, type, norm and magnitudes.

use super::file::{hex, parse, read};
use super::{Checkpoint, KEY};
use crate::error::Error;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// Lowest decade that is counted on its own: magnitudes below are one range.
pub const LOWEST: i32 = -12;
/// Ranges: below 1e-12, the decades from 1e-12 to 1e3, and what is larger.
pub const RANGES: usize = 17;

/// A tensor in numbers. Those that need values are absent where the type is none of floats and integers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Name.
    pub name: String,
    /// Role in a checkpoint: `weight`, `m`, `v`, `ledger`; empty in other files.
    pub role: String,
    /// Type, as safetensors names it.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<usize>,
    /// Number of elements.
    pub elements: u64,
    /// What its values tell.
    pub values: Option<Values>,
}

/// What a tensor's values tell.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Values {
    /// Euclidean norm of the finite elements.
    pub norm: f64,
    /// Smallest magnitude but zero.
    pub smallest: f64,
    /// Largest finite magnitude.
    pub largest: f64,
    /// Zeros.
    pub zeros: u64,
    /// NaN and infinities.
    pub not_finite: u64,
    /// Magnitudes: below 1e-12 (zeros apart), by decade, 1e3 and more.
    pub histogram: [u64; RANGES],
}

/// A file in numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Inspected {
    /// The file.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of all of it.
    pub sha256: String,
    /// The metadata of a checkpoint.
    pub checkpoint: Option<serde_json::Value>,
    /// Why a file that claims to be a checkpoint is none to go on from.
    pub fault: Option<String>,
    /// Other metadata.
    pub metadata: BTreeMap<String, String>,
    /// The tensors by name.
    pub tensors: Vec<Summary>,
}

/// Reads and counts a file.
///
/// # Errors
/// It cannot be read, or is no safetensors file.
pub fn inspect(path: &Path) -> Result<Inspected, Error> {
    inspect_bytes(path, &read(path)?)
}

/// As [`inspect`], from the bytes of a file; `path` stands for it in messages.
///
/// # Errors
/// No safetensors file.
pub fn inspect_bytes(path: &Path, bytes: &[u8]) -> Result<Inspected, Error> {
    let (tensors, mut metadata) = parse(path, bytes)?;
    let text = metadata.remove(KEY);
    let roles: serde_json::Value = text
        .as_deref()
        .and_then(|t| serde_json::from_str(t).ok())
        .unwrap_or_default();
    let role = |name: &str| {
        let role = &roles["tensors"][name]["role"];
        role.as_str().unwrap_or_default().to_string()
    };
    let fault = match &text {
        Some(_) => Checkpoint::from_bytes(path, bytes).err(),
        None => None,
    };
    let mut all: Vec<Summary> = tensors
        .iter()
        .map(|(name, t)| Summary {
            name: name.into(),
            role: role(name),
            dtype: format!("{:?}", t.dtype()),
            shape: t.shape().to_vec(),
            elements: t.shape().iter().map(|&d| d as u64).product(),
            values: values(&t),
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Inspected {
        path: path.display().to_string(),
        bytes: bytes.len() as u64,
        sha256: hex(&Sha256::digest(bytes)),
        checkpoint: text.map(|_| roles),
        fault: fault.map(|e| e.to_string()),
        metadata: metadata.into_iter().collect(),
        tensors: all,
    })
}

/// Counts the elements of a type that the program knows.
fn values(t: &TensorView) -> Option<Values> {
    macro_rules! of {
        ($ty:ty, $widen:expr) => {
            Some(count(t.data().chunks_exact(size_of::<$ty>()).map(|c| {
                let widen: fn($ty) -> f64 = $widen;
                // `chunks_exact` gives exactly this many bytes.
                widen(<$ty>::from_le_bytes(c.try_into().unwrap_or_default()))
            })))
        };
    }
    match t.dtype() {
        Dtype::F64 => of!(f64, |x| x),
        Dtype::F32 => of!(f32, f64::from),
        Dtype::BF16 => of!(u16, |x| crate::dtype::bf16_to_f32(x).into()),
        Dtype::F16 => of!(u16, |x| crate::dtype::f16_to_f32(x).into()),
        Dtype::I64 => of!(i64, |x| x as f64),
        Dtype::U64 => of!(u64, |x| x as f64),
        Dtype::I32 => of!(i32, f64::from),
        Dtype::U32 => of!(u32, f64::from),
        Dtype::I16 => of!(i16, f64::from),
        Dtype::U16 => of!(u16, f64::from),
        Dtype::I8 => of!(i8, f64::from),
        Dtype::U8 => of!(u8, f64::from),
        _ => None,
    }
}

fn count(values: impl Iterator<Item = f64>) -> Values {
    let edges: [f64; RANGES - 1] = std::array::from_fn(|k| libm::exp10((LOWEST + k as i32) as f64));
    let mut out = Values {
        norm: 0.0,
        smallest: f64::INFINITY,
        largest: 0.0,
        zeros: 0,
        not_finite: 0,
        histogram: [0; RANGES],
    };
    for x in values.map(f64::abs) {
        if !x.is_finite() {
            out.not_finite += 1;
        } else if x == 0.0 {
            out.zeros += 1;
        } else {
            out.norm += x * x;
            out.smallest = out.smallest.min(x);
            out.largest = out.largest.max(x);
            out.histogram[edges.partition_point(|e| *e <= x)] += 1;
        }
    }
    out.norm = out.norm.sqrt();
    if out.smallest.is_infinite() {
        out.smallest = 0.0;
    }
    out
}

/// The name of a range of the histogram.
pub fn range(k: usize) -> String {
    match k {
        0 => format!("below 1e{LOWEST}"),
        k if k == RANGES - 1 => format!("1e{} and more", LOWEST + k as i32 - 1),
        k => format!("1e{} to 1e{}", LOWEST + k as i32 - 1, LOWEST + k as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open_decades() {
        let v = count([0.0, 1e-13, 1e-12, 9.9e-12, -1.0, 1e3, f64::NAN].into_iter());
        assert_eq!((v.zeros, v.not_finite), (1, 1));
        assert_eq!((v.histogram[0], v.histogram[1]), (1, 2));
        assert_eq!((v.histogram[13], v.histogram[RANGES - 1]), (1, 1));
        assert_eq!((v.smallest, v.largest), (1e-13, 1e3));
        assert_eq!(range(13), "1e0 to 1e1");
        assert_eq!(range(0), "below 1e-12");
        assert_eq!(range(RANGES - 1), "1e3 and more");
    }
}
