// Threefry-2x32 with 20 rounds (Salmon et al., SC'11): the twin of src/kernels/rng.rs.

fn threefry_round(x: vec2<u32>, by: u32) -> vec2<u32> {
    let a = x.x + x.y;
    return vec2<u32>(a, ((x.y << by) | (x.y >> (32u - by))) ^ a);
}

fn threefry_even(x: vec2<u32>) -> vec2<u32> {
    return threefry_round(threefry_round(threefry_round(threefry_round(x, 13u), 15u), 26u), 6u);
}

fn threefry_odd(x: vec2<u32>) -> vec2<u32> {
    return threefry_round(threefry_round(threefry_round(threefry_round(x, 17u), 29u), 16u), 24u);
}

fn threefry(key: vec2<u32>, counter: vec2<u32>) -> vec2<u32> {
    let k2 = 0x1bd11bdau ^ key.x ^ key.y;
    var x = counter + key;
    x = threefry_even(x) + vec2<u32>(key.y, k2 + 1u);
    x = threefry_odd(x) + vec2<u32>(k2, key.x + 2u);
    x = threefry_even(x) + vec2<u32>(key.x, key.y + 3u);
    x = threefry_odd(x) + vec2<u32>(key.y, k2 + 4u);
    return threefry_even(x) + vec2<u32>(k2, key.x + 5u);
}
