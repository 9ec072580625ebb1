// rule: unfenced product
struct Params {
    zero: u32,
}
@group(0) @binding(0) var<uniform> P: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn times(a: f32, b: f32) -> f32 {
    return a * b;
}

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    y[i] = times(x[i], x[i + 1u]) + x[i + 2u];
}
