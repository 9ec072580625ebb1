//#include lib/grid.wgsl
//#include lib/fence.wgsl
// A workgroup's halving tree through shared memory and barriers: 64 numbers to one, block by block; the
// second half of the blocks takes its numbers in another order, as a control: it must show.

struct Params {
    zero: u32,
    blocks: u32,
}

var<workgroup> part: array<f32, 64>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let block = flat(wid, nwg);
    if block >= 2u * P.blocks {
        return;
    }
    let source = block % P.blocks;
    let at = select(li, li / 2u + 32u * (li % 2u), block >= P.blocks);
    part[li] = bitcast<f32>(ld_x(64u * source + at));
    workgroupBarrier();
    for (var half = 32u; half > 0u; half /= 2u) {
        if li < half {
            part[li] = fence(part[li] + part[li + half]);
        }
        workgroupBarrier();
    }
    if li == 0u {
        st_out(block, bitcast<u32>(part[0]));
    }
}
