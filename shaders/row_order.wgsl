//#include lib/grid.wgsl
// For each id v the positions that hold it, ascending: order[start[v]..start[v + 1]]. One invocation an
// id walks all positions twice: to count those of smaller ids, then to write its own.

struct Params {
    zero: u32,
    n: u32,
    v: u32,
}

@compute @workgroup_size(32)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let id = flat(wid, nwg) * 32u + li;
    if id >= P.v {
        return;
    }
    let last = P.v - 1u;
    var at = 0u;
    for (var n = 0u; n < P.n; n++) {
        at += select(0u, 1u, min(ld_idx(n), last) < id);
    }
    st_start(id, at);
    for (var n = 0u; n < P.n; n++) {
        if min(ld_idx(n), last) == id {
            st_order(at, n);
            at++;
        }
    }
    if id == last {
        st_start(P.v, P.n);
    }
}
