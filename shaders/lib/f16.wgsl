// IEEE binary16 by integers: the twin of src/dtype.rs. Two to a word, the low half first.

// The half `half` (0 or 1) of a word, widened; exact. A subnormal is a normal f32.
fn unpack_f16(word: u32, half: u32) -> f32 {
    let h = select(word, word >> 16u, half == 1u);
    let a = h & 0x7fffu;
    let normal = (a << 13u) + select(0x38000000u, 0x70000000u, a >= 0x7c00u);
    // A subnormal's leading one moves up to the implicit place, 10 bits above its last one.
    let up = countLeadingZeros(a | 1u) - 21u;
    let subnormal = (((a << (up & 31u)) & 0x3ffu) << 13u) | ((113u - up) << 23u);
    let wide = select(normal, select(subnormal, 0u, a == 0u), a < 0x400u);
    return bitcast<f32>(wide | ((h & 0x8000u) << 16u));
}

// Round to nearest even, subnormals included. 65520 and above become infinity, NaN stays a quiet NaN.
fn round_f16(x: f32) -> u32 {
    let u = bitcast<u32>(x);
    let a = u & 0x7fffffffu;
    let normal = (a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u;
    // Subnormal in binary16: the significand in units of 2^-24. From 25 places on nothing is left.
    let down = min(126u - min(a >> 23u, 125u), 25u);
    let m = (a & 0x007fffffu) | 0x00800000u;
    let subnormal = (m + (1u << (down - 1u)) - 1u + ((m >> down) & 1u)) >> down;
    let finite = select(normal, subnormal, a < 0x38800000u);
    let bounded = select(finite, 0x7c00u, a >= 0x477ff000u);
    return select(bounded, 0x7e00u, a > 0x7f800000u) | ((u >> 16u) & 0x8000u);
}

// A value rounded to binary16, as f32; what underflows is +0.
fn narrow_f16(x: f32) -> f32 {
    let u = bitcast<u32>(unpack_f16(round_f16(x), 0u));
    return bitcast<f32>(select(u, 0u, (u & 0x7fffffffu) == 0u));
}
