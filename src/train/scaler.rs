//! Loss scaling seen from the host: its settings, the states it starts from, and what a step did.

use super::checkpoint::meta::Scaler as Saved;
use crate::config::Settings;
use crate::error::{Error, usage};
use crate::exec::Executor;
use crate::passes::autocast::Policy;
use crate::passes::scaling::{CORRECTIONS, SCALE, SCALER_COUNTS, Scaling};

/// Most rows of the table of bias corrections: 32 MiB.
const MAX_CORRECTIONS: usize = 1 << 22;

/// What the scaler did in a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scaled {
    /// The scale that the step used.
    pub scale: f32,
    /// Whether the step was skipped.
    pub skipped: bool,
    /// Updates applied so far.
    pub applied: u64,
}

/// The loss scaling of a scheme, if it has one.
///
/// # Errors
/// Decay rates so close to 1 that their corrections fill no table.
pub fn scaling(s: &Settings, policy: &Policy) -> Result<Option<Scaling>, Error> {
    if !policy.scaled {
        return Ok(None);
    }
    Ok(Some(Scaling {
        interval: s.fp16.growth_interval as u32,
        cap: s.fp16.max_scale as f32,
        corrections: corrections(s)?.len() / 2,
    }))
}

/// The table of bias corrections, two words a row: for each update t from 1 on, 1 - beta1^t and
/// 1 / sqrt(1 - beta2^t), each computed in f64 and rounded once. It ends where both are 1 for good, or
/// with the run.
fn corrections(s: &Settings) -> Result<Vec<f32>, Error> {
    let [b1, b2] = s.betas;
    let mut out: Vec<f32> = Vec::new();
    for t in 1..=s.steps {
        let correction = |b: f64| 1.0 - libm::pow(b, t as f64);
        let row = [correction(b1), 1.0 / libm::sqrt(correction(b2))].map(|x| x as f32);
        out.extend(row);
        if row == [1.0, 1.0] {
            break;
        }
        if t > MAX_CORRECTIONS {
            return usage(format!(
                "betas {b1}, {b2} over {} steps: under fp16 the bias corrections of {MAX_CORRECTIONS} updates are kept at most; take lower betas or fewer steps",
                s.steps
            ));
        }
    }
    Ok(out)
}

/// The states that a run's first step finds, by name, besides weights and moments.
///
/// # Errors
/// As [`scaling`].
pub fn start(s: &Settings, policy: &Policy) -> Result<Vec<(String, Vec<u32>)>, Error> {
    if !policy.scaled {
        return Ok(vec![]);
    }
    let bits = |x: f32| x.to_bits();
    let table = corrections(s)?.into_iter().map(bits).collect();
    let mut out = words(&first(s), 0).to_vec();
    out.push((CORRECTIONS.into(), table));
    Ok(out)
}

/// A scaler before its first step.
pub fn first(s: &Settings) -> Saved {
    Saved {
        scale: s.fp16.init_scale,
        good_steps: 0,
        skipped: 0,
    }
}

/// A scaler's states after so many applied updates, by name.
pub fn words(saved: &Saved, applied: u64) -> [(String, Vec<u32>); 2] {
    let scale = (saved.scale as f32).to_bits();
    let [good, skipped, applied] = [saved.good_steps, saved.skipped, applied].map(|n| n as u32);
    [
        (SCALE.into(), vec![scale]),
        (SCALER_COUNTS.into(), vec![good, skipped, applied, scale]),
    ]
}

/// Puts a scaler where a checkpoint left it.
///
/// # Errors
/// The device failed.
pub fn restore(exec: &mut dyn Executor, saved: &Saved, applied: u64) -> Result<(), Error> {
    for (name, words) in words(saved, applied) {
        exec.write_state(&name, &words)?;
    }
    Ok(())
}

/// The scaler's state, for a checkpoint.
///
/// # Errors
/// The device failed.
pub fn read(exec: &mut dyn Executor) -> Result<Saved, Error> {
    let scale = exec.read_state(SCALE)?;
    let counts = exec.read_state(SCALER_COUNTS)?;
    Ok(Saved {
        scale: f32::from_bits(scale[0]).into(),
        good_steps: counts[0].into(),
        skipped: counts[1].into(),
    })
}

/// Puts the scale back to what the last step used, so that the step can be run again; returns the states
/// as they were, to be written when that is done.
///
/// # Errors
/// The device failed.
pub fn rewind(exec: &mut dyn Executor) -> Result<Vec<(String, Vec<u32>)>, Error> {
    let now = [SCALE, SCALER_COUNTS]
        .map(|name| exec.read_state(name).map(|words| (name.to_string(), words)));
    let now = now.into_iter().collect::<Result<Vec<_>, _>>()?;
    exec.write_state(SCALE, &now[1].1[3..])?;
    Ok(now)
}

/// What the last step did, `norm` being the gradient's norm that it gave.
///
/// # Errors
/// The device failed.
pub fn last(exec: &mut dyn Executor, norm: f32) -> Result<Scaled, Error> {
    let counts = exec.read_state(SCALER_COUNTS)?;
    Ok(Scaled {
        scale: f32::from_bits(counts[3]),
        skipped: !norm.is_finite(),
        applied: counts[2].into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;
    use crate::passes::autocast::FP16;

    #[test]
    fn corrections_end_at_one() {
        let s = Settings::preset(Preset::Tiny);
        let table = corrections(&s).expect("short");
        assert!(table.len() < 2 * 400 && table.ends_with(&[1.0, 1.0]));
        assert_eq!(table[0], 0.1);
        let few = Settings {
            steps: 7,
            ..s.clone()
        };
        assert_eq!(corrections(&few).expect("short"), table[..14]);
        let slow = Settings {
            betas: [0.9, 0.999_999_999],
            steps: 1_000_000_000,
            ..s
        };
        let e = scaling(&slow, &FP16).expect_err("too long").to_string();
        assert!(e.contains("betas"), "{e}");
    }
}
