//#include lib/f16.wgsl
// Operands of attention's products in f16: see weight_f32.wgsl.

const OPERAND_FLOOR: u32 = FLOOR_BF16_OPERAND;

// A probability as an operand: rounded to nearest even, then floored.
fn weight_operand(p: f32) -> f32 {
    return rn_floor(narrow_f16(fence(p)), OPERAND_FLOOR);
}
