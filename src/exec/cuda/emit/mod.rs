//! From WGSL to CUDA C++: the shaders of [`super::super::wgsl`] are the only kernels there are, and this is
//! how an NVIDIA GPU runs them without a second text.
//!
//! A shader, parsed by naga, becomes the members of one C++ struct (so that functions see the parameters,
//! the buffers and the private variables, in any order) and a `__global__` function that makes one of it.
//! Every operation is a function of `shaders/cuda/prelude.cuh`, which says what it rounds: sums and
//! products of floats are `__fadd_rn` and `__fmul_rn`, which no compiler fuses, integers wrap, shifts take
//! their amount modulo 32, a division by zero is defined. So the bits are those of the WGSL, and of the
//! Rust twins, by construction.
//!
//! Every value that naga's IR emits has a name in the text, in the order of the IR; loops are `for (;;)`,
//! `continue` is a jump to the loop's continuing part. What no shader of ours uses is refused by name.

mod function;
mod types;
mod value;

use naga::valid::ModuleInfo;
use naga::{AddressSpace, GlobalVariable, Handle, Module, StorageAccess};
use std::fmt::Write;

/// The vocabulary that every emitted text rests on.
pub const PRELUDE: &str = include_str!("../../../../shaders/cuda/prelude.cuh");
/// The name of the `__global__` function.
pub const ENTRY: &str = "isobit_kernel";

/// A kernel in CUDA C++, without [`PRELUDE`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    /// The text; its entry is [`ENTRY`].
    pub text: String,
    /// Threads of a block.
    pub threads: u32,
    /// Buffers, in the order of their bindings from 1 on.
    pub buffers: usize,
    /// Words of the parameters.
    pub parameters: usize,
    /// Whether threads of a block wait for each other.
    pub barriers: bool,
}

impl Kernel {
    /// The whole text.
    pub fn source(&self) -> String {
        format!("{PRELUDE}\n{}", self.text)
    }

    /// The kernel's one argument as the text declares it: the buffers' addresses, their lengths in words,
    /// the parameters.
    pub fn argument(&self, buffers: &[(u64, u32)], parameters: &[u32]) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 * buffers.len() + 4 * self.parameters + 8);
        for (address, _) in buffers {
            out.extend(address.to_le_bytes());
        }
        for (_, words) in buffers {
            out.extend(words.to_le_bytes());
        }
        let given = parameters.iter().copied().chain(std::iter::repeat(0));
        for word in given.take(self.parameters) {
            out.extend(word.to_le_bytes());
        }
        // A struct with addresses in it has a size in whole addresses.
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }
}

/// What the parts of the emitter share.
struct Context<'a> {
    module: &'a Module,
    /// Indices into buffers are held inside.
    bounds: bool,
}

/// Emits a module that has one compute entry point, `main`, and no overrides. With `bounds`, indices into
/// buffers are clamped, for kernels whose indices come from data.
///
/// # Errors
/// What it holds that is not offered here.
pub fn emit(module: &Module, info: &ModuleInfo, bounds: bool) -> Result<Kernel, String> {
    let context = Context { module, bounds };
    let [entry] = module.entry_points.as_slice() else {
        return Err("a shader has one entry point".into());
    };
    let mut text = String::new();
    context.declare_types(&mut text)?;
    let (buffers, parameters) = context.declare_arguments(&mut text)?;
    let shared = context.declare_shared(&mut text)?;
    text.push_str("struct Kernel {\n    const Arguments& given;\n");
    if shared {
        text.push_str("    Shared& shared;\n");
    }
    context.declare_private(&mut text)?;
    for (handle, f) in module.functions.iter() {
        let name = function::name(handle, f);
        text.push_str(&context.function(&name, f, &info[handle])?);
    }
    let body = context.function("entry", &entry.function, info.get_entry_point(0))?;
    text.push_str(&body);
    text.push_str("};\n\n");
    let threads = entry.workgroup_size.iter().product();
    let given = context.entry_arguments(entry)?;
    let block = if shared {
        "    __shared__ Shared shared;\n"
    } else {
        ""
    };
    let member = if shared { "{given, shared}" } else { "{given}" };
    let _ = write!(
        text,
        "extern \"C\" __global__ void __launch_bounds__({threads})\n\
         {ENTRY}(const __grid_constant__ Arguments given)\n{{\n{block}    Kernel kernel{member};\n    kernel.entry({given});\n}}\n"
    );
    Ok(Kernel {
        barriers: text.contains("block_barrier()"),
        text,
        threads,
        buffers,
        parameters,
    })
}

/// A global variable's name in the text, with what it is a member of.
fn global(handle: Handle<GlobalVariable>, v: &GlobalVariable) -> Result<String, String> {
    Ok(match (v.space, v.binding.as_ref().map(|b| b.binding)) {
        (_, Some(0)) => "given.parameters".into(),
        (AddressSpace::Storage { .. }, Some(b)) => format!("given.b{b}"),
        (AddressSpace::WorkGroup, None) => format!("shared.g{}", handle.index()),
        (AddressSpace::Private, None) => format!("g{}", handle.index()),
        (space, _) => return Err(format!("variables in {space:?} are not offered")),
    })
}

/// Whether a buffer is only read.
fn read_only(v: &GlobalVariable) -> bool {
    matches!(v.space, AddressSpace::Storage { access } if access == StorageAccess::LOAD)
}
