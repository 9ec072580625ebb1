//! Expressions on nodes: `a + b`, `x.matmul(w)`, with broadcasting made explicit.

use super::{Graph, Node, NodeId, Type};
use crate::dtype::DType;
use crate::kernels::pointwise::PwOp;
use crate::ops::{self, Numeric, Op, ReduceOp};
use crate::shape::Shape;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A node together with its graph.
#[derive(Clone, Copy)]
pub struct Tx<'g> {
    /// The graph.
    pub g: &'g Graph,
    /// The node.
    pub id: NodeId,
}

impl<'g> Tx<'g> {
    /// The node itself.
    pub fn node(self) -> Node {
        self.g.node(self.id)
    }

    /// Its type.
    pub fn ty(self) -> Type {
        self.g.ty(self.id)
    }

    /// Its shape.
    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    /// Its source number `i`.
    pub fn src(self, i: usize) -> Tx<'g> {
        self.g.tx(self.node().src[i])
    }

    /// Any operation on this node and others.
    pub fn op(self, op: Op, rest: &[Tx<'g>]) -> Tx<'g> {
        let mut src = vec![self.id];
        src.extend(rest.iter().map(|t| t.id));
        self.g.tx(self.g.add(op, &src))
    }

    /// A pointwise operation, operands broadcast to their common shape. A guarded operation on narrow
    /// operands computes in f32 and rounds its result once.
    pub fn pw(self, op: PwOp, rest: &[Tx<'g>]) -> Tx<'g> {
        let dtype = self.ty().dtype;
        if dtype.is_low() && ops::numeric(&Op::Pw(op)) == Numeric::Guard {
            let rest: Vec<Tx> = rest.iter().map(|t| t.f32()).collect();
            return self.f32().pw(op, &rest).cast(dtype);
        }
        let shape = rest.iter().fold(self.shape(), |s, t| {
            Shape::broadcast(s, t.shape())
                .unwrap_or_else(|| panic!("{} and {} do not broadcast", s, t.shape()))
        });
        let rest: Vec<Tx> = rest.iter().map(|t| t.broadcast(shape)).collect();
        self.broadcast(shape).op(Op::Pw(op), &rest)
    }

    /// A constant of this node's type, one element.
    pub fn constant(self, value: f32) -> Tx<'g> {
        self.g.constant(value, self.ty().dtype)
    }

    /// Broadcast to `shape` (NumPy's rule).
    pub fn broadcast(self, shape: Shape) -> Tx<'g> {
        if self.shape() == shape {
            self
        } else {
            self.op(Op::Broadcast(shape), &[])
        }
    }

    /// The same elements under another shape.
    pub fn reshape(self, dims: &[usize]) -> Tx<'g> {
        let shape = Shape::new(dims);
        if self.shape() == shape {
            self
        } else {
            self.op(Op::Reshape(shape), &[])
        }
    }

    /// Axes in another order.
    pub fn permute(self, order: &[usize]) -> Tx<'g> {
        let mut o = [0u8; crate::shape::MAX_DIMS];
        for (o, &a) in o.iter_mut().zip(order) {
            *o = a as u8;
        }
        self.op(Op::Permute(o), &[])
    }

    /// Sum over the axes in `mask`, which stay with extent 1.
    pub fn sum(self, mask: u8) -> Tx<'g> {
        self.reduce(ReduceOp::Sum, mask)
    }

    /// Maximum over the axes in `mask`, which stay with extent 1.
    pub fn max_over(self, mask: u8) -> Tx<'g> {
        self.reduce(ReduceOp::Max, mask)
    }

    /// Reductions run in f32 and round their result once.
    fn reduce(self, kind: ReduceOp, mask: u8) -> Tx<'g> {
        let dtype = self.ty().dtype;
        self.f32().op(Op::Reduce(kind, mask), &[]).cast(dtype)
    }

    /// This value in f32.
    pub fn f32(self) -> Tx<'g> {
        self.cast(DType::F32)
    }

    /// Sum of all elements, a scalar.
    pub fn sum_all(self) -> Tx<'g> {
        let n = self.shape().elems();
        self.f32()
            .reshape(&[n])
            .sum(1)
            .reshape(&[])
            .cast(self.ty().dtype)
    }

    /// Mean over the last axis, which stays with extent 1.
    pub fn mean_last(self) -> Tx<'g> {
        let axis = self.shape().rank() - 1;
        let n = self.shape().row() as f32;
        self.sum(1 << axis) * self.constant(1.0 / n)
    }

    /// `self * other` as matrices, batched over leading axes.
    pub fn matmul(self, other: Tx<'g>, ta: bool, tb: bool) -> Tx<'g> {
        self.op(Op::MatMul { ta, tb }, &[other])
    }

    /// Conversion to another type; none if it has it.
    pub fn cast(self, dtype: DType) -> Tx<'g> {
        if self.ty().dtype == dtype {
            self
        } else {
            self.op(Op::Cast(dtype), &[])
        }
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        impl<'g> Tx<'g> {
            $($(#[$doc])* pub fn $name(self) -> Tx<'g> { self.pw(PwOp::$op, &[]) })*
        }
    };
}

unary! {
    /// e^x.
    exp => Exp,
    /// Natural logarithm.
    log => Log,
    /// Hyperbolic tangent.
    tanh => Tanh,
    /// The error function.
    erf => Erf,
    /// Square root.
    sqrt => Sqrt,
    /// 1/sqrt(x).
    rsqrt => Rsqrt,
    /// Absolute value.
    abs => Abs,
    /// GELU with the exact error function.
    gelu => Gelu,
}

impl<'g> Tx<'g> {
    /// Derivative of [`Tx::gelu`] here, times a cotangent.
    pub fn gelu_grad(self, g: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::GeluGrad, &[g])
    }

    /// The larger of two.
    pub fn maximum(self, other: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Max, &[other])
    }

    /// The smaller of two.
    pub fn minimum(self, other: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Min, &[other])
    }

    /// 1 where `self > other`, else 0.
    pub fn gt(self, other: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Gt, &[other])
    }

    /// `a` where this is not 0, else `b`.
    pub fn select(self, a: Tx<'g>, b: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Select, &[a, b])
    }
}

impl<'g> Add for Tx<'g> {
    type Output = Tx<'g>;
    fn add(self, o: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Add, &[o])
    }
}

impl<'g> Sub for Tx<'g> {
    type Output = Tx<'g>;
    fn sub(self, o: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Sub, &[o])
    }
}

impl<'g> Mul for Tx<'g> {
    type Output = Tx<'g>;
    fn mul(self, o: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Mul, &[o])
    }
}

impl<'g> Div for Tx<'g> {
    type Output = Tx<'g>;
    fn div(self, o: Tx<'g>) -> Tx<'g> {
        self.pw(PwOp::Div, &[o])
    }
}

impl<'g> Neg for Tx<'g> {
    type Output = Tx<'g>;
    fn neg(self) -> Tx<'g> {
        self.pw(PwOp::Neg, &[])
    }
}
