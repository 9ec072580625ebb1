// Stands in for zero.wgsl where the cost of the fences is measured. Never in a portable run.
fn hidden_zero() -> u32 {
    return 0u;
}
