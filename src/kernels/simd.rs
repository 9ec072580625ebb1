//! Run-time choice of the instruction set for the Rust twins.
//!
//! [`multiversion!`] compiles one body for several instruction sets and picks at run time. The body is
//! the same Rust source each time and rustc neither contracts nor reassociates floating-point
//! operations, so the choice cannot change a bit; a test compares them.

use super::cpu_gemm::{Isa, isa};

/// The instruction set in force (see [`super::cpu_gemm::set_isa`]).
pub fn current() -> Isa {
    isa()
}

/// Defines functions whose bodies are compiled for AVX-512, AVX2 and the baseline.
#[macro_export]
macro_rules! multiversion {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident : $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($arg: $ty),*) { body($($arg),*) }
                #[target_feature(enable = "avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($arg: $ty),*) { body($($arg),*) }
                match $crate::kernels::simd::current() {
                    // SAFETY: this instruction set is reported only where the CPU has these features.
                    $crate::kernels::cpu_gemm::Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernels::cpu_gemm::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    _ => {}
                }
            }
            body($($arg),*)
        }
    )*};
}
