//#include lib/math.wgsl
// What AdamW reads in a step under loss scaling: the scalars with the bias corrections of the updates
// applied so far, and a norm that is NaN where norm or loss is not finite.

struct Params {
    zero: u32,
    n: u32,
}

fn is_finite(u: u32) -> bool {
    return (u & 0x7f800000u) != 0x7f800000u;
}

@compute @workgroup_size(1)
fn main() {
    let row = min(ld_counts(2u), P.n - 1u);
    for (var i = 0u; i < 8u; i++) {
        put_hyper_out(i, raw_hyper(i));
    }
    st_hyper_out(1u, div_(ftz(ld_hyper(1u)), ftz(ld_table(2u * row))));
    put_hyper_out(2u, raw_table(2u * row + 1u));
    let sound = is_finite(raw_norm(0u)) && is_finite(raw_loss(0u));
    put_norm_out(0u, select(MATH_NAN, raw_norm(0u), sound));
}
