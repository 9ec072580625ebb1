//! A loop of multiply-adds in registers: the ceiling that the speed of a matrix product is measured
//! against. It is no part of any training plan.
//!
//! Chains are independent, so that latencies overlap, and touch memory at their ends alone. What it
//! reaches is the device's rate of f32 multiply-adds: in portable numerics of a product that is rounded
//! and then added, in fast numerics of the device's fused multiply-add. Units for narrow types, such as
//! tensor cores, are not in it.

use super::simd::{self, Isa};
use super::{Host, KernelDef, Params, View, ViewMut, read, write};
use rayon::prelude::*;

/// `out[i] = x[i]` after `rounds` times `x = a * x + b`. Uniform words: n, rounds, a and b as bits.
pub static MULTIPLY_ADD: KernelDef = KernelDef {
    name: "multiply_add",
    bindings: &[read("x"), write("out")],
    host: Host::No,
    cpu: multiply_add,
};

/// The uniform block. With a = -1 and b = 3 every step is exact for x in [1, 2], fused or not, and an
/// even number of rounds gives x back: a loop that was not run, or not to its end, shows.
pub fn params(n: usize, rounds: usize) -> Params {
    let [a, b] = [-1.0f32, 3.0].map(f32::to_bits);
    Params::new(&[n as u32, rounds as u32, a, b])
}

fn multiply_add(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let (rounds, a, b) = (p.at(1), p.float(2), p.float(3));
    let (isa, fused) = (simd::isa(), simd::fused());
    let x = reads[0].f32();
    const BLOCK: usize = 4096;
    let blocks = writes[0].f32().par_chunks_mut(BLOCK).enumerate();
    blocks.for_each(|(i, out)| {
        out.copy_from_slice(&x[i * BLOCK..][..out.len()]);
        block(isa, fused, out, rounds, a, b);
    });
}

/// Runs a block in groups of as many chains as the registers of the instruction set hold.
fn block(isa: Isa, fused: bool, x: &mut [f32], rounds: usize, a: f32, b: f32) {
    match (isa, fused) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction set in force is one that this machine has.
        (Isa::Avx512, true) => unsafe { avx512::chains::<true>(x, rounds, a, b) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        (Isa::Avx512, false) => unsafe { avx512::chains::<false>(x, rounds, a, b) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above; `Avx2` includes FMA.
        (Isa::Avx2, true) => unsafe { avx2::chains::<true>(x, rounds, a, b) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        (Isa::Avx2, false) => unsafe { avx2::chains::<false>(x, rounds, a, b) },
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        // SAFETY: the target has NEON.
        (Isa::Neon, true) => unsafe { neon::chains::<true>(x, rounds, a, b) },
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        // SAFETY: as above.
        (Isa::Neon, false) => unsafe { neon::chains::<false>(x, rounds, a, b) },
        // Without the instruction a fused multiply-add is a call to a library.
        _ => portable(x, rounds, a, b),
    }
}

/// Groups of 16 chains, vectorised as far as the compiler does it.
fn portable(x: &mut [f32], rounds: usize, a: f32, b: f32) {
    for group in x.chunks_mut(16) {
        let mut v = [0.0f32; 16];
        v[..group.len()].copy_from_slice(group);
        for _ in 0..rounds {
            v = v.map(|x| a * x + b);
        }
        group.copy_from_slice(&v[..group.len()]);
    }
}

/// `chains::<FUSED>` over a set's vector operations: groups of `$count` vectors, the last group filled up
/// with zeros.
#[allow(unused_macros)] // on targets with nothing but plain Rust
macro_rules! chains {
    ($feature:literal, $lanes:literal, $count:literal, $load:ident, $store:ident, $splat:ident,
     $mul:ident, $add:ident, $fma:expr) => {
        #[target_feature(enable = $feature)]
        pub fn chains<const FUSED: bool>(x: &mut [f32], rounds: usize, a: f32, b: f32) {
            let (a, b) = ($splat(a), $splat(b));
            for group in x.chunks_mut($lanes * $count) {
                let mut all = [0.0f32; $lanes * $count];
                all[..group.len()].copy_from_slice(group);
                let mut v = [b; $count];
                for (v, x) in v.iter_mut().zip(all.chunks_exact($lanes)) {
                    // SAFETY: a whole vector is there.
                    *v = unsafe { $load(x.as_ptr()) };
                }
                for _ in 0..rounds {
                    for v in &mut v {
                        *v = if FUSED {
                            $fma(a, *v, b)
                        } else {
                            $add($mul(a, *v), b)
                        };
                    }
                }
                for (v, x) in v.iter().zip(all.chunks_exact_mut($lanes)) {
                    // SAFETY: as above.
                    unsafe { $store(x.as_mut_ptr(), *v) };
                }
                group.copy_from_slice(&all[..group.len()]);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;
    chains!(
        "avx512f",
        16,
        16,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_set1_ps,
        _mm512_mul_ps,
        _mm512_add_ps,
        |a, x, b| _mm512_fmadd_ps(a, x, b)
    );
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;
    chains!(
        "avx2,fma",
        8,
        10,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_set1_ps,
        _mm256_mul_ps,
        _mm256_add_ps,
        |a, x, b| _mm256_fmadd_ps(a, x, b)
    );
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon {
    use std::arch::aarch64::*;
    chains!(
        "neon",
        4,
        16,
        vld1q_f32,
        vst1q_f32,
        vdupq_n_f32,
        vmulq_f32,
        vaddq_f32,
        |a, x, b| vfmaq_f32(b, a, x)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_of_rounds_gives_everything_back() {
        let x: Vec<f32> = (0..5000).map(|i| 1.0 + i as f32 / 8192.0).collect();
        for isa in Isa::ALL.into_iter().filter(|i| i.available()) {
            for fused in [false, true] {
                let mut y = x.clone();
                block(isa, fused, &mut y, 1001, -1.0, 3.0);
                assert!(y.iter().zip(&x).all(|(y, x)| *y == 3.0 - x), "{isa:?}");
                block(isa, fused, &mut y, 7, -1.0, 3.0);
                assert_eq!(y, x, "{isa:?} {fused}");
            }
        }
    }
}
