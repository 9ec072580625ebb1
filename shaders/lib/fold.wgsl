// One step of four accumulators of a matrix product: the product is rounded before the sum.
fn fold(acc: vec4<f32>, a: f32, b: vec4<f32>) -> vec4<f32> {
    return acc + fence4(vec4<f32>(a) * b);
}
