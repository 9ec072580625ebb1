//#include lib/wide.wgsl
// What attention and its gradient share. A workgroup has 32 rows of one head: queries, or keys in the
// gradient's second part. The rows of the other side go by in aligned blocks of 32, ascending. Rows past
// the end repeat the last one; what is masked has weight +0, whose products change no accumulator.
//
// HEAD is the head width, a constant of the generated text. PARTS, how many products of own rows there
// are (each with its own rows, weights and sums), is the including shader's.

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
const PADDED: u32 = (HEAD + 3u) / 4u * 4u;
const NEVER: f32 = -3.4028235e38; // the least finite number: what a masked score counts as

var<private> mine: array<Wide, PARTS * HEAD>; // own rows
var<private> sums: array<Wide, PARTS * PADDED>; // own sums
var<private> weights: array<Wide, 2u * BLOCK>; // two values for each row of the block

fn fence_w(x: Wide) -> Wide {
    return bitcast<Wide>(bitcast<Index>(x) ^ Index(hidden_zero()));
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

// One step of an accumulator.
fn fold_w(acc: Wide, a: Wide, b: f32) -> Wide {
    return acc + fence_w(a * b);
}

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
    return floor_to(ld_qkv(i), FLOOR_F32_OPERAND);
}

// Own rows of part `part`.
fn load_mine(part: u32, h: Head, rows: Index) {
    for (var d = 0u; d < rolled(HEAD); d++) {
        let x = ldw_qkv(rows * h.pitch + Index(h.first + d));
        mine[part * HEAD + d] = rn_floor_w(x, FLOOR_F32_OPERAND);
    }
}

fn clear_sums() {
    for (var d = 0u; d < rolled(PARTS * PADDED); d++) {
        sums[d] = Wide(0.0);
    }
}

// weights[part][j] = product of the part's own row with row `first + j` of qkv, over ascending d.
fn dots(part: u32, h: Head, first: u32) {
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
            let a = mine[part * HEAD + d];
            x0 = fold_w(x0, a, qkv_at(r.x + d));
            x1 = fold_w(x1, a, qkv_at(r.y + d));
            x2 = fold_w(x2, a, qkv_at(r.z + d));
            x3 = fold_w(x3, a, qkv_at(r.w + d));
            x4 = fold_w(x4, a, qkv_at(s.x + d));
            x5 = fold_w(x5, a, qkv_at(s.y + d));
            x6 = fold_w(x6, a, qkv_at(s.z + d));
            x7 = fold_w(x7, a, qkv_at(s.w + d));
        }
        let at = part * BLOCK + j;
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

// sums[0][d] += weights[1][j] * element d of row `first + j` of qkv, over ascending j.
fn fold_rows(h: Head, first: u32) {
    for (var d = 0u; d < rolled(HEAD); d += 4u) {
        let e = min(vec4<u32>(d, d + 1u, d + 2u, d + 3u), vec4<u32>(HEAD - 1u)) + h.first;
        var x0 = sums[d];
        var x1 = sums[d + 1u];
        var x2 = sums[d + 2u];
        var x3 = sums[d + 3u];
        for (var j = 0u; j < rolled(BLOCK); j++) {
            let at = min(first + j, P.t - 1u) * h.pitch;
            let w = weights[BLOCK + j];
            x0 = fold_w(x0, w, qkv_at(at + e.x));
            x1 = fold_w(x1, w, qkv_at(at + e.y));
            x2 = fold_w(x2, w, qkv_at(at + e.z));
            x3 = fold_w(x3, w, qkv_at(at + e.w));
        }
        sums[d] = x0;
        sums[d + 1u] = x1;
        sums[d + 2u] = x2;
        sums[d + 3u] = x3;
    }
}
