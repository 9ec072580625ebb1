//#include lib/wide.wgsl
//#include lib/operand_f32.wgsl
// What attention and its gradient share. A workgroup has 32 rows of one head: queries, or keys in the
// gradient's second part. The rows of the other side go by in aligned blocks of 32, ascending. Rows past
// the end repeat the last one; what is masked has weight +0, whose products change no accumulator.
//
// HEAD is the head width, a constant of the generated text. The including shader declares PARTS, how
// many products of own rows there are (each with its own rows, weights and sums), and the functions
// load_own, load_sum and store_sum, which reach own rows and sums in memory, carried_sum, a sum
// of part 0 as it goes into the next block, and weight_operand, a weight of part 0 as it goes into a product.

struct Params {
    zero: u32,
    b: u32,
    t: u32,
    heads: u32,
    d: u32,
    scale: u32,
}

const BLOCK: u32 = 32u;
const GROUP: u32 = BLOCK / WIDTH;
const NEVER: f32 = -3.4028235e38; // the least finite number: what a masked score counts as

// For each part, row of the block and invocation one value; an invocation sees its own alone.
var<workgroup> weights: array<Wide, PARTS * BLOCK * GROUP>;
var<private> lane: u32;

fn weight(part: u32, j: u32) -> Wide {
    return weights[(part * BLOCK + j) * GROUP + lane];
}

fn put_weight(part: u32, j: u32, w: Wide) {
    weights[(part * BLOCK + j) * GROUP + lane] = w;
}

fn fence_w(x: Wide) -> Wide {
    return bitcast<Wide>(bitcast<Index>(x) ^ Index(hidden_zero()));
}

// Magnitudes below the limit, and -0, as +0.
fn floor_w(x: Wide, limit_bits: u32) -> Wide {
    let u = bitcast<Index>(x);
    return bitcast<Wide>(select(u, Index(0u), (u & Index(FENCE_ABS)) < Index(limit_bits)));
}

fn rn_floor_w(x: Wide, limit_bits: u32) -> Wide {
    let u = bitcast<Index>(x) ^ Index(hidden_zero());
    return bitcast<Wide>(select(u, Index(0u), (u & Index(FENCE_ABS)) < Index(limit_bits)));
}

fn rn_w(x: Wide) -> Wide {
    return rn_floor_w(x, FTZ_LIMIT);
}

fn max_w(a: Wide, b: Wide) -> Wide {
    return select(b, a, a > b);
}

//#include lib/fold_wide.wgsl

// One of q, k, v (0, 1, 2) of one head.
struct Head {
    first: u32, // its element in row 0
    pitch: u32, // from row to row
}

fn head_at(batch: u32, head: u32, which: u32) -> Head {
    let c = P.heads * HEAD;
    return Head(batch * P.t * 3u * c + which * c + head * HEAD, 3u * c);
}

// Four rows of a head from row `i` on.
fn rows_at(h: Head, i: u32) -> vec4<u32> {
    return min(vec4<u32>(i, i + 1u, i + 2u, i + 3u), vec4<u32>(P.t - 1u)) * h.pitch + h.first;
}

fn qkv_at(i: u32) -> f32 {
    return floor_to(ld_qkv(i), OPERAND_FLOOR);
}

// sums[0][d] += weights[0][j] * element d of row `first + j` of qkv, over ascending j, from 0 where the
// sums are `fresh`.
fn fold_rows(h: Head, first: u32, fresh: bool) {
    for (var d = 0u; d < rolled(HEAD); d += 4u) {
        let e = min(vec4<u32>(d, d + 1u, d + 2u, d + 3u), vec4<u32>(HEAD - 1u));
        var x0 = Wide(0.0);
        var x1 = Wide(0.0);
        var x2 = Wide(0.0);
        var x3 = Wide(0.0);
        if !fresh {
            x0 = carried_sum(e.x);
            x1 = carried_sum(e.y);
            x2 = carried_sum(e.z);
            x3 = carried_sum(e.w);
        }
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let at = vec4<u32>(min(first + j, P.t - 1u) * h.pitch + h.first) + e;
            let w = weight_operand(j);
            x0 = fold_w(x0, w, qkv_at(at.x));
            x1 = fold_w(x1, w, qkv_at(at.y));
            x2 = fold_w(x2, w, qkv_at(at.z));
            x3 = fold_w(x3, w, qkv_at(at.w));
        }
        // Past the width the last element again: the same sum.
        put_sum(0u, e.x, x0);
        put_sum(0u, e.y, x1);
        put_sum(0u, e.z, x2);
        put_sum(0u, e.w, x3);
    }
}
