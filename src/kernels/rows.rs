//! Kernels that walk rows: layer norm, softmax, cross-entropy. Statistics are f32 sums in the
//! contract's order; one row is one workgroup on a GPU and one loop here.

use super::lanes::{max, sum};
use super::math::{div, exp, ftz, log, rsqrt};
use super::packed::pitch;
use super::pointwise::{Bound, store};
use super::{Host, KernelDef, Params, View, ViewMut, read, read_u32, write};
use rayon::prelude::*;

/// Layer norm without bias: `y = (x - mean) * rstd * gain`, with the statistics kept for the backward
/// pass. Buffers x[rows, c], gain[c] -> y[rows, c], mean[rows], rstd[rows]. Uniform words: rows, c,
/// 1/c, eps (both as bits). The variance is the biased one, eps inside the root, as PyTorch's.
pub static NORM_FWD: KernelDef = KernelDef {
    name: "norm_fwd",
    bindings: &[
        read("x"),
        read("gain"),
        write("y"),
        write("mean"),
        write("rstd"),
    ],
    host: Host::Epilogue,
    cpu: norm_fwd,
};

/// The statistics alone: x[rows, c] -> mean[rows], rstd[rows]. Uniform words as [`NORM_FWD`].
pub static NORM_STATS: KernelDef = KernelDef {
    name: "norm_stats",
    bindings: &[read("x"), write("mean"), write("rstd")],
    host: Host::No,
    cpu: norm_stats,
};

/// Gradient of layer norm by its input: with h = (x - mean) * rstd and u = g * gain,
/// `dx = (u - mean(u) - h * mean(u * h)) * rstd`. Buffers x, gain, mean, rstd, g -> dx. Uniform words
/// as [`NORM_FWD`].
pub static NORM_DX: KernelDef = KernelDef {
    name: "norm_dx",
    bindings: &[
        read("x"),
        read("gain"),
        read("mean"),
        read("rstd"),
        read("g"),
        write("dx"),
    ],
    host: Host::Epilogue,
    cpu: norm_dx,
};

/// Softmax over rows. Uniform words: rows, c.
pub static SOFTMAX: KernelDef = KernelDef {
    name: "softmax",
    bindings: &[read("x"), write("y")],
    host: Host::No,
    cpu: softmax,
};

/// Gradient of softmax: `dx = y * (g - sum(g * y))`. Uniform words: rows, c.
pub static SOFTMAX_GRAD: KernelDef = KernelDef {
    name: "softmax_grad",
    bindings: &[read("y"), read("g"), write("dx")],
    host: Host::No,
    cpu: softmax_grad,
};

/// Log of the sum of exponentials of each row. Uniform words: rows, c.
pub static LSE: KernelDef = KernelDef {
    name: "lse",
    bindings: &[read("x"), write("lse")],
    host: Host::No,
    cpu: lse,
};

/// Cross-entropy of each row: `lse - x[target]`. Uniform words: rows, c.
pub static XENT: KernelDef = KernelDef {
    name: "xent",
    bindings: &[read("x"), read_u32("target"), read("lse"), write("loss")],
    host: Host::No,
    cpu: xent,
};

/// Gradient of [`XENT`]: `dx = (exp(x - lse) - [target]) * g[row]`. Uniform words: rows, c.
pub static XENT_GRAD: KernelDef = KernelDef {
    name: "xent_grad",
    bindings: &[
        read("x"),
        read_u32("target"),
        read("lse"),
        read("g"),
        write("dx"),
    ],
    host: Host::No,
    cpu: xent_grad,
};

/// The uniform block of the norm kernels.
pub fn norm_params(rows: usize, c: usize, eps: f32) -> Params {
    Params::new(&[
        rows as u32,
        c as u32,
        (1.0 / c as f32).to_bits(),
        eps.to_bits(),
    ])
}

/// The uniform block of the other row kernels.
pub fn row_params(rows: usize, c: usize) -> Params {
    Params::new(&[rows as u32, c as u32])
}

/// Rows per task: enough work to be worth a thread, whatever the row's length.
fn rows_per_task(c: usize) -> usize {
    (16384 / c.max(1)).max(1)
}

#[inline(always)]
fn stats(x: &[f32], inv: f32, eps: f32) -> (f32, f32) {
    let mean = ftz(sum([x], |[x]| ftz(x)) * inv);
    let var = ftz(sum([x], |[x]| {
        let d = ftz(ftz(x) - mean);
        d * d
    }) * inv);
    (mean, rsqrt(ftz(var + eps)))
}

crate::multiversion! {
    fn norm_rows(x: &[f32], gain: &[f32], inv: f32, eps: f32, y: &mut [f32], mean: &mut [f32], rstd: &mut [f32]) {
        let c = gain.len();
        for (r, (x, y)) in x.chunks_exact(c).zip(y.chunks_exact_mut(c)).enumerate() {
            let (m, s) = stats(x, inv, eps);
            (mean[r], rstd[r]) = (m, s);
            for ((y, &x), &g) in y.iter_mut().zip(x).zip(gain) {
                *y = ftz(ftz(ftz(ftz(x) - m) * s) * ftz(g));
            }
        }
    }

    fn stats_rows(x: &[f32], c: usize, inv: f32, eps: f32, mean: &mut [f32], rstd: &mut [f32]) {
        for (r, x) in x.chunks_exact(c).enumerate() {
            (mean[r], rstd[r]) = stats(x, inv, eps);
        }
    }

    fn norm_dx_rows(x: &[f32], gain: &[f32], mean: &[f32], rstd: &[f32], g: &[f32], inv: f32, dx: &mut [f32]) {
        let c = gain.len();
        for (r, ((x, g), dx)) in x.chunks_exact(c).zip(g.chunks_exact(c)).zip(dx.chunks_exact_mut(c)).enumerate() {
            let (m, s) = (ftz(mean[r]), ftz(rstd[r]));
            let u = |g: f32, gain: f32| ftz(ftz(g) * ftz(gain));
            let h = |x: f32| ftz(ftz(ftz(x) - m) * s);
            let mean_u = ftz(sum([g, gain], |[g, gain]| u(g, gain)) * inv);
            let mean_uh = ftz(sum([x, g, gain], |[x, g, gain]| ftz(u(g, gain) * h(x))) * inv);
            for (((d, &x), &g), &gain) in dx.iter_mut().zip(x).zip(g).zip(gain) {
                *d = ftz(ftz(ftz(u(g, gain) - mean_u) - ftz(h(x) * mean_uh)) * s);
            }
        }
    }

    fn softmax_rows(x: &[f32], c: usize, y: &mut [f32]) {
        for (x, y) in x.chunks_exact(c).zip(y.chunks_exact_mut(c)) {
            let m = max(x, ftz);
            for (y, &x) in y.iter_mut().zip(x) {
                *y = exp(ftz(ftz(x) - m));
            }
            let total = sum([y], |[y]| y);
            for y in y {
                *y = div(*y, total);
            }
        }
    }

    fn softmax_grad_rows(y: &[f32], g: &[f32], c: usize, dx: &mut [f32]) {
        for ((y, g), dx) in y.chunks_exact(c).zip(g.chunks_exact(c)).zip(dx.chunks_exact_mut(c)) {
            let dot = sum([y, g], |[y, g]| ftz(ftz(y) * ftz(g)));
            for ((d, &y), &g) in dx.iter_mut().zip(y).zip(g) {
                *d = ftz(ftz(y) * ftz(ftz(g) - dot));
            }
        }
    }

    fn lse_rows(x: &[f32], c: usize, out: &mut [f32]) {
        for (x, o) in x.chunks_exact(c).zip(out) {
            let m = max(x, ftz);
            let total = sum([x], |[x]| exp(ftz(ftz(x) - m)));
            *o = ftz(m + log(total));
        }
    }

    fn xent_grad_rows(x: &[f32], c: usize, target: &[u32], lse: &[f32], g: &[f32], dx: &mut [f32]) {
        for (r, (x, dx)) in x.chunks_exact(c).zip(dx.chunks_exact_mut(c)).enumerate() {
            let (l, g) = (ftz(lse[r]), ftz(g[r]));
            for (d, &x) in dx.iter_mut().zip(x) {
                *d = ftz(exp(ftz(ftz(x) - l)) * g);
            }
            let t = target[r] as usize;
            if t < c {
                dx[t] = ftz(ftz(exp(ftz(ftz(x[t]) - l)) - 1.0) * g);
            }
        }
    }
}

/// Sends some rows, `first` the number of their first element, through a hosted epilogue.
fn end(bound: &Option<Bound>, first: usize, rows: &mut [f32]) {
    if let Some(bound) = bound {
        bound.evaluator().apply(first, rows);
    }
}

fn norm_fwd(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (c, inv, eps) = (p.at(1), p.float(2), p.float(3));
    let (x, gain) = (reads[0].f32(), reads[1].f32());
    let bound = Bound::new(p, true, reads);
    let [y, mean, rstd] = writes else {
        unreachable!("norm_fwd writes three buffers")
    };
    let t = rows_per_task(c);
    let (words, dtype) = (t * pitch(y.dtype, y.row), y.dtype);
    (
        x.par_chunks(t * c),
        y.words.par_chunks_mut(words),
        mean.f32().par_chunks_mut(t),
        rstd.f32().par_chunks_mut(t),
    )
        .into_par_iter()
        .enumerate()
        .for_each(|(task, (x, y, m, s))| {
            store(dtype, c, y, |y| {
                norm_rows(x, gain, inv, eps, y, m, s);
                end(&bound, task * t * c, y);
            })
        });
}

fn norm_stats(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (c, inv, eps) = (p.at(1), p.float(2), p.float(3));
    let [mean, rstd] = writes else {
        unreachable!("norm_stats writes two buffers")
    };
    let t = rows_per_task(c);
    (
        reads[0].f32().par_chunks(t * c),
        mean.f32().par_chunks_mut(t),
        rstd.f32().par_chunks_mut(t),
    )
        .into_par_iter()
        .for_each(|(x, m, s)| stats_rows(x, c, inv, eps, m, s));
}

fn norm_dx(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (c, inv) = (p.at(1), p.float(2));
    let [x, gain, mean, rstd, g, ..] = reads else {
        unreachable!("norm_dx reads five buffers")
    };
    let bound = Bound::new(p, true, reads);
    let t = rows_per_task(c);
    let dx = &mut writes[0];
    let (words, dtype) = (t * pitch(dx.dtype, dx.row), dx.dtype);
    (
        x.f32().par_chunks(t * c),
        mean.f32().par_chunks(t),
        rstd.f32().par_chunks(t),
        g.f32().par_chunks(t * c),
        dx.words.par_chunks_mut(words),
    )
        .into_par_iter()
        .enumerate()
        .for_each(|(task, (x, m, s, g, dx))| {
            store(dtype, c, dx, |dx| {
                norm_dx_rows(x, gain.f32(), m, s, g, inv, dx);
                end(&bound, task * t * c, dx);
            })
        });
}

fn softmax(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let c = p.at(1);
    let t = rows_per_task(c) * c;
    (
        reads[0].f32().par_chunks(t),
        writes[0].f32().par_chunks_mut(t),
    )
        .into_par_iter()
        .for_each(|(x, y)| softmax_rows(x, c, y));
}

fn softmax_grad(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let c = p.at(1);
    let t = rows_per_task(c) * c;
    (
        reads[0].f32().par_chunks(t),
        reads[1].f32().par_chunks(t),
        writes[0].f32().par_chunks_mut(t),
    )
        .into_par_iter()
        .for_each(|(y, g, dx)| softmax_grad_rows(y, g, c, dx));
}

fn lse(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let c = p.at(1);
    let t = rows_per_task(c);
    (
        reads[0].f32().par_chunks(t * c),
        writes[0].f32().par_chunks_mut(t),
    )
        .into_par_iter()
        .for_each(|(x, o)| lse_rows(x, c, o));
}

fn xent(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let c = p.at(1);
    let (x, target, lse) = (reads[0].f32(), reads[1].words, reads[2].f32());
    for (r, o) in writes[0].f32().iter_mut().enumerate() {
        // Targets are checked when a batch is written; an index past the row reads as 0 on every device.
        let t = target[r] as usize;
        let picked = if t < c { ftz(x[r * c + t]) } else { 0.0 };
        *o = ftz(ftz(lse[r]) - picked);
    }
}

fn xent_grad(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let c = p.at(1);
    let [x, target, lse, g] = reads else {
        unreachable!("xent_grad reads four buffers")
    };
    let t = rows_per_task(c);
    (
        x.f32().par_chunks(t * c),
        target.words.par_chunks(t),
        lse.f32().par_chunks(t),
        g.f32().par_chunks(t),
        writes[0].f32().par_chunks_mut(t * c),
    )
        .into_par_iter()
        .for_each(|(x, target, l, g, dx)| xent_grad_rows(x, c, target, l, g, dx));
}
