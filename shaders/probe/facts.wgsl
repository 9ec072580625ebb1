//#include lib/grid.wgsl
// What the device does where nothing holds it: built-in functions, subnormals, unfenced products. Not
// portable on purpose, and no part of a run: the probe prints these answers, and the rows of a device
// that is known to differ show that the probe can see. Records and numbers as in arithmetic.wgsl.

struct Params {
    zero: u32,
    n: u32,
}

fn f(u: u32) -> f32 {
    return bitcast<f32>(u);
}

fn float_fact(op: u32, a: f32, b: f32, c: f32) -> f32 {
    switch op {
        case 0u: { return a * b + c; }
        case 1u: { return fma(a, b, c); }
        case 2u: { return (a + 12582912.0) - 12582912.0; }
        case 3u: { return (a + b) - a; }
        case 4u: { return a / b; }
        case 5u: { return sqrt(a); }
        case 6u: { return inverseSqrt(a); }
        case 7u: { return exp(a); }
        case 8u: { return log(a); }
        case 9u: { return tanh(a); }
        case 10u: { return a * b; }
        case 11u: { return a + b; }
        case 12u: { return min(a, b); }
        case 13u: { return max(a, b); }
        case 14u: { return round(a); }
        default: { return dot(vec4<f32>(a, b, c, a), vec4<f32>(b, c, a, c)); }
    }
}

fn word_fact(op: u32, a: u32, b: u32) -> u32 {
    switch op {
        case 20u: { return select(0u, 1u, f(a) != f(a)); }
        case 21u: { return bitcast<u32>(f32(a)); }
        case 22u: { return bitcast<u32>(f32(bitcast<i32>(a))); }
        case 23u: { return u32(f(a)); }
        default: { return bitcast<u32>(select(f(a), f(b), a == b)); }
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
    if op < 20u {
        st_out(i, bitcast<u32>(float_fact(op, f(a), f(b), f(c))));
    } else {
        st_out(i, word_fact(op, a, b));
    }
}
