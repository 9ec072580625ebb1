//#include lib/rows.wgsl
//#include lib/math.wgsl
// What the norm kernels share. The variance is the biased one, eps inside the root.

struct Params {
    zero: u32,
    rows: u32,
    c: u32,
    inv: u32, // 1 / c
    eps: u32,
}

// Elements i to i + 3 of the row that starts at `at`, flushed.
fn x4(at: u32, i: u32) -> vec4<f32> {
    let j = four(i, P.c) + at;
    return ftz4(vec4<f32>(ld_x(j.x), ld_x(j.y), ld_x(j.z), ld_x(j.w)));
}

// The mean over a row, once its parts have been put.
fn row_mean(slot: u32) -> f32 {
    return rn(tree_sum(take_parts(slot)) * bitcast<f32>(P.inv));
}

// Mean and reciprocal standard deviation of a row.
fn stats(at: u32, slot: u32, member: u32) -> vec2<f32> {
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        var acc = vec4<f32>();
        for (var i = 4u * q; i < P.c; i += 32u) {
            acc = sum_step(acc, four_or(x4(at, i), i, P.c, 0.0));
        }
        put_part(slot, q, acc);
    }
    let mean = row_mean(slot);
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        var acc = vec4<f32>();
        for (var i = 4u * q; i < P.c; i += 32u) {
            let d = rn4(x4(at, i) - vec4<f32>(mean));
            acc = sum_step(acc, four_or(fence4(d * d), i, P.c, 0.0));
        }
        put_part(slot, q, acc);
    }
    return vec2<f32>(mean, rsqrt_(rn(row_mean(slot) + bitcast<f32>(P.eps))));
}
