//#include lib/grid.wgsl
//#include lib/norm.wgsl
// dx = (u - mean(u) - h * mean(u * h)) * rstd, with h = (x - mean) * rstd and u = g * gain.

fn u4(at: u32, i: u32) -> vec4<f32> {
    let k = four(i, P.c);
    let j = k + at;
    let g = ftz4(vec4<f32>(ld_g(j.x), ld_g(j.y), ld_g(j.z), ld_g(j.w)));
    let gain = ftz4(vec4<f32>(ld_gain(k.x), ld_gain(k.y), ld_gain(k.z), ld_gain(k.w)));
    return rn4(g * gain);
}

fn h4(at: u32, i: u32, mean: f32, rstd: f32) -> vec4<f32> {
    return rn4(rn4(x4(at, i) - vec4<f32>(mean)) * rstd);
}

// What a row's elements share.
struct Row {
    at: u32,
    mean: f32,
    rstd: f32,
    mean_u: f32,
    mean_uh: f32,
}

fn dx(r: Row, i: u32) -> f32 {
    let u = rn(ftz(ld_g(r.at + i)) * ftz(ld_gain(i)));
    let h = rn(rn(ftz(ld_x(r.at + i)) - r.mean) * r.rstd);
    return rn(rn(rn(u - r.mean_u) - rn(h * r.mean_uh)) * r.rstd);
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
    let mean = ftz(ld_mean(row));
    let rstd = ftz(ld_rstd(row));
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        var acc = vec4<f32>();
        for (var i = 4u * q; i < P.c; i += 32u) {
            acc = sum_step(acc, four_or(u4(at, i), i, P.c, 0.0));
        }
        put_part(slot, q, acc);
    }
    let mean_u = row_mean(slot);
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        var acc = vec4<f32>();
        for (var i = 4u * q; i < P.c; i += 32u) {
            let uh = rn4(u4(at, i) * h4(at, i, mean, rstd));
            acc = sum_step(acc, four_or(uh, i, P.c, 0.0));
        }
        put_part(slot, q, acc);
    }
    let mean_uh = row_mean(slot);
    if !there {
        return;
    }
    let row_of = Row(at, mean, rstd, mean_u, mean_uh);
    for (var i = 2u * member; i < P.c; i += 2u * ROW_MEMBERS) {
        st2_dx(row, i, P.c, vec2<f32>(dx(row_of, i), dx(row_of, min(i + 1u, P.c - 1u))));
    }
}
