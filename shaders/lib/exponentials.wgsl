//#include lib/rows.wgsl
//#include lib/math.wgsl
// What softmax and log-sum-exp share.

struct Params {
    zero: u32,
    rows: u32,
    c: u32,
}

// Elements i to i + 3 of the row that starts at `at`, flushed.
fn x4(at: u32, i: u32) -> vec4<f32> {
    let j = four(i, P.c) + at;
    return ftz4(vec4<f32>(ld_x(j.x), ld_x(j.y), ld_x(j.z), ld_x(j.w)));
}

// The maximum of a row and the sum of exp(x - maximum).
fn max_and_sum(at: u32, slot: u32, member: u32) -> vec2<f32> {
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        var acc = vec4<f32>(LOWEST);
        for (var i = 4u * q; i < P.c; i += 32u) {
            acc = max4(acc, four_or(x4(at, i), i, P.c, LOWEST));
        }
        put_part(slot, q, acc);
    }
    let top = tree_max(take_parts(slot));
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        var acc = vec4<f32>();
        for (var i = 4u * q; i < P.c; i += 32u) {
            let d = rn4(x4(at, i) - vec4<f32>(top));
            let e = vec4<f32>(exp_(d.x), exp_(d.y), exp_(d.z), exp_(d.w));
            acc = sum_step(acc, four_or(e, i, P.c, 0.0));
        }
        put_part(slot, q, acc);
    }
    return vec2<f32>(top, tree_sum(take_parts(slot)));
}
