//#include lib/grid.wgsl
//#include lib/rows.wgsl
// dx = y * (g - sum(g * y)) over rows of c.

struct Params {
    zero: u32,
    rows: u32,
    c: u32,
}

fn yg4(at: u32, i: u32) -> vec4<f32> {
    let j = four(i, P.c) + at;
    let y = ftz4(vec4<f32>(ld_y(j.x), ld_y(j.y), ld_y(j.z), ld_y(j.w)));
    let g = ftz4(vec4<f32>(ld_g(j.x), ld_g(j.y), ld_g(j.z), ld_g(j.w)));
    return rn4(y * g);
}

@compute @workgroup_size(ROW_GROUP)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let first_row = flat(wid, nwg) * ROW_SLOTS;
    if first_row >= P.rows {
        return;
    }
    let slot = li / ROW_MEMBERS;
    let member = li % ROW_MEMBERS;
    // Rows past the end repeat the last one and are not stored.
    let there = first_row + slot < P.rows;
    let row = min(first_row + slot, P.rows - 1u);
    let at = row * P.c;
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        var acc = vec4<f32>();
        for (var i = 4u * q; i < P.c; i += 32u) {
            acc = sum_step(acc, four_or(yg4(at, i), i, P.c, 0.0));
        }
        put_part(slot, q, acc);
    }
    let dot_gy = tree_sum(take_parts(slot));
    if !there {
        return;
    }
    for (var i = member; i < P.c; i += ROW_MEMBERS) {
        st_dx(at + i, rn(ftz(ld_y(at + i)) * rn(ftz(ld_g(at + i)) - dot_gy)));
    }
}
