// Operands of product-sums in bf16: see operand_f32.wgsl.

const OPERAND_FLOOR: u32 = FLOOR_BF16_OPERAND;

// A computed value as an operand: rounded to nearest even (as round_bf16), then floored.
fn operand_w(x: Wide) -> Wide {
    let u = bitcast<Index>(fence_w(x));
    let odd = (u >> Index(16u)) & Index(1u);
    let rounded = (u + Index(0x7fffu) + odd) & Index(0xffff0000u);
    let is_nan = (u & Index(FENCE_ABS)) > Index(0x7f800000u);
    let narrow = select(rounded, (u & Index(0xffff0000u)) | Index(0x400000u), is_nan);
    return rn_floor_w(bitcast<Wide>(narrow), OPERAND_FLOOR);
}
