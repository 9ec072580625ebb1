//! Loss scaling as graph operations. The types that fix their order are [`crate::passes::scaling`].

use super::{Case, Fill, Numeric, Op, OpDef, Vjp, arity, need};
use crate::dtype::DType;
use crate::graph::Type;
use crate::graph::eval::Tensor;
use crate::kernels::Params;
use crate::kernels::optim::HYPER;
use crate::kernels::scaling::{COUNTS, LOSS_SCALE as SCALE_KERNEL, STEP_SCALARS as SCALARS_KERNEL};

/// Which of a step's scalars.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScalarPart {
    /// AdamW's, with the bias corrections of the updates applied so far.
    Hyper,
    /// The gradient's norm; NaN where it or the loss is not finite.
    Norm,
}

/// Which part of the scaler's new state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScalerPart {
    /// The scale of the next step.
    Scale,
    /// Good steps, skipped steps, applied updates, bits of the scale that was used.
    Counts,
}

/// (norm[1], loss[1], counts[4], hyper[8], table[n, 2]) -> what the optimizer reads.
pub static STEP_SCALARS: OpDef = OpDef {
    name: "step_scalars",
    numeric: Numeric::Guard,
    infer: |op, src| {
        let Op::StepScalars(part) = op else {
            unreachable!()
        };
        arity(src, 5)?;
        need(
            src[0].shape.elems() == 1 && src[1].shape.elems() == 1,
            "norm and loss must be single elements",
        )?;
        counts_fit(src[2])?;
        need(src[3].shape.elems() == HYPER, "hyper must have 8 elements")?;
        need(
            src[4].shape.rank() == 2 && src[4].shape.dim(1) == 2,
            "the table must be [n,2]",
        )?;
        Ok(Type::f32(match part {
            ScalarPart::Hyper => &[HYPER],
            ScalarPart::Norm => &[1],
        }))
    },
    vjp: Vjp::Stop("an optimizer step is not differentiable"),
    expand: None,
    eval: |op, shape, src| {
        let Op::StepScalars(part) = op else {
            unreachable!()
        };
        let [norm, loss, counts, hyper, table] = src else {
            unreachable!()
        };
        if *part == ScalarPart::Norm {
            let sound = norm.data[0].is_finite() && loss.data[0].is_finite();
            return Tensor::full(shape, if sound { norm.data[0] } else { f64::NAN });
        }
        let row = (counts.data[2] as usize).min(table.shape.dim(0) - 1);
        let mut out = hyper.data.clone();
        out[1] /= table.data[2 * row];
        out[2] = table.data[2 * row + 1];
        Tensor::new(shape, out)
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let label = lw.label(id);
        let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
        let rows = lw.ty(node.src[4]).shape.dim(0) as u32;
        let parts = [ScalarPart::Hyper, ScalarPart::Norm];
        let writes = parts.map(|p| lw.sibling(Op::StepScalars(p), &node.src));
        lw.step(
            &SCALARS_KERNEL,
            Params::new(&[rows]),
            &reads,
            &writes,
            &label,
        );
    },
    cases: || {
        let case = |part, rows: usize, applied: u32| {
            let src: [&[usize]; 5] = [&[1], &[1], &[COUNTS], &[HYPER], &[rows, 2]];
            Case::new(Op::StepScalars(part), &src)
                .ids(2, applied)
                .fill(3, Fill::Uniform(0.1, 0.9))
                .fill(4, Fill::Uniform(0.1, 1.0))
                .not_differentiable()
        };
        let each = |p| [case(p, 1, 3), case(p, 7, 5), case(p, 50, 1000)];
        let mut out = each(ScalarPart::Hyper).to_vec();
        out.extend(each(ScalarPart::Norm));
        out
    },
};

/// (norm[1], scale[1], counts[4]) -> the scaler's new state.
pub static LOSS_SCALE: OpDef = OpDef {
    name: "loss_scale",
    numeric: Numeric::Guard,
    infer: |op, src| {
        let Op::LossScale { part, .. } = op else {
            unreachable!()
        };
        arity(src, 3)?;
        need(
            src[0].shape.elems() == 1 && src[1].shape.elems() == 1,
            "norm and scale must be single elements",
        )?;
        counts_fit(src[2])?;
        Ok(match part {
            ScalerPart::Scale => Type::f32(&[1]),
            ScalerPart::Counts => Type::new(&[COUNTS], DType::U32),
        })
    },
    vjp: Vjp::Stop("a loss scale is not differentiable"),
    expand: None,
    eval: |op, shape, src| {
        let Op::LossScale {
            part,
            interval,
            cap,
        } = op
        else {
            unreachable!()
        };
        let (scale, c) = (src[1].data[0], &src[2].data);
        let skips = !src[0].data[0].is_finite();
        let grows = !skips && c[0] + 1.0 >= f64::from(*interval);
        if *part == ScalerPart::Scale {
            let next = match (skips, grows) {
                (true, _) => (scale * 0.5).max(1.0),
                (_, true) if scale * 2.0 <= f64::from(f32::from_bits(*cap)) => scale * 2.0,
                _ => scale,
            };
            return Tensor::full(shape, next);
        }
        let good = if skips || grows { 0.0 } else { c[0] + 1.0 };
        let bits = f64::from((scale as f32).to_bits());
        let (skip, apply) = if skips { (1.0, 0.0) } else { (0.0, 1.0) };
        Tensor::new(shape, vec![good, c[1] + skip, c[2] + apply, bits])
    },
    lower: |lw, id| {
        let node = lw.node(id);
        let Op::LossScale { interval, cap, .. } = node.op else {
            unreachable!()
        };
        let label = lw.label(id);
        let reads: Vec<_> = node.src.iter().map(|&s| lw.buf(s)).collect();
        let parts = [ScalerPart::Scale, ScalerPart::Counts];
        let writes = parts.map(|part| {
            let op = Op::LossScale {
                part,
                interval,
                cap,
            };
            lw.sibling(op, &node.src)
        });
        lw.step(
            &SCALE_KERNEL,
            Params::new(&[interval, cap]),
            &reads,
            &writes,
            &label,
        );
    },
    cases: || {
        let case = |part, interval, cap: f32, norm| {
            let op = Op::LossScale {
                part,
                interval,
                cap: cap.to_bits(),
            };
            Case::new(op, &[&[1], &[1], &[COUNTS]])
                .fill(0, norm)
                .fill(1, Fill::Uniform(1.0, 100.0))
                .ids(2, 9)
                .not_differentiable()
        };
        let fine = Fill::Normal(1.0);
        let inf = Fill::Uniform(f64::INFINITY, f64::INFINITY);
        let parts = [ScalerPart::Scale, ScalerPart::Counts];
        let each = |p| {
            [
                case(p, 2000, 16_777_216.0, fine),
                case(p, 1, 16_777_216.0, fine),
                case(p, 1, 1.0, fine),
                case(p, 2000, 16_777_216.0, inf),
            ]
        };
        parts.into_iter().flat_map(each).collect()
    },
};

fn counts_fit(t: Type) -> Result<(), String> {
    need(
        t.dtype == DType::U32 && t.shape.elems() == COUNTS,
        "counts must be u32[4]",
    )
}
