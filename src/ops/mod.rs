//! The closed list of graph operations. One file holds all that is known of an operation: its shape
//! rule, gradient, expansion, f64 meaning, lowering to kernels, and test cases.
//!
//! Closure rule: every operation has a gradient of its own, or an expansion into operations that have
//! one, or a stop that says why not. Fused first-order gradients stay fast; to differentiate one of them
//! again, `grad` expands it first.

pub mod attention;
pub mod cache;
pub mod digest;
pub mod histogram;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod optim;
pub mod pointwise;
pub mod reduce;
pub mod scaling;
pub mod softmax;

use crate::dtype::DType;
use crate::graph::eval::Tensor;
use crate::graph::{NodeId, Tx, Type};
use crate::kernels::pointwise::PwOp;
use crate::passes::lower::Lower;
use crate::shape::{MAX_DIMS, Shape};

/// How a reduction combines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Maximum.
    Max,
}

/// Which of AdamW's three results.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdamPart {
    /// The weight.
    W,
    /// The first moment.
    M,
    /// The second moment.
    V,
    /// What rounding took from the weight, of an update that keeps it.
    C,
}

/// A graph operation. Attributes that are numbers are held as bits, so that equality is exact.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// A tensor that outlives a run.
    State(u32),
    /// A tensor written before a run.
    Input(u32),
    /// One constant element (f32 bits) of a type.
    Const(u32, DType),
    /// Pointwise on equal shapes.
    Pw(PwOp),
    /// Conversion to another float type, rounding to nearest even.
    Cast(DType),
    /// The same elements under another shape.
    Reshape(Shape),
    /// Repetition to a larger shape.
    Broadcast(Shape),
    /// Axes in another order.
    Permute([u8; MAX_DIMS]),
    /// Reduction over the axes of a mask; they stay with extent 1.
    Reduce(ReduceOp, u8),
    /// `op(a) * op(b)`, batched over leading axes.
    MatMul {
        /// The left operand is stored transposed.
        ta: bool,
        /// The right operand is stored transposed.
        tb: bool,
    },
    /// (x[m, k], w[k, n]) -> x * w; each row is summed as if it were alone.
    Linear,
    /// Rows of a table by id: (table[v, c], idx[n]) -> [n, c].
    Gather,
    /// Gradient of gather: (idx[n], g[n, c]) -> [rows, c].
    GatherGrad(u32),
    /// (x, gain) -> layer norm over the last axis; eps as bits.
    LayerNorm(u32),
    /// (x) -> mean over the last axis.
    NormMean(u32),
    /// (x) -> 1 / sqrt(variance + eps) over the last axis.
    NormRstd(u32),
    /// (x, gain, mean, rstd, g) -> gradient of layer norm by x.
    LayerNormGrad(u32),
    /// Softmax over the last axis.
    Softmax,
    /// (y, g) -> gradient of softmax.
    SoftmaxGrad,
    /// (x[n, c]) -> log-sum-exp of each row, [n].
    Lse,
    /// (x[n, c], target[n]) -> cross-entropy of each row, [n].
    Xent,
    /// (x, target, lse, g[n]) -> gradient of cross-entropy by x.
    XentGrad,
    /// (qkv[b, t, 3c]) -> causal self-attention of some heads, [b, t, c].
    Attention(u32),
    /// (qkv) -> log-sum-exp of the scores, [b, heads, t].
    AttentionLse(u32),
    /// (qkv, lse, delta[b, t, heads], g) -> gradient of attention by qkv.
    AttentionGrad(u32),
    /// (qkv[r, 3c], cache[t, 3c], at[r]) -> attention of rows that follow cached ones, [r, c].
    AttentionCached(u32),
    /// (cache[t, w], x[r, w], at[r]) -> the cache with the rows from at[0] on replaced.
    PutRows,
    /// (w, m, v, g, hyper[8], scale[1], norm[1]) -> one of AdamW's results.
    AdamW(AdamPart),
    /// (w, m, v, [c,] g, scalars) -> one of the results of AdamW on bf16 weights.
    AdamWLow(optim::Store, AdamPart),
    /// (hyper[n], scale[1], norm[1]) -> the scalars of [`Op::AdamWLow`], [n + 2].
    AdamWScalars,
    /// (norm[1], loss[1], counts[4], hyper[8], table[n, 2]) -> one of what AdamW reads under loss scaling.
    StepScalars(scaling::ScalarPart),
    /// (norm[1], scale[1], counts[4]) -> part of the loss scaler's new state.
    LossScale {
        /// Which part.
        part: scaling::ScalerPart,
        /// Good steps before the scale doubles.
        interval: u32,
        /// The largest scale, as bits.
        cap: u32,
    },
    /// (sums, x...) -> digests of tensors, with ids from 0 on.
    Digest,
    /// (x, edges) -> counts of magnitudes by range.
    Histogram,
}

/// How an operation treats low precision (see [`crate::passes::autocast`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numeric {
    /// Runs in the low type.
    Low,
    /// Must see f32.
    Guard,
    /// Takes the widest type of its operands.
    Follow,
}

/// How an operation is differentiated.
pub enum Vjp {
    /// A rule: (this node, its cotangent) -> cotangents of the sources.
    Rule(for<'g> fn(Tx<'g>, Tx<'g>) -> Vec<Option<Tx<'g>>>),
    /// Expand it first.
    ViaExpand,
    /// Cannot be differentiated, and why.
    Stop(&'static str),
    /// Has no sources, or none that carry a gradient.
    Leaf,
}

/// An expansion into operations that have gradients.
pub type Expand = for<'g> fn(Tx<'g>) -> Tx<'g>;

/// Everything known of an operation.
pub struct OpDef {
    /// Name, unique.
    pub name: &'static str,
    /// Treatment under a precision policy.
    pub numeric: Numeric,
    /// Shape and type rule.
    pub infer: fn(&Op, &[Type]) -> Result<Type, String>,
    /// Gradient.
    pub vjp: Vjp,
    /// Expansion, where there is one.
    pub expand: Option<Expand>,
    /// Meaning, in f64.
    pub eval: fn(&Op, Shape, &[&Tensor]) -> Tensor,
    /// Emission of kernel steps.
    pub lower: fn(&mut Lower, NodeId),
    /// Test cases.
    pub cases: fn() -> Vec<Case>,
}

/// The definition of an operation: the only list.
pub fn def(op: &Op) -> &'static OpDef {
    match op {
        Op::State(_) | Op::Input(_) => &movement::LEAF,
        Op::Const(..) => &movement::CONST,
        Op::Pw(p) => pointwise::def(*p),
        Op::Cast(_) => &pointwise::CAST,
        Op::Reshape(_) => &movement::RESHAPE,
        Op::Broadcast(_) => &movement::BROADCAST,
        Op::Permute(_) => &movement::PERMUTE,
        Op::Reduce(ReduceOp::Sum, _) => &reduce::SUM,
        Op::Reduce(ReduceOp::Max, _) => &reduce::MAX,
        Op::MatMul { .. } => &matmul::MATMUL,
        Op::Linear => &matmul::LINEAR,
        Op::Gather => &index::GATHER,
        Op::GatherGrad(_) => &index::GATHER_GRAD,
        Op::LayerNorm(_) => &norm::LAYER_NORM,
        Op::NormMean(_) => &norm::NORM_MEAN,
        Op::NormRstd(_) => &norm::NORM_RSTD,
        Op::LayerNormGrad(_) => &norm::LAYER_NORM_GRAD,
        Op::Softmax => &softmax::SOFTMAX,
        Op::SoftmaxGrad => &softmax::SOFTMAX_GRAD,
        Op::Lse => &loss::LSE,
        Op::Xent => &loss::XENT,
        Op::XentGrad => &loss::XENT_GRAD,
        Op::Attention(_) => &attention::ATTENTION,
        Op::AttentionLse(_) => &attention::ATTENTION_LSE,
        Op::AttentionGrad(_) => &attention::ATTENTION_GRAD,
        Op::AttentionCached(_) => &cache::ATTENTION_CACHED,
        Op::PutRows => &cache::PUT_ROWS,
        Op::AdamW(_) => &optim::ADAMW,
        Op::AdamWLow(..) => &optim::ADAMW_LOW,
        Op::AdamWScalars => &optim::ADAMW_SCALARS_OP,
        Op::StepScalars(_) => &scaling::STEP_SCALARS,
        Op::LossScale { .. } => &scaling::LOSS_SCALE,
        Op::Digest => &digest::DIGEST,
        Op::Histogram => &histogram::HISTOGRAM,
    }
}

/// One of each definition, for tests that walk the table.
pub fn all() -> Vec<&'static OpDef> {
    let mut out = vec![
        &movement::RESHAPE,
        &movement::BROADCAST,
        &movement::PERMUTE,
        &pointwise::CAST,
        &reduce::SUM,
        &reduce::MAX,
        &matmul::MATMUL,
        &matmul::LINEAR,
        &index::GATHER,
        &index::GATHER_GRAD,
        &norm::LAYER_NORM,
        &norm::NORM_MEAN,
        &norm::NORM_RSTD,
        &norm::LAYER_NORM_GRAD,
        &softmax::SOFTMAX,
        &softmax::SOFTMAX_GRAD,
        &loss::LSE,
        &loss::XENT,
        &loss::XENT_GRAD,
        &attention::ATTENTION,
        &attention::ATTENTION_LSE,
        &attention::ATTENTION_GRAD,
        &cache::ATTENTION_CACHED,
        &cache::PUT_ROWS,
        &optim::ADAMW,
        &optim::ADAMW_LOW,
        &optim::ADAMW_SCALARS_OP,
        &scaling::STEP_SCALARS,
        &scaling::LOSS_SCALE,
        &digest::DIGEST,
        &histogram::HISTOGRAM,
    ];
    out.extend(pointwise::DEFS.iter());
    out
}

/// Treatment of an operation under a precision policy.
pub fn numeric(op: &Op) -> Numeric {
    def(op).numeric
}

/// An operation's attributes as text, for printing.
pub fn attributes(op: &Op) -> String {
    match op {
        Op::Const(bits, dtype) => format!(" {:?} {}", f32::from_bits(*bits), dtype.name()),
        Op::Reduce(_, mask) => format!(
            " axes {:?}",
            (0..MAX_DIMS)
                .filter(|i| mask >> i & 1 == 1)
                .collect::<Vec<_>>()
        ),
        Op::MatMul { ta, tb } => format!(
            "{}{}",
            if *ta { " ta" } else { "" },
            if *tb { " tb" } else { "" }
        ),
        Op::LayerNorm(e) | Op::NormRstd(e) | Op::LayerNormGrad(e) => {
            format!(" eps {:?}", f32::from_bits(*e))
        }
        Op::Attention(h) | Op::AttentionLse(h) | Op::AttentionGrad(h) | Op::AttentionCached(h) => {
            format!(" heads {h}")
        }
        Op::AdamW(part) => format!(" {part:?}"),
        Op::AdamWLow(store, part) => format!(" {store:?} {part:?}"),
        Op::StepScalars(part) => format!(" {part:?}"),
        Op::LossScale {
            part,
            interval,
            cap,
        } => format!(
            " {part:?}, grows after {interval}, at most {:?}",
            f32::from_bits(*cap)
        ),
        _ => String::new(),
    }
}

/// How a test fills an operand.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// Normal deviates times a scale.
    Normal(f64),
    /// Uniform in a range.
    Uniform(f64, f64),
    /// Ids below a bound.
    Ids(u32),
    /// A start, then equal steps.
    Ascending(f64, f64),
}

/// One row of the operation table.
#[derive(Clone, Debug)]
pub struct Case {
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub src: Vec<(Type, Fill)>,
    /// Largest allowed error of the f32 kernels against f64, relative to the largest magnitude.
    pub tol: f64,
    /// Whether finite differences are meaningful (not at kinks, not for rounding operations).
    pub differentiable: bool,
}

impl Case {
    /// A case with f32 normal operands and the usual tolerance.
    pub fn new(op: Op, shapes: &[&[usize]]) -> Case {
        let src = shapes
            .iter()
            .map(|s| (Type::f32(s), Fill::Normal(1.0)))
            .collect();
        Case {
            op,
            src,
            tol: 3e-6,
            differentiable: true,
        }
    }

    /// Another filling of operand `i`.
    pub fn fill(mut self, i: usize, fill: Fill) -> Case {
        self.src[i].1 = fill;
        self
    }

    /// Operand `i` holds ids below `bound`.
    pub fn ids(mut self, i: usize, bound: u32) -> Case {
        self.src[i].0.dtype = DType::U32;
        self.fill(i, Fill::Ids(bound))
    }

    /// Operands `which` in bf16; one rounding of the result is then allowed for.
    pub fn narrow(self, which: &[usize]) -> Case {
        self.narrow_to(DType::Bf16, which)
    }

    /// As [`Case::narrow`], in any narrow type.
    pub fn narrow_to(mut self, dtype: DType, which: &[usize]) -> Case {
        which.iter().for_each(|&i| self.src[i].0.dtype = dtype);
        self.tol(1e-2).not_differentiable()
    }

    /// Another tolerance.
    pub fn tol(mut self, tol: f64) -> Case {
        self.tol = tol;
        self
    }

    /// Skips finite differences.
    pub fn not_differentiable(mut self) -> Case {
        self.differentiable = false;
        self
    }
}

/// Fails unless the number of operands is as expected.
pub(crate) fn arity(src: &[Type], n: usize) -> Result<(), String> {
    if src.len() == n {
        Ok(())
    } else {
        Err(format!("takes {n} operands, got {}", src.len()))
    }
}

/// Fails unless a condition holds.
pub(crate) fn need(ok: bool, why: &str) -> Result<(), String> {
    if ok { Ok(()) } else { Err(why.to_string()) }
}
