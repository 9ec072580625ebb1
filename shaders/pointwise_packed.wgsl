//#include lib/grid.wgsl
//#include lib/math.wgsl
//#include lib/reduce.wgsl
// As pointwise.wgsl with a packed result: one invocation owns one word, that is two elements of a row of
// ROW, the last of which may stand alone. The including text gives ROW and the number of WORDS.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) li: u32,
) {
    let word = flat(wid, nwg) * 256u + li;
    if word >= WORDS {
        return;
    }
    let pitch = (ROW + 1u) / 2u;
    let column = word % pitch * 2u;
    let i = word / pitch * ROW + column;
    var high = 0u;
    if column + 1u < ROW {
        high = round_out(expression(i + 1u));
    }
    put_out(word, round_out(expression(i)) | (high << 16u));
}
