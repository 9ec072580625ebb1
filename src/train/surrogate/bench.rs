//! What mixed precision changes of a training step's speed and memory, by configuration.

use super::denoise::Denoise;
use super::settings::{Settings, Shares, TrunkKind, resolve_precision};
use super::{Pace, Trainer, batches::Events};
use crate::data::showers::Part;
use crate::error::Error;
use crate::exec::Executor;
use crate::measure::median;
use std::time::Instant;

/// One configuration under one precision.
#[derive(Clone, PartialEq, Debug)]
pub struct Timed {
    /// `one-shot`, `routed` or `autoregressive`.
    pub configuration: &'static str,
    /// Name of the precision.
    pub precision: &'static str,
    /// How the device computes it.
    pub how: &'static str,
    /// Median time of a step, ms.
    pub step_ms: f64,
    /// Events a second.
    pub events_per_s: f64,
    /// Most bytes that the executor held.
    pub peak_bytes: u64,
}

/// The configurations that are compared.
pub const CONFIGURATIONS: [(&str, TrunkKind, Shares); 3] = [
    ("one-shot", TrunkKind::Plain, Shares::OneShot),
    ("routed", TrunkKind::Routed, Shares::OneShot),
    ("autoregressive", TrunkKind::Plain, Shares::Autoregressive),
];

/// The precisions that are compared.
pub const PRECISIONS: [&str; 2] = ["fp32", "mixed"];

/// Times `steps` training steps of one configuration of `s` under a precision, after two that warm up.
/// None when `stop` says so.
///
/// # Errors
/// The device failed or cannot hold it.
pub fn time(
    exec: Box<dyn Executor>,
    s: &Settings,
    (configuration, precision): (usize, usize),
    steps: usize,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Timed>, Error> {
    let (name, trunk, shares) = CONFIGURATIONS[configuration];
    let precision = PRECISIONS[precision];
    let s = Settings {
        trunk,
        shares,
        // Draws are no part of what is measured: as small as can be.
        reference: 2,
        ..s.clone()
    };
    let (policy, how) = resolve_precision(precision, &exec.info().name)?;
    let events = Events::load(s.seed, Part::Train, s.events, s.layers);
    let mut trainer = Denoise::new(exec, &s, &policy, events)?;
    let mut times = Vec::new();
    for step in 1..=steps + 2 {
        if stop() {
            return Ok(None);
        }
        let start = Instant::now();
        trainer.step(&Pace::at(&s, step))?;
        if step > 2 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let step_ms = median(times);
    Ok(Some(Timed {
        configuration: name,
        precision,
        how,
        step_ms,
        events_per_s: s.batch as f64 / step_ms * 1e3,
        peak_bytes: trainer.peak_bytes(),
    }))
}
