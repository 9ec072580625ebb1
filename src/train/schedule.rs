//! The learning rate and AdamW's host-side scalars, in f64 by pure-Rust functions: the same on every
//! system.

use crate::config::Settings;
use crate::kernels::optim::HYPER;

/// The learning rate of iteration `it` (from 0): linear warm-up, then a half cosine from `lr` to
/// `min_lr`.
pub fn lr_at(s: &Settings, it: usize) -> f64 {
    if it < s.warmup {
        return s.lr * (it + 1) as f64 / s.warmup as f64;
    }
    let t = (it - s.warmup) as f64 / (s.steps - s.warmup).max(1) as f64;
    s.min_lr + 0.5 * (s.lr - s.min_lr) * (1.0 + libm::cos(std::f64::consts::PI * t))
}

/// The scalars of [`crate::kernels::optim::ADAMW`] for the update number `t` (from 1).
pub fn hyper(s: &Settings, lr: f64, t: u64) -> [f32; HYPER] {
    let [b1, b2] = s.betas;
    let correction = |b: f64| 1.0 - libm::pow(b, t as f64);
    [
        1.0 - lr * s.weight_decay,
        lr / correction(b1),
        1.0 / libm::sqrt(correction(b2)),
        b1,
        1.0 - b1,
        b2,
        1.0 - b2,
        s.eps,
    ]
    .map(|x| x as f32)
}

/// The words of the training program's input `hyper`. Under loss scaling the device applies the bias
/// corrections, since it alone knows how many updates came before: see
/// [`crate::kernels::scaling::STEP_SCALARS`].
pub fn hyper_words(s: &Settings, lr: f64, t: u64, scaled: bool) -> Vec<u32> {
    let mut out = hyper(s, lr, t);
    if scaled {
        (out[1], out[2]) = (lr as f32, 1.0);
    }
    out.iter().map(|x| x.to_bits()).collect()
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
