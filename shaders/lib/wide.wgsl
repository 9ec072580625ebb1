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

fn exp_w(x: Wide) -> Wide {
    return vec4<f32>(exp_(x.x), exp_(x.y), exp_(x.z), exp_(x.w));
}

fn log_w(x: Wide) -> Wide {
    return vec4<f32>(log_(x.x), log_(x.y), log_(x.z), log_(x.w));
}

fn div_w(a: Wide, b: Wide) -> Wide {
    return vec4<f32>(div_(a.x, b.x), div_(a.y, b.y), div_(a.z, b.z), div_(a.w, b.w));
}
