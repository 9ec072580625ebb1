//! Where a training step's time goes, kernel by kernel, beside what the device can do: its rate of
//! multiply-adds and its bandwidth, measured in the same run.

use super::median;
use super::plans::multiply_adds;
use crate::config::Settings;
use crate::data::batches::gather;
use crate::error::Error;
use crate::exec::{Clock, Executor, StepTime};
use crate::graph::{Graph, Program, Type};
use crate::passes::compile;
use crate::plan::Plan;
use crate::plan::account::{step_bytes, step_flops};
use crate::train::run::Data;
use crate::train::session::Session;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What a device reaches where nothing else is in the way.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// TFLOP a second of independent f32 multiply-adds in registers.
    pub tflops: f64,
    /// GB a second read and written by a copy that no cache holds.
    pub gbytes: f64,
}

/// One kernel's part of a training step.
#[derive(Clone, Debug)]
pub struct KernelTime {
    /// The kernel.
    pub kernel: &'static str,
    /// Launches a step.
    pub launches: usize,
    /// Milliseconds a step: the sum of its launches' medians.
    pub ms: f64,
    /// Bytes of all buffers that its launches read or write.
    pub bytes: u64,
    /// Floating-point operations, as [`step_flops`] counts them.
    pub flops: u64,
}

/// One launch, for a trace.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: &'static str,
    /// The part of the model that it belongs to.
    pub label: String,
    /// The code that ran it.
    pub path: &'static str,
    /// Median milliseconds.
    pub ms: f64,
}

/// Where a training step's time goes.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Median milliseconds of a whole step as training runs it, reading of the loss included.
    pub step_ms: f64,
    /// Whose clock timed the launches.
    pub clock: Clock,
    /// Kernels, the dearest first.
    pub kernels: Vec<KernelTime>,
    /// Launches in order.
    pub launches: Vec<Launch>,
}

/// Measures the ceilings. `exec` should be of the grade `fast`, so that multiply-adds are fused.
///
/// # Errors
/// The device failed.
pub fn ceilings(exec: &mut dyn Executor) -> Result<Ceilings, Error> {
    Ok(Ceilings {
        tflops: multiply_adds(exec)?,
        gbytes: bandwidth(exec)?,
    })
}

/// GB a second of a copy of 64 MiB, the best of ten: what is read and what is written count.
fn bandwidth(exec: &mut dyn Executor) -> Result<f64, Error> {
    let n = 16 << 20;
    let graph = Graph::new();
    // Negation, so that no pass removes the copy.
    let y = (-graph.state("bandwidth.x", Type::f32(&[n]))).id;
    let program = Program {
        graph,
        outputs: vec![("y".into(), y)],
        updates: vec![],
    };
    let plan = Arc::new(compile("bandwidth", program).map_err(Error::Internal)?);
    let moved: u64 = plan.steps.iter().map(|s| step_bytes(&plan, s)).sum();
    let id = exec.load(plan)?;
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        best = best.min(exec.profile(id)?.iter().map(|s| s.ms).sum());
    }
    Ok(moved as f64 / best / 1e6)
}

/// Profiles training steps: `rounds` whole ones, and as many launch by launch, in turn. None where
/// `stopped` said so.
///
/// # Errors
/// The device failed.
pub fn profile(
    session: &mut Session,
    plan: &Plan,
    (s, data): (&Settings, &Data),
    rounds: usize,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<Profile>, Error> {
    let mut batches = data.batches(s);
    let mut whole = Vec::with_capacity(rounds);
    let mut times: Vec<Vec<StepTime>> = Vec::with_capacity(rounds);
    // The first steps load code and fill caches.
    const WARMUP: usize = 2;
    for i in 0..WARMUP + rounds {
        if stopped() {
            return Ok(None);
        }
        let mut batch = || {
            let offsets = batches.next_offsets();
            [gather(&data.text.train, &offsets, s.block)]
        };
        let t = 2 * i as u64 + 1;
        let start = Instant::now();
        session.step(s, &batch(), s.min_lr, t, false, false)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let each = session.profile_step(s, &batch()[0], s.min_lr, t + 1)?;
        if i >= WARMUP {
            whole.push(ms);
            times.push(each);
        }
    }
    let of = |n: usize| median(times.iter().map(|r| r[n].ms).collect());
    let mut kernels: BTreeMap<&'static str, KernelTime> = BTreeMap::new();
    let mut launches = Vec::with_capacity(plan.steps.len());
    for (n, step) in plan.steps.iter().enumerate() {
        let kernel = step.kernel.name;
        let ms = of(n);
        let k = kernels.entry(kernel).or_insert(KernelTime {
            kernel,
            launches: 0,
            ms: 0.0,
            bytes: 0,
            flops: 0,
        });
        k.launches += 1;
        k.ms += ms;
        k.bytes += step_bytes(plan, step);
        k.flops += step_flops(plan, step);
        launches.push(Launch {
            kernel,
            label: step.label.clone(),
            path: times[0][n].path,
            ms,
        });
    }
    let mut kernels: Vec<KernelTime> = kernels.into_values().collect();
    kernels.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    Ok(Some(Profile {
        step_ms: median(whole),
        clock: times[0][0].clock,
        kernels,
        launches,
    }))
}

/// Launches as a trace in the format that Perfetto and chrome://tracing open: one track a scheme, launches
/// one after the other, each as long as its median.
pub fn trace(profiles: &[(&str, &Profile)]) -> String {
    let mut events = Vec::new();
    for (track, (scheme, p)) in profiles.iter().enumerate() {
        let track = track + 1;
        events.push(serde_json::json!({
            "ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": scheme},
        }));
        let mut at = 0.0;
        for l in &p.launches {
            events.push(serde_json::json!({
                "ph": "X", "pid": 1, "tid": track, "ts": at, "dur": l.ms * 1e3,
                "name": l.kernel, "cat": "kernel", "args": {"of": l.label, "path": l.path},
            }));
            at += l.ms * 1e3;
        }
    }
    serde_json::json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
}
