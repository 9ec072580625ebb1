//! What can be checked without a GPU: bytes that go there and come back, and the words of the loops.

use super::*;
use crate::dtype::DType;

fn matrix(values: &[f32]) -> Rounded {
    Rounded {
        values: values.to_vec(),
        scale: 1.0,
    }
}

#[test]
fn operands_go_out_in_their_formats() {
    let x = matrix(&[1.0, 2.0, -3.0, 0.5]);
    assert_eq!(
        bytes_of(Store::I8, &matrix(&[1.0, -2.0, 127.0, -127.0]), 2, false),
        [1, 254, 127, 129]
    );
    assert_eq!(
        bytes_of(Store::E4m3, &x, 2, false),
        [0x38, 0x40, 0xc4, 0x30]
    );
    assert_eq!(
        bytes_of(Store::Bf16, &x, 2, true),
        [0x80, 0x3f, 0x40, 0xc0, 0, 0x40, 0, 0x3f]
    );
    assert_eq!(bytes_of(Store::F16, &x, 2, false)[..4], [0, 0x3c, 0, 0x40]);
    let back = numbers(Data::CUDA_R_32F, &bytes_of(Store::F32, &x, 2, true));
    assert_eq!(back, [1.0, -3.0, 2.0, 0.5]);
    let back = numbers(Data::CUDA_R_16BF, &bytes_of(Store::Bf16, &x, 2, false));
    assert_eq!(back, x.values);
    assert_eq!(numbers(Data::CUDA_R_32I, &(-7i32).to_le_bytes()), [-7.0]);
}

#[test]
fn words_of_ones_are_ones() {
    for (name, dtype) in [("mma_bf16", DType::Bf16), ("mma_f16", DType::F16)] {
        assert_eq!(dtype.unpack(2, &[ones(name)]), [1.0, 1.0]);
    }
    assert_eq!(
        crate::measure::format::e4m3_to_f32(ones("mma_e4m3") as u8),
        1.0
    );
    assert_eq!(sum("mma_s8"), 256 * 32 * 8);
    assert_eq!(f32::from_bits(sum("fma_f32")), 2048.0);
}
