//! AdamW (Loshchilov and Hutter, arXiv:1711.05101) as PyTorch defines it: decoupled decay, eps outside
//! the square root and after the bias correction.

use super::math::{div, ftz, sqrt};
use super::packed::{pack, widen};
use super::{Host, KernelDef, Params, View, ViewMut, read, update};
use crate::dtype::DType;
use rayon::prelude::*;

/// One step over a tensor, in place. Buffers g[n], hyper[8], scale[1], norm[1]; w, m, v[n].
///
/// `hyper`: 1 - lr * decay, lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t), beta1, 1 - beta1, beta2,
/// 1 - beta2, eps; each computed on the host in f64 and rounded once. `scale` multiplies the gradient
/// (clipping). Where `norm`, the gradient's norm, is not finite, nothing changes: a poisoned gradient
/// never reaches the weights. Weights, moments and gradient may all be narrow: arithmetic is f32, with
/// one rounding at each store. Uniform words: n.
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
    host: Host::No,
    cpu: adamw,
};

/// Narrow elements that are widened, updated and rounded together.
const BLOCK: usize = 512;

/// Number of words of `hyper`.
pub const HYPER: usize = 8;

crate::multiversion! {
    pub fn run(h: &[f32], scale: f32, g: &[f32], w: &mut [f32], m: &mut [f32], v: &mut [f32]) {
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
    const TASK: usize = 16384; // words
    let hyper: Vec<f32> = hyper.f32().iter().map(|&x| ftz(x)).collect();
    let scale = ftz(scale.f32()[0]);
    let dtype = g.dtype;
    (
        w.words.par_chunks_mut(TASK),
        m.words.par_chunks_mut(TASK),
        v.words.par_chunks_mut(TASK),
        g.words.par_chunks(TASK),
    )
        .into_par_iter()
        .for_each(|(w, m, v, g)| {
            if dtype == DType::F32 {
                let cast = |x| bytemuck::cast_slice_mut::<u32, f32>(x);
                return run(
                    &hyper,
                    scale,
                    bytemuck::cast_slice(g),
                    cast(w),
                    cast(m),
                    cast(v),
                );
            }
            // A padding half holds zeros in all four and keeps them.
            let parts = w.chunks_mut(BLOCK / 2).zip(m.chunks_mut(BLOCK / 2));
            let parts = parts.zip(v.chunks_mut(BLOCK / 2)).zip(g.chunks(BLOCK / 2));
            for (((w, m), v), g) in parts {
                let [mut w1, mut m1, mut v1, mut g1] = [[0f32; BLOCK]; 4];
                let n = 2 * w.len();
                widen(dtype, w, &mut w1[..n]);
                widen(dtype, m, &mut m1[..n]);
                widen(dtype, v, &mut v1[..n]);
                widen(dtype, g, &mut g1[..n]);
                run(
                    &hyper,
                    scale,
                    &g1[..n],
                    &mut w1[..n],
                    &mut m1[..n],
                    &mut v1[..n],
                );
                pack(dtype, &w1[..n], w);
                pack(dtype, &m1[..n], m);
                pack(dtype, &v1[..n], v);
            }
        });
}
