//#include lib/fence.wgsl
// The loss scale of the next step. counts: good steps since it last changed, steps skipped, updates
// applied, bits of the scale that the last step used.

struct Params {
    zero: u32,
    interval: u32,
    cap: u32,
}

@compute @workgroup_size(1)
fn main() {
    let scale = ld_scale(0u);
    let skips = (raw_norm(0u) & 0x7f800000u) == 0x7f800000u;
    let good = ld_counts(0u) + 1u;
    let grows = !skips && good >= P.interval && scale * 2.0 <= bitcast<f32>(P.cap);
    let halved = select(1.0, scale * 0.5, scale * 0.5 > 1.0);
    st_scale_out(0u, select(select(scale, scale * 2.0, grows), halved, skips));
    st_counts_out(0u, select(good, 0u, skips || good >= P.interval));
    st_counts_out(1u, ld_counts(1u) + select(0u, 1u, skips));
    st_counts_out(2u, ld_counts(2u) + select(1u, 0u, skips));
    st_counts_out(3u, raw_scale(0u));
}
