// One step of an attention's accumulators: the product is rounded before the sum.
fn fold_w(acc: Wide, a: Wide, b: f32) -> Wide {
    return acc + fence_w(a * b);
}
