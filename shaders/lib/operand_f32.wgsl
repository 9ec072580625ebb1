// Operands of product-sums in f32. operand_bf16.wgsl stands in for it where they are bf16.

const OPERAND_FLOOR: u32 = FLOOR_F32_OPERAND;

// A computed value as an operand: floored.
fn operand_w(x: Wide) -> Wide {
    return rn_floor_w(x, OPERAND_FLOOR);
}
