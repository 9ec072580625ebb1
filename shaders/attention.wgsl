//#include lib/grid.wgsl
//#include lib/attention.wgsl
// qkv[b, t, 3c] -> y[b, t, c], lse[b, h, t]: causal attention with a running softmax over blocks of keys.

const PARTS: u32 = 1u;

var<private> tree: array<Wide, 16>;

// The halving tree over the block's weights.
fn sum_block() -> Wide {
    for (var j = 0u; j < rolled(16u); j++) {
        let low = rn_floor_w(weights[j], FLOOR_SUM);
        tree[j] = fence_w(low + rn_floor_w(weights[j + 16u], FLOOR_SUM));
    }
    for (var half = 8u; half > 0u; half /= 2u) {
        for (var j = 0u; j < half; j++) {
            tree[j] = fence_w(tree[j] + tree[j + half]);
        }
    }
    return tree[0];
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
    let keys = head_at(batch, head, 1u);
    let values = head_at(batch, head, 2u);
    let scale = bitcast<f32>(P.scale);
    let query = Index(tile * BLOCK + li * WIDTH) + components();
    let row = min(query, Index(P.t - 1u));
    load_mine(0u, head_at(batch, head, 0u), row);

    var top = Wide(0.0);
    var total = Wide(0.0);
    for (var b = 0u; b <= tile; b++) {
        let first = b * BLOCK;
        dots(0u, keys, first);
        var block_top = Wide(NEVER);
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let s = rn_w(weights[j] * scale);
            weights[j] = s;
            block_top = max_w(block_top, select(Wide(NEVER), s, Index(first + j) <= query));
        }
        let new_top = select(block_top, max_w(top, block_top), Mask(b > 0u));
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let e = exp_w(rn_w(weights[j] - new_top));
            let p = select(Wide(0.0), e, Index(first + j) <= query);
            weights[j] = p;
            weights[BLOCK + j] = rn_floor_w(p, FLOOR_F32_OPERAND);
        }
        let block_total = sum_block();
        if b == 0u {
            total = block_total;
            clear_sums();
        } else {
            let alpha = exp_w(rn_w(top - new_top));
            total = fence_w(rn_floor_w(total * alpha, FLOOR_SUM) + block_total);
            for (var d = 0u; d < rolled(PADDED); d++) {
                sums[d] = rn_floor_w(sums[d] * alpha, FLOOR_SUM);
            }
        }
        top = new_top;
        fold_rows(values, first);
    }
    let there = query < Index(P.t);
    let c = P.heads * HEAD;
    for (var d = 0u; d < rolled(HEAD); d++) {
        stw_y(row * c + Index(batch * P.t * c + head * HEAD + d), div_w(sums[d], total), there);
    }
    stw_lse(row + Index((batch * P.heads + head) * P.t), rn_w(top + log_w(total)), there);
}
