//! isobit trains small transformers with **the same bits on every device**, and keeps a ledger of what
//! each precision costs.
//!
//! # Data flow
//! ```text
//! models   build a static, hash-consed graph          graph/, ops/, models/
//! passes   autocast -> grad -> simplify -> lower -> fuse -> memory        passes/
//! plan     a flat list of kernel steps over numbered buffers              plan/
//! exec     an executor loads plans and runs them: CPU, any GPU by wgpu, CUDA   exec/, shaders/
//! train    a session drives the programs; a run fills the ledger          train/
//! infer    text, comparison of precisions, export, from trained weights   infer/
//! measure  a product in each number format; where a step's time goes       measure/
//! report   CSV files and env.json, whole or absent; the page made of them   report/
//! ```
//! Beside it stands [`numerics`]: the probe of what a device does with numbers, the comparison of devices
//! step by step down to the first differing element, and certificates that carry digests elsewhere.
//!
//! Arrows go one way: `kernels` knows nothing of graphs, `ops` nothing of executors, an executor sees
//! plans only, `report` knows nothing of any of them.
//!
//! # Two registries
//! [`ops::OpDef`] is mathematics: shape rule, gradient, expansion, f64 meaning, lowering, test cases.
//! [`kernels::KernelDef`] is machinery: bindings and the Rust twin that defines the bits. One kernel
//! serves many operations; most gradients need none of their own. A new operation is one file in `ops/`,
//! one variant of [`ops::Op`] and one arm of [`ops::def`]; a new kernel is one file in `kernels/`, one
//! `.wgsl` in `shaders/`, and one entry of [`kernels::ALL`].
//!
//! # Models
//! A [`models::step::Model`] lists weights and builds losses in f32; [`models::step`] makes programs of it
//! under any policy, a [`train::driver::Driver`] runs them on any executor. The generators of showers
//! ([`models::showers`], [`models::wgan`]) are made so; the char-GPT, whose run has ledgers, checkpoints
//! and loss scaling, has programs of its own ([`models::char_gpt`]). A loss may hold a gradient.
//!
//! # Precision
//! A [`passes::autocast::Policy`] is data. Autocast stands before `grad`, so the gradient of a cast
//! returns in the master's type; the verifier refuses narrow operands of guarded operations. Narrow
//! tensors are packed two to a word in padded rows; kernels other than pointwise, gather, copy and AdamW
//! write f32, and a pointwise step rounds it once. Fusion puts that step into the product, norm or
//! reduction before or after it, where the kernel can host an expression ([`kernels::Host`]).
//!
//! # Invariants
//! * **The CPU executor defines the bits.** IEEE binary32, round to nearest even, no contraction, no
//!   reassociation. The order of every sum depends on shapes alone, through the constants in
//!   [`kernels::order`]; thread counts, instruction sets and tile sizes are free because they change
//!   none of it.
//! * **exp, log, tanh, erf, division and roots are ours** ([`kernels::math`]), built from `+ - *` and
//!   integers, so that a shader can repeat them bit for bit.
//! * **No subnormal is ever seen**: operands of product-sums are floored, results below 2^-125 are
//!   flushed where they are stored or used.
//! * **Host arithmetic is pure Rust** (`libm`): schedules, bias corrections, initial weights.
//! * **Random numbers are functions** of seed, stream and counter ([`kernels::rng`]).
//! * **A graph only grows**; sources precede users; the verifier runs after every pass.
//! * **The same plan runs everywhere.** [`exec::wgsl`] turns a step into WGSL; a lint in the tests walks
//!   every shader's IR and rejects what the contract forbids; [`exec::wgpu`] adds `NoContraction` on Vulkan
//!   and reaches no Rust twin; [`exec::cuda`] writes the same IR as CUDA C++, so that no kernel has two texts.
//! * **Fusion and shared slots change no bit**; tests compare with both off.
//! * **Tuning changes no bit** ([`exec::wgpu::tune`]): the variants of a kernel differ in speed alone, so which
//!   one runs may depend on measurements, and no plan, digest or certificate does.
//! * **A step on a GPU makes nothing**: pipelines, buffers and bind groups are made when a program is loaded.
//! * **The cache of generation changes no bit**: a row's logits do not depend on the rows computed with it
//!   ([`models::generation`]), and drawing is integers and pure-Rust f64 keyed by seed and position.
//! * **Every operation has a gradient, an expansion into operations that have one, or a stop that says
//!   why** ([`ops::Vjp`]).
//! * **A poisoned gradient never reaches the weights**: the optimizer's kernel leaves the state alone
//!   when the gradient's norm is not finite.
//! * **Files are whole or absent** ([`report::files`]).
//! * **A checkpoint is all of a run** ([`train::checkpoint`]): what is not in it, or a function of what is,
//!   may not shape a later step or file. It is hostile until it is checked.
//!
//! Absent on purpose: an eager tape, a search compiler, backend type parameters, `Arc<Mutex>`, async
//! outside one executor.

pub mod cache;
pub mod cli;
pub mod config;
pub mod data;
pub mod dtype;
pub mod error;
pub mod exec;
pub mod graph;
pub mod infer;
pub mod kernels;
pub mod measure;
pub mod models;
pub mod numerics;
pub mod ops;
pub mod passes;
pub mod plan;
pub mod report;
pub mod shape;
pub mod train;
