//#include lib/grid.wgsl
//#include lib/attention.wgsl
// qkv, lse[b, h, t], delta[b, t, h], g[b, t, c] -> dqkv[b, t, 3c]. The first half of the workgroups
// computes dq, the second dk and dv; each recomputes the probabilities it needs.

const PARTS: u32 = 2u;

fn g_at(i: u32) -> f32 {
    return floor_to(ld_g(i), FLOOR_F32_OPERAND);
}

// One head of g.
fn g_head(batch: u32, head: u32) -> Head {
    let c = P.heads * HEAD;
    return Head(batch * P.t * c + head * HEAD, c);
}

// As dots, of part 1 with rows of g.
fn dots_g(h: Head, first: u32) {
    for (var j = 0u; j < rolled(BLOCK); j += 8u) {
        let r = rows_at(h, first + j);
        let s = rows_at(h, first + j + 4u);
        var x0 = Wide(0.0);
        var x1 = Wide(0.0);
        var x2 = Wide(0.0);
        var x3 = Wide(0.0);
        var x4 = Wide(0.0);
        var x5 = Wide(0.0);
        var x6 = Wide(0.0);
        var x7 = Wide(0.0);
        for (var d = 0u; d < rolled(HEAD); d++) {
            let a = mine[HEAD + d];
            x0 = fold_w(x0, a, g_at(r.x + d));
            x1 = fold_w(x1, a, g_at(r.y + d));
            x2 = fold_w(x2, a, g_at(r.z + d));
            x3 = fold_w(x3, a, g_at(r.w + d));
            x4 = fold_w(x4, a, g_at(s.x + d));
            x5 = fold_w(x5, a, g_at(s.y + d));
            x6 = fold_w(x6, a, g_at(s.z + d));
            x7 = fold_w(x7, a, g_at(s.w + d));
        }
        let at = BLOCK + j;
        weights[at] = x0;
        weights[at + 1u] = x1;
        weights[at + 2u] = x2;
        weights[at + 3u] = x3;
        weights[at + 4u] = x4;
        weights[at + 5u] = x5;
        weights[at + 6u] = x6;
        weights[at + 7u] = x7;
    }
}

// As fold_rows: sums[1] += weights[0] * rows of g.
fn fold_rows_g(h: Head, first: u32) {
    for (var d = 0u; d < rolled(HEAD); d += 4u) {
        let e = min(vec4<u32>(d, d + 1u, d + 2u, d + 3u), vec4<u32>(HEAD - 1u)) + h.first;
        var x0 = sums[PADDED + d];
        var x1 = sums[PADDED + d + 1u];
        var x2 = sums[PADDED + d + 2u];
        var x3 = sums[PADDED + d + 3u];
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let at = min(first + j, P.t - 1u) * h.pitch;
            let w = weights[j];
            x0 = fold_w(x0, w, g_at(at + e.x));
            x1 = fold_w(x1, w, g_at(at + e.y));
            x2 = fold_w(x2, w, g_at(at + e.z));
            x3 = fold_w(x3, w, g_at(at + e.w));
        }
        sums[PADDED + d] = x0;
        sums[PADDED + d + 1u] = x1;
        sums[PADDED + d + 2u] = x2;
        sums[PADDED + d + 3u] = x3;
    }
}

// The probability of one pair, 0 where it is masked.
fn probability(s: Wide, lse: Wide, seen: Mask) -> Wide {
    let e = exp_w(rn_w(rn_w(s * bitcast<f32>(P.scale)) - lse));
    return select(Wide(0.0), e, seen);
}

// The gradient of a score, before the scale.
fn score_grad(p: Wide, dp: Wide, delta: Wide) -> Wide {
    return rn_floor_w(p * rn_w(dp - delta), FLOOR_F32_OPERAND);
}

// dq of 32 queries.
fn queries_part(tile: u32, head: u32, batch: u32, li: u32) {
    let c = P.heads * HEAD;
    let keys = head_at(batch, head, 1u);
    let values = head_at(batch, head, 2u);
    let queries = head_at(batch, head, 0u);
    let query = Index(tile * BLOCK + li * WIDTH) + components();
    let row = min(query, Index(P.t - 1u));
    load_mine(0u, queries, row);
    let gh = g_head(batch, head);
    for (var d = 0u; d < rolled(HEAD); d++) {
        mine[HEAD + d] = rn_floor_w(ldw_g(row * gh.pitch + Index(gh.first + d)), FLOOR_F32_OPERAND);
    }
    clear_sums();
    let lse = rn_w(ldw_lse(row + Index((batch * P.heads + head) * P.t)));
    let delta = rn_w(ldw_delta((row + Index(batch * P.t)) * P.heads + Index(head)));
    for (var b = 0u; b <= tile; b++) {
        let first = b * BLOCK;
        dots(0u, keys, first);
        dots(1u, values, first);
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let p = probability(weights[j], lse, Index(first + j) <= query);
            weights[BLOCK + j] = score_grad(p, weights[BLOCK + j], delta);
        }
        fold_rows(keys, first);
    }
    let there = query < Index(P.t);
    for (var d = 0u; d < rolled(HEAD); d++) {
        let dq = rn_w(sums[d] * bitcast<f32>(P.scale));
        stw_dqkv(row * queries.pitch + Index(queries.first + d), dq, there);
    }
}

// dk and dv of 32 keys.
fn keys_part(tile: u32, head: u32, batch: u32, li: u32) {
    let keys = head_at(batch, head, 1u);
    let values = head_at(batch, head, 2u);
    let queries = head_at(batch, head, 0u);
    let gh = g_head(batch, head);
    let key = Index(tile * BLOCK + li * WIDTH) + components();
    let row = min(key, Index(P.t - 1u));
    load_mine(0u, keys, row);
    load_mine(1u, values, row);
    clear_sums();
    for (var first = tile * BLOCK; first < P.t; first += BLOCK) {
        dots(0u, queries, first);
        dots_g(gh, first);
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let query = min(first + j, P.t - 1u);
            let lse = ftz(ld_lse((batch * P.heads + head) * P.t + query));
            let delta = ftz(ld_delta((batch * P.t + query) * P.heads + head));
            let seen = (key <= Index(first + j)) & Mask(first + j < P.t);
            let p = probability(weights[j], Wide(lse), seen);
            weights[BLOCK + j] = score_grad(p, weights[BLOCK + j], Wide(delta));
            weights[j] = rn_floor_w(p, FLOOR_F32_OPERAND);
        }
        fold_rows(queries, first);
        fold_rows_g(gh, first);
    }
    let there = key < Index(P.t);
    for (var d = 0u; d < rolled(HEAD); d++) {
        let dk = rn_w(sums[d] * bitcast<f32>(P.scale));
        stw_dqkv(row * keys.pitch + Index(keys.first + d), dk, there);
        stw_dqkv(row * values.pitch + Index(values.first + d), sums[PADDED + d], there);
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
    if wg < half {
        queries_part(tile, head, batch, li);
    } else {
        keys_part(tile, head, batch, li);
    }
}
