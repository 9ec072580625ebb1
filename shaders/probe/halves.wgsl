//#include lib/grid.wgsl
// The built-in conversions of fp16, which not every device offers. Facts, as in facts.wgsl.

struct Params {
    zero: u32,
    n: u32,
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
    let a = ld_x(4u * i + 1u);
    let b = ld_x(4u * i + 2u);
    if ld_x(4u * i) == 30u {
        st_out(i, pack2x16float(vec2<f32>(bitcast<f32>(a), bitcast<f32>(b))));
    } else {
        st_out(i, bitcast<u32>(unpack2x16float(a).x));
    }
}
