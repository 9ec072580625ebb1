//#include lib/grid.wgsl
//#include lib/rng.wgsl
//#include lib/scalars.wgsl
//#include lib/adamw.wgsl
// AdamW, in place, on packed bf16, two elements an invocation, rounded stochastically: up with the
// probability of what is cut off. Random bits are a function of the step's key, the element and the
// tensor. A padding half holds zeros in all and keeps them. The including text gives the number of WORDS.

struct Params {
    zero: u32,
    n: u32,
    tensor: u32,
}

// Round by 16 random bits. Infinities stay, NaN stays a quiet NaN.
fn round_stochastic(x: f32, random: u32) -> u32 {
    let u = bitcast<u32>(x);
    let rounded = (u + (random & 0xffffu)) >> 16u;
    let special = (u >> 16u) | select(0u, 0x40u, (u & 0x7fffffffu) > 0x7f800000u);
    return select(rounded, special, (u & 0x7f800000u) == 0x7f800000u);
}

// The new halves of w, m and v.
fn half_of(word: u32, half: u32) -> vec3<u32> {
    let old = Element(
        unpack_bf16(raw_w(word), half),
        unpack_bf16(raw_m(word), half),
        unpack_bf16(raw_v(word), half),
    );
    let next = adamw(old, unpack_bf16(raw_g(word), half));
    let key = vec2<u32>(raw_scalars(10u), raw_scalars(11u));
    let random = threefry(key, vec2<u32>(2u * word + half, P.tensor));
    return vec3<u32>(
        round_stochastic(next.w, random.x),
        round_stochastic(next.m, random.x >> 16u),
        round_stochastic(next.v, random.y),
    );
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
    let both = half_of(word, 0u) | (half_of(word, 1u) << vec3<u32>(16u));
    put_w(word, both.x);
    put_m(word, both.y);
    put_v(word, both.z);
}
