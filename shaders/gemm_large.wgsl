//#include lib/grid.wgsl
//#include lib/gemm.wgsl
//#include lib/gemm_elements.wgsl
// As gemm.wgsl with 128 x 128 elements a workgroup, 8 x 8 an invocation: half the loads from workgroup
// memory for each product, and the next tiles on their way while these are multiplied. An invocation's rows
// are two runs of four, 64 apart, and so are its columns: neighbours then read neighbouring vectors.

const DEPTH: u32 = 8u; // steps of k in a tile
const PITCH: u32 = 33u; // 128 rows or columns and a gap against bank conflicts, in fours

var<workgroup> tile_a: array<vec4<f32>, 264>;
var<workgroup> tile_b: array<vec4<f32>, 264>;

// Four rows of a at step k, and four columns of b; past the end of the tile's k they are zeros, whose
// products change no accumulator.
fn rows_of_a(first: vec4<u32>, k: u32, end: u32) -> vec4<f32> {
    let i = first + min(k, P.k - 1u) * a_step();
    return select(vec4<f32>(), vec4<f32>(a_at(i.x), a_at(i.y), a_at(i.z), a_at(i.w)), k < end);
}

fn columns_of_b(first: vec4<u32>, k: u32, end: u32) -> vec4<f32> {
    let i = first + min(k, P.k - 1u) * b_step();
    return select(vec4<f32>(), vec4<f32>(b_at(i.x), b_at(i.y), b_at(i.z), b_at(i.w)), k < end);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let wg = flat(wid, nwg);
    if !has_tile(wg, 128u, 128u) {
        return;
    }
    let t = tile_at(wg, 128u, 128u);
    let x = li % 16u;
    let y = li / 16u;
    // Neighbouring invocations load neighbouring elements.
    let a_k = select(li % 8u, li / 32u, TA == 1u);
    let a_r = select(li / 8u, li % 32u, TA == 1u);
    let b_k = select(li / 32u, li % 8u, TB == 1u);
    let b_c = select(li % 32u, li / 8u, TB == 1u);
    let low = vec4<u32>(0u, 1u, 2u, 3u);
    let a_first = min(low + (t.row + 4u * a_r), vec4<u32>(P.m - 1u)) * a_row() + vec4<u32>(t.a);
    let b_first = min(low + (t.col + 4u * b_c), vec4<u32>(P.n - 1u)) * b_col() + vec4<u32>(t.b);

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
    var next_a = rows_of_a(a_first, t.k0 + a_k, t.k1);
    var next_b = columns_of_b(b_first, t.k0 + b_k, t.k1);
    for (var k = t.k0; k < t.k1; k += DEPTH) {
        workgroupBarrier();
        tile_a[a_k * PITCH + a_r] = next_a;
        tile_b[b_k * PITCH + b_c] = next_b;
        workgroupBarrier();
        next_a = rows_of_a(a_first, k + DEPTH + a_k, t.k1);
        next_b = columns_of_b(b_first, k + DEPTH + b_k, t.k1);
        for (var d = 0u; d < DEPTH; d++) {
            let p = tile_a[d * PITCH + y];
            let q = tile_a[d * PITCH + 16u + y];
            let u = tile_b[d * PITCH + x];
            let v = tile_b[d * PITCH + 16u + x];
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
        }
    }
    let row = t.row + 4u * y;
    let col = t.col + 4u * x;
    store4(t.z, row, col, c00);
    store4(t.z, row, col + 64u, c01);
    store4(t.z, row + 1u, col, c10);
    store4(t.z, row + 1u, col + 64u, c11);
    store4(t.z, row + 2u, col, c20);
    store4(t.z, row + 2u, col + 64u, c21);
    store4(t.z, row + 3u, col, c30);
    store4(t.z, row + 3u, col + 64u, c31);
    store4(t.z, row + 64u, col, c40);
    store4(t.z, row + 64u, col + 64u, c41);
    store4(t.z, row + 65u, col, c50);
    store4(t.z, row + 65u, col + 64u, c51);
    store4(t.z, row + 66u, col, c60);
    store4(t.z, row + 66u, col + 64u, c61);
    store4(t.z, row + 67u, col, c70);
    store4(t.z, row + 67u, col + 64u, c71);
}
