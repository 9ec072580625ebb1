//! The wgpu executor: plans on any GPU through Vulkan, Metal, Direct3D 12 or OpenGL.
//!
//! A program is recorded once, at load: a pipeline and a bind group for each step, over one buffer for
//! each slot of the plan. A run encodes the recorded launches into a few submissions and waits for
//! them. Every step of a plan is one launch on the device and nothing of it runs on the host: this
//! module never reaches for the kernels' Rust twins.

pub mod adapter;
mod ahead;
mod belt;
mod buffers;
pub mod cooperative;
mod health;
mod limits;
mod load;
mod pipelines;
mod profile;
mod submit;
mod timer;
pub mod tune;

use super::wgsl::Options;
use super::{
    Begun, Choice, DeviceInfo, ExecError, Executor, Memory, Numerics, Place, ProgramId, StepTime,
    Watch, find, same_len, state,
};
use crate::plan::{BufId, Class, Plan};
use adapter::Found;
use ahead::{Ahead, Copy};
use buffers::{GUARD, Link, SENTINEL, Slab, Staging};
use health::{Health, Trouble};
use pipelines::Pipelines;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use submit::Launch;
use timer::Timer;
use tune::Tuner;

/// What keeps a driver from fusing multiplies with adds. Both are on by default; a measurement may
/// switch them off, at the price of the bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// `NoContraction` on every float sum and product, where the device takes SPIR-V.
    pub belt: bool,
    /// The fence in the shaders.
    pub fence: bool,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            belt: true,
            fence: true,
        }
    }
}

/// What an executor has made of a device's objects so far. (Each write to a buffer also passes through
/// memory that wgpu itself takes and gives back.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Created {
    /// Buffers.
    pub buffers: u64,
    /// Pipelines.
    pub pipelines: u64,
    /// Bind groups.
    pub groups: u64,
    /// Times that the host waited for the device.
    pub waits: u64,
}

/// Submissions that are not waited for yet, and the steps in them.
type UnderWay = VecDeque<(wgpu::SubmissionIndex, Range<usize>)>;

struct Loaded {
    plan: Arc<Plan>,
    places: Vec<Place>,
    launches: Vec<Launch>,
}

/// Runs plans on a GPU.
pub struct Wgpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    health: Health,
    found: Found,
    options: Options,
    belt: bool,
    guards: bool,
    pipelines: Pipelines,
    names: HashMap<String, usize>,
    states: Vec<Slab>,
    /// Buffers that the programs' slots are mapped to.
    slots: Vec<Slab>,
    programs: Vec<Loaded>,
    memory: Memory,
    staging: Staging,
    timer: Option<Timer>,
    wall_ms: f64,
    dispatched: u64,
    lose_at: Option<usize>,
    overrun: Option<String>,
    tuner: Option<Tuner>,
    ahead: Ahead,
    created: Created,
    /// Variants that measurements chose, by [`tune::key`].
    choices: BTreeMap<String, Choice>,
    /// Which variant runs where there is no choice.
    nth: usize,
}

/// Opens a device with all its limits, and with features that it has.
///
/// # Errors
/// The driver refuses.
fn request(
    found: &Found,
    features: wgpu::Features,
    experimental_features: wgpu::ExperimentalFeatures,
) -> Result<(wgpu::Device, wgpu::Queue), ExecError> {
    let adapter = &found.adapter;
    // A device that is simulated to have gone is asked for what it cannot give.
    let impossible = wgpu::Features::all() & !adapter.features();
    let desc = wgpu::DeviceDescriptor {
        label: None,
        required_features: match found.gone {
            true => impossible.iter().next().unwrap_or(impossible),
            false => features,
        },
        // Defaults would stop at 128 MiB a binding.
        required_limits: adapter.limits(),
        experimental_features,
        ..Default::default()
    };
    pollster::block_on(adapter.request_device(&desc)).map_err(|e| {
        let why = health::one_line(&e.to_string());
        ExecError::Device(format!(
            "{} cannot be opened: {why}; it may be gone or in use: `isobit adapters` lists what is there",
            found.title()
        ))
    })
}

impl Wgpu {
    /// Opens a device.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(found: &Found, tuning: Tuning) -> Result<Wgpu, ExecError> {
        let wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::PASSTHROUGH_SHADERS;
        let features = found.adapter.features() & wanted;
        let (device, queue) = request(found, features, wgpu::ExperimentalFeatures::disabled())?;
        let health = Health::watch(&device);
        let vulkan = found.backend == adapter::Backend::Vulkan;
        let timer = Timer::new(&device, &queue);
        Ok(Wgpu {
            belt: tuning.belt && vulkan && features.contains(wgpu::Features::PASSTHROUGH_SHADERS),
            options: Options {
                fence: tuning.fence,
                fused: false,
                software: found.software,
            },
            device,
            queue,
            health,
            found: found.clone(),
            guards: false,
            pipelines: Pipelines::default(),
            names: HashMap::new(),
            states: vec![],
            slots: vec![],
            programs: vec![],
            memory: Memory::default(),
            staging: Staging::default(),
            timer,
            wall_ms: 0.0,
            dispatched: 0,
            lose_at: None,
            overrun: None,
            tuner: None,
            ahead: Ahead::default(),
            created: Created::default(),
            choices: BTreeMap::new(),
            nth: 0,
        })
    }

    /// Opens a device for a grade of numerics. The fast one has no belt, and fused multiply-adds in matrix
    /// products and attention. It keeps the fences elsewhere: without them compilers cancel
    /// `(x + C) - C`, and `exp` is not a function of other bits but a wrong one.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn open(found: &Found, numerics: Numerics) -> Result<Wgpu, ExecError> {
        let fast = numerics == Numerics::Fast;
        let tuning = Tuning {
            belt: !fast,
            fence: true,
        };
        let mut gpu = Wgpu::new(found, tuning)?;
        gpu.options.fused = fast;
        Ok(gpu)
    }

    /// For tests: gives every buffer of the plans loaded from now on an allocation of its own with
    /// sentinel words behind it, and looks at them after every step, which costs most of the speed.
    pub fn with_guards(mut self) -> Wgpu {
        self.guards = true;
        self
    }

    /// Whether a kernel has written past the end of a buffer since guards are on.
    ///
    /// # Errors
    /// The first overrun: step, buffer and word.
    pub fn check_guards(&self) -> Result<(), String> {
        self.overrun.clone().map_or(Ok(()), Err)
    }

    /// Launches of the last run or trace.
    pub fn dispatches(&self) -> u64 {
        self.dispatched
    }

    /// What was made so far, and how often the host waited.
    pub fn created(&self) -> Created {
        Created {
            waits: self.health.waits(),
            ..self.created
        }
    }

    /// Whether pipelines carry the no-contraction belt.
    pub fn has_belt(&self) -> bool {
        self.belt
    }

    /// The device.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Milliseconds of the last run or trace, and whose clock that is: `gpu timestamps` (the time that the device
    /// worked) or, where it has none or they are zero, `wall clock` (from the first submission until the
    /// last was done).
    pub fn last_run_ms(&self) -> (f64, &'static str) {
        match self.timer.as_ref().and_then(|t| t.ms(self.link())) {
            Some(ms) => (ms, "gpu timestamps"),
            None => (self.wall_ms, "wall clock"),
        }
    }

    /// For tests: the device will be lost in the next run, just before a step.
    pub fn simulate_loss(&mut self, step: usize) {
        self.lose_at = Some(step);
    }

    fn link(&self) -> Link<'_> {
        Link {
            device: &self.device,
            queue: &self.queue,
            health: &self.health,
        }
    }

    fn slab(&self, program: usize, b: BufId) -> &Slab {
        let p = &self.programs[program];
        match p.places[b.0 as usize] {
            Place::State(i) => &self.states[i],
            Place::Slot(i) => &self.slots[i],
        }
    }

    fn find(&self, program: ProgramId, class: Class, name: &str) -> Result<BufId, ExecError> {
        find(&self.programs[program.0].plan, class, name)
    }

    fn state(&self, name: &str) -> Result<usize, ExecError> {
        state(&self.names, name)
    }

    /// A failure, and where.
    fn failed(&self, trouble: Trouble, place: &str) -> ExecError {
        let hint = match trouble {
            Trouble::Silent => "; take a smaller batch or block",
            _ => "",
        };
        ExecError::Device(format!("{}: {trouble} {place}{hint}", self.found.title()))
    }

    fn read(
        &mut self,
        encoder: Option<wgpu::CommandEncoder>,
        sources: &[(wgpu::Buffer, u64)],
    ) -> Result<Vec<Vec<u32>>, Trouble> {
        let before = self.staging.bytes();
        let link = Link {
            device: &self.device,
            queue: &self.queue,
            health: &self.health,
        };
        let sources: Vec<(&wgpu::Buffer, u64)> = sources.iter().map(|(b, n)| (b, *n)).collect();
        let out = self.staging.read(link, encoder, &sources);
        let after = self.staging.bytes();
        self.created.buffers += u64::from(before != after);
        self.memory.allocated = self.memory.allocated - before + after;
        self.memory.peak = self.memory.peak.max(self.memory.allocated);
        out
    }

    fn write(&mut self, buffer: &wgpu::Buffer, words: &[u32]) -> Result<(), Trouble> {
        let link = Link {
            device: &self.device,
            queue: &self.queue,
            health: &self.health,
        };
        self.staging.write(link, buffer, words)
    }

    /// Encodes launches as one compute pass.
    fn encode(&mut self, program: usize, steps: Range<usize>, i: usize) -> wgpu::CommandEncoder {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let launches = &self.programs[program].launches[steps];
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: self.timer.as_ref().and_then(|t| t.writes(i)),
        });
        launches.iter().for_each(|l| l.encode(&mut pass));
        drop(pass);
        self.dispatched += launches.len() as u64;
        encoder
    }

    fn run_all(&mut self, program: usize) -> Result<(), (Trouble, Range<usize>)> {
        let mut under_way = self.submit_all(program, &[])?;
        while !under_way.is_empty() {
            self.wait_first(&mut under_way)?;
        }
        self.staging.settled();
        let all = 0..self.programs[program].launches.len();
        self.health.check().map_err(|t| (t, all))
    }

    /// Submits all of a program, then copies of some buffers' first words; returns the submissions that
    /// were not waited for.
    fn submit_all(
        &mut self,
        program: usize,
        copies: &[Copy],
    ) -> Result<UnderWay, (Trouble, Range<usize>)> {
        let work = self.programs[program].launches.iter().map(|l| l.work);
        let lose_at = self.lose_at.take();
        let parts = submit::submissions(work, self.found.software, lose_at);
        let mut under_way = VecDeque::new();
        for (i, steps) in parts.iter().enumerate() {
            let mut encoder = self.encode(program, steps.clone(), i);
            if let Some(timer) = self.timer.as_mut().filter(|_| i + 1 == parts.len()) {
                timer.finish(&mut encoder, parts.len());
            }
            if i + 1 == parts.len() {
                copies.iter().for_each(|c| c.encode(&mut encoder));
            }
            let commands = encoder.finish();
            if lose_at == Some(steps.start) {
                self.device.destroy();
            }
            let index = self.queue.submit([commands]);
            let refused = self.health.check_faults();
            refused.map_err(|t| (t, steps.clone()))?;
            under_way.push_back((index, steps.clone()));
            if under_way.len() >= submit::UNDER_WAY {
                self.wait_first(&mut under_way)?;
            }
        }
        Ok(under_way)
    }

    fn wait_first(&self, under_way: &mut UnderWay) -> Result<(), (Trouble, Range<usize>)> {
        match under_way.pop_front() {
            Some((index, steps)) => self
                .health
                .wait(&self.device, Some(index))
                .map_err(|t| (t, steps)),
            None => Ok(()),
        }
    }

    /// Looks at the sentinels of buffers with their guards.
    fn note_overruns(&mut self, plan: &Plan, step: usize, read: &[(BufId, Vec<u32>)]) {
        for (b, words) in read {
            let b = plan.buf(*b);
            let broken = words[b.words()..].iter().position(|w| *w != SENTINEL);
            if let (Some(at), None) = (broken, &self.overrun) {
                self.overrun = Some(format!(
                    "{}: {}: word {at} past the end of {} ({} words) was overwritten",
                    self.found.title(),
                    submit::place(plan, step..step + 1),
                    b.name,
                    b.words()
                ));
            }
        }
    }
}

impl Executor for Wgpu {
    fn load(&mut self, plan: Arc<Plan>) -> Result<ProgramId, ExecError> {
        self.load_plan(plan)
    }

    fn write_state(&mut self, name: &str, words: &[u32]) -> Result<(), ExecError> {
        let slab = &self.states[self.state(name)?];
        same_len(name, words.len(), slab.words as usize)?;
        let buffer = slab.buffer.clone();
        self.write(&buffer, words)
            .map_err(|t| self.failed(t, &format!("while state {name} was written")))
    }

    fn read_state(&mut self, name: &str) -> Result<Vec<u32>, ExecError> {
        let slab = &self.states[self.state(name)?];
        let source = (slab.buffer.clone(), slab.words);
        let mut out = self
            .read(None, &[source])
            .map_err(|t| self.failed(t, &format!("while state {name} was read")))?;
        Ok(out.pop().unwrap_or_default())
    }

    fn write_input(
        &mut self,
        program: ProgramId,
        name: &str,
        words: &[u32],
    ) -> Result<(), ExecError> {
        let b = self.find(program, Class::Input, name)?;
        let plan = &self.programs[program.0].plan;
        same_len(name, words.len(), plan.buf(b).words())?;
        let buffer = self.slab(program.0, b).buffer.clone();
        self.write(&buffer, words)
            .map_err(|t| self.failed(t, &format!("while input {name} was written")))
    }

    fn run(&mut self, program: ProgramId) -> Result<(), ExecError> {
        if self.guards {
            return self.trace(program, &mut |_, _, _| true);
        }
        self.dispatched = 0;
        if let Some(timer) = &mut self.timer {
            timer.clear();
        }
        let begin = Instant::now();
        let run = match self.health.check() {
            Ok(()) => self.run_all(program.0),
            Err(t) => Err((t, 0..0)),
        };
        self.wall_ms = begin.elapsed().as_secs_f64() * 1e3;
        run.map_err(|(t, steps)| self.failed_in(program.0, t, steps))
    }

    fn begin(&mut self, program: ProgramId, outputs: &[&str]) -> Result<Begun, ExecError> {
        self.begin_run(program, outputs)
    }

    fn end(&mut self, begun: Begun) -> Result<Vec<Vec<u32>>, ExecError> {
        match begun {
            Begun::Done(outputs) => Ok(outputs),
            Begun::UnderWay(n) => self.end_run(n),
        }
    }

    fn read_output(&mut self, program: ProgramId, name: &str) -> Result<Vec<u32>, ExecError> {
        let b = self.find(program, Class::Output, name)?;
        let words = self.programs[program.0].plan.buf(b).words() as u64;
        let buffer = self.slab(program.0, b).buffer.clone();
        let mut out = self
            .read(None, &[(buffer, words)])
            .map_err(|t| self.failed(t, &format!("while output {name} was read")))?;
        Ok(out.pop().unwrap_or_default())
    }

    fn trace(&mut self, program: ProgramId, watch: &mut Watch) -> Result<(), ExecError> {
        let plan = self.programs[program.0].plan.clone();
        let extra = if self.guards { GUARD } else { 0 };
        self.dispatched = 0;
        if let Some(timer) = &mut self.timer {
            timer.clear();
        }
        let begin = Instant::now();
        let lose_at = self.lose_at.take();
        for (n, step) in plan.steps.iter().enumerate() {
            let place = || submit::place(&plan, n..n + 1);
            self.health.check().map_err(|t| self.failed(t, &place()))?;
            let encoder = self.encode(program.0, n..n + 1, usize::MAX);
            if lose_at == Some(n) {
                self.device.destroy();
            }
            let sources: Vec<_> = step
                .writes
                .iter()
                .map(|&w| {
                    let words = plan.buf(w).words() as u64 + extra;
                    (self.slab(program.0, w).buffer.clone(), words)
                })
                .collect();
            let read = self
                .read(Some(encoder), &sources)
                .map_err(|t| self.failed(t, &place()))?;
            let mut wrote: Vec<(BufId, Vec<u32>)> = step.writes.iter().copied().zip(read).collect();
            if self.guards {
                self.note_overruns(&plan, n, &wrote);
                for (b, words) in &mut wrote {
                    words.truncate(plan.buf(*b).words());
                }
            }
            if !watch(n, step, &wrote) {
                break;
            }
        }
        self.wall_ms = begin.elapsed().as_secs_f64() * 1e3;
        Ok(())
    }

    fn profile(&mut self, program: ProgramId) -> Result<Vec<StepTime>, ExecError> {
        self.profile_plan(program.0)
    }

    fn choices(&self) -> Vec<Choice> {
        self.choices.values().cloned().collect()
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn info(&self) -> DeviceInfo {
        self.found.info()
    }
}
