//! Executors: they see plans, never graphs.

pub mod cpu;
pub mod cuda;
pub mod wgpu;
pub mod wgsl;

use crate::plan::{BufId, Class, Plan, Step};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// What is promised of the bits.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Numerics {
    /// The CPU executor's bits on every device that passes the probe.
    #[default]
    Portable,
    /// Whatever the device does best: equal bits from run to run on one device, driver and build only.
    Fast,
}

impl Numerics {
    /// Its name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Portable => "portable",
            Numerics::Fast => "fast",
        }
    }
}

impl std::fmt::Display for Numerics {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What goes wrong on a device.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The plan needs more memory than there is.
    #[error("{what} needs {} of memory, {device} has {} free; take a smaller model, batch or block", bytes(*.need), bytes(*.have))]
    Memory {
        /// The program.
        what: String,
        /// The device.
        device: String,
        /// Bytes needed.
        need: u64,
        /// Bytes at hand.
        have: u64,
    },
    /// Anything else: what, where, what to do.
    #[error("{0}")]
    Device(String),
}

/// A number of bytes for people.
pub fn bytes(n: u64) -> String {
    match n {
        0..=1_048_575 => format!("{:.1} KiB", n as f64 / 1024.0),
        1_048_576..=1_073_741_823 => format!("{:.1} MiB", n as f64 / 1048576.0),
        _ => format!("{:.2} GiB", n as f64 / 1073741824.0),
    }
}

/// A loaded program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramId(pub usize);

/// What a device is, for output files and messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// `cpu`, `vulkan`, `gl`, …
    pub backend: String,
    /// The device's own name.
    pub name: String,
    /// Driver name and version, or the instruction set on a CPU.
    pub driver: String,
    /// `cpu`, `software gpu`, `integrated gpu`, `discrete gpu`, …
    pub kind: String,
    /// Threads, on a CPU.
    pub threads: Option<usize>,
}

/// Bytes that an executor has allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Now.
    pub allocated: u64,
    /// Most so far.
    pub peak: u64,
}

/// Whose clock a time was read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The device's timestamps, around its own work alone.
    Device,
    /// The host's clock; on a GPU around submitting a step and waiting for it.
    Host,
}

impl Clock {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Device => "device timestamps",
            Clock::Host => "wall clock",
        }
    }
}

/// The time of one step of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepTime {
    /// Milliseconds.
    pub ms: f64,
    /// Whose.
    pub clock: Clock,
    /// Which code ran it: the shader file on a GPU, the instruction set on the CPU.
    pub path: &'static str,
}

/// Which of a kernel's variants runs at one shape, because of what was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Choice {
    /// Kernel, shape and types.
    pub key: String,
    /// The variant that is taken.
    pub taken: String,
    /// Microseconds of each variant, the one first that would run without measurements.
    pub times: Vec<(String, f64)>,
}

/// A run that was begun, whose outputs are to come.
#[derive(Debug)]
pub enum Begun {
    /// It is done: its outputs.
    Done(Vec<Vec<u32>>),
    /// It goes on by itself; the executor's own number of it.
    UnderWay(u64),
}

/// Called by [`Executor::trace`] after each step with its number, the step and what it wrote; returns
/// whether to go on.
pub type Watch<'a> = dyn FnMut(usize, &Step, &[(BufId, Vec<u32>)]) -> bool + 'a;

/// A device that runs plans. States are shared by all loaded plans, by name. Programs take turns on the
/// same memory: inputs are written before each run, and outputs read before another program runs or is
/// written to. Buffers are in 32-bit words.
pub trait Executor {
    /// Allocates a plan's buffers and, where they are new, its states (zeroed).
    ///
    /// # Errors
    /// Not enough memory or a limit of the device, told before anything is allocated.
    fn load(&mut self, plan: Arc<Plan>) -> Result<ProgramId, ExecError>;
    /// Writes a state.
    ///
    /// # Errors
    /// No such state, or another length.
    fn write_state(&mut self, name: &str, words: &[u32]) -> Result<(), ExecError>;
    /// Reads a state.
    ///
    /// # Errors
    /// No such state.
    fn read_state(&mut self, name: &str) -> Result<Vec<u32>, ExecError>;
    /// Writes an input of a program.
    ///
    /// # Errors
    /// No such input, or another length.
    fn write_input(
        &mut self,
        program: ProgramId,
        name: &str,
        words: &[u32],
    ) -> Result<(), ExecError>;
    /// Runs a program once.
    ///
    /// # Errors
    /// The device failed.
    fn run(&mut self, program: ProgramId) -> Result<(), ExecError>;
    /// Begins a run of a program whose `outputs` are wanted; it may go on after this returns. What is asked
    /// of the executor afterwards happens after the run, and leaves its outputs alone.
    ///
    /// # Errors
    /// The device failed, or there is no such output.
    fn begin(&mut self, program: ProgramId, outputs: &[&str]) -> Result<Begun, ExecError> {
        self.run(program)?;
        let read = outputs.iter().map(|name| self.read_output(program, name));
        Ok(Begun::Done(read.collect::<Result<_, _>>()?))
    }
    /// Waits for a run that was begun; returns its outputs in their order. Runs end in the order in which
    /// they were begun.
    ///
    /// # Errors
    /// The device failed.
    fn end(&mut self, begun: Begun) -> Result<Vec<Vec<u32>>, ExecError> {
        match begun {
            Begun::Done(outputs) => Ok(outputs),
            Begun::UnderWay(_) => Err(ExecError::Device("no such run was begun".into())),
        }
    }
    /// Reads an output of a program's last run.
    ///
    /// # Errors
    /// No such output, or the device failed.
    fn read_output(&mut self, program: ProgramId, name: &str) -> Result<Vec<u32>, ExecError>;
    /// Runs a program step by step under a watch.
    ///
    /// # Errors
    /// The device failed.
    fn trace(&mut self, program: ProgramId, watch: &mut Watch) -> Result<(), ExecError>;
    /// Runs a program once, as [`Executor::run`] does, and times each of its steps, in their order. Steps
    /// are kept apart for that, so the whole takes longer than a plain run.
    ///
    /// # Errors
    /// The device failed.
    fn profile(&mut self, program: ProgramId) -> Result<Vec<StepTime>, ExecError>;
    /// The choices that were made by measurement, now or in an earlier run, for the programs loaded.
    fn choices(&self) -> Vec<Choice> {
        vec![]
    }
    /// Bytes allocated.
    fn memory(&self) -> Memory;
    /// What the device is.
    fn info(&self) -> DeviceInfo;
}

/// Fails unless a host slice has a buffer's length.
pub(crate) fn same_len(what: &str, have: usize, want: usize) -> Result<(), ExecError> {
    if have == want {
        return Ok(());
    }
    Err(ExecError::Device(format!(
        "{what} has {want} words, {have} were given"
    )))
}

/// Where a plan's buffer lives in an executor.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    State(usize),
    Slot(usize),
}

/// The buffer of a class with a name.
pub(crate) fn find(plan: &Plan, class: Class, name: &str) -> Result<BufId, ExecError> {
    let missing = || format!("program {} has no {class:?} named {name}", plan.name);
    plan.find(class, name)
        .ok_or_else(|| ExecError::Device(missing()))
}

/// The number of a state.
pub(crate) fn state(names: &HashMap<String, usize>, name: &str) -> Result<usize, ExecError> {
    let missing = || format!("there is no state named {name}");
    names
        .get(name)
        .copied()
        .ok_or_else(|| ExecError::Device(missing()))
}

/// The launch of `n` workgroups: one dimension while that reaches, then two of nearly equal use.
/// Shaders count workgroups as `id.x + id.y * count.x`; surplus ones exit.
pub(crate) fn grid(n: u64, most: u32) -> [u32; 3] {
    let most = most as u64;
    if n <= most {
        return [n as u32, 1, 1];
    }
    let rows = n.div_ceil(most);
    [n.div_ceil(rows) as u32, rows as u32, 1]
}

/// The steps of a range, for an error: one of them failed.
pub(crate) fn steps_place(plan: &Plan, steps: Range<usize>) -> String {
    let Some(s) = plan.steps.get(steps.start) else {
        return format!("in program {}", plan.name);
    };
    let first = format!("step {} ({}, {})", steps.start, s.kernel.name, s.label);
    match (steps.len(), plan.steps.get(steps.end.wrapping_sub(1))) {
        (2.., Some(last)) => format!(
            "in program {} at {first} or one of the next {}, up to step {} ({}, {})",
            plan.name,
            steps.len() - 1,
            steps.end - 1,
            last.kernel.name,
            last.label
        ),
        _ => format!("in program {} at {first}", plan.name),
    }
}

/// A message in one line: those of wgpu and naga are trees over several, the innermost cause last.
pub(crate) fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && *l != "Validation Error" && *l != "Caused by:")
        .collect();
    lines.join(": ")
}
