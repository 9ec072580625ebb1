//#include lib/grid.wgsl
//#include lib/fence.wgsl
// out[v, c] = sum of g[order[r], c] for r in start[v]..start[v + 1], ascending.

struct Params {
    zero: u32,
    v: u32,
    c: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if i >= P.v * P.c {
        return;
    }
    let v = i / P.c;
    let column = i % P.c;
    let end = ld_start(v + 1u);
    var acc = 0.0;
    for (var r = ld_start(v); r < end; r++) {
        acc = fence(acc + floor_to(ld_g(ld_order(r) * P.c + column), FLOOR_SUM));
    }
    st_out(i, acc);
}
