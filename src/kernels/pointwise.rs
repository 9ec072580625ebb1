//! Pointwise kernels: an expression over equal-shaped (or broadcast) operands, one output element per
//! invocation. On the CPU an interpreter runs it over chunks; for GPUs the expression becomes WGSL.
//!
//! Every operand is flushed on load and every instruction's result is rounded to f32 and flushed below
//! 2^-125, so that fusing expressions cannot change a bit.

use super::lanes::{max2, min2};
use super::math;
use super::packed::{pack, pitch};
use super::scratch::Scratch;
use super::{Host, KernelDef, Params, View, ViewMut, read, write};
use crate::dtype::{DType, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use rayon::prelude::*;

/// A pointwise operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PwOp {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b, correctly rounded
    Div,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// 1 where a > b, else 0.
    Gt,
    /// b where a is not 0, else c.
    Select,
    /// a: carries a rounding.
    Copy,
    /// -a
    Neg,
    /// |a|
    Abs,
    /// e^a
    Exp,
    /// ln a
    Log,
    /// tanh a
    Tanh,
    /// erf a
    Erf,
    /// Square root, correctly rounded.
    Sqrt,
    /// 1 / sqrt(a)
    Rsqrt,
    /// a * Phi(a), Phi the normal distribution function.
    Gelu,
    /// b * (Phi(a) + a * phi(a)): the gradient of [`PwOp::Gelu`] at a, times the cotangent b.
    GeluGrad,
}

/// Every pointwise operation: name, number of operands, and its WGSL with `$0`, `$1`, `$2` for them.
pub const TABLE: &[(PwOp, &str, usize, &str)] = &[
    (PwOp::Add, "add", 2, "rn($0 + $1)"),
    (PwOp::Sub, "sub", 2, "rn($0 - $1)"),
    (PwOp::Mul, "mul", 2, "rn($0 * $1)"),
    (PwOp::Div, "div", 2, "div_($0, $1)"),
    (PwOp::Max, "max", 2, "max2($0, $1)"),
    (PwOp::Min, "min", 2, "min2($0, $1)"),
    (PwOp::Gt, "gt", 2, "select(0.0, 1.0, $0 > $1)"),
    (PwOp::Select, "select", 3, "select($2, $1, $0 != 0.0)"),
    (PwOp::Copy, "copy", 1, "$0"),
    (PwOp::Neg, "neg", 1, "ftz(-$0)"),
    (PwOp::Abs, "abs", 1, "abs($0)"),
    (PwOp::Exp, "exp", 1, "exp_($0)"),
    (PwOp::Log, "log", 1, "log_($0)"),
    (PwOp::Tanh, "tanh", 1, "tanh_($0)"),
    (PwOp::Erf, "erf", 1, "erf_($0)"),
    (PwOp::Sqrt, "sqrt", 1, "sqrt_($0)"),
    (PwOp::Rsqrt, "rsqrt", 1, "rsqrt_($0)"),
    (PwOp::Gelu, "gelu", 1, "gelu($0)"),
    (PwOp::GeluGrad, "gelu_grad", 2, "rn(gelu_grad($0) * $1)"),
];

impl PwOp {
    fn row(self) -> &'static (PwOp, &'static str, usize, &'static str) {
        TABLE
            .iter()
            .find(|r| r.0 == self)
            .expect("every operation is in the table")
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Its number of operands.
    pub fn arity(self) -> usize {
        self.row().2
    }

    /// Its WGSL template.
    pub fn wgsl(self) -> &'static str {
        self.row().3
    }
}

/// One instruction; operands are registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instr {
    /// What to compute.
    pub op: PwOp,
    /// Registers: inputs come first, then constants, then the results of earlier instructions.
    pub args: [u16; 3],
    /// Type to which the result is rounded, so that fusing expressions changes no bit.
    pub round: DType,
}

/// A pointwise expression. The last register is the result.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Expr {
    /// Number of inputs.
    pub inputs: u16,
    /// Bit patterns of constants.
    pub consts: Vec<u32>,
    /// Instructions in order. None at all: the result is the first register (a conversion).
    pub code: Vec<Instr>,
}

impl Expr {
    /// One repeated constant.
    pub fn constant(bits: u32) -> Expr {
        Expr {
            consts: vec![bits],
            ..Expr::default()
        }
    }

    /// Its one input, converted. Narrowing is an instruction, so that it survives fusion; widening is
    /// exact and needs none.
    pub fn convert(to: DType) -> Expr {
        let copy = Instr {
            op: PwOp::Copy,
            args: [0; 3],
            round: to,
        };
        let code = if to.is_low() { vec![copy] } else { vec![] };
        Expr {
            inputs: 1,
            consts: vec![],
            code,
        }
    }
}

/// How input `j` of a pointwise kernel is read: element `(i / div) % len` for output element `i`.
/// Uniform words: n, then (div, len) for each input.
pub fn params(n: usize, access: &[(usize, usize)], expr: Expr) -> Params {
    let mut words = vec![n as u32];
    for &(div, len) in access {
        words.extend([div as u32, len as u32]);
    }
    Params {
        expr: Some(std::sync::Arc::new(expr)),
        ..Params::new(&words)
    }
}

/// `out[i] = expr(in_j[(i / div_j) % len_j])`.
pub static POINTWISE: KernelDef = KernelDef {
    name: "pointwise",
    bindings: &[read("in"), write("out")],
    host: Host::No,
    cpu: pointwise,
};

/// Elements that the interpreter handles at a time: a few registers of this length stay in L1.
const CHUNK: usize = 512;
/// Elements per task, about.
const TASK: usize = 16 * CHUNK;

fn pointwise(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let bound = Bound::new(p, false, reads).expect("a pointwise step carries its expression");
    let out = &mut writes[0];
    // A packed row is padded to whole words, so tasks have whole rows.
    let task = if out.dtype.packed() {
        (TASK / out.row.max(1)).max(1) * out.row
    } else {
        TASK
    };
    let (dtype, row) = (out.dtype, out.row);
    let words = if dtype.packed() {
        task / row * pitch(dtype, row)
    } else {
        task
    };
    let body = |t: usize, out: &mut [u32]| {
        store(dtype, row, out, |wide| {
            bound.evaluator().fill(t * task, wide)
        });
    };
    if out.words.len() <= words {
        return body(0, out.words);
    }
    let tasks = out.words.par_chunks_mut(words).enumerate();
    tasks.for_each(|(t, out)| body(t, out));
}

/// Lets `compute` write some rows, then rounds them to the type of `out` (f32: they are there already).
pub fn store(dtype: DType, row: usize, out: &mut [u32], compute: impl FnOnce(&mut [f32])) {
    if !dtype.packed() {
        return compute(bytemuck::cast_slice_mut(out));
    }
    let pitch = row.div_ceil(2);
    let mut wide = Scratch::zeros(out.len() / pitch * row);
    compute(&mut wide);
    for (words, wide) in out.chunks_mut(pitch).zip(wide.chunks(row)) {
        pack(dtype, wide, words);
    }
}

/// An expression and where its operands lie: a pointwise step's, or one that another kernel hosts (see
/// [`Host`](super::Host)).
pub struct Bound<'a> {
    expr: &'a Expr,
    inputs: Vec<Input<'a>>,
}

struct Input<'a> {
    data: View<'a>,
    div: usize,
    len: usize,
}

impl<'a> Bound<'a> {
    /// The expression of a step. Its operands are the last of `reads`, as many as `params` ends with
    /// pairs (div, len); a host's own value is one more input, the first.
    pub fn new(p: &'a Params, host: bool, reads: &[View<'a>]) -> Option<Bound<'a>> {
        let expr = p.expr.as_deref()?;
        let n = expr.inputs as usize - usize::from(host);
        let pairs = &p.words[p.words.len() - 2 * n..];
        let inputs = reads[reads.len() - n..].iter().zip(pairs.chunks_exact(2));
        let inputs = inputs.map(|(&data, at)| Input {
            data,
            div: at[0] as usize,
            len: at[1] as usize,
        });
        let inputs = inputs.collect();
        Some(Bound { expr, inputs })
    }

    /// What evaluates it on one thread.
    pub fn evaluator(&'a self) -> Evaluator<'a> {
        let expr = self.expr;
        let registers = expr.inputs as usize + expr.consts.len() + expr.code.len();
        let mut regs = Scratch::zeros(registers * CHUNK);
        for (k, &c) in expr.consts.iter().enumerate() {
            let at = (expr.inputs as usize + k) * CHUNK;
            regs[at..at + CHUNK].fill(f32::from_bits(c));
        }
        Evaluator { bound: self, regs }
    }
}

/// A bound expression with its registers.
pub struct Evaluator<'a> {
    bound: &'a Bound<'a>,
    regs: Scratch,
}

impl Evaluator<'_> {
    /// Evaluates a run of output elements from `start` on.
    pub fn fill(&mut self, start: usize, out: &mut [f32]) {
        let Bound { expr, inputs } = self.bound;
        for (c, out) in out.chunks_mut(CHUNK).enumerate() {
            chunk(expr, inputs, &mut self.regs, start + c * CHUNK, out, false);
        }
    }

    /// The same in a host: `values` holds its own values and receives the results.
    pub fn apply(&mut self, start: usize, values: &mut [f32]) {
        let Bound { expr, inputs } = self.bound;
        for (c, out) in values.chunks_mut(CHUNK).enumerate() {
            chunk(expr, inputs, &mut self.regs, start + c * CHUNK, out, true);
        }
    }
}

crate::multiversion! {
    /// With `host`, `out` holds the values of the first input.
    fn chunk(expr: &Expr, inputs: &[Input], regs: &mut [f32], start: usize, out: &mut [f32], host: bool) {
        let n = out.len();
        if host {
            for (r, &x) in regs[..n].iter_mut().zip(&*out) {
                *r = math::ftz(x);
            }
        }
        let first = usize::from(host);
        let Some((last, code)) = expr.code.split_last() else {
            let at = expr.consts.first().map_or(0.0, |&c| f32::from_bits(c));
            return match (host, inputs.first()) {
                (true, _) => out.copy_from_slice(&regs[..n]),
                (false, Some(input)) => load(input, start, out),
                (false, None) => out.fill(at),
            };
        };
        // A conversion alone needs no register.
        if let (PwOp::Copy, 0, [], [input], false) = (last.op, last.args[0], code, inputs, host) {
            load(input, start, out);
            return round(last.round, out);
        }
        for (j, input) in inputs.iter().enumerate() {
            let at = (first + j) * CHUNK;
            load(input, start, &mut regs[at..at + n]);
        }
        let mut at = (expr.inputs as usize + expr.consts.len()) * CHUNK;
        for i in code {
            let (before, rest) = regs.split_at_mut(at);
            instruction(i, before, &mut rest[..n]);
            at += CHUNK;
        }
        instruction(last, regs, out);
    }
}

/// One instruction over a run of elements; its operands are among the registers `before` it.
#[inline(always)]
fn instruction(i: &Instr, before: &[f32], out: &mut [f32]) {
    let n = out.len();
    let arg = |k: usize| &before[i.args[k] as usize * CHUNK..][..n];
    apply(i.op, arg(0), arg(1), arg(2), out);
    round(i.round, out);
}

#[inline(always)]
fn round(dtype: DType, x: &mut [f32]) {
    if dtype == DType::Bf16 {
        for x in x {
            *x = bf16_to_f32(f32_to_bf16(*x));
        }
    } else if dtype == DType::F16 {
        // What underflows is +0, as it is when it is stored and loaded again.
        for x in x {
            *x = math::ftz(f16_to_f32(f32_to_f16(*x)));
        }
    }
}

/// Loads a run of operand values, flushed.
#[inline(always)]
fn load(input: &Input, start: usize, to: &mut [f32]) {
    let mut at = 0;
    while at < to.len() {
        let i = start + at;
        let q = (i / input.div) % input.len;
        if input.div == 1 {
            // A run of consecutive elements up to the wrap.
            let n = (to.len() - at).min(input.len - q);
            consecutive(&input.data, q, &mut to[at..at + n]);
            at += n;
        } else {
            // A run of one repeated element.
            let n = (to.len() - at).min(input.div - i % input.div);
            let mut one = [0.0];
            consecutive(&input.data, q, &mut one);
            to[at..at + n].fill(one[0]);
            at += n;
        }
    }
}

/// Elements `q..` of a buffer, widened and flushed.
#[inline(always)]
fn consecutive(x: &View, q: usize, to: &mut [f32]) {
    if !x.dtype.is_low() {
        let data = &x.f32()[q..q + to.len()];
        for (t, &x) in to.iter_mut().zip(data) {
            *t = math::ftz(x);
        }
        return;
    }
    let halves: &[u16] = bytemuck::cast_slice(x.words);
    let widen = |h: u16| {
        math::ftz(if x.dtype == DType::Bf16 {
            bf16_to_f32(h)
        } else {
            f16_to_f32(h)
        })
    };
    if x.row.is_multiple_of(2) {
        for (t, &h) in to.iter_mut().zip(&halves[q..]) {
            *t = widen(h);
        }
    } else {
        // Odd rows end in a padding half.
        for (i, t) in to.iter_mut().enumerate() {
            *t = widen(halves[q + i + (q + i) / x.row]);
        }
    }
}

/// One instruction over a run of elements. The loops are written out by macros: through a closure or a
/// function passed as a value there is a call that the compiler may leave outside, compiled for the baseline.
#[inline(always)]
fn apply(op: PwOp, a: &[f32], b: &[f32], c: &[f32], out: &mut [f32]) {
    macro_rules! one {
        ($x:ident, $value:expr) => {
            for (o, &$x) in out.iter_mut().zip(a) {
                *o = $value;
            }
        };
    }
    macro_rules! two {
        ($x:ident, $y:ident, $value:expr) => {
            for ((o, &$x), &$y) in out.iter_mut().zip(a).zip(b) {
                *o = $value;
            }
        };
    }
    match op {
        PwOp::Add => two!(x, y, math::ftz(x + y)),
        PwOp::Sub => two!(x, y, math::ftz(x - y)),
        PwOp::Mul => two!(x, y, math::ftz(x * y)),
        PwOp::Div => two!(x, y, math::div(x, y)),
        PwOp::Max => two!(x, y, max2(x, y)),
        PwOp::Min => two!(x, y, min2(x, y)),
        PwOp::Gt => two!(x, y, if x > y { 1.0 } else { 0.0 }),
        PwOp::Select => {
            for (((o, &x), &y), &z) in out.iter_mut().zip(a).zip(b).zip(c) {
                *o = if x != 0.0 { y } else { z };
            }
        }
        PwOp::Copy => out.copy_from_slice(a),
        PwOp::Neg => one!(x, math::ftz(-x)),
        PwOp::Abs => one!(x, x.abs()),
        PwOp::Exp => one!(x, math::exp(x)),
        PwOp::Log => one!(x, math::log(x)),
        PwOp::Tanh => one!(x, math::tanh(x)),
        PwOp::Erf => one!(x, math::erf(x)),
        PwOp::Sqrt => one!(x, math::sqrt(x)),
        PwOp::Rsqrt => one!(x, math::rsqrt(x)),
        PwOp::Gelu => one!(x, math::gelu(x)),
        PwOp::GeluGrad => two!(x, g, math::ftz(math::gelu_grad(x) * g)),
    }
}
