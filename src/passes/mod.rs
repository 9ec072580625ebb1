//! The whole pipeline on one screen.
//!
//! ```text
//! graph -> autocast -> grad (called by the model's program) -> simplify -> lower -> fuse -> memory -> Plan
//! ```
//!
//! The verifier runs after every pass.

pub mod autocast;
pub mod fuse;
pub mod grad;
pub mod lower;
pub mod memory;
pub mod simplify;

use crate::graph::{Program, check};
use crate::plan::Plan;

/// Compiles a program to a plan.
///
/// # Errors
/// A violated invariant, naming pass and node: a fault in the model or in a pass.
pub fn compile(name: &str, program: Program) -> Result<Plan, String> {
    check::check(&program, "building")?;
    let program = simplify::simplify(program);
    check::check(&program, "simplify")?;
    let plan = lower::lower(name, &program);
    plan.check()?;
    let plan = fuse::fuse(plan);
    plan.check()?;
    let mut plan = memory::assign_slots(plan);
    plan.check()?;
    plan.seal();
    Ok(plan)
}
