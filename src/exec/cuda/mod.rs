//! The CUDA executor: plans on NVIDIA GPUs.
//!
//! Kernels are the WGSL ones, emitted as CUDA C++ ([`emit`]) and compiled at load; equal texts are compiled
//! once. In portable numerics that is all there is, and the bits are the CPU executor's. In fast numerics
//! matrix products are the library's, on tensor cores ([`products`]), and attention's sums are fused.
//!
//! A program is its launches over the addresses of its buffers, one allocation for each slot or state from
//! the stream's pool. Its first run records them as a CUDA graph, which the later ones run as one; where
//! that fails they are launched one by one, and [`Cuda::way`] says why. All of CUDA stands behind
//! [`Driver`].
//!
//! **None of this has run on a GPU by us so far**: no NVIDIA GPU was at hand. What was seen: emitted texts
//! compile for sm_80 and sm_90a with NVRTC (how many, the README says); compiled by the host's C++
//! compiler, with a fiber for each thread of a block, they give the CPU executor's bits; and this executor
//! trains over that emulation.

#[cfg(feature = "cuda")]
pub mod blas;
pub mod driver;
pub mod emit;
#[cfg(feature = "cuda")]
pub mod found;
mod load;
#[cfg(feature = "cuda")]
pub mod nvrtc;
pub mod products;
#[cfg(feature = "cuda")]
mod real;

pub use load::kernel;

use super::{
    Clock, DeviceInfo, ExecError, Executor, Memory, Numerics, Place, ProgramId, StepTime, Watch,
    find, same_len, state, steps_place, wgsl,
};
use crate::plan::{BufId, Class, Plan};
use driver::{Address, Driver, Function, Product, Recording, Trouble};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// What an emitted text is made for: variants for real GPUs. The fences are off, because the emitted
/// operations cannot be fused or reordered anyway.
pub const fn options(numerics: Numerics) -> wgsl::Options {
    wgsl::Options {
        fence: false,
        fused: matches!(numerics, Numerics::Fast),
        software: false,
    }
}

/// One step's work.
enum Work {
    /// An emitted kernel with its argument.
    Kernel {
        function: Function,
        grid: [u32; 3],
        threads: u32,
        argument: Vec<u8>,
    },
    /// The library's products: left operand, right operand and result of each.
    Products(Vec<(Product, [Address; 3])>),
}

/// How a program's launches reach the device.
enum Way {
    /// It has not run yet.
    New,
    /// As one graph.
    Graph(Recording),
    /// One by one, because of this.
    Single(String),
}

struct Loaded {
    plan: Arc<Plan>,
    places: Vec<Place>,
    works: Vec<Work>,
    way: Way,
}

/// An allocation.
struct Slab {
    at: Address,
    words: usize,
}

/// Runs plans on an NVIDIA GPU.
pub struct Cuda {
    driver: Box<dyn Driver>,
    numerics: Numerics,
    functions: HashMap<emit::Kernel, Function>,
    names: HashMap<String, usize>,
    states: Vec<Slab>,
    slots: Vec<Slab>,
    programs: Vec<Loaded>,
    memory: Memory,
}

impl Cuda {
    /// An executor over a device.
    pub fn new(driver: Box<dyn Driver>, numerics: Numerics) -> Cuda {
        Cuda {
            driver,
            numerics,
            functions: HashMap::new(),
            names: HashMap::new(),
            states: vec![],
            slots: vec![],
            programs: vec![],
            memory: Memory::default(),
        }
    }

    /// How a program's launches reach the device: `graph`, or `launch by launch` and why. None before its
    /// first run.
    pub fn way(&self, program: ProgramId) -> Option<String> {
        match &self.programs[program.0].way {
            Way::New => None,
            Way::Graph(_) => Some("graph".into()),
            Way::Single(why) => Some(format!("launch by launch: {why}")),
        }
    }

    fn failed(&self, trouble: &Trouble, place: &str) -> ExecError {
        let hint = match trouble {
            Trouble::Memory => "; take a smaller model, batch or block",
            Trouble::Failed(_) => "",
        };
        let name = &self.driver.facts().name;
        ExecError::Device(format!("{name} (cuda): {trouble} {place}{hint}"))
    }

    fn address(&self, program: usize, b: BufId) -> Address {
        match self.programs[program].places[b.0 as usize] {
            Place::State(i) => self.states[i].at,
            Place::Slot(i) => self.slots[i].at,
        }
    }

    fn enqueue(&mut self, program: usize, steps: Range<usize>) -> driver::Done {
        for n in steps {
            match &self.programs[program].works[n] {
                Work::Kernel {
                    function,
                    grid,
                    threads,
                    argument,
                } => self.driver.launch(*function, *grid, *threads, argument)?,
                Work::Products(list) => {
                    for (product, [a, b, c]) in list {
                        self.driver.multiply(product, *a, *b, *c)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Records a program. What goes wrong here is no failure: it then runs launch by launch.
    fn record(&mut self, program: usize) -> Way {
        let all = 0..self.programs[program].works.len();
        let single = |t: Trouble| Way::Single(t.to_string());
        if let Err(t) = self.driver.begin_recording() {
            return single(t);
        }
        let enqueued = self.enqueue(program, all);
        match (self.driver.end_recording(), enqueued) {
            (Ok(graph), Ok(())) => Way::Graph(graph),
            (Err(t), _) | (_, Err(t)) => single(t),
        }
    }

    fn run_all(&mut self, program: usize) -> driver::Done {
        if matches!(self.programs[program].way, Way::New) {
            self.programs[program].way = self.record(program);
        }
        match self.programs[program].way {
            Way::Graph(graph) => self.driver.run_recording(graph)?,
            _ => self.enqueue(program, 0..self.programs[program].works.len())?,
        }
        self.driver.wait()
    }

    fn read_words(&mut self, at: Address, words: usize) -> driver::Done<Vec<u32>> {
        let mut out = vec![0; words];
        self.driver.read(at, &mut out)?;
        Ok(out)
    }
}

impl Executor for Cuda {
    fn load(&mut self, plan: Arc<Plan>) -> Result<ProgramId, ExecError> {
        self.load_plan(plan)
    }

    fn write_state(&mut self, name: &str, words: &[u32]) -> Result<(), ExecError> {
        let slab = &self.states[state(&self.names, name)?];
        same_len(name, words.len(), slab.words)?;
        let done = self.driver.write(slab.at, words);
        done.map_err(|t| self.failed(&t, &format!("while state {name} was written")))
    }

    fn read_state(&mut self, name: &str) -> Result<Vec<u32>, ExecError> {
        let slab = &self.states[state(&self.names, name)?];
        let (at, words) = (slab.at, slab.words);
        let read = self.read_words(at, words);
        read.map_err(|t| self.failed(&t, &format!("while state {name} was read")))
    }

    fn write_input(
        &mut self,
        program: ProgramId,
        name: &str,
        words: &[u32],
    ) -> Result<(), ExecError> {
        let plan = &self.programs[program.0].plan;
        let b = find(plan, Class::Input, name)?;
        same_len(name, words.len(), plan.buf(b).words())?;
        let done = self.driver.write(self.address(program.0, b), words);
        done.map_err(|t| self.failed(&t, &format!("while input {name} was written")))
    }

    fn run(&mut self, program: ProgramId) -> Result<(), ExecError> {
        let done = self.run_all(program.0);
        done.map_err(|t| {
            let plan = &self.programs[program.0].plan;
            let place = steps_place(plan, 0..plan.steps.len());
            self.failed(&t, &place)
        })
    }

    fn read_output(&mut self, program: ProgramId, name: &str) -> Result<Vec<u32>, ExecError> {
        let plan = &self.programs[program.0].plan;
        let b = find(plan, Class::Output, name)?;
        let words = plan.buf(b).words();
        let read = self.read_words(self.address(program.0, b), words);
        read.map_err(|t| self.failed(&t, &format!("while output {name} was read")))
    }

    fn trace(&mut self, program: ProgramId, watch: &mut Watch) -> Result<(), ExecError> {
        let plan = self.programs[program.0].plan.clone();
        for (n, step) in plan.steps.iter().enumerate() {
            let mut one = || -> driver::Done<Vec<(BufId, Vec<u32>)>> {
                self.enqueue(program.0, n..n + 1)?;
                let mut wrote = Vec::with_capacity(step.writes.len());
                for &w in &step.writes {
                    let at = self.address(program.0, w);
                    wrote.push((w, self.read_words(at, plan.buf(w).words())?));
                }
                Ok(wrote)
            };
            let wrote = one().map_err(|t| self.failed(&t, &steps_place(&plan, n..n + 1)))?;
            if !watch(n, step, &wrote) {
                break;
            }
        }
        Ok(())
    }

    fn profile(&mut self, program: ProgramId) -> Result<Vec<StepTime>, ExecError> {
        let plan = self.programs[program.0].plan.clone();
        let mut out = Vec::with_capacity(plan.steps.len());
        for (n, step) in plan.steps.iter().enumerate() {
            let mut one = || -> driver::Done<f64> {
                let first = self.driver.mark(0)?;
                self.enqueue(program.0, n..n + 1)?;
                let second = self.driver.mark(1)?;
                self.driver.wait()?;
                self.driver.between(first, second)
            };
            let ms = one().map_err(|t| self.failed(&t, &steps_place(&plan, n..n + 1)))?;
            out.push(StepTime {
                ms,
                clock: Clock::Device,
                path: match &self.programs[program.0].works[n] {
                    Work::Kernel { .. } => wgsl::file(step, &plan, options(self.numerics)),
                    Work::Products(_) => "cublaslt",
                },
            });
        }
        Ok(out)
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn info(&self) -> DeviceInfo {
        let facts = self.driver.facts();
        DeviceInfo {
            backend: "cuda".into(),
            name: facts.name.clone(),
            driver: facts.driver.clone(),
            kind: facts.kind.clone(),
            threads: None,
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Whatever it says: there is no one left to tell.
        let _ = self.driver.wait();
        for slab in self.slots.iter().chain(&self.states) {
            self.driver.release(slab.at);
        }
    }
}
