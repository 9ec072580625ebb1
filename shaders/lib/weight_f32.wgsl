// Operands of attention's products in f32. weight_bf16.wgsl stands in for it where they are bf16.

const OPERAND_FLOOR: u32 = FLOOR_F32_OPERAND;

// A probability as an operand: floored.
fn weight_operand(p: f32) -> f32 {
    return rn_floor(p, OPERAND_FLOOR);
}
