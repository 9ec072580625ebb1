// out: the first eight of hyper, scale, norm, the rest of hyper. Bits are copied.

struct Params {
    zero: u32,
    n: u32,
}

@compute @workgroup_size(1)
fn main() {
    for (var i = 0u; i < 8u; i++) {
        put_out(i, raw_hyper(i));
    }
    put_out(8u, raw_scale(0u));
    put_out(9u, raw_norm(0u));
    for (var i = 8u; i < P.n; i++) {
        put_out(i + 2u, raw_hyper(i));
    }
}
