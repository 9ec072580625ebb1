//#include lib/grid.wgsl
//#include lib/math.wgsl
//#include lib/reduce.wgsl
// out[i] = expression(i). The parameters and the expression are generated: each operand is flushed on
// load and each instruction's result rounded and flushed.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if i < P.n {
        st_out(i, expression(i));
    }
}
