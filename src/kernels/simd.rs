//! Run-time choice of the instruction set for the Rust twins.
//!
//! [`multiversion!`] compiles one body for several instruction sets and picks at run time. The body is
//! the same Rust source each time and rustc neither contracts nor reassociates floating-point
//! operations, so the choice cannot change a bit; a test compares them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that the Rust twins are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Isa {
    /// Plain Rust, whatever the build target offers.
    Portable = 1,
    /// 128-bit vectors of aarch64.
    Neon = 2,
    /// 256-bit vectors of x86-64, with FMA for bf16 operands.
    Avx2 = 3,
    /// 512-bit vectors of x86-64: AVX-512 F, VL, BW and DQ, besides all of `Avx2`.
    Avx512 = 4,
}

impl Isa {
    /// All instruction sets, slowest first.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether this machine can run it (the answer of the detection macro is cached by `std`).
    pub fn available(self) -> bool {
        match self {
            Isa::Portable => true,
            Isa::Neon => cfg!(all(target_arch = "aarch64", target_feature = "neon")),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }
}

/// The instruction set in force; 0 until the first use.
static ISA: AtomicU8 = AtomicU8::new(0);

/// Forces an instruction set (for tests and comparisons), or goes back to the best one.
///
/// # Panics
/// If this machine cannot run it.
pub fn set_isa(choice: Option<Isa>) {
    if let Some(isa) = choice {
        assert!(isa.available(), "this machine has no {isa:?}");
    }
    ISA.store(choice.map_or(0, |isa| isa as u8), Ordering::Relaxed);
}

/// The instruction set in force now.
pub fn isa() -> Isa {
    let now = ISA.load(Ordering::Relaxed);
    if let Some(isa) = Isa::ALL.into_iter().find(|&isa| isa as u8 == now) {
        return isa;
    }
    let best = Isa::ALL.into_iter().rev().find(|isa| isa.available());
    let best = best.unwrap_or(Isa::Portable);
    // A forced choice that arrived in between stays.
    let _ = ISA.compare_exchange(0, best as u8, Ordering::Relaxed, Ordering::Relaxed);
    best
}

thread_local! {
    static FUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` with leave, or without, to fuse the products of f32 operands with their sums, where the
/// kernel and the machine can: the bits are then this machine's own (`--numerics fast`). Holds for kernels
/// that are called on this thread.
pub fn with_fused<T>(fused: bool, body: impl FnOnce() -> T) -> T {
    let before = FUSED.replace(fused);
    let out = body();
    FUSED.set(before);
    out
}

/// Whether [`with_fused`] gave leave.
pub fn fused() -> bool {
    FUSED.get()
}

/// Defines functions whose bodies are compiled for AVX-512, AVX2 and the baseline.
///
/// Bodies use `for` loops: a loop inside `for_each` is a function of its own, which the compiler may leave
/// outside, compiled for the baseline. Functions that they call are `#[inline(always)]`.
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
                match $crate::kernels::simd::isa() {
                    // SAFETY: this instruction set is reported only where the CPU has these features.
                    $crate::kernels::simd::Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::kernels::simd::Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    _ => {}
                }
            }
            body($($arg),*)
        }
    )*};
}
