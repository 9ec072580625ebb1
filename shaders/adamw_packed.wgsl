//#include lib/grid.wgsl
//#include lib/adamw.wgsl
// AdamW, in place, on packed weights, moments and gradients: two elements an invocation, arithmetic in
// f32, one rounding at each store. A padding half holds zeros in all four and keeps them. The including
// text gives the number of WORDS.

struct Params {
    zero: u32,
    n: u32,
}

fn half_of(word: u32, half: u32) -> Element {
    let old = Element(
        unpack_bf16(raw_w(word), half),
        unpack_bf16(raw_m(word), half),
        unpack_bf16(raw_v(word), half),
    );
    return adamw(old, unpack_bf16(raw_g(word), half));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let word = flat(wid, nwg) * 256u + li;
    if word >= WORDS || !gradient_is_finite() {
        return;
    }
    let low = half_of(word, 0u);
    let high = half_of(word, 1u);
    put_w(word, pack_bf16(low.w, high.w));
    put_m(word, pack_bf16(low.m, high.m));
    put_v(word, pack_bf16(low.v, high.v));
}
