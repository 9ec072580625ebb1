//#include lib/grid.wgsl
// out[i] = x[sum over d of index_d(i) * stride_d]. Bits are copied, never computed with.

struct Params {
    zero: u32,
    n: u32,
    d0: u32, d1: u32, d2: u32, d3: u32, d4: u32, d5: u32,
    s0: u32, s1: u32, s2: u32, s3: u32, s4: u32, s5: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if i >= P.n {
        return;
    }
    var rest = i;
    var at = (rest % P.d5) * P.s5;
    rest /= P.d5;
    at += (rest % P.d4) * P.s4;
    rest /= P.d4;
    at += (rest % P.d3) * P.s3;
    rest /= P.d3;
    at += (rest % P.d2) * P.s2;
    rest /= P.d2;
    at += (rest % P.d1) * P.s1;
    rest /= P.d1;
    at += (rest % P.d0) * P.s0;
    put_out(i, raw_x(at));
}
