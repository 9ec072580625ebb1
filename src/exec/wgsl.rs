//! The assembler of shaders: from a step of a plan to the WGSL text that runs it.
//!
//! Bodies stand in `shaders/`, one file a kernel (a kernel with variants has one a variant), all embedded
//! here. A text is made of the body with its includes (`files`), the bindings with their accessors
//! (`accessors`), and, for pointwise kernels, the expression (`expression`). Variants, tiles and
//! workgroup sizes are chosen here; they never change a bit.

mod accessors;
mod expression;
mod files;
mod variants;

pub use files::{NAMES, hash};

use crate::kernels::Host;
use crate::plan::{Plan, Step};

/// What shapes a text besides the step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Fences hold. Without them results differ from device to device: for measurement only.
    pub fence: bool,
    /// Matrix products and attention use the device's fused multiply-add: fast numerics.
    pub fused: bool,
    /// Variants for devices that run on a CPU: no barriers, more work an invocation.
    pub software: bool,
}

/// A shader; its entry point is `main`.
#[derive(Clone, PartialEq, Debug)]
pub struct Shader {
    /// The text. Identical steps give identical texts.
    pub source: String,
    /// Values of `override` constants.
    pub constants: Vec<(String, f64)>,
    /// Invocations of a workgroup.
    pub workgroup_size: [u32; 3],
    /// Words of the uniform block (a buffer is padded to 16 bytes).
    pub uniform_words: usize,
}

/// The shader of a step. Binding 0 is the uniform block, then come the reads and the writes.
///
/// # Panics
/// If the step's kernel has no shader or the step does not fit it: a plan that passed its check does.
pub fn shader(step: &Step, plan: &Plan, options: Options) -> Shader {
    let v = variants::choose(step, plan, options);
    let mut source = accessors::declare(step, plan, &v, options);
    source.push_str(&v.header);
    let mut files = vec![];
    if let Some(expr) = &step.params.expr {
        let host = step.kernel.host;
        if host == Host::No {
            source.push_str(&expression::params(&step.params, expr));
        }
        source.push_str(&expression::function(&step.params, expr, host));
        files.extend(expression::libraries(expr));
    }
    files.extend(accessors::packing(step, plan));
    files.push(v.file);
    source.push_str(&files::expand(&files, &v.swaps));
    Shader {
        source,
        constants: (step.params.spec.iter())
            .map(|&(name, value)| (name.to_string(), value as f64))
            .collect(),
        workgroup_size: v.size,
        uniform_words: match step.kernel.host {
            Host::No => step.params.words.len(),
            _ => step.params.words.len() - 2 * step.operands().len(),
        },
    }
}

/// The shader file that runs a step: its variant's name.
pub fn file(step: &Step, plan: &Plan, options: Options) -> &'static str {
    variants::choose(step, plan, options).file
}

/// Number of workgroups that a step needs, numbered flat: workgroup (x, y) of a grid of `w` columns has
/// number `x + y * w`. Those past the number do nothing.
pub fn workgroups(step: &Step, plan: &Plan, options: Options) -> u64 {
    variants::choose(step, plan, options).groups
}
