//#include lib/fence.wgsl
// What the variants of the matrix product share: c[z, m, n] = a[z] * b[z], z over batches or, in a
// chunked product, over chunks of k. TA and TB: the operand is stored transposed, a[k, m] and b[n, k].
//
// Every element of c is one accumulator that starts at +0 and folds over ascending k, one product after
// the other: no variant, tile or unrolling may change that.

struct Params {
    zero: u32,
    m: u32,
    n: u32,
    k: u32,
    chunk: u32,
    batch: u32,
}

override TA: u32 = 0u;
override TB: u32 = 0u;

// One tile of c.
struct Tile {
    row: u32, // first row and column
    col: u32,
    z: u32,
    k0: u32, // range of k
    k1: u32,
    a: u32, // first elements of the operands' matrices
    b: u32,
}

fn gemm_parts() -> u32 {
    return select(max((P.k + P.chunk - 1u) / P.chunk, 1u), P.batch, P.batch > 1u);
}

// Whether there is a tile `wg` of `rows` x `cols` elements.
fn has_tile(wg: u32, rows: u32, cols: u32) -> bool {
    let tiles = ((P.m + rows - 1u) / rows) * ((P.n + cols - 1u) / cols);
    return wg < tiles * gemm_parts();
}

fn tile_at(wg: u32, rows: u32, cols: u32) -> Tile {
    let across = (P.n + cols - 1u) / cols;
    let down = (P.m + rows - 1u) / rows;
    let z = wg / (across * down);
    let row = ((wg / across) % down) * rows;
    let col = (wg % across) * cols;
    if P.batch > 1u {
        return Tile(row, col, z, 0u, P.k, z * P.m * P.k, z * P.k * P.n);
    }
    return Tile(row, col, z, z * P.chunk, min((z + 1u) * P.chunk, P.k), 0u, 0u);
}

// Element of a at (row, k) is a + row * a_row() + k * a_step(); of b at (k, col) likewise.
fn a_row() -> u32 {
    return select(P.k, 1u, TA == 1u);
}

fn a_step() -> u32 {
    return select(1u, P.m, TA == 1u);
}

fn b_col() -> u32 {
    return select(1u, P.k, TB == 1u);
}

fn b_step() -> u32 {
    return select(P.n, 1u, TB == 1u);
}

// One step of four accumulators.
fn fold(acc: vec4<f32>, a: f32, b: vec4<f32>) -> vec4<f32> {
    return acc + fence4(vec4<f32>(a) * b);
}

// Four neighbouring elements of a row of c, as far as they exist. Columns come in fours, so where c is
// packed an invocation owns its words.
fn store4(z: u32, row: u32, col: u32, v: vec4<f32>) {
    if row >= P.m {
        return;
    }
    if col < P.n {
        st2_c(z * P.m + row, col, P.n, v.xy);
    }
    if col + 2u < P.n {
        st2_c(z * P.m + row, col + 2u, P.n, v.zw);
    }
}
