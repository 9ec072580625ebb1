//! The learning rate and AdamW's host-side scalars, in f64 by pure-Rust functions: the same on every
//! system.

use crate::config::Settings;
use crate::kernels::optim::HYPER;
use crate::kernels::rng::threefry;
use crate::passes::autocast::{Policy, Rounding};

/// The learning rate of iteration `it` (from 0): linear warm-up, then a half cosine from `lr` to
/// `min_lr`.
pub fn lr_at(s: &Settings, it: usize) -> f64 {
    cosine([s.min_lr, s.lr], [s.warmup, s.steps], it)
}

/// Linear warm-up to `high` over `warmup` iterations, then a half cosine down to `low` at `steps`.
pub fn cosine([low, high]: [f64; 2], [warmup, steps]: [usize; 2], it: usize) -> f64 {
    if it < warmup {
        return high * (it + 1) as f64 / warmup as f64;
    }
    let t = (it - warmup) as f64 / (steps - warmup).max(1) as f64;
    low + 0.5 * (high - low) * (1.0 + libm::cos(std::f64::consts::PI * t))
}

/// AdamW's constants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Adam {
    /// Decay of the first and of the second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

/// The scalars of [`crate::kernels::optim::ADAMW`] for the update number `t` (from 1).
pub fn hyper(s: &Settings, lr: f64, t: u64) -> [f32; HYPER] {
    let adam = Adam {
        betas: s.betas,
        eps: s.eps,
        weight_decay: s.weight_decay,
    };
    adam.scalars(lr, t)
}

impl Adam {
    /// With the usual eps of 1e-8 and no decay.
    pub fn new(betas: [f64; 2]) -> Adam {
        Adam {
            betas,
            eps: 1e-8,
            weight_decay: 0.0,
        }
    }

    /// As [`hyper`].
    pub fn scalars(&self, lr: f64, t: u64) -> [f32; HYPER] {
        let [b1, b2] = self.betas;
        let correction = |b: f64| 1.0 - libm::pow(b, t as f64);
        [
            1.0 - lr * self.weight_decay,
            lr / correction(b1),
            1.0 / libm::sqrt(correction(b2)),
            b1,
            1.0 - b1,
            b2,
            1.0 - b2,
            self.eps,
        ]
        .map(|x| x as f32)
    }
}

/// Number of the stream that keys come from: none of the batches' or the weights'.
const KEY_STREAM: u32 = 0x2000_0000;

/// The key of the random bits of an update: a function of the run's seed and the update's number.
pub fn step_key(seed: u64, t: u64) -> [u32; 2] {
    threefry([seed as u32, (seed >> 32) as u32], [t as u32, KEY_STREAM])
}

/// The words of the training program's input `hyper` for the update number `t` (from 1).
///
/// Under loss scaling the device applies the bias corrections, since it alone knows how many updates came
/// before: see [`crate::kernels::scaling::STEP_SCALARS`]. Stochastic rounding adds the update's key.
pub fn hyper_words(s: &Settings, policy: &Policy, lr: f64, t: u64) -> Vec<u32> {
    let mut scalars = hyper(s, lr, t);
    if policy.scaled {
        (scalars[1], scalars[2]) = (lr as f32, 1.0);
    }
    let mut out: Vec<u32> = scalars.iter().map(|x| x.to_bits()).collect();
    if policy.rounding == Rounding::Stochastic {
        out.extend(step_key(s.seed, t));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;

    #[test]
    fn warms_up_then_follows_the_cosine() {
        let s = Settings {
            steps: 60,
            warmup: 10,
            ..Settings::preset(Preset::Tiny)
        };
        assert_eq!(lr_at(&s, 0), 1e-4);
        assert_eq!(lr_at(&s, 9), 1e-3);
        assert_eq!(lr_at(&s, 10), 1e-3);
        // The last step of a PyTorch run with this schedule.
        assert!((lr_at(&s, 59) - 0.0001008879722072778).abs() < 1e-15);
        let short = Settings {
            steps: 5,
            warmup: 100,
            ..s
        };
        assert!(lr_at(&short, 4) < short.lr);
    }

    /// Case 1 of the public bug reports: a counter kept in bf16 sticks at 256. Ours is an integer.
    #[test]
    fn bias_corrections_go_on_past_256_steps() {
        let s = Settings {
            betas: [0.9, 0.999],
            ..Settings::preset(Preset::Tiny)
        };
        let at = |t| 1.0 / (hyper(&s, 1e-3, t)[2] as f64).powi(2);
        assert!((at(1000) - (1.0 - 0.999f64.powi(1000))).abs() < 1e-6);
        assert_ne!(hyper(&s, 1e-3, 1000)[2], hyper(&s, 1e-3, 256)[2]);
    }
}
