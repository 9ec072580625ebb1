// bfloat16 by integers: the twin of src/dtype.rs. Two to a word, the low half first.

// The half `half` (0 or 1) of a word, widened; exact.
fn unpack_bf16(word: u32, half: u32) -> f32 {
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, half == 1u));
}

// Round to nearest even. NaN stays a quiet NaN; values past the largest finite bf16 become infinity.
fn round_bf16(x: f32) -> u32 {
    let u = bitcast<u32>(x);
    let rounded = (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;
    return select(rounded, (u >> 16u) | 0x40u, (u & 0x7fffffffu) > 0x7f800000u);
}

// Two values in a word.
fn pack_bf16(low: f32, high: f32) -> u32 {
    return round_bf16(low) | (round_bf16(high) << 16u);
}

// A value rounded to bfloat16, as f32.
fn narrow_bf16(x: f32) -> f32 {
    return bitcast<f32>(round_bf16(x) << 16u);
}
