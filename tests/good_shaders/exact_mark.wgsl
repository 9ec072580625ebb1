struct Params {
    zero: u32,
}
@group(0) @binding(0) var<uniform> P: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@group(0) @binding(3) var<storage, read> words: array<u32>;

fn unpack_bf16(word: u32, half: u32) -> f32 {
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, half == 1u));
}

fn floor_to(v: f32) -> f32 {
    let u = bitcast<u32>(v);
    return bitcast<f32>(select(u, 0u, (u & 0x7fffffffu) < 0x24000000u));
}

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    var acc = 0.0;
    for (var k = 0u; k < 4u; k++) {
        let a = floor_to(unpack_bf16(words[i + k], 0u));
        let b = unpack_bf16(words[i + k], 1u);
        acc = acc + a * b; // exact
    }
    y[i] = acc;
}
