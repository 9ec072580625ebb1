//#include lib/grid.wgsl
//#include lib/math.wgsl
//#include lib/rng.wgsl
// Micro-kernels of the probe: the functions of lib/math.wgsl and the random numbers. Records and numbers
// as in arithmetic.wgsl.

struct Params {
    zero: u32,
    n: u32,
}

fn value(op: u32, a: f32, b: f32) -> f32 {
    switch op {
        case 0u: { return exp_(a); }
        case 1u: { return log_(a); }
        case 2u: { return tanh_(a); }
        case 3u: { return erf_(a); }
        case 4u: { return normal_cdf(a); }
        case 5u: { return gelu(a); }
        case 6u: { return gelu_grad(a); }
        case 7u: { return div_(a, b); }
        case 8u: { return sqrt_(a); }
        default: { return rsqrt_(a); }
    }
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 64u + li;
    if i >= P.n {
        return;
    }
    let op = ld_x(4u * i);
    let a = ld_x(4u * i + 1u);
    let b = ld_x(4u * i + 2u);
    let c = ld_x(4u * i + 3u);
    if op == 10u {
        let r = threefry(vec2<u32>(a, b), vec2<u32>(c, 7u));
        st_out(i, r.x ^ ((r.y << 16u) | (r.y >> 16u)));
    } else {
        st_out(i, bitcast<u32>(value(op, bitcast<f32>(a), bitcast<f32>(b))));
    }
}
