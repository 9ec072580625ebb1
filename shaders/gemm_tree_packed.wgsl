//#include lib/grid.wgsl
//#include lib/gemm_tree.wgsl
// As gemm_tree.wgsl with a packed result, each element through the expression: see pointwise_packed.wgsl.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let word = flat(wid, nwg) * 256u + li;
    if word >= WORDS {
        return;
    }
    let pitch = (ROW + 1u) / 2u;
    let column = word % pitch * 2u;
    let i = word / pitch * ROW + column;
    var high = 0u;
    if column + 1u < ROW {
        high = round_out(expression(i + 1u, tree_at(i + 1u)));
    }
    put_out(word, round_out(expression(i, tree_at(i))) | (high << 16u));
}
