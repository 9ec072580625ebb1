//#include lib/zero.wgsl
// Fences and floors: how rounding is pinned down. The twin of the floors in src/kernels/math.rs.
//
// A float product that feeds a sum passes one of the fences here, so that it is rounded before the
// sum; so does every sum that algebra could cancel.

// Bits of 2^-125: results below it are +0.
const FTZ_LIMIT: u32 = 0x01000000u;
// Bits of 2^-51 and 2^-55: operands of a product-sum below them count as +0.
const FLOOR_F32_OPERAND: u32 = 0x26000000u;
const FLOOR_BF16_OPERAND: u32 = 0x24000000u;
// Bits of 2^-102: terms of a sum below it count as +0.
const FLOOR_SUM: u32 = 0x0c800000u;

const FENCE_ABS: u32 = 0x7fffffffu;

// Rounding barrier: the value must exist as 32 bits.
fn fence(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ hidden_zero());
}

fn fence4(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(hidden_zero()));
}

// Magnitudes below the limit, and -0, as +0.
fn floor_bits(u: u32, limit_bits: u32) -> u32 {
    return select(u, 0u, (u & FENCE_ABS) < limit_bits);
}

fn floor_bits4(u: vec4<u32>, limit_bits: u32) -> vec4<u32> {
    return select(u, vec4<u32>(), (u & vec4<u32>(FENCE_ABS)) < vec4<u32>(limit_bits));
}

fn floor_to(x: f32, limit_bits: u32) -> f32 {
    return bitcast<f32>(floor_bits(bitcast<u32>(x), limit_bits));
}

fn floor_to4(x: vec4<f32>, limit_bits: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(floor_bits4(bitcast<vec4<u32>>(x), limit_bits));
}

fn ftz(x: f32) -> f32 {
    return floor_to(x, FTZ_LIMIT);
}

fn ftz4(x: vec4<f32>) -> vec4<f32> {
    return floor_to4(x, FTZ_LIMIT);
}

// Fence and flush in one.
fn rn(x: f32) -> f32 {
    return bitcast<f32>(floor_bits(bitcast<u32>(x) ^ hidden_zero(), FTZ_LIMIT));
}

fn rn4(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(floor_bits4(bitcast<vec4<u32>>(x) ^ vec4<u32>(hidden_zero()), FTZ_LIMIT));
}

// Fence and floor in one.
fn rn_floor(x: f32, limit_bits: u32) -> f32 {
    return bitcast<f32>(floor_bits(bitcast<u32>(x) ^ hidden_zero(), limit_bits));
}

fn rn_floor4(x: vec4<f32>, limit_bits: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(floor_bits4(bitcast<vec4<u32>>(x) ^ vec4<u32>(hidden_zero()), limit_bits));
}
