// Stands in for fold.wgsl under fast numerics: one rounding, where the device fuses.
fn fold(acc: vec4<f32>, a: f32, b: vec4<f32>) -> vec4<f32> {
    return fma(vec4<f32>(a), b, acc);
}
