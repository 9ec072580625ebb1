//! Choosing among the variants of a kernel by measuring them, at load.
//!
//! Policy: a variant is measured on buffers of the step's own sizes, filled with numbers, after a warm-up,
//! alone on the device. It must leave the bits that the first variant leaves, or it is out. The first one
//! stays unless another is faster by more than [`MARGIN`]. No measurement begins once the time that is
//! allowed is used up; the kernels that are left keep their first variant, and are measured at a later load.
//! So tuning is free of numerical consequence: neither the plan nor a result depends on it.

use super::super::wgsl::{self, Variant};
use super::super::{Choice, ExecError, cpu::free_memory};
use super::buffers::{Slab, bytes_for};
use super::health::{Trouble, scoped};
use super::pipelines::{Facts, Key, prepare};
use super::submit::{self, Launch};
use super::{Wgpu, limits};
use crate::kernels::rng::Stream;
use crate::plan::{BufId, Plan, Step};
use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// What another variant must save, of the first one's time.
const MARGIN: f64 = 0.03;
/// Timed passes of a variant, and the time after which there is no further one.
const PASSES: usize = 5;
const ENOUGH: Duration = Duration::from_millis(60);
/// What a pass of repeated launches should take: clocks tell less than that badly.
const PASS_MS: f64 = 1.0;
/// Most launches of a pass.
const REPEATS: f64 = 64.0;
/// Most words that are compared of a result.
const COMPARED: u64 = 4 << 20;

/// Where choices are kept from run to run, and who looks on while they are made.
pub trait Book: Send {
    /// A choice of an earlier run.
    fn kept(&self, key: &str) -> Option<Choice>;
    /// Told before kernel `done` of `of` is measured; returns whether to go on.
    fn measuring(&mut self, done: usize, of: usize) -> bool;
    /// A choice was made.
    fn add(&mut self, choice: &Choice);
    /// A variant left other bits than the first one and is not taken.
    fn differs(&mut self, kernel: &str, variant: &str);
    /// The measurements of a load are over; they took so long.
    fn close(&mut self, took: Duration);
}

/// How variants are chosen.
pub struct Tuner {
    /// Keeps the choices.
    pub book: Box<dyn Book>,
    /// Whether kernels without a choice are measured.
    pub measures: Measures,
    /// Whether choices of earlier runs count.
    pub kept: bool,
    /// Time that is left for measurements.
    pub left: Duration,
}

/// When kernels without a choice are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measures {
    /// Never.
    Never,
    /// Where so many runs of a program take longer than [`WORTH`], by an estimate of their work.
    Runs(u64),
    /// Always.
    Always,
}

/// Seconds of a run that are worth measurements of some seconds.
pub const WORTH: f64 = 60.0;

/// A step that stands for all of its shape.
struct Candidate {
    key: String,
    step: usize,
    work: u64,
}

/// What a choice is for: the kernel, its parameters, which hold its shape, its specialisation, and the types
/// of what it reads and writes.
pub fn key(step: &Step, plan: &Plan) -> String {
    let p = &step.params;
    let mut out = step.kernel.name.to_string();
    let words: Vec<String> = p.words.iter().skip(1).map(u32::to_string).collect();
    let _ = write!(out, " {}", words.join(" "));
    for (name, value) in &p.spec {
        let _ = write!(out, " {name}={value}");
    }
    let types = |ids: &[BufId]| -> String {
        let names: Vec<&str> = ids.iter().map(|&b| plan.buf(b).ty.dtype.name()).collect();
        names.join(",")
    };
    let _ = write!(out, " {}>{}", types(&step.reads), types(&step.writes));
    if let Some(e) = &p.expr {
        let _ = write!(out, " with {} operations {}", e.code.len(), short_hash(e));
    }
    out
}

/// Four hexadecimal digits of an expression: what tells the hosted ones apart that have one length.
fn short_hash(e: &crate::kernels::pointwise::Expr) -> String {
    let text = format!("{e:?}");
    let hash = text.bytes().fold(0x811c_9dc5u32, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    format!("{:04x}", hash >> 16)
}

impl Wgpu {
    /// Chooses variants by measurement from now on.
    pub fn with_tuner(mut self, tuner: Tuner) -> Wgpu {
        self.tuner = Some(tuner);
        self
    }

    /// For tests: takes variant `n` of each step, counted round, instead of the first.
    pub fn with_variant(mut self, n: usize) -> Wgpu {
        self.nth = n;
        self
    }

    /// The variant that a step is to run in.
    pub(super) fn variant(&self, step: &Step, plan: &Plan) -> Variant {
        let mut all = wgsl::variants(step, plan, self.options);
        let chosen = (all.len() > 1).then(|| self.choices.get(&key(step, plan)));
        let by_name = |c: &Choice| all.iter().position(|v| v.name == c.taken);
        let n = match chosen.flatten().and_then(by_name) {
            Some(n) => n,
            None => self.nth % all.len(),
        };
        all.swap_remove(n)
    }

    /// Chooses the variants of a plan's steps, where they are to be chosen.
    ///
    /// # Errors
    /// The device failed. What it cannot do is no failure: then the first variant stays.
    pub(super) fn tune(&mut self, plan: &Plan) -> Result<(), ExecError> {
        let Some(mut tuner) = self.tuner.take() else {
            return Ok(());
        };
        let candidates = self.candidates(plan, &tuner);
        let result = self.measure_all(plan, &candidates, &mut tuner);
        self.tuner = Some(tuner);
        result.map_err(|t| self.failed(t, &format!("while program {} was tuned", plan.name)))
    }

    /// The shapes that have no choice yet, those with most work first. Kept choices are taken.
    fn candidates(&mut self, plan: &Plan, tuner: &Tuner) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = vec![];
        let mut known: HashMap<String, usize> = HashMap::new();
        let tunable = |s: &&Step| wgsl::is_tunable(s.kernel.name);
        for (n, step) in plan.steps.iter().enumerate().filter(|s| tunable(&s.1)) {
            let key = key(step, plan);
            if self.choices.contains_key(&key) {
                continue;
            }
            let work = submit::work(step, plan);
            if let Some(&i) = known.get(&key) {
                all[i].work += work;
                continue;
            }
            // What was kept may name anything.
            let names = wgsl::variants(step, plan, self.options);
            let there = |c: &Choice| names.iter().any(|v| v.name == c.taken);
            if tuner.kept
                && let Some(choice) = tuner.book.kept(&key).filter(there)
            {
                self.choices.insert(key, choice);
                continue;
            }
            known.insert(key.clone(), all.len());
            all.push(Candidate { key, step: n, work });
        }
        let worth = match tuner.measures {
            Measures::Never => false,
            Measures::Always => true,
            Measures::Runs(n) => {
                let each: f64 = plan
                    .steps
                    .iter()
                    .map(|s| submit::work(s, plan) as f64)
                    .sum();
                submit::seconds(n as f64 * each, self.found.software) >= WORTH
            }
        };
        if !worth {
            all.clear();
        }
        all.sort_by_key(|c| std::cmp::Reverse(c.work));
        all
    }

    fn measure_all(
        &mut self,
        plan: &Plan,
        candidates: &[Candidate],
        tuner: &mut Tuner,
    ) -> Result<(), Trouble> {
        let begin = Instant::now();
        let end = begin + tuner.left;
        let mut measured = 0;
        for c in candidates {
            if Instant::now() >= end || !tuner.book.measuring(measured, candidates.len()) {
                break;
            }
            let step = &plan.steps[c.step];
            if self.found.software && !fits(step, plan, end) {
                continue;
            }
            if let Some(times) = self.measure(step, plan, end, &mut *tuner.book)? {
                let choice = Choice {
                    key: c.key.clone(),
                    taken: taken(&times).to_string(),
                    times,
                };
                tuner.book.add(&choice);
                self.choices.insert(c.key.clone(), choice);
            }
            measured += 1;
        }
        tuner.left = end.saturating_duration_since(Instant::now());
        if measured > 0 {
            tuner.book.close(begin.elapsed());
        }
        Ok(())
    }

    /// Microseconds of a step in each of its variants, the first one's first; none where they cannot be
    /// had, or not by `end`.
    fn measure(
        &mut self,
        step: &Step,
        plan: &Plan,
        end: Instant,
        book: &mut dyn Book,
    ) -> Result<Option<Vec<(String, f64)>>, Trouble> {
        let variants = wgsl::variants(step, plan, self.options);
        let Some(scratch) = self.scratch(step, plan)? else {
            return Ok(None);
        };
        let mut times: Vec<(String, f64)> = vec![];
        let mut first: Option<Vec<Vec<u32>>> = None;
        let mut built: Vec<(&'static str, Key)> = vec![];
        for (i, v) in variants.iter().enumerate() {
            let best = times.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
            let Some((launch, key, new)) = self.build_one(step, plan, v, &scratch) else {
                match i {
                    0 => return Ok(None),
                    _ => continue,
                }
            };
            if new {
                built.push((v.name, key));
            }
            let Some(us) = self.time(&launch, best, end)? else {
                return Ok(None);
            };
            let bits = self.results(step, plan, &scratch)?;
            if first.as_ref().is_some_and(|f| *f != bits) {
                book.differs(step.kernel.name, v.name);
                continue;
            }
            if first.is_none() {
                first = Some(bits);
            }
            times.push((v.name.to_string(), us));
        }
        for (_, key) in built.iter().filter(|b| b.0 != taken(&times)) {
            self.pipelines.forget(key);
        }
        scratch.values().for_each(|s| s.buffer.destroy());
        Ok(Some(times))
    }

    /// Buffers for what a step reads and writes, full of numbers; none where there is no room.
    fn scratch(
        &mut self,
        step: &Step,
        plan: &Plan,
    ) -> Result<Option<HashMap<BufId, Slab>>, Trouble> {
        let ids = || step.reads.iter().chain(&step.writes);
        let words: HashMap<BufId, u64> = ids().map(|&b| (b, plan.buf(b).words() as u64)).collect();
        let total: u64 = words.values().map(|&w| bytes_for(w, false)).sum();
        if self.found.software && total > free_memory() / 2 {
            return Ok(None);
        }
        let make = || -> HashMap<BufId, Slab> {
            let make = |(&b, &w)| (b, Slab::new(&self.device, "tuning".into(), w, false));
            words.iter().map(make).collect()
        };
        let Ok(made) = scoped(&self.device, make) else {
            return Ok(None);
        };
        self.memory.peak = self.memory.peak.max(self.memory.allocated + total);
        // Both halves of a word are numbers from 1/2 to 1 in bf16, and the word is one in f32.
        let mut stream = Stream::new(1, 1);
        let mut half = || 0x3f00 | stream.below(128) as u32 | (stream.below(2) as u32) << 15;
        let pattern: Vec<u32> = (0..1 << 16).map(|_| half() << 16 | half()).collect();
        for slab in made.values() {
            let mut contents = Vec::with_capacity(slab.words as usize);
            while contents.len() < slab.words as usize {
                let rest = slab.words as usize - contents.len();
                contents.extend(&pattern[..rest.min(pattern.len())]);
            }
            self.write(&slab.buffer, &contents)?;
        }
        Ok(Some(made))
    }

    /// A launch of a step in a variant on buffers of its own, its pipeline's key and whether that is new;
    /// none where the device does not take it.
    fn build_one(
        &mut self,
        step: &Step,
        plan: &Plan,
        v: &Variant,
        scratch: &HashMap<BufId, Slab>,
    ) -> Option<(Launch, Key, bool)> {
        let shader = wgsl::assemble(step, plan, self.options, v);
        let key = Key::new(&shader, step);
        let new = self.pipelines.get(&key).is_none();
        let facts: Facts = match self.pipelines.get(&key) {
            Some((built, _)) => built.facts,
            None => {
                let ready = prepare(&key).ok()?;
                let facts = ready.facts;
                limits::step(step, &facts, v.groups, &self.found.limits).ok()?;
                let builder = super::load::builder(
                    &self.device,
                    self.belt,
                    self.options.software,
                    self.found.backend,
                );
                (self.pipelines.build(&builder, vec![(key.clone(), ready)])).ok()?;
                self.created.pipelines += 1;
                facts
            }
        };
        let prepared = super::load::Prepared {
            key: key.clone(),
            workgroups: v.groups,
            facts,
            file: v.file,
        };
        let slab = |b: BufId| &scratch[&b];
        let bytes = self.uniform_bytes(step, facts);
        let made = self.record(plan, &[(&prepared, step)], &slab, bytes);
        let launch = made.ok()?.pop()?;
        Some((launch, key, new))
    }

    /// Microseconds of a launch: the least of some passes, after one that does not count. None if `end`
    /// comes first.
    fn time(&mut self, launch: &Launch, best: f64, end: Instant) -> Result<Option<f64>, Trouble> {
        let over = || Instant::now() >= end;
        if over() {
            return Ok(None);
        }
        // The first one may wait for a compiler.
        self.pass(launch, 1)?;
        if over() {
            return Ok(None);
        }
        let begin = Instant::now();
        let single = self.pass(launch, 1)?;
        let repeats = (PASS_MS / single.max(1e-6)).clamp(1.0, REPEATS) as u32;
        let mut least = if repeats == 1 { single } else { f64::INFINITY };
        for _ in 0..PASSES {
            let hopeless = least * 1e3 > 2.0 * best;
            let settled = begin.elapsed() > ENOUGH || over();
            if least.is_finite() && (hopeless || settled) {
                break;
            }
            let ms = self.pass(launch, repeats)?;
            least = least.min(ms / f64::from(repeats));
        }
        Ok(Some(least * 1e3))
    }

    /// Milliseconds of a pass of some launches, by the device's clock where it has one.
    fn pass(&mut self, launch: &Launch, repeats: u32) -> Result<f64, Trouble> {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: self.timer.as_ref().and_then(|t| t.writes(0)),
        });
        (0..repeats).for_each(|_| launch.encode(&mut pass));
        drop(pass);
        if let Some(timer) = &mut self.timer {
            timer.finish(&mut encoder, 1);
        }
        let begin = Instant::now();
        let index = self.queue.submit([encoder.finish()]);
        self.health.check_faults()?;
        self.health.wait(&self.device, Some(index))?;
        let wall = begin.elapsed().as_secs_f64() * 1e3;
        let own = self.timer.as_ref().and_then(|t| t.ms(self.link()));
        if let Some(timer) = &mut self.timer {
            timer.clear();
        }
        Ok(own.filter(|ms| *ms > 0.0).unwrap_or(wall))
    }

    /// What a step wrote, as far as it is compared.
    fn results(
        &mut self,
        step: &Step,
        plan: &Plan,
        scratch: &HashMap<BufId, Slab>,
    ) -> Result<Vec<Vec<u32>>, Trouble> {
        let of = |b: &BufId| {
            let words = (plan.buf(*b).words() as u64).min(COMPARED);
            (scratch[b].buffer.clone(), words)
        };
        let sources: Vec<_> = step.writes.iter().map(of).collect();
        self.read(None, &sources)
    }
}

/// Whether all variants of a step can be measured until `end`, on a device that runs on a CPU. (A GPU is
/// asked: nothing is known of its speed.)
fn fits(step: &Step, plan: &Plan, end: Instant) -> bool {
    const LAUNCHES: f64 = 10.0;
    let each = submit::seconds(submit::work(step, plan) as f64, true);
    LAUNCHES * each < end.saturating_duration_since(Instant::now()).as_secs_f64()
}

/// The variant to take.
fn taken(times: &[(String, f64)]) -> &str {
    let first = &times[0];
    let best = times.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    match best {
        Some(b) if b.1 < (1.0 - MARGIN) * first.1 => &b.0,
        _ => &first.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stays_unless_another_is_clearly_faster() {
        let times = |us: &[f64]| -> Vec<(String, f64)> {
            let name = |(i, &us): (usize, &f64)| (i.to_string(), us);
            us.iter().enumerate().map(name).collect()
        };
        assert_eq!(taken(&times(&[100.0])), "0");
        assert_eq!(taken(&times(&[100.0, 98.0])), "0");
        assert_eq!(taken(&times(&[100.0, 96.0, 90.0])), "2");
    }
}
