//#include lib/grid.wgsl
//#include lib/gemm.wgsl
//#include lib/gemm_elements.wgsl
// Matrix product for software devices: no workgroup memory, 8 x 8 invocations of 8 x 8 elements each.

@compute @workgroup_size(8, 8)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_id) lid: vec3<u32>,
) {
    let wg = flat(wid, nwg);
    if !has_tile(wg, 64u, 64u) {
        return;
    }
    let t = tile_at(wg, 64u, 64u);
    let row = t.row + 8u * lid.y;
    let col = t.col + 8u * lid.x;
    if row >= P.m || col >= P.n {
        return;
    }
    // Rows and columns past the end repeat the last one and are not stored.
    let low = vec4<u32>(0u, 1u, 2u, 3u);
    let high = vec4<u32>(4u, 5u, 6u, 7u);
    let last_row = vec4<u32>(P.m - 1u);
    let last_col = vec4<u32>(P.n - 1u);
    var a0 = min(low + row, last_row) * a_row() + (t.a + t.k0 * a_step());
    var a1 = min(high + row, last_row) * a_row() + (t.a + t.k0 * a_step());
    var b0 = min(low + col, last_col) * b_col() + (t.b + t.k0 * b_step());
    var b1 = min(high + col, last_col) * b_col() + (t.b + t.k0 * b_step());

    var c00 = vec4<f32>();
    var c01 = vec4<f32>();
    var c10 = vec4<f32>();
    var c11 = vec4<f32>();
    var c20 = vec4<f32>();
    var c21 = vec4<f32>();
    var c30 = vec4<f32>();
    var c31 = vec4<f32>();
    var c40 = vec4<f32>();
    var c41 = vec4<f32>();
    var c50 = vec4<f32>();
    var c51 = vec4<f32>();
    var c60 = vec4<f32>();
    var c61 = vec4<f32>();
    var c70 = vec4<f32>();
    var c71 = vec4<f32>();
    for (var k = t.k0; k < t.k1; k++) {
        let p = vec4<f32>(a_at(a0.x), a_at(a0.y), a_at(a0.z), a_at(a0.w));
        let q = vec4<f32>(a_at(a1.x), a_at(a1.y), a_at(a1.z), a_at(a1.w));
        let u = vec4<f32>(b_at(b0.x), b_at(b0.y), b_at(b0.z), b_at(b0.w));
        let v = vec4<f32>(b_at(b1.x), b_at(b1.y), b_at(b1.z), b_at(b1.w));
        c00 = fold(c00, p.x, u);
        c01 = fold(c01, p.x, v);
        c10 = fold(c10, p.y, u);
        c11 = fold(c11, p.y, v);
        c20 = fold(c20, p.z, u);
        c21 = fold(c21, p.z, v);
        c30 = fold(c30, p.w, u);
        c31 = fold(c31, p.w, v);
        c40 = fold(c40, q.x, u);
        c41 = fold(c41, q.x, v);
        c50 = fold(c50, q.y, u);
        c51 = fold(c51, q.y, v);
        c60 = fold(c60, q.z, u);
        c61 = fold(c61, q.z, v);
        c70 = fold(c70, q.w, u);
        c71 = fold(c71, q.w, v);
        a0 += a_step();
        a1 += a_step();
        b0 += b_step();
        b1 += b_step();
    }
    store4(t.z, row, col, c00);
    store4(t.z, row, col + 4u, c01);
    store4(t.z, row + 1u, col, c10);
    store4(t.z, row + 1u, col + 4u, c11);
    store4(t.z, row + 2u, col, c20);
    store4(t.z, row + 2u, col + 4u, c21);
    store4(t.z, row + 3u, col, c30);
    store4(t.z, row + 3u, col + 4u, c31);
    store4(t.z, row + 4u, col, c40);
    store4(t.z, row + 4u, col + 4u, c41);
    store4(t.z, row + 5u, col, c50);
    store4(t.z, row + 5u, col + 4u, c51);
    store4(t.z, row + 6u, col, c60);
    store4(t.z, row + 6u, col + 4u, c61);
    store4(t.z, row + 7u, col, c70);
    store4(t.z, row + 7u, col + 4u, c71);
}
