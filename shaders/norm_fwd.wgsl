//#include lib/grid.wgsl
//#include lib/norm.wgsl
// y = (x - mean) * rstd * gain over rows of c, the statistics kept.

fn normed(at: u32, i: u32, s: vec2<f32>) -> f32 {
    let h = rn(rn(ftz(ld_x(at + i)) - s.x) * s.y);
    return rn(h * ftz(ld_gain(i)));
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
    let s = stats(at, slot, member);
    if !there {
        return;
    }
    for (var i = 2u * member; i < P.c; i += 2u * ROW_MEMBERS) {
        st2_y(row, i, P.c, vec2<f32>(normed(at, i, s), normed(at, min(i + 1u, P.c - 1u), s)));
    }
    if member == 0u {
        st_mean(row, s.x);
        st_rstd(row, s.y);
    }
}
