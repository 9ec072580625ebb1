//#include lib/math.wgsl
// One invocation computes four rows side by side, a row a component. narrow.wgsl is the same for one.
alias Wide = vec4<f32>;
alias Index = vec4<u32>;
alias Mask = vec4<bool>;

const WIDTH: u32 = 4u;

// The number of each component.
fn components() -> Index {
    return vec4<u32>(0u, 1u, 2u, 3u);
}

// A loop's bound that compilers do not know, so that they do not unroll it: a buffer's length is below
// 2^31. Not the fences' zero: drivers that put the value of a uniform word which bounds a loop into the
// whole shader (Mesa's inlined uniforms) would see through every fence.
fn rolled(n: u32) -> u32 {
    return n ^ (arrayLength(&b_qkv) >> 31u);
}

fn exp_w(x: Wide) -> Wide {
    return vec4<f32>(exp_(x.x), exp_(x.y), exp_(x.z), exp_(x.w));
}

fn log_w(x: Wide) -> Wide {
    return vec4<f32>(log_(x.x), log_(x.y), log_(x.z), log_(x.w));
}

// Component by component: four divisions side by side take drivers half a minute to compile.
fn div_w(a: Wide, b: Wide) -> Wide {
    var x = a;
    var y = b;
    for (var k = 0u; k < rolled(4u); k++) {
        x[k] = div_(x[k], y[k]);
    }
    return x;
}

// Own rows and sums stay in memory: arrays that are indexed at run time are slow here.
fn keep_own() {
}

fn own(part: u32, d: u32) -> Wide {
    return load_own(part, d);
}

fn sum_at(part: u32, d: u32) -> Wide {
    return load_sum(part, d);
}

fn put_sum(part: u32, d: u32, v: Wide) {
    store_sum(part, d, v);
}
