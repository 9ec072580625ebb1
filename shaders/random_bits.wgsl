//#include lib/grid.wgsl
//#include lib/rng.wgsl
// out[2 i], out[2 i + 1] = threefry(key, (i, stream)).

struct Params {
    zero: u32,
    n: u32,
    key0: u32,
    key1: u32,
    stream: u32,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let i = flat(wid, nwg) * 256u + li;
    if 2u * i >= P.n {
        return;
    }
    let x = threefry(vec2<u32>(P.key0, P.key1), vec2<u32>(i, P.stream));
    st_out(2u * i, x.x);
    if 2u * i + 1u < P.n {
        st_out(2u * i + 1u, x.y);
    }
}
