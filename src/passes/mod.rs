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
pub mod scaling;
pub mod simplify;

use crate::graph::{Program, check};
use crate::plan::Plan;

/// Passes that may be left out, because they cannot change a bit: tests compare with and without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Optional {
    /// Fuse pointwise steps.
    pub fuse: bool,
    /// Let temporaries share slots.
    pub share_slots: bool,
}

/// Compiles a program to a plan.
///
/// # Errors
/// A violated invariant, naming pass and node: a fault in the model or in a pass.
pub fn compile(name: &str, program: Program) -> Result<Plan, String> {
    compile_with(
        name,
        program,
        Optional {
            fuse: true,
            share_slots: true,
        },
    )
}

/// Compiles a program with a choice of passes.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(name: &str, program: Program, passes: Optional) -> Result<Plan, String> {
    check::check(&program, "building")?;
    let program = simplify::simplify(program);
    check::check(&program, "simplify")?;
    let mut plan = lower::lower(name, &program);
    plan.check()?;
    if passes.fuse {
        plan = fuse::fuse(plan);
        plan.check()?;
    }
    let mut plan = memory::assign_slots(plan, passes.share_slots);
    plan.check()?;
    plan.seal();
    Ok(plan)
}
