//#include lib/grid.wgsl
//#include lib/gemm.wgsl
// As gemm_registers.wgsl, with operands loaded four neighbouring elements at a time: of a row's k, or of a
// step's rows or columns, whichever lie side by side. k, and the rows or columns of an operand that lies
// along them, are multiples of four here.

// Elements of a at four steps from k on (columns of the result), rows row to row + 3; past the end the
// last ones again.
fn a_block(t: Tile, row: u32, k: u32) -> mat4x4<f32> {
    if TA == 1u {
        let at = t.a + k * P.m + min(row, P.m - 4u);
        return mat4x4<f32>(a_four(at), a_four(at + P.m), a_four(at + 2u * P.m), a_four(at + 3u * P.m));
    }
    let at = min(vec4<u32>(0u, 1u, 2u, 3u) + row, vec4<u32>(P.m - 1u)) * P.k + (t.a + k);
    return steps_first(a_four(at.x), a_four(at.y), a_four(at.z), a_four(at.w));
}

fn b_block(t: Tile, col: u32, k: u32) -> mat4x4<f32> {
    if TB == 0u {
        let at = t.b + k * P.n + min(col, P.n - 4u);
        return mat4x4<f32>(b_four(at), b_four(at + P.n), b_four(at + 2u * P.n), b_four(at + 3u * P.n));
    }
    let at = min(vec4<u32>(0u, 1u, 2u, 3u) + col, vec4<u32>(P.n - 1u)) * P.k + (t.b + k);
    return steps_first(b_four(at.x), b_four(at.y), b_four(at.z), b_four(at.w));
}

// Four rows of four steps, turned around.
fn steps_first(r: vec4<f32>, s: vec4<f32>, t: vec4<f32>, u: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(
        vec4<f32>(r.x, s.x, t.x, u.x),
        vec4<f32>(r.y, s.y, t.y, u.y),
        vec4<f32>(r.z, s.z, t.z, u.z),
        vec4<f32>(r.w, s.w, t.w, u.w),
    );
}

fn a_four(i: u32) -> vec4<f32> {
    return floor_to4(ld4_a(i), OPERAND_FLOOR);
}

fn b_four(i: u32) -> vec4<f32> {
    return floor_to4(ld4_b(i), OPERAND_FLOOR);
}

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
    for (var k = t.k0; k < t.k1; k += 4u) {
        let p = a_block(t, row, k);
        let q = a_block(t, row + 4u, k);
        let u = b_block(t, col, k);
        let v = b_block(t, col + 4u, k);
        c00 = fold(c00, p[0].x, u[0]);
        c01 = fold(c01, p[0].x, v[0]);
        c10 = fold(c10, p[0].y, u[0]);
        c11 = fold(c11, p[0].y, v[0]);
        c20 = fold(c20, p[0].z, u[0]);
        c21 = fold(c21, p[0].z, v[0]);
        c30 = fold(c30, p[0].w, u[0]);
        c31 = fold(c31, p[0].w, v[0]);
        c40 = fold(c40, q[0].x, u[0]);
        c41 = fold(c41, q[0].x, v[0]);
        c50 = fold(c50, q[0].y, u[0]);
        c51 = fold(c51, q[0].y, v[0]);
        c60 = fold(c60, q[0].z, u[0]);
        c61 = fold(c61, q[0].z, v[0]);
        c70 = fold(c70, q[0].w, u[0]);
        c71 = fold(c71, q[0].w, v[0]);
        c00 = fold(c00, p[1].x, u[1]);
        c01 = fold(c01, p[1].x, v[1]);
        c10 = fold(c10, p[1].y, u[1]);
        c11 = fold(c11, p[1].y, v[1]);
        c20 = fold(c20, p[1].z, u[1]);
        c21 = fold(c21, p[1].z, v[1]);
        c30 = fold(c30, p[1].w, u[1]);
        c31 = fold(c31, p[1].w, v[1]);
        c40 = fold(c40, q[1].x, u[1]);
        c41 = fold(c41, q[1].x, v[1]);
        c50 = fold(c50, q[1].y, u[1]);
        c51 = fold(c51, q[1].y, v[1]);
        c60 = fold(c60, q[1].z, u[1]);
        c61 = fold(c61, q[1].z, v[1]);
        c70 = fold(c70, q[1].w, u[1]);
        c71 = fold(c71, q[1].w, v[1]);
        c00 = fold(c00, p[2].x, u[2]);
        c01 = fold(c01, p[2].x, v[2]);
        c10 = fold(c10, p[2].y, u[2]);
        c11 = fold(c11, p[2].y, v[2]);
        c20 = fold(c20, p[2].z, u[2]);
        c21 = fold(c21, p[2].z, v[2]);
        c30 = fold(c30, p[2].w, u[2]);
        c31 = fold(c31, p[2].w, v[2]);
        c40 = fold(c40, q[2].x, u[2]);
        c41 = fold(c41, q[2].x, v[2]);
        c50 = fold(c50, q[2].y, u[2]);
        c51 = fold(c51, q[2].y, v[2]);
        c60 = fold(c60, q[2].z, u[2]);
        c61 = fold(c61, q[2].z, v[2]);
        c70 = fold(c70, q[2].w, u[2]);
        c71 = fold(c71, q[2].w, v[2]);
        c00 = fold(c00, p[3].x, u[3]);
        c01 = fold(c01, p[3].x, v[3]);
        c10 = fold(c10, p[3].y, u[3]);
        c11 = fold(c11, p[3].y, v[3]);
        c20 = fold(c20, p[3].z, u[3]);
        c21 = fold(c21, p[3].z, v[3]);
        c30 = fold(c30, p[3].w, u[3]);
        c31 = fold(c31, p[3].w, v[3]);
        c40 = fold(c40, q[3].x, u[3]);
        c41 = fold(c41, q[3].x, v[3]);
        c50 = fold(c50, q[3].y, u[3]);
        c51 = fold(c51, q[3].y, v[3]);
        c60 = fold(c60, q[3].z, u[3]);
        c61 = fold(c61, q[3].z, v[3]);
        c70 = fold(c70, q[3].w, u[3]);
        c71 = fold(c71, q[3].w, v[3]);
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
