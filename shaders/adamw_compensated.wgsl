//#include lib/grid.wgsl
//#include lib/scalars.wgsl
//#include lib/adamw.wgsl
// AdamW, in place, on packed bf16, two elements an invocation. The weight is w + c; c becomes the bf16 of
// what rounding w takes away. A padding half holds zeros in all and keeps them. The including text gives
// the number of WORDS.

struct Params {
    zero: u32,
    n: u32,
}

// The new halves of w, m, v and c.
fn half_of(word: u32, half: u32) -> vec4<u32> {
    let sum = rn(ftz(unpack_bf16(raw_w(word), half)) + ftz(unpack_bf16(raw_c(word), half)));
    let old = Element(sum, unpack_bf16(raw_m(word), half), unpack_bf16(raw_v(word), half));
    let next = adamw(old, unpack_bf16(raw_g(word), half));
    let w = round_bf16(next.w);
    let lost = rn(next.w - fence(unpack_bf16(w, 0u)));
    return vec4<u32>(w, round_bf16(next.m), round_bf16(next.v), round_bf16(lost));
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
    let both = half_of(word, 0u) | (half_of(word, 1u) << vec4<u32>(16u));
    put_w(word, both.x);
    put_m(word, both.y);
    put_v(word, both.z);
    put_c(word, both.w);
}
