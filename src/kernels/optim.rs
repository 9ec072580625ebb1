//! AdamW (Loshchilov and Hutter, arXiv:1711.05101) as PyTorch defines it: decoupled decay, eps outside
//! the square root and after the bias correction.

use super::math::{FTZ_LIMIT, div, ftz, sqrt};
use super::{KernelDef, Params, View, ViewMut, read, update};
use rayon::prelude::*;

/// One step over a tensor, in place. Buffers g[n], hyper[8], scale[1], norm[1]; w, m, v[n].
///
/// `hyper`: 1 - lr * decay, lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t), beta1, 1 - beta1, beta2,
/// 1 - beta2, eps; each computed on the host in f64 and rounded once. `scale` multiplies the gradient
/// (clipping). Where `norm`, the gradient's norm, is not finite, nothing changes: a poisoned gradient
/// never reaches the weights. Uniform words: n.
pub static ADAMW: KernelDef = KernelDef {
    name: "adamw",
    bindings: &[
        read("g"),
        read("hyper"),
        read("scale"),
        read("norm"),
        update("w"),
        update("m"),
        update("v"),
    ],
    cpu: adamw,
};

/// Number of words of `hyper`.
pub const HYPER: usize = 8;

crate::multiversion! {
    fn run(h: &[f32], scale: f32, g: &[f32], w: &mut [f32], m: &mut [f32], v: &mut [f32]) {
        for (((w, m), v), &g) in w.iter_mut().zip(m.iter_mut()).zip(v.iter_mut()).zip(g) {
            let g = ftz(ftz(g) * scale);
            let m1 = ftz(ftz(h[3] * ftz(*m)) + ftz(h[4] * g));
            let v1 = ftz(ftz(h[5] * ftz(*v)) + ftz(h[6] * ftz(g * g)));
            let denom = ftz(ftz(sqrt(v1) * h[2]) + h[7]);
            let delta = div(ftz(h[1] * m1), denom);
            *w = ftz(ftz(ftz(*w) * h[0]) - delta);
            *m = m1;
            *v = v1;
        }
    }
}

fn adamw(_: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let [g, hyper, scale, norm] = reads else {
        unreachable!("adamw reads four buffers")
    };
    let [w, m, v] = writes else {
        unreachable!("adamw updates three buffers")
    };
    if norm.words[0] & 0x7f80_0000 == 0x7f80_0000 {
        return;
    }
    const TASK: usize = 16384;
    let hyper: Vec<f32> = hyper.f32().iter().map(|&x| flush(x)).collect();
    let scale = flush(scale.f32()[0]);
    (
        w.f32().par_chunks_mut(TASK),
        m.f32().par_chunks_mut(TASK),
        v.f32().par_chunks_mut(TASK),
        g.f32().par_chunks(TASK),
    )
        .into_par_iter()
        .for_each(|(w, m, v, g)| run(&hyper, scale, g, w, m, v));
}

fn flush(x: f32) -> f32 {
    if x.to_bits() & 0x7fff_ffff < FTZ_LIMIT {
        0.0
    } else {
        x
    }
}
