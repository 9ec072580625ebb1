//#include lib/grid.wgsl
//#include lib/attention.wgsl
// qkv, lse[b, h, t], delta[b, t, h], g[b, t, c] -> dqkv[b, t, 3c]. The first half of the workgroups
// computes dq, the second dk and dv; each recomputes the probabilities it needs.
//
// Part 0 is the score and the sum weighted by its gradient: own rows of q against k, or of k against q.
// Part 1 is the gradient of the probability, and the sum weighted by it: own rows of g against v, or of v
// against g.

const PARTS: u32 = 2u;

var<private> of_keys: bool; // whether the own rows are keys
var<private> queries: Head;
var<private> keys: Head;
var<private> values: Head;
var<private> g_rows: Head; // the head's rows of g
var<private> own_index: Index; // numbers of the own rows
var<private> row: Index; // the same, not past the end
var<private> there: Mask;

fn load_own(part: u32, d: u32) -> Wide {
    if part == 1u && !of_keys {
        return floor_w(ldw_g(row * g_rows.pitch + Index(g_rows.first + d)), OPERAND_FLOOR);
    }
    var h = values;
    if part == 0u {
        h.first = select(queries.first, keys.first, of_keys);
    }
    return floor_w(ldw_qkv(row * h.pitch + Index(h.first + d)), OPERAND_FLOOR);
}

// Sums of part 0 are those of dq or dk, of part 1 those of dv.
fn sum_place(part: u32, d: u32) -> Index {
    let first = select(values.first, select(queries.first, keys.first, of_keys), part == 0u);
    return row * queries.pitch + Index(first + d);
}

fn load_sum(part: u32, d: u32) -> Wide {
    return ldw_dqkv(sum_place(part, d));
}

fn store_sum(part: u32, d: u32, v: Wide) {
    stw_dqkv(sum_place(part, d), v, there);
}

fn carried_sum(d: u32) -> Wide {
    return sum_at(0u, d);
}

fn weight_operand(j: u32) -> Wide {
    return weight(0u, j);
}

fn g_at(i: u32) -> f32 {
    return floor_to(ld_g(i), OPERAND_FLOOR);
}

// Weights of one pair from its score and the gradient of its probability: part 0 the gradient of the
// score before the scale, part 1 the probability.
fn put_pair(other: u32, j: u32, s: Wide, dp: Wide, lse: Wide, delta: Wide) {
    // A query sees the keys up to its own place.
    let from_here = own_index <= Index(other);
    let seen = select(Index(other) <= own_index, from_here & Mask(other < P.t), Mask(of_keys));
    let e = exp_w(rn_w(rn_w(s * bitcast<f32>(P.scale)) - lse));
    let p = select(Wide(0.0), e, seen);
    put_weight(0u, j, operand_w(fence_w(p * rn_w(dp - delta))));
    put_weight(1u, j, operand_w(p));
}

// The weights of own rows with the block of other rows that starts at `first`.
fn pairs(others: Head, batch: u32, head: u32, first: u32, own_lse: Wide, own_delta: Wide) {
    let lse_first = (batch * P.heads + head) * P.t;
    for (var j = 0u; j < rolled(BLOCK); j += 4u) {
        let r = rows_at(others, first + j);
        let u = rows_at(values, first + j);
        let v = rows_at(g_rows, first + j);
        var s0 = Wide(0.0);
        var s1 = Wide(0.0);
        var s2 = Wide(0.0);
        var s3 = Wide(0.0);
        var p0 = Wide(0.0);
        var p1 = Wide(0.0);
        var p2 = Wide(0.0);
        var p3 = Wide(0.0);
        for (var d = 0u; d < rolled(HEAD); d++) {
            let a = own(0u, d);
            s0 = fold_w(s0, a, qkv_at(r.x + d));
            s1 = fold_w(s1, a, qkv_at(r.y + d));
            s2 = fold_w(s2, a, qkv_at(r.z + d));
            s3 = fold_w(s3, a, qkv_at(r.w + d));
            let b = own(1u, d);
            var x: vec4<f32>;
            if of_keys {
                x = vec4<f32>(g_at(v.x + d), g_at(v.y + d), g_at(v.z + d), g_at(v.w + d));
            } else {
                x = vec4<f32>(qkv_at(u.x + d), qkv_at(u.y + d), qkv_at(u.z + d), qkv_at(u.w + d));
            }
            p0 = fold_w(p0, b, x.x);
            p1 = fold_w(p1, b, x.y);
            p2 = fold_w(p2, b, x.z);
            p3 = fold_w(p3, b, x.w);
        }
        for (var k = 0u; k < rolled(4u); k++) {
            // Both statistics belong to the query of a pair.
            let other = first + j + k;
            let query = min(other, P.t - 1u);
            var lse = own_lse;
            var delta = own_delta;
            if of_keys {
                lse = Wide(ftz(ld_lse(lse_first + query)));
                delta = Wide(ftz(ld_delta((batch * P.t + query) * P.heads + head)));
            }
            put_pair(other, j + k, s0, p0, lse, delta);
            s0 = s1;
            s1 = s2;
            s2 = s3;
            p0 = p1;
            p1 = p2;
            p2 = p3;
        }
    }
}

// As fold_rows, with weights and sums of part 1 and rows of g.
fn fold_g(first: u32, fresh: bool) {
    for (var d = 0u; d < rolled(HEAD); d += 4u) {
        let e = min(vec4<u32>(d, d + 1u, d + 2u, d + 3u), vec4<u32>(HEAD - 1u));
        var x0 = Wide(0.0);
        var x1 = Wide(0.0);
        var x2 = Wide(0.0);
        var x3 = Wide(0.0);
        if !fresh {
            x0 = sum_at(1u, e.x);
            x1 = sum_at(1u, e.y);
            x2 = sum_at(1u, e.z);
            x3 = sum_at(1u, e.w);
        }
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let at = vec4<u32>(min(first + j, P.t - 1u) * g_rows.pitch + g_rows.first) + e;
            let w = weight(1u, j);
            x0 = fold_w(x0, w, g_at(at.x));
            x1 = fold_w(x1, w, g_at(at.y));
            x2 = fold_w(x2, w, g_at(at.z));
            x3 = fold_w(x3, w, g_at(at.w));
        }
        put_sum(1u, e.x, x0);
        put_sum(1u, e.y, x1);
        put_sum(1u, e.z, x2);
        put_sum(1u, e.w, x3);
    }
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let tiles = (P.t + BLOCK - 1u) / BLOCK;
    let wg = flat(wid, nwg);
    let half = tiles * P.heads * P.b;
    if wg >= 2u * half {
        return;
    }
    let w = wg % half;
    let tile = w % tiles;
    let head = (w / tiles) % P.heads;
    let batch = w / tiles / P.heads;
    let c = P.heads * HEAD;
    lane = li;
    of_keys = wg >= half;
    queries = head_at(batch, head, 0u);
    keys = head_at(batch, head, 1u);
    values = head_at(batch, head, 2u);
    g_rows = Head(batch * P.t * c + head * HEAD, c);
    own_index = Index(tile * BLOCK + li * WIDTH) + components();
    row = min(own_index, Index(P.t - 1u));
    there = own_index < Index(P.t);
    keep_own();
    let lse = rn_w(ldw_lse(row + Index((batch * P.heads + head) * P.t)));
    let delta = rn_w(ldw_delta((row + Index(batch * P.t)) * P.heads + Index(head)));

    // Queries see the blocks of keys up to their own; keys are seen from their own block on.
    var others = keys;
    if of_keys {
        others = queries;
    }
    let begin = select(0u, tile, of_keys);
    let end = select(tile + 1u, tiles, of_keys);
    for (var b = begin; b < end; b++) {
        let first = b * BLOCK;
        pairs(others, batch, head, first, lse, delta);
        fold_rows(others, first, b == begin);
        if of_keys {
            fold_g(first, b == begin);
        }
    }
    for (var d = 0u; d < rolled(HEAD); d++) {
        store_sum(0u, d, rn_w(sum_at(0u, d) * bitcast<f32>(P.scale)));
        if of_keys {
            store_sum(1u, d, sum_at(1u, d));
        }
    }
}
