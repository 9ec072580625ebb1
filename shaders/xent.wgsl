//#include lib/grid.wgsl
//#include lib/fence.wgsl
// Cross-entropy of each row: lse - x[target]. A target past the row reads as 0.

struct Params {
    zero: u32,
    rows: u32,
    c: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if i >= P.rows {
        return;
    }
    let t = ld_target(i);
    let picked = select(0.0, ftz(ld_x(i * P.c + min(t, P.c - 1u))), t < P.c);
    st_loss(i, rn(ftz(ld_lse(i)) - picked));
}
