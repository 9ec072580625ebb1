//! Dynamic loss scaling on the device: what a step's optimizer reads, and the scale of the next step.
//! Both are one invocation's work. Decisions are integer tests of bits, so that every device makes the
//! same ones, and no step waits for the host.

use super::math::{NAN_BITS, div, ftz};
use super::optim::HYPER;
use super::{Host, KernelDef, Params, View, ViewMut, read, read_u32, write, write_u32};

/// Words of the scaler's counts: good steps since the scale last changed, steps skipped, updates applied,
/// bits of the scale that the last step used.
pub const COUNTS: usize = 4;

/// `norm[1], loss[1], counts[4], hyper[8], table[2 n] -> hyper_out[8], norm_out[1]`.
///
/// Row i of `table` holds 1 - beta1^(i + 1) and 1 / sqrt(1 - beta2^(i + 1)); the row of the next update is
/// that of the updates applied so far, the last row where there are more: a skipped step does not age the
/// bias corrections. `hyper` is that of [`super::optim::ADAMW`] but for word 1, the learning rate, which is
/// divided by the first, and word 2, which is replaced by the second. `norm_out` is the norm, or one NaN
/// where the norm or the loss is not finite. Uniform words: n.
pub static STEP_SCALARS: KernelDef = KernelDef {
    name: "step_scalars",
    bindings: &[
        read("norm"),
        read("loss"),
        read_u32("counts"),
        read("hyper"),
        read("table"),
        write("hyper_out"),
        write("norm_out"),
    ],
    host: Host::No,
    cpu: step_scalars,
};

/// `norm[1], scale[1], counts[4] -> scale_out[1], counts_out[4]`: PyTorch's `GradScaler.update` with
/// growth factor 2 and backoff 0.5, within 1 and a cap. Uniform words: growth interval, bits of the cap.
pub static LOSS_SCALE: KernelDef = KernelDef {
    name: "loss_scale",
    bindings: &[
        read("norm"),
        read("scale"),
        read_u32("counts"),
        write("scale_out"),
        write_u32("counts_out"),
    ],
    host: Host::No,
    cpu: loss_scale,
};

fn finite(bits: u32) -> bool {
    bits & 0x7f80_0000 != 0x7f80_0000
}

fn step_scalars(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let [norm, loss, counts, hyper, table] = reads else {
        unreachable!("step_scalars reads five buffers")
    };
    let [hyper_out, norm_out] = writes else {
        unreachable!("step_scalars writes two buffers")
    };
    let row = counts.words[2].min(p.words[1] - 1) as usize;
    let corrections = &table.f32()[2 * row..2 * row + 2];
    let out = hyper_out.f32();
    out[..HYPER].copy_from_slice(&hyper.f32()[..HYPER]);
    out[1] = div(ftz(hyper.f32()[1]), ftz(corrections[0]));
    out[2] = corrections[1];
    norm_out.words[0] = match finite(norm.words[0]) && finite(loss.words[0]) {
        true => norm.words[0],
        false => NAN_BITS,
    };
}

fn loss_scale(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (interval, cap) = (p.words[1], p.float(1));
    let (norm, scale) = (reads[0].words[0], reads[1].f32()[0]);
    let [good, skipped, applied, _] = std::array::from_fn(|i| reads[2].words[i]);
    let (next, counts) = if !finite(norm) {
        (
            (scale * 0.5).max(1.0),
            [0, skipped.wrapping_add(1), applied],
        )
    } else if good.wrapping_add(1) < interval {
        (
            scale,
            [good.wrapping_add(1), skipped, applied.wrapping_add(1)],
        )
    } else {
        let grown = if scale * 2.0 <= cap {
            scale * 2.0
        } else {
            scale
        };
        (grown, [0, skipped, applied.wrapping_add(1)])
    };
    writes[0].f32()[0] = next;
    writes[1].words[..3].copy_from_slice(&counts);
    writes[1].words[3] = scale.to_bits();
}
