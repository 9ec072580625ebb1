//#include lib/grid.wgsl
// cache[at[0] + i] = x[i], rows as words; rows past the cache's end are dropped.

struct Params {
    zero: u32,
    rows: u32,
    words: u32,
    t: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    let first = min(ld_at(0u), P.t);
    if i >= min(P.rows, P.t - first) * P.words {
        return;
    }
    put_cache(first * P.words + i, raw_x(i));
}
