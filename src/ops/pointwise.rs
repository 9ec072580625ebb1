//! Pointwise operations: their f64 meaning and gradients. The machinery is
//! [`crate::kernels::pointwise`].

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::NodeId;
use crate::graph::Tx;
use crate::graph::eval::Tensor;
use crate::kernels::pointwise::{Expr, Instr, PwOp, TABLE};
use crate::passes::lower::{Lower, Operand};
use crate::shape::Shape;

/// One definition an operation, in the order of the kernel table.
pub static DEFS: [OpDef; 19] = [
    pw("add", Numeric::Follow, |_, g| vec![Some(g), Some(g)]),
    pw("sub", Numeric::Follow, |_, g| vec![Some(g), Some(-g)]),
    pw("mul", Numeric::Follow, |y, g| {
        vec![Some(g * y.src(1)), Some(g * y.src(0))]
    }),
    pw("div", Numeric::Guard, |y, g| {
        let da = g / y.src(1);
        vec![Some(da), Some(-(da * y))]
    }),
    pw("max", Numeric::Follow, |y, g| {
        let second = y.src(1).gt(y.src(0));
        let zero = g.constant(0.0);
        vec![Some(second.select(zero, g)), Some(second.select(g, zero))]
    }),
    pw("min", Numeric::Follow, |y, g| {
        let second = y.src(0).gt(y.src(1));
        let zero = g.constant(0.0);
        vec![Some(second.select(zero, g)), Some(second.select(g, zero))]
    }),
    pw("gt", Numeric::Follow, |_, _| vec![None, None]),
    pw("select", Numeric::Follow, |y, g| {
        let zero = g.constant(0.0);
        vec![
            None,
            Some(y.src(0).select(g, zero)),
            Some(y.src(0).select(zero, g)),
        ]
    }),
    pw("copy", Numeric::Follow, |_, g| vec![Some(g)]),
    pw("neg", Numeric::Follow, |_, g| vec![Some(-g)]),
    pw("abs", Numeric::Follow, |y, g| {
        let positive = y.src(0).gt(g.constant(0.0));
        vec![Some(positive.select(g, -g))]
    }),
    pw("exp", Numeric::Guard, |y, g| vec![Some(g * y)]),
    pw("log", Numeric::Guard, |y, g| vec![Some(g / y.src(0))]),
    pw("tanh", Numeric::Follow, |y, g| {
        vec![Some(g * (g.constant(1.0) - y * y))]
    }),
    pw("erf", Numeric::Guard, |y, g| {
        let x = y.src(0);
        let slope = (-(x * x)).exp() * x.constant(std::f32::consts::FRAC_2_SQRT_PI);
        vec![Some(g * slope)]
    }),
    pw("sqrt", Numeric::Guard, |y, g| {
        vec![Some(g * g.constant(0.5) / y)]
    }),
    pw("rsqrt", Numeric::Guard, |y, g| {
        vec![Some(g * g.constant(-0.5) * (y * y * y))]
    }),
    pw("gelu", Numeric::Follow, |y, g| {
        vec![Some(y.src(0).gelu_grad(g))]
    }),
    OpDef {
        vjp: Vjp::ViaExpand,
        expand: Some(expand_gelu_grad),
        ..pw("gelu_grad", Numeric::Follow, |_, _| vec![])
    },
];

/// The definition of a pointwise operation.
pub fn def(op: PwOp) -> &'static OpDef {
    let i = TABLE
        .iter()
        .position(|r| r.0 == op)
        .expect("every operation is in the table");
    &DEFS[i]
}

type Rule = for<'g> fn(Tx<'g>, Tx<'g>) -> Vec<Option<Tx<'g>>>;

const fn pw(name: &'static str, numeric: Numeric, rule: Rule) -> OpDef {
    OpDef {
        name,
        numeric,
        infer: |op, src| {
            let Op::Pw(p) = op else { unreachable!() };
            arity(src, p.arity())?;
            need(
                src.iter().all(|t| t.shape == src[0].shape),
                "operands differ in shape",
            )?;
            need(
                src.iter().all(|t| t.dtype == src[0].dtype),
                "operands differ in type",
            )?;
            need(src[0].dtype.is_float(), "operands must be floating-point")?;
            Ok(src[0])
        },
        vjp: Vjp::Rule(rule),
        expand: None,
        eval,
        lower,
        cases: || Vec::new(), // see `cases` below: one list for all
    }
}

fn expand_gelu_grad(y: Tx) -> Tx {
    let x = y.src(0);
    let c = |v: f64| x.constant(v as f32);
    let cdf = c(0.5) * (c(1.0) + (x * c(std::f64::consts::FRAC_1_SQRT_2)).erf());
    let pdf = (x * x * c(-0.5)).exp() * c(0.3989422804014327);
    y.src(1) * (cdf + x * pdf)
}

/// The f64 meaning of one element.
pub fn scalar(op: PwOp, a: f64, b: f64, c: f64) -> f64 {
    let cdf = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    let pdf = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    match op {
        PwOp::Add => a + b,
        PwOp::Sub => a - b,
        PwOp::Mul => a * b,
        PwOp::Div => a / b,
        PwOp::Max => a.max(b),
        PwOp::Min => a.min(b),
        PwOp::Gt => (a > b) as u8 as f64,
        PwOp::Select => {
            if a != 0.0 {
                b
            } else {
                c
            }
        }
        PwOp::Copy => a,
        PwOp::Neg => -a,
        PwOp::Abs => a.abs(),
        PwOp::Exp => a.exp(),
        PwOp::Log => a.ln(),
        PwOp::Tanh => a.tanh(),
        PwOp::Erf => libm::erf(a),
        PwOp::Sqrt => a.sqrt(),
        PwOp::Rsqrt => 1.0 / a.sqrt(),
        PwOp::Gelu => a * cdf(a),
        PwOp::GeluGrad => b * (cdf(a) + a * pdf(a)),
    }
}

fn eval(op: &Op, shape: Shape, src: &[&Tensor]) -> Tensor {
    let Op::Pw(p) = op else { unreachable!() };
    let at = |k: usize, i: usize| src.get(k).map_or(0.0, |t| t.data[i]);
    Tensor::new(
        shape,
        (0..shape.elems())
            .map(|i| scalar(*p, at(0, i), at(1, i), at(2, i)))
            .collect(),
    )
}

fn lower(lw: &mut Lower, id: NodeId) {
    let node = lw.node(id);
    let Op::Pw(op) = node.op else { unreachable!() };
    let operands: Vec<Operand> = node.src.iter().map(|&s| lw.operand(s)).collect();
    let (inputs, consts) = (
        operands.iter().filter(|o| o.is_buf()).count(),
        operands.len(),
    );
    let mut expr = Expr {
        inputs: inputs as u16,
        ..Expr::default()
    };
    let mut args = [0u16; 3];
    let mut next_input = 0u16;
    for (k, o) in operands.iter().enumerate().take(consts) {
        args[k] = match o {
            Operand::Buf { .. } => {
                next_input += 1;
                next_input - 1
            }
            Operand::Const(bits) => {
                expr.consts.push(*bits);
                expr.inputs + expr.consts.len() as u16 - 1
            }
        };
    }
    expr.code.push(Instr {
        op,
        args,
        round: node.ty.dtype,
    });
    lw.pointwise(id, &operands, expr);
}

/// Conversion between float types.
pub static CAST: OpDef = OpDef {
    name: "cast",
    numeric: Numeric::Follow,
    infer: |op, src| {
        arity(src, 1)?;
        let Op::Cast(dtype) = op else { unreachable!() };
        need(
            dtype.is_float() && src[0].dtype.is_float(),
            "converts floating-point types only",
        )?;
        Ok(crate::graph::Type {
            shape: src[0].shape,
            dtype: *dtype,
        })
    },
    vjp: Vjp::Rule(|y, g| vec![Some(g.cast(y.src(0).ty().dtype))]),
    expand: None,
    eval: |_, shape, src| Tensor::new(shape, src[0].data.clone()),
    lower: |lw, id| {
        let node = lw.node(id);
        let operand = lw.operand(node.src[0]);
        let expr = match operand {
            Operand::Buf { .. } => Expr::convert(node.ty.dtype),
            Operand::Const(bits) => Expr::constant(bits),
        };
        lw.pointwise(id, &[operand], expr);
    },
    cases: || {
        let to = |dtype| Case::new(Op::Cast(dtype), &[&[13, 7]]);
        vec![
            to(DType::F32),
            to(DType::Bf16).tol(1e-2).not_differentiable(),
            to(DType::F32).narrow(&[0]),
            to(DType::F16).tol(1e-3).not_differentiable(),
            // Subnormals of binary16, and what is lost below them.
            to(DType::F16)
                .fill(0, Fill::Normal(3e-7))
                .tol(0.2)
                .not_differentiable(),
            to(DType::F32)
                .fill(0, Fill::Normal(1e-6))
                .narrow_to(DType::F16, &[0]),
        ]
    },
};

/// The table's rows for all pointwise operations: prime and size-1 shapes, and a range where each is
/// smooth.
pub fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for &(op, ..) in TABLE {
        if def(op).numeric == Numeric::Follow {
            let all: Vec<usize> = (0..op.arity()).collect();
            for shape in [&[257usize][..], &[2, 3, 6]] {
                let case = Case::new(Op::Pw(op), &vec![shape; op.arity()]);
                let case = if op == PwOp::Select {
                    case.fill(0, Fill::Ids(2))
                } else {
                    case
                };
                out.push(case.clone().narrow(&all));
                out.push(case.narrow_to(DType::F16, &all));
            }
        }
        for shape in [&[1usize][..], &[257], &[13, 7], &[2, 3, 1, 5]] {
            let shapes = vec![shape; op.arity()];
            let case = Case::new(Op::Pw(op), &shapes);
            out.push(match op {
                PwOp::Div => case.fill(1, Fill::Uniform(0.5, 2.0)),
                PwOp::Log | PwOp::Sqrt | PwOp::Rsqrt => case.fill(0, Fill::Uniform(0.2, 3.0)),
                PwOp::Gt => case.not_differentiable(),
                PwOp::Select => case.fill(0, Fill::Ids(2)),
                _ => case,
            });
        }
    }
    out
}
