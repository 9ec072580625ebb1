//#include lib/reduce.wgsl
// Rows shared by eight invocations, each with four of the 32 virtual lanes, whose parts meet in
// workgroup memory. rows_serial.wgsl is the same with one invocation a row.

const ROW_MEMBERS: u32 = 8u; // invocations of a row
const ROW_SLOTS: u32 = 8u; // rows of a workgroup
const ROW_GROUP: u32 = 64u; // invocations of a workgroup

var<workgroup> row_parts: array<vec4<f32>, 64>;

fn put_part(slot: u32, part: u32, value: vec4<f32>) {
    row_parts[slot * 8u + part] = value;
}

// The parts of a row, once all of the workgroup have put theirs; then they may be put anew.
fn take_parts(slot: u32) -> array<vec4<f32>, 8> {
    workgroupBarrier();
    let at = slot * 8u;
    let p = array<vec4<f32>, 8>(
        row_parts[at], row_parts[at + 1u], row_parts[at + 2u], row_parts[at + 3u],
        row_parts[at + 4u], row_parts[at + 5u], row_parts[at + 6u], row_parts[at + 7u],
    );
    workgroupBarrier();
    return p;
}
