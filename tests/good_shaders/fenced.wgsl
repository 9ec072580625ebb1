struct Params {
    zero: u32,
}
@group(0) @binding(0) var<uniform> P: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn fence(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) ^ P.zero);
}

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    var acc = 0.0;
    for (var k = 0u; k < 4u; k++) {
        acc = acc + fence(x[i + k] * x[i]);
    }
    let p = fence(-(x[i] * x[i + 1u]));
    y[i] = acc + select(x[i], p, i > 3u);
}
