//#include lib/grid.wgsl
//#include lib/adamw.wgsl
// AdamW, in place, an element an invocation.

struct Params {
    zero: u32,
    n: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if i >= P.n || !gradient_is_finite() {
        return;
    }
    let next = adamw(Element(ld_w(i), ld_m(i), ld_v(i)), ld_g(i));
    st_w(i, next.w);
    st_m(i, next.m);
    st_v(i, next.v);
}
