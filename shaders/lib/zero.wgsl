// The run-time zero of the fences: no compiler knows it, so nothing is contracted, reassociated or
// cancelled across an exclusive or with it.
fn hidden_zero() -> u32 {
    return P.zero;
}
