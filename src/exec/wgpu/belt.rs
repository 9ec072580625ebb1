//! The no-contraction belt: SPIR-V by naga in which every float sum and product carries
//! `NoContraction`, so that no Vulkan driver may fuse a multiply and an add.
//!
//! The fence in the shaders already forbids it by data flow; the belt forbids it by the standard's own
//! word. Both are on by default: a driver would have to break two rules to change a bit.

use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};

/// SPIR-V's decoration.
const NO_CONTRACTION: u32 = 42;
/// `OpDecorate`.
const DECORATE: u32 = 71;
/// Words of a module's header.
const HEADER: usize = 5;

/// The instructions that can be contracted: sums, differences and products of floats, of vectors and
/// matrices too. (Division and remainder are not in portable shaders.)
const FLOAT_ARITHMETIC: &[u32] = &[
    129, // OpFAdd
    131, // OpFSub
    133, // OpFMul
    142, // OpVectorTimesScalar
    143, // OpMatrixTimesScalar
    144, // OpVectorTimesMatrix
    145, // OpMatrixTimesVector
    146, // OpMatrixTimesMatrix
    148, // OpDot
];

/// Translates a shader whose constants are all known.
///
/// `bounds` adds checks to every access; without them the caller vouches for the indices.
///
/// # Errors
/// naga cannot express the module in SPIR-V.
pub(super) fn spirv(
    module: &naga::Module,
    info: &naga::valid::ModuleInfo,
    entry: &str,
    bounds: bool,
) -> Result<Vec<u32>, String> {
    let policy = if bounds {
        BoundsCheckPolicy::Restrict
    } else {
        BoundsCheckPolicy::Unchecked
    };
    let options = spv::Options {
        // Every Vulkan device takes 1.0, and nothing of ours needs more.
        lang_version: (1, 0),
        // No names and no sources: the module is for a driver.
        flags: spv::WriterFlags::empty(),
        fake_missing_bindings: true,
        bounds_check_policies: BoundsCheckPolicies {
            index: policy,
            buffer: policy,
            image_load: policy,
            binding_array: policy,
        },
        // Our shaders write what they read of a workgroup's memory; clearing it makes pipelines slow
        // to build on SwiftShader (688 ms against 78).
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        // Every loop runs over an extent of the uniform block or a constant.
        force_loop_bounding: false,
        // Divisors are extents, which lowering makes at least 1; a guard costs a select.
        emit_int_div_checks: true,
        ..spv::Options::default()
    };
    let pipeline = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: entry.into(),
    };
    let words =
        spv::write_vec(module, info, &options, Some(&pipeline)).map_err(|e| e.to_string())?;
    no_contraction(&words)
}

/// Decorates the result of every float sum and product.
///
/// # Errors
/// The words are no SPIR-V module.
fn no_contraction(words: &[u32]) -> Result<Vec<u32>, String> {
    let mut results = Vec::new();
    let mut types_begin = None;
    for i in instructions(words) {
        let (at, op, len) = i?;
        // Decorations come before the first type, constant or variable. Debug information (`OpLine`)
        // may stand among those, so the end of the annotations is what counts.
        if types_begin.is_none() && !before_types(op) {
            types_begin = Some(at);
        }
        if FLOAT_ARITHMETIC.contains(&op) {
            // Word 1 is the result's type, word 2 the result.
            let id = (len >= 3)
                .then(|| words[at + 2])
                .ok_or("a cut instruction")?;
            results.push(id);
        }
    }
    let at = types_begin.ok_or("no types")?;
    let mut out = Vec::with_capacity(words.len() + 3 * results.len());
    out.extend_from_slice(&words[..at]);
    for id in results {
        out.extend([(3 << 16) | DECORATE, id, NO_CONTRACTION]);
    }
    out.extend_from_slice(&words[at..]);
    Ok(out)
}

/// Whether an instruction belongs to the sections up to and including the annotations.
fn before_types(op: u32) -> bool {
    matches!(
        op,
        2..=7           // sources, extensions of sources, names, strings
        | 10 | 11       // extensions, imported instruction sets
        | 14..=17       // memory model, entry points, execution modes, capabilities
        | 71..=75       // decorations and groups of them
        | 330..=332     // module processed, execution mode and decoration by id
        | 5632 | 5633 // decorations by string
    )
}

/// (position, opcode, length) of each instruction.
fn instructions(
    words: &[u32],
) -> impl Iterator<Item = Result<(usize, u32, usize), &'static str>> + '_ {
    let mut at = HEADER;
    std::iter::from_fn(move || {
        if at >= words.len() {
            return None;
        }
        let (op, len) = (words[at] & 0xffff, (words[at] >> 16) as usize);
        if len == 0 || at + len > words.len() {
            at = usize::MAX;
            return Some(Err("a cut instruction"));
        }
        let here = at;
        at += len;
        Some(Ok((here, op, len)))
    })
}

#[cfg(test)]
mod tests;
