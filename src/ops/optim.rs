//! AdamW as graph operations: the results of an update are those of the same operands, by one kernel.

use super::{AdamPart, Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::eval::Tensor;
use crate::graph::{NodeId, Type};
use crate::kernels::optim::{ADAMW as KERNEL, HYPER};
use crate::kernels::optim_low::{
    ADAMW_COMPENSATED, ADAMW_SCALARS, ADAMW_STOCHASTIC, KEY, NORM, SCALE,
};
use crate::kernels::{KernelDef, Params};
use crate::passes::lower::Lower;

/// How an update of bf16 weights is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Store {
    /// Rounded stochastically; the tensor's number is part of the random bits' counter.
    Stochastic(u32),
    /// With what rounding took away kept beside it.
    Compensated,
}

/// An update of some states by one kernel.
pub struct Update {
    /// The kernel; it writes the states in the order of the operands.
    pub kernel: &'static KernelDef,
    /// The operations whose results are the new states: the first operands are the old ones.
    pub parts: Vec<Op>,
    /// The kernel's parameters.
    pub params: Params,
}

/// The update that an operation is a part of, over tensors of some elements.
pub fn update(op: &Op, elements: usize) -> Option<Update> {
    const PARTS: [AdamPart; 4] = [AdamPart::W, AdamPart::M, AdamPart::V, AdamPart::C];
    let n = elements as u32;
    let of = |kernel, parts: &[AdamPart], op: &dyn Fn(AdamPart) -> Op, words: &[u32]| Update {
        kernel,
        parts: parts.iter().map(|&p| op(p)).collect(),
        params: Params::new(words),
    };
    match *op {
        Op::AdamW(_) => Some(of(&KERNEL, &PARTS[..3], &Op::AdamW, &[n])),
        Op::AdamWLow(store, _) => {
            let part = |p| Op::AdamWLow(store, p);
            Some(match store {
                Store::Stochastic(tensor) => {
                    of(&ADAMW_STOCHASTIC, &PARTS[..3], &part, &[n, tensor])
                }
                Store::Compensated => of(&ADAMW_COMPENSATED, &PARTS, &part, &[n]),
            })
        }
        _ => None,
    }
}

/// Reached only where the result is not simply the state's update, which is done in place: works on
/// copies.
fn lower_on_copies(lw: &mut Lower, id: NodeId) {
    let node = lw.node(id);
    let label = lw.label(id);
    let u = update(&node.op, node.ty.shape.elems()).expect("an update");
    let reads: Vec<_> = node.src[u.parts.len()..]
        .iter()
        .map(|&s| lw.buf(s))
        .collect();
    let each = u.parts.into_iter().zip(&node.src);
    let writes: Vec<_> = each
        .map(|(part, &from)| {
            let to = lw.sibling(part, &node.src);
            lw.copy_to(from, to, &label);
            to
        })
        .collect();
    lw.step(u.kernel, u.params, &reads, &writes, &label);
}

/// (w, m, v, g, hyper[8], scale[1], norm[1]) -> the new w, m or v.
pub static ADAMW: OpDef = OpDef {
    name: "adamw",
    // Its arithmetic is f32 whatever the storage: pure bf16 keeps weights and moments narrow.
    numeric: Numeric::Follow,
    infer: |_, src| {
        arity(src, 7)?;
        need(
            src[1..4].iter().all(|t| t.shape == src[0].shape),
            "w, m, v and g differ in shape",
        )?;
        need(src[4].shape.elems() == HYPER, "hyper must have 8 elements")?;
        need(
            src[5].shape.elems() == 1 && src[6].shape.elems() == 1,
            "scale and norm must be single elements",
        )?;
        Ok(src[0])
    },
    vjp: Vjp::Stop("an optimizer step is not differentiable"),
    expand: None,
    eval: |op, shape, src| {
        let Op::AdamW(part) = op else { unreachable!() };
        let [w, m, v, g, h, scale, norm] = src else {
            unreachable!()
        };
        let h = &h.data;
        let one = |i: usize| {
            if !norm.data[0].is_finite() {
                return [w.data[i], m.data[i], v.data[i]][*part as usize];
            }
            let g = g.data[i] * scale.data[0];
            let m1 = h[3] * m.data[i] + h[4] * g;
            let v1 = h[5] * v.data[i] + h[6] * g * g;
            match part {
                AdamPart::W => w.data[i] * h[0] - h[1] * m1 / (v1.sqrt() * h[2] + h[7]),
                AdamPart::M => m1,
                AdamPart::V => v1,
                AdamPart::C => unreachable!("it has three results"),
            }
        };
        Tensor::new(shape, (0..shape.elems()).map(one).collect())
    },
    lower: lower_on_copies,
    cases: || {
        let parts = [AdamPart::W, AdamPart::M, AdamPart::V];
        let case = |part, n: usize| {
            Case::new(
                Op::AdamW(part),
                &[&[n], &[n], &[n], &[n], &[HYPER], &[1], &[1]],
            )
            .fill(2, Fill::Uniform(0.1, 1.0))
            .fill(4, Fill::Uniform(0.1, 0.9))
            .not_differentiable()
        };
        parts
            .into_iter()
            .flat_map(|p| [case(p, 1), case(p, 257), case(p, 257).narrow(&[0, 1, 2, 3])])
            .collect()
    },
};

/// (w, m, v, g, scalars[12]) or (w, m, v, c, g, scalars[10]), all but the scalars bf16 -> the new w, m, v
/// or c.
pub static ADAMW_LOW: OpDef = OpDef {
    name: "adamw_low",
    numeric: Numeric::Follow,
    infer: |op, src| {
        let Op::AdamWLow(store, _) = op else {
            unreachable!()
        };
        let (states, scalars) = match store {
            Store::Stochastic(_) => (3, KEY + 2),
            Store::Compensated => (4, KEY),
        };
        arity(src, states + 2)?;
        let narrow = Type {
            dtype: DType::Bf16,
            ..src[0]
        };
        need(
            src[..=states].iter().all(|t| *t == narrow),
            "weights, moments and gradient must be bf16 of one shape",
        )?;
        need(
            src[states + 1] == Type::f32(&[scalars]),
            "the scalars have another number",
        )?;
        Ok(src[0])
    },
    vjp: Vjp::Stop("an optimizer step is not differentiable"),
    expand: None,
    // What is stored before it is rounded; stochastic rounding is within one unit of it.
    eval: |op, shape, src| {
        let Op::AdamWLow(store, part) = op else {
            unreachable!()
        };
        let states = src.len() - 2;
        let (g, h) = (&src[states].data, &src[states + 1].data);
        let one = |i: usize| {
            let kept = match store {
                Store::Stochastic(_) => 0.0,
                Store::Compensated => src[3].data[i],
            };
            let old = [src[0].data[i], src[1].data[i], src[2].data[i], kept];
            if !h[NORM].is_finite() {
                return old[*part as usize];
            }
            let g = g[i] * h[SCALE];
            let m1 = h[3] * old[1] + h[4] * g;
            let v1 = h[5] * old[2] + h[6] * g * g;
            let w1 = (old[0] + old[3]) * h[0] - h[1] * m1 / (v1.sqrt() * h[2] + h[7]);
            match part {
                AdamPart::W => w1,
                AdamPart::M => m1,
                AdamPart::V => v1,
                AdamPart::C => w1 - f64::from(DType::Bf16.round(w1 as f32)),
            }
        };
        Tensor::new(shape, (0..shape.elems()).map(one).collect())
    },
    lower: lower_on_copies,
    cases: || {
        let case = |store, part, dims: &[usize]| {
            let (states, scalars) = match store {
                Store::Stochastic(_) => (3, KEY + 2),
                Store::Compensated => (4, KEY),
            };
            let mut shapes = vec![dims; states + 1];
            let scalars = [scalars];
            shapes.push(&scalars);
            let narrow: Vec<usize> = (0..=states).collect();
            let mut case = Case::new(Op::AdamWLow(store, part), &shapes)
                .fill(2, Fill::Uniform(0.1, 1.0))
                .fill(states + 1, Fill::Uniform(0.1, 0.9))
                .narrow(&narrow)
                .tol(2e-2);
            if states == 4 {
                case = case.fill(3, Fill::Normal(1e-3));
            }
            case
        };
        let mut out = Vec::new();
        for part in [AdamPart::W, AdamPart::M, AdamPart::V, AdamPart::C] {
            for dims in [&[1usize][..], &[257], &[13, 7], &[9000]] {
                out.push(case(Store::Compensated, part, dims));
                if part != AdamPart::C {
                    out.push(case(Store::Stochastic(3), part, dims));
                }
            }
        }
        out
    },
};

/// (hyper[n], scale[1], norm[1]) -> the scalars of [`ADAMW_LOW`], [n + 2]: bits are copied.
pub static ADAMW_SCALARS_OP: OpDef = OpDef {
    name: "adamw_scalars",
    numeric: Numeric::Guard,
    infer: |_, src| {
        arity(src, 3)?;
        let n = src[0].shape.elems();
        need(n >= HYPER, "hyper must have at least 8 elements")?;
        need(
            src[1].shape.elems() == 1 && src[2].shape.elems() == 1,
            "scale and norm must be single elements",
        )?;
        Ok(Type::f32(&[n + 2]))
    },
    vjp: Vjp::Stop("an optimizer step is not differentiable"),
    expand: None,
    eval: |_, shape, src| {
        let hyper = &src[0].data;
        let middle = [src[1].data[0], src[2].data[0]];
        Tensor::new(shape, [&hyper[..HYPER], &middle, &hyper[HYPER..]].concat())
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let label = lw.label(id);
        let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
        let n = lw.ty(node.src[0]).shape.elems() as u32;
        let out = lw.out(id);
        lw.step(&ADAMW_SCALARS, Params::new(&[n]), &reads, &[out], &label);
    },
    cases: || {
        let case = |n: usize| {
            let shapes: [&[usize]; 3] = [&[n], &[1], &[1]];
            Case::new(Op::AdamWScalars, &shapes)
                .tol(0.0)
                .not_differentiable()
        };
        vec![case(HYPER), case(HYPER + 2)]
    },
};
