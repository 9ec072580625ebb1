//#include lib/grid.wgsl
//#include lib/gemm.wgsl
//#include lib/gemm_elements.wgsl
// Matrix product for GPUs: a workgroup of 16 x 16 computes 64 x 64 elements out of tiles in workgroup
// memory, each invocation 4 x 4 of them. Past the ends the tiles hold zeros, whose products change no
// accumulator.

const DEPTH: u32 = 16u; // steps of k in a tile
const PITCH: u32 = 17u; // 64 rows or columns and a gap against bank conflicts, in fours

var<workgroup> tile_a: array<vec4<f32>, 272>;
var<workgroup> tile_b: array<vec4<f32>, 272>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let wg = flat(wid, nwg);
    if !has_tile(wg, 64u, 64u) {
        return;
    }
    let t = tile_at(wg, 64u, 64u);
    let x = li % 16u;
    let y = li / 16u;
    // Neighbouring invocations load neighbouring elements.
    let a_k = select(x, y, TA == 1u);
    let a_r = select(y, x, TA == 1u);
    let b_k = select(y, x, TB == 1u);
    let b_c = select(x, y, TB == 1u);
    let rows = vec4<u32>(0u, 1u, 2u, 3u) + vec4<u32>(t.row + 4u * a_r);
    let cols = vec4<u32>(0u, 1u, 2u, 3u) + vec4<u32>(t.col + 4u * b_c);
    let a_first = min(rows, vec4<u32>(P.m - 1u)) * a_row() + vec4<u32>(t.a);
    let b_first = min(cols, vec4<u32>(P.n - 1u)) * b_col() + vec4<u32>(t.b);

    var c0 = vec4<f32>();
    var c1 = vec4<f32>();
    var c2 = vec4<f32>();
    var c3 = vec4<f32>();
    for (var k = t.k0; k < t.k1; k += DEPTH) {
        let ka = k + a_k;
        let ia = a_first + min(ka, P.k - 1u) * a_step();
        let va = vec4<f32>(a_at(ia.x), a_at(ia.y), a_at(ia.z), a_at(ia.w));
        let kb = k + b_k;
        let ib = b_first + min(kb, P.k - 1u) * b_step();
        let vb = vec4<f32>(b_at(ib.x), b_at(ib.y), b_at(ib.z), b_at(ib.w));
        workgroupBarrier();
        tile_a[a_k * PITCH + a_r] = select(vec4<f32>(), va, ka < t.k1);
        tile_b[b_k * PITCH + b_c] = select(vec4<f32>(), vb, kb < t.k1);
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            let a = tile_a[d * PITCH + y];
            let b = tile_b[d * PITCH + x];
            c0 = fold(c0, a.x, b);
            c1 = fold(c1, a.y, b);
            c2 = fold(c2, a.z, b);
            c3 = fold(c3, a.w, b);
        }
    }
    let row = t.row + 4u * y;
    let col = t.col + 4u * x;
    store4(t.z, row, col, c0);
    store4(t.z, row + 1u, col, c1);
    store4(t.z, row + 2u, col, c2);
    store4(t.z, row + 3u, col, c3);
}
