// The number of a workgroup: grids past 65,535 workgroups have two dimensions, and those past the
// last one have nothing to do.
fn flat(wid: vec3<u32>, nwg: vec3<u32>) -> u32 {
    return wid.x + wid.y * nwg.x;
}
