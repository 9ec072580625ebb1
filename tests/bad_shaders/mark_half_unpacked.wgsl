// rule: exact mark
struct Params {
    zero: u32,
}
@group(0) @binding(0) var<uniform> P: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn unpack_bf16(word: u32, half: u32) -> f32 {
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, half == 1u));
}

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    let a = unpack_bf16(bitcast<u32>(x[i]), 0u);
    y[i] = a * x[i + 1u] + x[i + 2u]; // exact
}
