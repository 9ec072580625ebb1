//! The same steps on several devices, compared by their digests after each step.

use super::course::{Course, Runner, Snapshot, whole};
use super::diverge::{self, Finding};
use crate::error::Error;
use crate::exec::Executor;

/// Steps between snapshots that a search may start from.
const SNAPSHOTS: usize = 32;

/// A device under comparison.
pub struct Entry<'a> {
    /// What it is called in tables.
    pub label: String,
    /// Makes an executor on it.
    pub open: Box<dyn Fn() -> Result<Box<dyn Executor>, Error> + 'a>,
}

/// How far and how often.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The last step, counted from the run's first.
    pub steps: usize,
    /// Steps between comparisons.
    pub every: usize,
    /// Steps between digests tensor by tensor, for a certificate.
    pub tensors: usize,
}

/// Told of the comparison's progress.
pub trait Watcher {
    /// Before a device takes a step.
    fn working(&mut self, step: usize, label: &str);
    /// After a comparison: the digest of each device, and whether all are equal.
    fn compared(&mut self, step: usize, digests: &[u64], equal: bool);
    /// Before the first difference is looked for.
    fn searching(&mut self, step: usize, labels: [&str; 2]);
    /// Whether to stop after this step.
    fn stopped(&self) -> bool;
}

/// A difference and whose.
#[derive(Clone, PartialEq, Debug)]
pub struct Divergence {
    /// The two devices, by number.
    pub devices: [usize; 2],
    /// The end of the step whose digests differed.
    pub step: usize,
    /// The digests there.
    pub digests: [u64; 2],
    /// Where it comes from.
    pub finding: Finding,
}

/// Digests of all tensors at a step.
pub type TensorDigests = (usize, Vec<u64>);

/// What a comparison gives.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Steps taken.
    pub steps: usize,
    /// (step, digest) of the first device.
    pub digests: Vec<(usize, u64)>,
    /// Tensor by tensor, of the first device.
    pub tensors: Vec<TensorDigests>,
    /// The first difference between devices.
    pub divergence: Option<Divergence>,
    /// Where the first device first differs from what was expected: step, digest, expected digest.
    pub unexpected: Option<(usize, u64, u64)>,
    /// Whether the watcher stopped it.
    pub stopped: bool,
}

/// Takes the steps on all devices in turn; stops at the first difference and finds where it comes from.
/// The first device is the one that the others are held against; it is held against the digests that
/// `expected` knows. All begin at `start`, else at the initial weights.
///
/// # Errors
/// A device failed, or a loss is no number.
pub fn check(
    course: &mut Course,
    entries: &[Entry],
    extent: Extent,
    start: Option<&Snapshot>,
    expected: &dyn Fn(usize) -> Option<u64>,
    watcher: &mut dyn Watcher,
) -> Result<Outcome, Error> {
    let mut runners = Vec::with_capacity(entries.len());
    for e in entries {
        runners.push(begin(course, e, start)?);
    }
    let mut out = Outcome::default();
    let mut equal_at = runners[0].snapshot(course)?;
    for step in equal_at.at + 1..=extent.steps {
        for (r, e) in runners.iter_mut().zip(entries) {
            watcher.working(step, &e.label);
            r.step(course)?;
        }
        out.steps = step;
        out.stopped = step < extent.steps && watcher.stopped();
        let last = step == extent.steps || out.stopped;
        let by_tensor = step.is_multiple_of(extent.tensors) || last;
        if !step.is_multiple_of(extent.every) && !by_tensor && expected(step).is_none() {
            continue;
        }
        let first = runners[0].digests(course)?;
        let mut digests = vec![whole(&first)];
        for r in &mut runners[1..] {
            digests.push(whole(&r.digests(course)?));
        }
        let other = digests.iter().position(|d| *d != digests[0]);
        watcher.compared(step, &digests, other.is_none());
        out.digests.push((step, digests[0]));
        if by_tensor {
            out.tensors.push((step, first));
        }
        if let Some(other) = other {
            let labels = [&*entries[0].label, &*entries[other].label];
            watcher.searching(step, labels);
            let (left, right) = runners.split_at_mut(other);
            let (a, b) = (&mut left[0], &mut right[0]);
            out.divergence = Some(Divergence {
                devices: [0, other],
                step,
                digests: [digests[0], digests[other]],
                finding: diverge::first(course, a, b, &equal_at, step)?,
            });
            return Ok(out);
        }
        if let Some(wanted) = expected(step).filter(|d| *d != digests[0]) {
            out.unexpected = Some((step, digests[0], wanted));
            return Ok(out);
        }
        if step - equal_at.at >= SNAPSHOTS.max(extent.every) {
            equal_at = runners[0].snapshot(course)?;
        }
        if out.stopped {
            break;
        }
    }
    Ok(out)
}

/// A device at a snapshot, or at the initial weights.
fn begin(course: &Course, e: &Entry, start: Option<&Snapshot>) -> Result<Runner, Error> {
    let mut r = Runner::start((e.open)()?, course)?;
    if let Some(s) = start {
        r.restore(s)?;
    }
    Ok(r)
}

/// Finds the first difference of two devices that differ after a step.
///
/// # Errors
/// A device failed.
pub fn search(
    course: &mut Course,
    entries: [&Entry; 2],
    start: Option<&Snapshot>,
    step: usize,
) -> Result<Finding, Error> {
    let mut a = begin(course, entries[0], start)?;
    let mut b = begin(course, entries[1], start)?;
    let from = a.snapshot(course)?;
    diverge::first(course, &mut a, &mut b, &from, step)
}

/// Digests of all tensors after a step on one device.
///
/// # Errors
/// A device failed.
pub fn digests_at(
    course: &mut Course,
    entry: &Entry,
    start: Option<&Snapshot>,
    step: usize,
) -> Result<Vec<u64>, Error> {
    let mut r = begin(course, entry, start)?;
    while r.at < step {
        r.step(course)?;
    }
    r.digests(course)
}
