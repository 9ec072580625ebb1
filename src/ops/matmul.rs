//! Matrix product, batched over leading axes.

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::eval::Tensor;
use crate::graph::{NodeId, Type};
use crate::kernels::Params;
use crate::kernels::gemm::{GEMM, GEMM_TREE, params, row_params};
use crate::passes::lower::Lower;
use crate::shape::Shape;

/// `op(a) * op(b)`.
pub static MATMUL: OpDef = OpDef {
    name: "matmul",
    numeric: Numeric::Low,
    infer,
    vjp: Vjp::Rule(|y, g| {
        let Op::MatMul { ta, tb } = y.node().op else {
            unreachable!()
        };
        let (a, b) = (y.src(0), y.src(1));
        // With A' = op(A), B' = op(B): dA' = g B'^T, dB' = A'^T g, transposed back where stored so.
        let da = if ta {
            b.matmul(g, tb, true)
        } else {
            g.matmul(b, false, !tb)
        };
        let db = if tb {
            g.matmul(a, true, ta)
        } else {
            a.matmul(g, !ta, false)
        };
        vec![Some(da), Some(db)]
    }),
    expand: None,
    eval,
    lower,
    cases: || {
        let mm = |ta, tb| Op::MatMul { ta, tb };
        let mut out = Vec::new();
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (17, 13, 31), (33, 65, 1)] {
            out.push(Case::new(mm(false, false), &[&[m, k], &[k, n]]));
            out.push(Case::new(mm(true, false), &[&[k, m], &[k, n]]));
            out.push(Case::new(mm(false, true), &[&[m, k], &[n, k]]));
            out.push(Case::new(mm(true, true), &[&[k, m], &[n, k]]));
        }
        out.push(Case::new(mm(false, true), &[&[2, 3, 5, 7], &[2, 3, 4, 7]]));
        out.push(Case::new(mm(true, false), &[&[3, 5, 7], &[3, 5, 2]]));
        out.push(
            Case::new(mm(true, false), &[&[1025, 3], &[1025, 2]])
                .tol(1e-5)
                .not_differentiable(),
        );
        out.push(
            Case::new(mm(false, true), &[&[5, 5000], &[3, 5000]])
                .tol(1e-5)
                .not_differentiable(),
        );
        out.push(
            Case::new(mm(false, false), &[&[129, 257], &[257, 127]])
                .tol(1e-5)
                .not_differentiable(),
        );
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (17, 13, 31), (4, 6, 1030)] {
            for dtype in [DType::Bf16, DType::F16] {
                let both = |ta, tb, a: [usize; 2], b: [usize; 2]| {
                    Case::new(mm(ta, tb), &[&a, &b]).narrow_to(dtype, &[0, 1])
                };
                out.push(both(false, false, [m, k], [k, n]));
                out.push(both(true, false, [k, m], [k, n]));
                out.push(both(false, true, [m, k], [n, k]));
                out.push(both(true, true, [k, m], [n, k]));
            }
        }
        let tiny = Fill::Normal(1e-16); // below the operand floor: products count as 0
        out.push(
            Case::new(mm(false, false), &[&[3, 9], &[9, 4]])
                .fill(0, tiny)
                .tol(f64::INFINITY)
                .not_differentiable(),
        );
        out
    },
};

/// (x[m, k], w[k, n]) -> x * w. Generation computes rows one by one or many at once: here the order of
/// a row's sums does not depend on the number of rows, as that of [`MATMUL`] may where k is long.
pub static LINEAR: OpDef = OpDef {
    name: "linear",
    numeric: Numeric::Low,
    infer: |_, src| {
        arity(src, 2)?;
        need(
            src.iter().all(|t| t.shape.rank() == 2),
            "needs rows [m,k] and a weight [k,n]",
        )?;
        let product = Op::MatMul {
            ta: false,
            tb: false,
        };
        infer(&product, src)
    },
    vjp: Vjp::Stop("it serves generation alone: train with matmul"),
    expand: None,
    eval,
    lower,
    cases: || {
        let case =
            |m: usize, n: usize, k: usize| Case::new(Op::Linear, &[&[m, k], &[k, n]]).tol(1e-5);
        let cases = vec![
            case(1, 1, 1),
            case(1, 65, 128),
            case(1, 300, 33),
            case(1, 1030, 520),
            case(5, 33, 17),
            case(1, 3, 2049),
            case(9, 5, 1030),
            case(1, 131, 70).narrow(&[0, 1]),
            case(1, 1030, 520).narrow(&[0, 1]),
            case(3, 6, 1030).narrow(&[0, 1]),
            case(1, 131, 70).narrow_to(DType::F16, &[0, 1]),
            case(3, 6, 1030).narrow_to(DType::F16, &[0, 1]),
        ];
        cases.into_iter().map(Case::not_differentiable).collect()
    },
};

/// (m, n, k, batch) of a product.
fn extents(ta: bool, tb: bool, a: Shape, b: Shape) -> (usize, usize, usize, usize) {
    let (ra, rb) = (a.rank(), b.rank());
    let (m, k) = if ta {
        (a.dim(ra - 1), a.dim(ra - 2))
    } else {
        (a.dim(ra - 2), a.dim(ra - 1))
    };
    let n = if tb { b.dim(rb - 2) } else { b.dim(rb - 1) };
    (m, n, k, a.dims()[..ra - 2].iter().product())
}

fn infer(op: &Op, src: &[Type]) -> Result<Type, String> {
    arity(src, 2)?;
    let Op::MatMul { ta, tb } = op else {
        unreachable!()
    };
    let (a, b) = (src[0].shape, src[1].shape);
    need(
        a.rank() >= 2 && a.rank() == b.rank(),
        "needs two matrices of equal rank",
    )?;
    need(src[0].dtype == src[1].dtype, "operands differ in type")?;
    let (m, n, k, _) = extents(*ta, *tb, a, b);
    let kb = if *tb {
        b.dim(b.rank() - 1)
    } else {
        b.dim(b.rank() - 2)
    };
    need(k == kb, &format!("inner extents {k} and {kb} differ"))?;
    let mut dims = a.dims();
    need(
        dims[..dims.len() - 2] == b.dims()[..dims.len() - 2],
        "batch extents differ",
    )?;
    let rank = dims.len();
    (dims[rank - 2], dims[rank - 1]) = (m, n);
    Ok(Type::new(&dims, src[0].dtype))
}

fn eval(op: &Op, shape: Shape, src: &[&Tensor]) -> Tensor {
    let (ta, tb) = match *op {
        Op::MatMul { ta, tb } => (ta, tb),
        _ => (false, false),
    };
    let (m, n, k, batch) = extents(ta, tb, src[0].shape, src[1].shape);
    let mut out = Tensor::full(shape, 0.0);
    for z in 0..batch {
        for i in 0..m {
            for j in 0..n {
                out.data[(z * m + i) * n + j] = (0..k)
                    .map(|l| {
                        let a = if ta {
                            (z * k + l) * m + i
                        } else {
                            (z * m + i) * k + l
                        };
                        let b = if tb {
                            (z * n + j) * k + l
                        } else {
                            (z * k + l) * n + j
                        };
                        src[0].data[a] * src[1].data[b]
                    })
                    .sum();
            }
        }
    }
    out
}

fn lower(lw: &mut Lower, id: NodeId) {
    let node = lw.node(id);
    let (ta, tb) = match node.op {
        Op::MatMul { ta, tb } => (ta, tb),
        _ => (false, false),
    };
    let (m, n, k, batch) = extents(ta, tb, lw.ty(node.src[0]).shape, lw.ty(node.src[1]).shape);
    let (a, b) = (lw.buf(node.src[0]), lw.buf(node.src[1]));
    let label = lw.label(id);
    let p = if node.op == Op::Linear {
        row_params(m, n, k)
    } else {
        params(m, n, k, batch, ta, tb)
    };
    let chunks = if batch == 1 { k.div_ceil(p.at(3)) } else { 1 };
    let out = lw.out_wide(id);
    if chunks <= 1 {
        lw.step(&GEMM, p, &[a, b], &[out], &label);
    } else {
        let parts = lw.scratch(Type::f32(&[chunks, m * n]), &label);
        lw.step(&GEMM, p, &[a, b], &[parts], &label);
        lw.step(
            &GEMM_TREE,
            Params::new(&[(m * n) as u32, chunks as u32]),
            &[parts],
            &[out],
            &label,
        );
    }
    lw.narrow(id, out);
}
