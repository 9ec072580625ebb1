//#include lib/grid.wgsl
//#include lib/rows.wgsl
// x[outer, n, inner] -> out[outer, ceil(n / chunk), inner], sums (OP 0) or maxima (OP 1).

struct Params {
    zero: u32,
    outer: u32,
    n: u32,
    inner: u32,
    chunk: u32,
}

override OP: u32 = 0u;

// Elements i to i + 3 of a row of `len`, `step` apart; past the end the identity.
fn elements(first: u32, step: u32, i: u32, len: u32, identity: f32) -> vec4<f32> {
    let at = four(i, len) * step + first;
    return four_or(vec4<f32>(ld_x(at.x), ld_x(at.y), ld_x(at.z), ld_x(at.w)), i, len, identity);
}

@compute @workgroup_size(ROW_GROUP)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let chunks = max((P.n + P.chunk - 1u) / P.chunk, 1u);
    let rows = P.outer * chunks * P.inner;
    let first_row = flat(wid, nwg) * ROW_SLOTS;
    if first_row >= rows {
        return;
    }
    // Neighbouring invocations read neighbouring elements: of the row, or of the next columns.
    let by_column = P.inner > 1u;
    let slot = select(li / ROW_MEMBERS, li % ROW_SLOTS, by_column);
    let member = select(li % ROW_MEMBERS, li / ROW_SLOTS, by_column);
    let row = min(first_row + slot, rows - 1u);
    let column = row % P.inner;
    let c = (row / P.inner) % chunks;
    let o = row / P.inner / chunks;
    let first = (o * P.n + c * P.chunk) * P.inner + column;
    let len = min(P.chunk, P.n - c * P.chunk);
    for (var q = member; q < 8u; q += ROW_MEMBERS) {
        if OP == 0u {
            var acc = vec4<f32>();
            for (var i = 4u * q; i < len; i += 32u) {
                acc = sum_step(acc, elements(first, P.inner, i, len, 0.0));
            }
            put_part(slot, q, acc);
        } else {
            var acc = vec4<f32>(LOWEST);
            for (var i = 4u * q; i < len; i += 32u) {
                acc = max4(acc, ftz4(elements(first, P.inner, i, len, LOWEST)));
            }
            put_part(slot, q, acc);
        }
    }
    let parts = take_parts(slot);
    if member == 0u && first_row + slot < rows {
        if OP == 0u {
            st_out(row, tree_sum(parts));
        } else {
            st_out(row, tree_max(parts));
        }
    }
}
