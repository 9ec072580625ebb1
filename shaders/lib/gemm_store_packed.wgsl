// Stands in for gemm_store.wgsl where c is packed bf16: two words of a row that is padded to whole
// words. Columns come in fours, so an invocation owns its words.
fn store4(z: u32, row: u32, col: u32, v: vec4<f32>) {
    if row >= P.m {
        return;
    }
    let r = z * P.m + row;
    store2(r, col, v.xy);
    store2(r, col + 2u, v.zw);
}

fn store2(r: u32, col: u32, v: vec2<f32>) {
    if col >= P.n {
        return;
    }
    let at = r * P.n + col;
    var high = 0u;
    if col + 1u < P.n {
        high = round_bf16(expression(at + 1u, v.y));
    }
    put_c(r * ((P.n + 1u) / 2u) + col / 2u, round_bf16(expression(at, v.x)) | (high << 16u));
}
