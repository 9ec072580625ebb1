//#include lib/grid.wgsl
// The two sums of each block of 4096 elements of up to six tensors: wrapping sums of mixes of (tensor,
// element, bits), free of order. The mix is the finaliser of MurmurHash3 (A. Appleby, public domain).

struct Params {
    zero: u32,
    first: u32,
    tensor: u32,
    n0: u32,
    n1: u32,
    n2: u32,
    n3: u32,
    n4: u32,
    n5: u32,
}

const BLOCK: u32 = 4096u;

var<workgroup> sums: array<vec2<u32>, 64>;

fn mix_bits(x: u32) -> u32 {
    var h = x;
    h ^= h >> 16u;
    h *= 0x85ebca6bu;
    h ^= h >> 13u;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16u);
}

// The two mixes of one element. -0 counts as +0.
fn element(tensor: u32, index: u32, word: u32) -> vec2<u32> {
    let bits = select(word, 0u, word == 0x80000000u);
    let key = mix_bits((tensor * 0x9e3779b9u) ^ mix_bits(index ^ 0x5bd1e995u));
    let turned = (key << 15u) | (key >> 17u);
    return vec2<u32>(mix_bits(bits ^ key), mix_bits((bits * 0x27d4eb2fu) ^ turned));
}

fn length(t: u32) -> u32 {
    switch t {
        case 0u: { return P.n0; }
        case 1u: { return P.n1; }
        case 2u: { return P.n2; }
        case 3u: { return P.n3; }
        case 4u: { return P.n4; }
        default: { return P.n5; }
    }
}

// The sums over the elements that an invocation has of a block. A loop each, so that the choice of the
// tensor stands outside of them.
fn part(t: u32, first: u32, end: u32) -> vec2<u32> {
    let id = P.tensor + t;
    var sum = vec2<u32>();
    switch t {
        case 0u: { for (var i = first; i < end; i += 64u) { sum += element(id, i, raw_x0(i)); } }
        case 1u: { for (var i = first; i < end; i += 64u) { sum += element(id, i, raw_x1(i)); } }
        case 2u: { for (var i = first; i < end; i += 64u) { sum += element(id, i, raw_x2(i)); } }
        case 3u: { for (var i = first; i < end; i += 64u) { sum += element(id, i, raw_x3(i)); } }
        case 4u: { for (var i = first; i < end; i += 64u) { sum += element(id, i, raw_x4(i)); } }
        default: { for (var i = first; i < end; i += 64u) { sum += element(id, i, raw_x5(i)); } }
    }
    return sum;
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let number = flat(wid, nwg);
    var block = number;
    var t = 0u;
    for (; t < 6u; t++) {
        let count = (length(t) + BLOCK - 1u) / BLOCK;
        if block < count {
            break;
        }
        block -= count;
    }
    if t == 6u {
        return;
    }
    let begin = block * BLOCK;
    var sum = part(t, begin + li, min(begin + BLOCK, length(t)));
    sums[li] = sum;
    workgroupBarrier();
    if li == 0u {
        for (var k = 1u; k < 64u; k++) {
            sum += sums[k];
        }
        let at = 2u * (P.first + number);
        st_out(at, sum.x);
        st_out(at + 1u, sum.y);
    }
}
