// The scalars of AdamW in one vector, under the names that adamw.wgsl reads: hyper, scale, norm, key.

fn ld_hyper(i: u32) -> f32 {
    return ld_scalars(i);
}

fn ld_scale(i: u32) -> f32 {
    return ld_scalars(8u + i);
}

fn raw_norm(i: u32) -> u32 {
    return raw_scalars(9u + i);
}
