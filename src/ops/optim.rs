//! AdamW as a graph operation: three results of the same operands, one kernel.

use super::{AdamPart, Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::graph::eval::Tensor;
use crate::kernels::Params;
use crate::kernels::optim::{ADAMW as KERNEL, HYPER};

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
            }
        };
        Tensor::new(shape, (0..shape.elems()).map(one).collect())
    },
    // Reached only where the result is not simply the state's update, which is done in place: works on
    // copies.
    lower: |lw, id| {
        let node = lw.node(id);
        let label = lw.label(id);
        let reads: Vec<_> = node.src[3..].iter().map(|&s| lw.buf(s)).collect();
        let writes: Vec<_> = [AdamPart::W, AdamPart::M, AdamPart::V]
            .into_iter()
            .zip(&node.src)
            .map(|(part, &from)| {
                let to = lw.sibling(Op::AdamW(part), &node.src);
                lw.copy_to(from, to, &label);
                to
            })
            .collect();
        lw.step(
            &KERNEL,
            Params::new(&[node.ty.shape.elems() as u32]),
            &reads,
            &writes,
            &label,
        );
    },
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
