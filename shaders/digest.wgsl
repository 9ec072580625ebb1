//#include lib/grid.wgsl
// The two sums of each block of 4096 elements: wrapping sums of mixes of (tensor, element, bits), free
// of order. The mix is the finaliser of MurmurHash3 (A. Appleby, public domain).

struct Params {
    zero: u32,
    n: u32,
    tensor: u32,
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
fn element(index: u32, word: u32) -> vec2<u32> {
    let bits = select(word, 0u, word == 0x80000000u);
    let key = mix_bits((P.tensor * 0x9e3779b9u) ^ mix_bits(index ^ 0x5bd1e995u));
    let turned = (key << 15u) | (key >> 17u);
    return vec2<u32>(mix_bits(bits ^ key), mix_bits((bits * 0x27d4eb2fu) ^ turned));
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let block = flat(wid, nwg);
    if block >= (P.n + BLOCK - 1u) / BLOCK {
        return;
    }
    let first = block * BLOCK;
    let end = min(first + BLOCK, P.n);
    var sum = vec2<u32>();
    for (var i = first + li; i < end; i += 64u) {
        sum += element(i, raw_x(i));
    }
    sums[li] = sum;
    workgroupBarrier();
    if li == 0u {
        for (var k = 1u; k < 64u; k++) {
            sum += sums[k];
        }
        st_out(2u * block, sum.x);
        st_out(2u * block + 1u, sum.y);
    }
}
