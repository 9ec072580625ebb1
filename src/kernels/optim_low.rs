//! AdamW on weights that are stored in bf16 and must not lose small updates: with stochastic rounding, or
//! with a compensation term. Arithmetic is f32, as in [`super::optim`].
//!
//! Both read one vector of scalars, so that they bind no more buffers than every device has:
//! the eight of [`super::optim::ADAMW`], the factor that clips, the gradient's norm, and for stochastic
//! rounding the two words of the step's key.

use super::math::ftz;
use super::optim::{HYPER, run};
use super::packed::{pack, widen};
use super::rng::threefry;
use super::{Host, KernelDef, Params, View, ViewMut, read, update, write};
use crate::dtype::DType;
use rayon::prelude::*;

/// Place of the clipping factor among the scalars.
pub const SCALE: usize = HYPER;
/// Place of the norm.
pub const NORM: usize = HYPER + 1;
/// Place of the key of stochastic rounding.
pub const KEY: usize = HYPER + 2;

/// `hyper[n], scale[1], norm[1] -> scalars[n + 2]`: the first eight of `hyper`, then scale and norm, then
/// the rest of `hyper`, as bits. Uniform words: n.
pub static ADAMW_SCALARS: KernelDef = KernelDef {
    name: "adamw_scalars",
    bindings: &[read("hyper"), read("scale"), read("norm"), write("out")],
    host: Host::No,
    cpu: scalars,
};

/// One step over a tensor of bf16 elements, in place, rounded stochastically: up with the probability of
/// the part that is cut off. Buffers g[n], scalars[12]; w, m, v[n].
///
/// Random bits are those of Threefry-2x32-20 under the step's key, a function of seed and
/// update, with the counter (place of the element in its packed tensor,
/// tensor): 16 for each of w, m and v. Where the norm is not finite, nothing changes. Uniform words: n,
/// tensor.
pub static ADAMW_STOCHASTIC: KernelDef = KernelDef {
    name: "adamw_stochastic",
    bindings: &[
        read("g"),
        read("scalars"),
        update("w"),
        update("m"),
        update("v"),
    ],
    host: Host::No,
    cpu: stochastic,
};

/// One step over a tensor of bf16 elements, in place, with a compensation: the weight is w + c, and c is
/// the bf16 of what rounding w took away (Kahan, 1965; Zamirai et al., arXiv:2010.06192). Buffers g[n],
/// scalars[10]; w, m, v, c[n]. Where the norm is not finite, nothing changes. Uniform words: n.
pub static ADAMW_COMPENSATED: KernelDef = KernelDef {
    name: "adamw_compensated",
    bindings: &[
        read("g"),
        read("scalars"),
        update("w"),
        update("m"),
        update("v"),
        update("c"),
    ],
    host: Host::No,
    cpu: compensated,
};

/// Elements that are widened, updated and rounded together.
const BLOCK: usize = 512;
/// Words per task.
const TASK: usize = 16384;

fn scalars(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let n = p.at(0);
    let (hyper, out) = (&reads[0].words[..n], &mut *writes[0].words);
    out[..HYPER].copy_from_slice(&hyper[..HYPER]);
    out[SCALE] = reads[1].words[0];
    out[NORM] = reads[2].words[0];
    out[KEY..n + 2].copy_from_slice(&hyper[HYPER..]);
}

/// Rounds to bf16 by 16 random bits: up with the probability of what is cut off. Infinities stay, NaN
/// stays a quiet NaN.
#[inline(always)]
pub fn round_stochastic(x: f32, random: u32) -> u16 {
    let u = x.to_bits();
    let rounded = u.wrapping_add(random & 0xffff) >> 16;
    let special = u >> 16
        | if u & 0x7fff_ffff > 0x7f80_0000 {
            0x40
        } else {
            0
        };
    (if u & 0x7f80_0000 == 0x7f80_0000 {
        special
    } else {
        rounded
    }) as u16
}

crate::multiversion! {
    /// Rounds a block; `shift` chooses among the halves of the random words.
    fn pack_stochastic(x: &[f32], random: &[u32], shift: u32, words: &mut [u32]) {
        let pairs = x.chunks_exact(2).zip(random.chunks_exact(2));
        for (w, (x, r)) in words.iter_mut().zip(pairs) {
            let low = round_stochastic(x[0], r[0] >> shift) as u32;
            let high = round_stochastic(x[1], r[1] >> shift) as u32;
            *w = low | high << 16;
        }
    }

    /// The random words of a block that starts at element `first`.
    fn draw(key: [u32; 2], tensor: u32, first: u32, a: &mut [u32], b: &mut [u32]) {
        for (i, (a, b)) in a.iter_mut().zip(b).enumerate() {
            [*a, *b] = threefry(key, [first.wrapping_add(i as u32), tensor]);
        }
    }

    /// Adds the compensation.
    fn add(w: &mut [f32], c: &[f32]) {
        w.iter_mut().zip(c).for_each(|(w, &c)| *w = ftz(ftz(*w) + ftz(c)));
    }

    /// What rounding took from each of `exact`.
    fn residual(exact: &[f32], rounded: &[f32], out: &mut [f32]) {
        for ((o, &x), &w) in out.iter_mut().zip(exact).zip(rounded) {
            *o = ftz(x - w);
        }
    }
}

/// The scalars as numbers, and whether the step is to be applied.
fn read_scalars(v: &View) -> (Vec<f32>, bool) {
    let h = v.f32().iter().map(|&x| ftz(x)).collect();
    (h, v.words[NORM] & 0x7f80_0000 != 0x7f80_0000)
}

fn stochastic(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (h, applies) = read_scalars(&reads[1]);
    if !applies {
        return;
    }
    let (key, tensor) = ([reads[1].words[KEY], reads[1].words[KEY + 1]], p.words[2]);
    let [w, m, v] = writes else {
        unreachable!("it updates three buffers")
    };
    (
        w.words.par_chunks_mut(TASK),
        m.words.par_chunks_mut(TASK),
        v.words.par_chunks_mut(TASK),
        reads[0].words.par_chunks(TASK),
    )
        .into_par_iter()
        .enumerate()
        .for_each(|(task, (w, m, v, g))| {
            let parts = w.chunks_mut(BLOCK / 2).zip(m.chunks_mut(BLOCK / 2));
            let parts = parts.zip(v.chunks_mut(BLOCK / 2)).zip(g.chunks(BLOCK / 2));
            for (part, (((w, m), v), g)) in parts.enumerate() {
                let [mut w1, mut m1, mut v1, mut g1] = [[0f32; BLOCK]; 4];
                let n = 2 * w.len();
                widen(DType::Bf16, w, &mut w1[..n]);
                widen(DType::Bf16, m, &mut m1[..n]);
                widen(DType::Bf16, v, &mut v1[..n]);
                widen(DType::Bf16, g, &mut g1[..n]);
                let (w1, m1, v1) = (&mut w1[..n], &mut m1[..n], &mut v1[..n]);
                run(&h, h[SCALE], &g1[..n], w1, m1, v1);
                let [mut a, mut b] = [[0u32; BLOCK]; 2];
                let first = (2 * task * TASK + part * BLOCK) as u32;
                draw(key, tensor, first, &mut a[..n], &mut b[..n]);
                pack_stochastic(w1, &a[..n], 0, w);
                pack_stochastic(m1, &a[..n], 16, m);
                pack_stochastic(v1, &b[..n], 0, v);
            }
        });
}

fn compensated(_: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (h, applies) = read_scalars(&reads[1]);
    if !applies {
        return;
    }
    let [w, m, v, c] = writes else {
        unreachable!("it updates four buffers")
    };
    (
        w.words.par_chunks_mut(TASK),
        m.words.par_chunks_mut(TASK),
        v.words.par_chunks_mut(TASK),
        c.words.par_chunks_mut(TASK),
        reads[0].words.par_chunks(TASK),
    )
        .into_par_iter()
        .for_each(|(w, m, v, c, g)| {
            let parts = w.chunks_mut(BLOCK / 2).zip(m.chunks_mut(BLOCK / 2));
            let parts = parts.zip(v.chunks_mut(BLOCK / 2));
            let parts = parts.zip(c.chunks_mut(BLOCK / 2)).zip(g.chunks(BLOCK / 2));
            for ((((w, m), v), c), g) in parts {
                let [mut w1, mut m1, mut v1, mut c1, mut g1] = [[0f32; BLOCK]; 5];
                let n = 2 * w.len();
                widen(DType::Bf16, w, &mut w1[..n]);
                widen(DType::Bf16, m, &mut m1[..n]);
                widen(DType::Bf16, v, &mut v1[..n]);
                widen(DType::Bf16, c, &mut c1[..n]);
                widen(DType::Bf16, g, &mut g1[..n]);
                let (w1, m1, v1) = (&mut w1[..n], &mut m1[..n], &mut v1[..n]);
                add(w1, &c1[..n]);
                run(&h, h[SCALE], &g1[..n], w1, m1, v1);
                pack(DType::Bf16, w1, w);
                pack(DType::Bf16, m1, m);
                pack(DType::Bf16, v1, v);
                widen(DType::Bf16, w, &mut g1[..n]);
                residual(w1, &g1[..n], &mut c1[..n]);
                pack(DType::Bf16, &c1[..n], c);
            }
        });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{bf16_to_f32, f32_to_bf16};
    use crate::kernels::rng::Stream;

    #[test]
    fn stochastic_rounding_is_unbiased_and_exact_where_nothing_is_cut() {
        let mut s = Stream::new(5, 6);
        for x in [1.0f32, -0.5, 0.0, 3.140625, 1e-30] {
            let x = bf16_to_f32(f32_to_bf16(x));
            assert!((0..100).all(|_| bf16_to_f32(round_stochastic(x, s.bits() as u32)) == x));
        }
        for x in [1.0 + 1.0 / 512.0, -1.0 - 1.0 / 1024.0, 0.1f32] {
            let n = 200_000;
            let sum: f64 = (0..n)
                .map(|_| f64::from(bf16_to_f32(round_stochastic(x, s.bits() as u32))))
                .sum();
            let ulp = f64::from(x.abs()) / 128.0;
            assert!(
                (sum / f64::from(n) - f64::from(x)).abs() < 0.01 * ulp,
                "{x}"
            );
        }
        for x in [f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(bf16_to_f32(round_stochastic(x, 0xffff)), x);
        }
        let nan = f32::from_bits(0x7f80_0001);
        assert!(bf16_to_f32(round_stochastic(nan, 0)).is_nan());
    }
}
