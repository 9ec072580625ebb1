// Stands in for fold_wide.wgsl under fast numerics: one rounding, where the device fuses.
fn fold_w(acc: Wide, a: Wide, b: f32) -> Wide {
    return fma(a, Wide(b), acc);
}
