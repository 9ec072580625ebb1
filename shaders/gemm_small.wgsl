//#include lib/grid.wgsl
//#include lib/gemm.wgsl
//#include lib/gemm_elements.wgsl
// As gemm_registers.wgsl with 4 x 4 elements an invocation: more workgroups for products with few
// outputs.

@compute @workgroup_size(8, 8)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_id) lid: vec3<u32>,
) {
    let wg = flat(wid, nwg);
    if !has_tile(wg, 32u, 32u) {
        return;
    }
    let t = tile_at(wg, 32u, 32u);
    let row = t.row + 4u * lid.y;
    let col = t.col + 4u * lid.x;
    if row >= P.m || col >= P.n {
        return;
    }
    let low = vec4<u32>(0u, 1u, 2u, 3u);
    var a = min(low + row, vec4<u32>(P.m - 1u)) * a_row() + (t.a + t.k0 * a_step());
    var b = min(low + col, vec4<u32>(P.n - 1u)) * b_col() + (t.b + t.k0 * b_step());

    var c0 = vec4<f32>();
    var c1 = vec4<f32>();
    var c2 = vec4<f32>();
    var c3 = vec4<f32>();
    for (var k = t.k0; k < t.k1; k++) {
        let p = vec4<f32>(a_at(a.x), a_at(a.y), a_at(a.z), a_at(a.w));
        let u = vec4<f32>(b_at(b.x), b_at(b.y), b_at(b.z), b_at(b.w));
        c0 = fold(c0, p.x, u);
        c1 = fold(c1, p.y, u);
        c2 = fold(c2, p.z, u);
        c3 = fold(c3, p.w, u);
        a += a_step();
        b += b_step();
    }
    store4(t.z, row, col, c0);
    store4(t.z, row + 1u, col, c1);
    store4(t.z, row + 2u, col, c2);
    store4(t.z, row + 3u, col, c3);
}
