//#include lib/grid.wgsl
//#include lib/math.wgsl
// dx = (exp(x - lse) - [target]) * g[row].

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
    if i >= P.rows * P.c {
        return;
    }
    let row = i / P.c;
    let p = exp_(rn(ftz(ld_x(i)) - ftz(ld_lse(row))));
    let hit = i % P.c == ld_target(row);
    st_dx(i, rn(select(p, rn(p - 1.0), hit) * ftz(ld_g(row))));
}
