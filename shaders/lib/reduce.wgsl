//#include lib/fence.wgsl
// The one order in which rows are reduced, the twin of src/kernels/lanes.rs: element i goes to virtual
// lane i mod 32, ascending, then a halving tree combines the lanes. Lanes 4q to 4q + 3 are the four
// components of part q.

// The larger and the smaller of two numbers by one comparison.
fn max2(a: f32, b: f32) -> f32 {
    return select(b, a, a > b);
}

fn min2(a: f32, b: f32) -> f32 {
    return select(b, a, a < b);
}

fn max4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return select(b, a, a > b);
}

// What a maximum starts from: the least finite number, because compilers may assume that there are no
// infinities. (The twin starts from minus infinity; the same for finite elements.)
const LOWEST: f32 = -3.4028235e38;

// The places of elements i to i + 3 in a row of `len`; past the end, the last one's.
fn four(i: u32, len: u32) -> vec4<u32> {
    return min(vec4<u32>(i, i + 1u, i + 2u, i + 3u), vec4<u32>(len - 1u));
}

// The values of elements i to i + 3 of a row of `len`; past the end the identity.
fn four_or(x: vec4<f32>, i: u32, len: u32, identity: f32) -> vec4<f32> {
    return select(vec4<f32>(identity), x, vec4<u32>(i, i + 1u, i + 2u, i + 3u) < vec4<u32>(len));
}

fn add(a: f32, b: f32) -> f32 {
    return fence(a + b);
}

fn add4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return fence4(a + b);
}

// One step of a sum: the terms floored at 2^-102, so that no partial sum is subnormal.
fn sum_step(acc: vec4<f32>, terms: vec4<f32>) -> vec4<f32> {
    return add4(acc, rn_floor4(terms, FLOOR_SUM));
}

// The halving tree over the eight parts of a row.
fn tree_sum(p: array<vec4<f32>, 8>) -> f32 {
    let a = add4(add4(p[0], p[4]), add4(p[2], p[6]));
    let b = add4(add4(p[1], p[5]), add4(p[3], p[7]));
    let c = add4(a, b);
    return add(add(c.x, c.z), add(c.y, c.w));
}

fn tree_max(p: array<vec4<f32>, 8>) -> f32 {
    let a = max4(max4(p[0], p[4]), max4(p[2], p[6]));
    let b = max4(max4(p[1], p[5]), max4(p[3], p[7]));
    let c = max4(a, b);
    return max2(max2(c.x, c.z), max2(c.y, c.w));
}
