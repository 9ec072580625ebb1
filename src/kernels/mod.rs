//! Kernels: the machinery that plans are made of. Each has a Rust twin here, which defines the bits.
//!
//! A kernel sees words, not tensors: 32-bit buffers, a block of uniform words and compile-time
//! specialisations. Orders of all sums depend on shapes alone; the constants that fix them are in
//! [`order`]. Nothing here knows of graphs.

pub mod attention;
pub mod cache;
pub mod copy;
pub mod cpu_gemm;
pub mod digest;
pub mod gather;
pub mod gemm;
pub mod histogram;
pub mod lanes;
pub mod math;
pub mod multiply_add;
pub mod optim;
pub mod optim_low;
pub mod packed;
pub mod pointwise;
pub mod reduce;
pub mod rng;
pub mod rows;
pub mod scaling;
pub mod scratch;
pub mod simd;

use crate::dtype::DType;
use std::borrow::Cow;
use std::sync::Arc;

/// The constants that fix the order of every sum. Changing one changes bits everywhere: they are part
/// of the numeric contract, never of tuning.
pub mod order {
    /// Virtual lanes of a reduction: element i goes to lane i mod LANES, then a halving tree.
    pub const LANES: usize = 32;
    /// Longest reduction done in one level; longer ones reduce chunks of this length first.
    pub const REDUCE_CHUNK: usize = 8192;
    /// Length of the k-chunks of a long product with few outputs.
    pub const GEMM_CHUNK: usize = 1024;
    /// Products with more outputs than this are never chunked.
    pub const GEMM_CHUNK_MAX_OUTPUTS: usize = 1 << 20;
    /// Keys per block of the attention's running softmax.
    pub const KEY_BLOCK: usize = 32;
}

/// Everything but the buffers that one launch of a kernel depends on.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Params {
    /// The uniform block. Word 0 is always 0: shaders read their run-time zero from it.
    pub words: Vec<u32>,
    /// Compile-time constants (`override` in WGSL).
    pub spec: Vec<(&'static str, u32)>,
    /// The expression of a pointwise kernel.
    pub expr: Option<Arc<pointwise::Expr>>,
}

impl Params {
    /// A uniform block: a zero, then `words`.
    pub fn new(words: &[u32]) -> Params {
        let mut all = vec![0];
        all.extend_from_slice(words);
        Params {
            words: all,
            ..Params::default()
        }
    }

    /// The uniform word `i` after the zero, as a length.
    pub fn at(&self, i: usize) -> usize {
        self.words[i + 1] as usize
    }

    /// The uniform word `i` after the zero, as a number.
    pub fn float(&self, i: usize) -> f32 {
        f32::from_bits(self.words[i + 1])
    }

    /// The specialisation constant `name`.
    pub fn spec(&self, name: &str) -> u32 {
        self.spec.iter().find(|s| s.0 == name).map_or(0, |s| s.1)
    }
}

/// How a kernel uses a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Written whole, never read.
    Write,
    /// Read and written in place.
    ReadWrite,
}

/// One buffer of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Name in the shader.
    pub name: &'static str,
    /// How it is used.
    pub access: Access,
    /// Float elements (f32, or packed bf16 or f16 as the plan says) or plain words.
    pub float: bool,
}

/// Shorthand for the binding tables.
pub const fn read(name: &'static str) -> Binding {
    Binding {
        name,
        access: Access::Read,
        float: true,
    }
}

/// Shorthand for the binding tables.
pub const fn read_u32(name: &'static str) -> Binding {
    Binding {
        name,
        access: Access::Read,
        float: false,
    }
}

/// Shorthand for the binding tables.
pub const fn write(name: &'static str) -> Binding {
    Binding {
        name,
        access: Access::Write,
        float: true,
    }
}

/// Shorthand for the binding tables.
pub const fn write_u32(name: &'static str) -> Binding {
    Binding {
        name,
        access: Access::Write,
        float: false,
    }
}

/// Shorthand for the binding tables.
pub const fn update(name: &'static str) -> Binding {
    Binding {
        name,
        access: Access::ReadWrite,
        float: true,
    }
}

/// A buffer to read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Type of its elements.
    pub dtype: DType,
    /// Elements in a row (packed rows are padded to even).
    pub row: usize,
    /// Its words.
    pub words: &'a [u32],
}

impl<'a> View<'a> {
    /// The elements as f32.
    pub fn f32(&self) -> &'a [f32] {
        debug_assert_eq!(self.dtype, DType::F32);
        bytemuck::cast_slice(self.words)
    }

    /// The elements as f32, widened where they are packed.
    pub fn widened(&self) -> Cow<'a, [f32]> {
        if self.dtype.packed() {
            Cow::Owned(packed::widened(self.dtype, self.row, self.words))
        } else {
            Cow::Borrowed(self.f32())
        }
    }
}

/// A buffer to write.
pub struct ViewMut<'a> {
    /// Type of its elements.
    pub dtype: DType,
    /// Elements in a row (packed rows are padded to even).
    pub row: usize,
    /// Its words.
    pub words: &'a mut [u32],
}

impl ViewMut<'_> {
    /// The elements as f32.
    pub fn f32(&mut self) -> &mut [f32] {
        debug_assert_eq!(self.dtype, DType::F32);
        bytemuck::cast_slice_mut(self.words)
    }
}

/// Whether a kernel takes in a pointwise expression, so that a value need not pass through memory. The
/// step then carries it in [`Params::expr`]; its operands stand last among the reads, and (div, len) for
/// each of them last among the uniform words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// It does not.
    No,
    /// Each element that it writes to its first output is the expression's first input, and the result is
    /// written in its stead, in any float type.
    Epilogue,
    /// The expression's result stands in for each element of its one operand; there are as many as the
    /// first three uniform words multiply to.
    Prologue,
}

/// A kernel: one entry of [`ALL`].
pub struct KernelDef {
    /// Unique name; its shader is `shaders/<name>.wgsl`.
    pub name: &'static str,
    /// Its buffers, those read first; for a pointwise kernel the inputs' number varies.
    pub bindings: &'static [Binding],
    /// Whether it hosts an expression.
    pub host: Host,
    /// The Rust twin: reads and writes in the order of `bindings`.
    pub cpu: fn(&Params, &[View], &mut [ViewMut]),
}

impl KernelDef {
    /// Its own operands, where `hosting` an expression: those of a prologue stand in the expression.
    pub fn own_reads(&self, hosting: bool) -> usize {
        if hosting && self.host != Host::Epilogue {
            return 0;
        }
        let reads = |b: &&Binding| b.access == Access::Read;
        self.bindings.iter().filter(reads).count()
    }
}

impl std::fmt::Debug for KernelDef {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for KernelDef {
    fn eq(&self, o: &KernelDef) -> bool {
        self.name == o.name
    }
}

/// Every kernel.
pub static ALL: &[&KernelDef] = &[
    &pointwise::POINTWISE,
    &copy::COPY,
    &reduce::REDUCE,
    &gemm::GEMM,
    &gemm::GEMM_TREE,
    &rows::NORM_FWD,
    &rows::NORM_STATS,
    &rows::NORM_DX,
    &rows::SOFTMAX,
    &rows::SOFTMAX_GRAD,
    &rows::LSE,
    &rows::XENT,
    &rows::XENT_GRAD,
    &attention::ATTENTION,
    &attention::ATTENTION_GRAD,
    &cache::ATTENTION_CACHED,
    &cache::PUT_ROWS,
    &gather::GATHER,
    &gather::ROW_ORDER,
    &gather::GATHER_GRAD,
    &optim::ADAMW,
    &optim_low::ADAMW_SCALARS,
    &optim_low::ADAMW_STOCHASTIC,
    &optim_low::ADAMW_COMPENSATED,
    &scaling::STEP_SCALARS,
    &scaling::LOSS_SCALE,
    &digest::DIGEST,
    &histogram::HISTOGRAM,
    &rng::RANDOM_BITS,
    &multiply_add::MULTIPLY_ADD,
];
