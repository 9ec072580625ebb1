//#include lib/grid.wgsl
// Counts of |x| by range, a row of BINS for each block of 4096 elements: edges[k] <= |x| < edges[k + 1],
// the last range with its right edge.

struct Params {
    zero: u32,
    n: u32,
}

const BLOCK: u32 = 4096u;
const BINS: u32 = 56u;

var<workgroup> counts: array<atomic<u32>, BINS>;

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
    if li < BINS {
        atomicStore(&counts[li], 0u);
    }
    workgroupBarrier();
    let end = min((block + 1u) * BLOCK, P.n);
    let last = ld_edges(BINS);
    for (var i = block * BLOCK + li; i < end; i += 64u) {
        let v = bitcast<f32>(raw_x(i) & 0x7fffffffu);
        var below = 0u; // edges at or below v
        for (var k = 0u; k <= BINS; k++) {
            below += select(0u, 1u, ld_edges(k) <= v);
        }
        if below >= 1u && (below <= BINS || v == last) {
            atomicAdd(&counts[min(below, BINS) - 1u], 1u);
        }
    }
    workgroupBarrier();
    if li < BINS {
        st_counts(block * BINS + li, atomicLoad(&counts[li]));
    }
}
