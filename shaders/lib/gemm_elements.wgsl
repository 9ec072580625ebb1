//#include lib/fence.wgsl
// Operands, floored.
fn a_at(i: u32) -> f32 {
    return floor_to(ld_a(i), OPERAND_FLOOR);
}

fn b_at(i: u32) -> f32 {
    return floor_to(ld_b(i), OPERAND_FLOOR);
}
