//! The assembler of shaders: from a step of a plan to the WGSL text that runs it.
//!
//! Bodies stand in `shaders/`, one file a kernel (a kernel with variants has one a variant), all embedded
//! here. A text is made of the body with its includes (`files`), the bindings with their accessors
//! (`accessors`), and, for pointwise kernels, the expression (`expression`). Variants differ in tiles,
//! workgroup sizes and memory; they never change a bit.

mod accessors;
mod expression;
mod files;
mod variants;

pub use files::{NAMES, hash};
pub use variants::{Variant, is_tunable};

use super::one_line;
use crate::kernels::{Access, Binding, Host, KernelDef};
use crate::plan::{Plan, Step};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

/// What shapes a text besides the step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Fences hold. Without them results differ from device to device: for measurement only.
    pub fence: bool,
    /// Matrix products and attention use the device's fused multiply-add: fast numerics.
    pub fused: bool,
    /// For devices that run on a CPU: parameters as storage, and those variants first that have no
    /// barriers and more work an invocation.
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

/// The variants of a step, the one first that its shape and the kind of device suggest. All give the same
/// bits.
///
/// # Panics
/// If the step's kernel has no shader: a plan that passed its check has none such.
pub fn variants(step: &Step, plan: &Plan, options: Options) -> Vec<Variant> {
    variants::all(step, plan, options)
}

/// The shader of a step in its first variant.
///
/// # Panics
/// As [`variants`].
pub fn shader(step: &Step, plan: &Plan, options: Options) -> Shader {
    assemble(step, plan, options, &variants(step, plan, options)[0])
}

/// The shader of a step in a variant of its own. Binding 0 is the parameters, then come the reads and the
/// writes.
///
/// # Panics
/// If the step does not fit its kernel: a step of a plan that passed its check does.
pub fn assemble(step: &Step, plan: &Plan, options: Options, v: &Variant) -> Shader {
    let mut source = accessors::declare(step, plan, v, options);
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

/// The shader file of a step's first variant.
pub fn file(step: &Step, plan: &Plan, options: Options) -> &'static str {
    variants::all(step, plan, options)[0].file
}

/// Number of workgroups that a step's first variant needs, numbered flat: workgroup (x, y) of a grid of `w` columns has
/// number `x + y * w`. Those past the number do nothing.
pub fn workgroups(step: &Step, plan: &Plan, options: Options) -> u64 {
    variants::all(step, plan, options)[0].groups
}

/// A shader parsed, checked, and with its constants in place.
///
/// # Errors
/// It is no WGSL, or lacks a constant; in one line.
pub fn parse(shader: &Shader) -> Result<(naga::Module, ModuleInfo), String> {
    let constants = shader.constants.iter().map(|(n, v)| (n.as_str(), *v));
    parse_text(&shader.source, constants)
}

pub(super) fn parse_text<'a>(
    source: &str,
    constants: impl Iterator<Item = (&'a str, f64)>,
) -> Result<(naga::Module, ModuleInfo), String> {
    let parsed =
        naga::front::wgsl::parse_str(source).map_err(|e| one_line(&e.emit_to_string(source)))?;
    // Shaders are core WGSL, whose fp16 conversions (in the probe alone) naga counts as a capability.
    let core = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let info = Validator::new(ValidationFlags::all(), core)
        .validate(&parsed)
        .map_err(|e| one_line(&e.emit_to_string(source)))?;
    let constants = constants.map(|(n, v)| (n.to_string(), v)).collect();
    let entry = Some((naga::ShaderStage::Compute, "main"));
    let (module, info) =
        naga::back::pipeline_constants::process_overrides(&parsed, &info, entry, &constants)
            .map_err(|e| e.to_string())?;
    Ok((module.into_owned(), info.into_owned()))
}

/// Whether a kernel's indices come from data. Then its shader is built with bounds checks.
///
/// All others are built without, on this proof: their indices are functions of invocation ids and of
/// the uniform block alone, each compared in the shader with an extent of the uniform block; lowering
/// takes those extents from the types of the very buffers that the plan binds, and a buffer is bound
/// with at least the words of its type. The kernel table runs every kernel at boundary shapes with
/// sentinels behind each buffer. Indices that come from data are in buffers of plain words that a
/// kernel reads: token ids, targets, orders.
pub(super) fn data_dependent(kernel: &KernelDef) -> bool {
    let words = |b: &Binding| b.access == Access::Read && !b.float;
    kernel.bindings.iter().any(words)
}
