//#include lib/reduce.wgsl
// Stands in for rows.wgsl on devices where barriers are slow: one invocation walks a whole row.

const ROW_MEMBERS: u32 = 1u; // invocations of a row
const ROW_SLOTS: u32 = 16u; // rows of a workgroup
const ROW_GROUP: u32 = 16u; // invocations of a workgroup

var<private> row_parts: array<vec4<f32>, 8>;

fn put_part(slot: u32, part: u32, value: vec4<f32>) {
    row_parts[part] = value;
}

fn take_parts(slot: u32) -> array<vec4<f32>, 8> {
    return row_parts;
}
