//! Weights for other programs: in f32, bf16 or fp16, as safetensors or ONNX.

use crate::dtype::{DType, f32_to_bf16, f32_to_f16};
use crate::error::Error;
use crate::models::char_gpt::CharGpt;
use safetensors::{Dtype, tensor::TensorView};
use std::collections::HashMap;

/// Type of exported weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// binary32: every bit.
    Fp32,
    /// bfloat16, rounded to nearest even.
    Bf16,
    /// binary16, rounded to nearest even: above 65504 infinite, below 6e-8 zero.
    Fp16,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fp32 => "fp32",
            Kind::Bf16 => "bf16",
            Kind::Fp16 => "fp16",
        }
    }

    fn dtype(self) -> DType {
        match self {
            Kind::Fp32 => DType::F32,
            Kind::Bf16 => DType::Bf16,
            Kind::Fp16 => DType::F16,
        }
    }
}

/// A weight on its way out.
pub struct Tensor {
    /// PyTorch's name.
    pub name: String,
    /// Extents.
    pub dims: Vec<usize>,
    /// Elements, little-endian, unpadded.
    pub bytes: Vec<u8>,
}

/// What the rounding to a type did to the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Weights.
    pub of: u64,
    /// Those that another value stands for.
    pub changed: u64,
    /// Those that became infinite.
    pub overflowed: u64,
    /// Those that became zero and were not.
    pub vanished: u64,
}

/// Weights, in the model's order, in a type.
pub fn convert(
    model: &CharGpt,
    weights: &[(String, Vec<f32>)],
    kind: Kind,
) -> (Vec<Tensor>, Losses) {
    let mut losses = Losses::default();
    let mut out = Vec::with_capacity(weights.len());
    for (w, (name, data)) in model.weights().into_iter().zip(weights) {
        assert_eq!(w.name, *name, "weights come in the model's order");
        for &x in data {
            let y = kind.dtype().round(x);
            losses.of += 1;
            losses.changed += (y != x) as u64;
            losses.overflowed += (y.is_infinite() && x.is_finite()) as u64;
            losses.vanished += (y == 0.0 && x != 0.0) as u64;
        }
        let bytes = match kind {
            Kind::Fp32 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Kind::Bf16 => (data.iter())
                .flat_map(|&x| f32_to_bf16(x).to_le_bytes())
                .collect(),
            Kind::Fp16 => (data.iter())
                .flat_map(|&x| f32_to_f16(x).to_le_bytes())
                .collect(),
        };
        out.push(Tensor {
            name: w.name,
            dims: w.dims,
            bytes,
        });
    }
    (out, losses)
}

/// The bytes of a safetensors file.
///
/// # Errors
/// A violated invariant of the program itself.
pub fn safetensors(kind: Kind, weights: &[Tensor], vocab: &[char]) -> Result<Vec<u8>, Error> {
    let dtype = match kind {
        Kind::Fp32 => Dtype::F32,
        Kind::Bf16 => Dtype::BF16,
        Kind::Fp16 => Dtype::F16,
    };
    let internal = |e: safetensors::SafeTensorError| Error::Internal(e.to_string());
    let mut views = Vec::with_capacity(weights.len());
    for w in weights {
        let view = TensorView::new(dtype, w.dims.clone(), &w.bytes).map_err(internal)?;
        views.push((&w.name, view));
    }
    // `format` is what PyTorch's ecosystem asks for.
    let meta = [
        ("format".to_string(), "pt".to_string()),
        ("vocabulary".to_string(), vocab.iter().collect()),
    ];
    safetensors::serialize(views, Some(HashMap::from(meta))).map_err(internal)
}
