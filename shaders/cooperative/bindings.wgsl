// What the kernels on cooperative matrices share: two operands, the result, and how a matrix is stored.

struct Params {
    extent: u32,
}
@group(0) @binding(0) var<uniform> P: Params;
@group(0) @binding(1) var<storage, read> a: array<f16>;
@group(0) @binding(2) var<storage, read> b: array<f16>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

// (naga 30 wants the index of a store to be known before the statement.)
fn put(m: Sum, at: u32, pitch: u32) {
    coopStoreT(m, &c[at], pitch);
}

