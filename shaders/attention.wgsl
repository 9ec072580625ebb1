//#include lib/grid.wgsl
//#include lib/attention.wgsl
// qkv[b, t, 3c] -> y[b, t, c], lse[b, h, t]: causal attention with a running softmax over blocks of keys.

const PARTS: u32 = 1u;

var<private> queries: Head;
var<private> row: Index; // own rows, in q
var<private> place: Index; // where their sums begin, in y
var<private> there: Mask;
var<private> alpha: Wide; // e to the old maximum less the new one

fn load_own(part: u32, d: u32) -> Wide {
    return floor_w(ldw_qkv(row * queries.pitch + Index(queries.first + d)), OPERAND_FLOOR);
}

fn load_sum(part: u32, d: u32) -> Wide {
    return ldw_y(place + Index(d));
}

fn store_sum(part: u32, d: u32, v: Wide) {
    stw_y(place + Index(d), v, there);
}

// A sum under a new maximum.
fn carried_sum(d: u32) -> Wide {
    return rn_floor_w(sum_at(0u, d) * alpha, FLOOR_SUM);
}

fn weight_operand(j: u32) -> Wide {
    return operand_w(weight(0u, j));
}

// The scaled scores of a block of keys, folded over ascending d, as weights; returns the largest that is
// not masked.
fn scores(keys: Head, first: u32, query: Index) -> Wide {
    let scale = bitcast<f32>(P.scale);
    var top = Wide(NEVER);
    for (var j = 0u; j < rolled(BLOCK); j += 8u) {
        let r = rows_at(keys, first + j);
        let s = rows_at(keys, first + j + 4u);
        var x0 = Wide(0.0);
        var x1 = Wide(0.0);
        var x2 = Wide(0.0);
        var x3 = Wide(0.0);
        var x4 = Wide(0.0);
        var x5 = Wide(0.0);
        var x6 = Wide(0.0);
        var x7 = Wide(0.0);
        for (var d = 0u; d < rolled(HEAD); d++) {
            let q = own(0u, d);
            x0 = fold_w(x0, q, qkv_at(r.x + d));
            x1 = fold_w(x1, q, qkv_at(r.y + d));
            x2 = fold_w(x2, q, qkv_at(r.z + d));
            x3 = fold_w(x3, q, qkv_at(r.w + d));
            x4 = fold_w(x4, q, qkv_at(s.x + d));
            x5 = fold_w(x5, q, qkv_at(s.y + d));
            x6 = fold_w(x6, q, qkv_at(s.z + d));
            x7 = fold_w(x7, q, qkv_at(s.w + d));
        }
        put_weight(0u, j, rn_w(x0 * scale));
        put_weight(0u, j + 1u, rn_w(x1 * scale));
        put_weight(0u, j + 2u, rn_w(x2 * scale));
        put_weight(0u, j + 3u, rn_w(x3 * scale));
        put_weight(0u, j + 4u, rn_w(x4 * scale));
        put_weight(0u, j + 5u, rn_w(x5 * scale));
        put_weight(0u, j + 6u, rn_w(x6 * scale));
        put_weight(0u, j + 7u, rn_w(x7 * scale));
    }
    for (var j = 0u; j < rolled(BLOCK); j++) {
        top = max_w(top, select(Wide(NEVER), weight(0u, j), Index(first + j) <= query));
    }
    return top;
}

// The halving tree over the block's weights, which it uses up.
fn sum_block() -> Wide {
    for (var half = rolled(16u); half > 0u; half /= 2u) {
        for (var j = 0u; j < half; j++) {
            put_weight(0u, j, fence_w(weight(0u, j) + weight(0u, j + half)));
        }
    }
    return weight(0u, 0u);
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let tiles = (P.t + BLOCK - 1u) / BLOCK;
    let wg = flat(wid, nwg);
    if wg >= tiles * P.heads * P.b {
        return;
    }
    let tile = wg % tiles;
    let head = (wg / tiles) % P.heads;
    let batch = wg / tiles / P.heads;
    let c = P.heads * HEAD;
    let keys = head_at(batch, head, 1u);
    let values = head_at(batch, head, 2u);
    let query = Index(tile * BLOCK + li * WIDTH) + components();
    lane = li;
    queries = head_at(batch, head, 0u);
    row = min(query, Index(P.t - 1u));
    place = row * c + Index(batch * P.t * c + head * HEAD);
    there = query < Index(P.t);
    keep_own();

    var top = Wide(0.0);
    var total = Wide(0.0);
    for (var b = 0u; b <= tile; b++) {
        let first = b * BLOCK;
        let block_top = scores(keys, first, query);
        let new_top = select(max_w(top, block_top), block_top, Mask(b == 0u));
        alpha = exp_w(rn_w(top - new_top));
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let e = exp_w(rn_w(weight(0u, j) - new_top));
            let p = select(Wide(0.0), e, Index(first + j) <= query);
            put_weight(0u, j, floor_w(p, FLOOR_SUM));
        }
        fold_rows(values, first, b == 0u);
        let block_total = sum_block();
        let carried = rn_floor_w(total * alpha, FLOOR_SUM);
        total = select(fence_w(carried + block_total), block_total, Mask(b == 0u));
        top = new_top;
    }
    for (var d = 0u; d < rolled(HEAD); d++) {
        store_sum(0u, d, div_w(sum_at(0u, d), total));
    }
    stw_lse(row + Index((batch * P.heads + head) * P.t), rn_w(top + log_w(total)), there);
}
