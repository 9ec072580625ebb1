//! What goes to the device and comes back: bytes of operands and products, words of the ceilings' loops.

use super::super::format::{f32_to_e4m3, f32_to_int8};
use super::super::operands::Rounded;
use super::{CHAINS, ROUNDS};
use crate::dtype::{bf16_to_f32, f32_to_bf16, f32_to_f16};
use cudarc::cublaslt::sys::cudaDataType as Data;

/// How operands are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    /// f32.
    F32,
    /// bfloat16.
    Bf16,
    /// binary16.
    F16,
    /// int8.
    I8,
    /// fp8, E4M3.
    E4m3,
}

/// A matrix as bytes, transposed where asked for.
pub fn bytes_of(store: Store, x: &Rounded, n: usize, transposed: bool) -> Vec<u8> {
    let turned: Vec<f32>;
    let values = match transposed {
        false => &x.values,
        true => {
            turned = (0..n * n).map(|i| x.values[i % n * n + i / n]).collect();
            &turned
        }
    };
    match store {
        Store::F32 => bytemuck::cast_slice(values).to_vec(),
        Store::Bf16 => values
            .iter()
            .flat_map(|v| f32_to_bf16(*v).to_le_bytes())
            .collect(),
        Store::F16 => values
            .iter()
            .flat_map(|v| f32_to_f16(*v).to_le_bytes())
            .collect(),
        // Whole numbers already.
        Store::I8 => values.iter().map(|v| f32_to_int8(*v, 1.0) as u8).collect(),
        Store::E4m3 => values.iter().map(|v| f32_to_e4m3(*v)).collect(),
    }
}

/// A product's bytes as numbers.
pub fn numbers(ty: Data, bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
    match ty {
        Data::CUDA_R_16BF => {
            let halves = bytes
                .chunks_exact(2)
                .map(|b| u16::from_le_bytes([b[0], b[1]]));
            halves.map(bf16_to_f32).collect()
        }
        // Beyond 2^24 a sum is rounded here, by 2^-25 at most.
        Data::CUDA_R_32I => words.map(|b| i32::from_le_bytes(b) as f32).collect(),
        _ => words.map(f32::from_le_bytes).collect(),
    }
}

/// A word of ones of a loop's operands.
pub fn ones(name: &str) -> u32 {
    match name {
        "mma_bf16" => 0x3f80_3f80,
        "mma_f16" => 0x3c00_3c00,
        "mma_s8" => 0x0101_0101,
        "mma_e4m3" => 0x3838_3838,
        _ => 1.0f32.to_bits(),
    }
}

/// What a thread of a ceiling's loop writes: all its accumulators, each a sum of ones.
pub fn sum(name: &str) -> u32 {
    let (k, whole) = match name {
        "fma_f32" => (1, false),
        "mma_tf32" => (8, false),
        "mma_s8" => (32, true),
        "mma_e4m3" => (32, false),
        _ => (16, false),
    };
    let sum = ROUNDS * k * CHAINS as u32;
    if whole { sum } else { (sum as f32).to_bits() }
}
