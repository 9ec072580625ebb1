//#include lib/grid.wgsl
//#include lib/gemm_tree.wgsl

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if i < P.n {
        st_out(i, tree_at(i));
    }
}
