//#include lib/grid.wgsl
//#include lib/math.wgsl
//#include lib/weight_f32.wgsl
// qkv[r, 3c], cache[t, 3c], at[r] -> y[r, c]: row i stands at position at[0] + i and attends to the
// cache's rows before at[0] and the rows 0 to i.
//
// A workgroup has one query of one head: an invocation scores one key of a block of 32, then sums its
// share of the head's elements. Every sum has the order of attention.wgsl, so the bits are the same.
// HEAD is the head width, a constant of the generated text.

struct Params {
    zero: u32,
    r: u32,
    t: u32,
    heads: u32,
    d: u32,
    scale: u32,
}

const BLOCK: u32 = 32u;
const NEVER: f32 = -3.4028235e38; // the least finite number: what a masked score counts as

var<workgroup> tops: array<f32, BLOCK>;
var<workgroup> weights: array<f32, BLOCK>;
var<workgroup> sums: array<f32, BLOCK>;

// A loop's bound that compilers do not know, so that they do not unroll it.
fn rolled(n: u32) -> u32 {
    return n ^ P.zero;
}

// Element `e` of the row at a position: from the cache before `first`, from the new rows from there on.
fn row_at(position: u32, first: u32, e: u32) -> f32 {
    let pitch = 3u * P.heads * HEAD;
    if position < first {
        return floor_to(ld_cache(position * pitch + e), OPERAND_FLOOR);
    }
    return floor_to(ld_qkv((position - first) * pitch + e), OPERAND_FLOOR);
}

fn larger(a: f32, b: f32) -> f32 {
    return select(b, a, a > b);
}

@compute @workgroup_size(32)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let wg = flat(wid, nwg);
    if wg >= P.r * P.heads {
        return;
    }
    let head = wg % P.heads;
    let i = wg / P.heads;
    let c = P.heads * HEAD;
    let first = min(ld_at(0u), P.t);
    let query = first + i;
    let q0 = head * HEAD;
    let k0 = c + q0;
    let v0 = c + k0;
    let out = i * c + q0;
    let scale = bitcast<f32>(P.scale);

    var top = 0.0;
    var total = 0.0;
    for (var b = 0u; b <= query / BLOCK; b++) {
        let key = b * BLOCK + li;
        let seen = min(key, query);
        var x = 0.0;
        for (var d = 0u; d < rolled(HEAD); d++) {
            x = x + fence(row_at(query, first, q0 + d) * row_at(seen, first, k0 + d));
        }
        let score = rn(x * scale);
        tops[li] = select(NEVER, score, key <= query);
        workgroupBarrier();
        var block_top = tops[0];
        for (var j = 1u; j < rolled(BLOCK); j++) {
            block_top = larger(block_top, tops[j]);
        }
        let new_top = select(larger(top, block_top), block_top, b == 0u);
        let alpha = exp_(rn(top - new_top));
        let e = exp_(rn(score - new_top));
        let p = floor_to(select(0.0, e, key <= query), FLOOR_SUM);
        weights[li] = weight_operand(p);
        sums[li] = p;
        workgroupBarrier();
        // The halving tree.
        for (var half = rolled(BLOCK / 2u); half > 0u; half /= 2u) {
            if li < half {
                sums[li] = fence(sums[li] + sums[li + half]);
            }
            workgroupBarrier();
        }
        let carried = rn_floor(total * alpha, FLOOR_SUM);
        total = select(fence(carried + sums[0]), sums[0], b == 0u);
        top = new_top;
        for (var d = li; d < rolled(HEAD); d += BLOCK) {
            var acc = 0.0;
            if b > 0u {
                acc = rn_floor(ld_y(out + d) * alpha, FLOOR_SUM);
            }
            for (var j = 0u; j < rolled(BLOCK); j++) {
                let at = min(b * BLOCK + j, query);
                acc = acc + fence(weights[j] * row_at(at, first, v0 + d));
            }
            st_y(out + d, acc);
        }
        workgroupBarrier();
    }
    for (var d = li; d < rolled(HEAD); d += BLOCK) {
        st_y(out + d, div_(ld_y(out + d), total));
    }
}
