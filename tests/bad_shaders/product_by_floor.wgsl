// rule: unfenced product
struct Params {
    zero: u32,
}
@group(0) @binding(0) var<uniform> P: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn floor_to(v: f32) -> f32 {
    let u = bitcast<u32>(v);
    return bitcast<f32>(select(u, 0u, (u & 0x7fffffffu) < 0x01000000u));
}

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    y[i] = x[i + 2u] + floor_to(x[i] * x[i + 1u]);
}
