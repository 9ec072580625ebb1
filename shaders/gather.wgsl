//#include lib/grid.wgsl
// out[n, c] = table[idx[n], c], bits copied. An id past the table reads the last row.

struct Params {
    zero: u32,
    n: u32,
    c: u32,
    rows: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if i >= P.n * P.c {
        return;
    }
    let id = min(ld_idx(i / P.c), P.rows - 1u);
    put_out(i, raw_table(id * P.c + i % P.c));
}
