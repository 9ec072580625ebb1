//! Loading a plan: texts, kernels, memory, addresses.

use super::driver::{Address, Trouble};
use super::emit::{self, Kernel};
use super::products::{products, split};
use super::{Cuda, Loaded, Slab, Way, Work, options};
use crate::exec::{ExecError, Numerics, Place, ProgramId, grid, same_len, steps_place, wgsl};
use crate::passes::memory::share;
use crate::plan::{Class, Plan, Step};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// Blocks in a dimension of a grid that every device has.
const BLOCKS: u32 = 65_535;

/// A step's emitted kernel.
///
/// # Errors
/// The shader is wrong, or asks for what the emitter does not offer.
pub fn kernel(step: &Step, plan: &Plan, options: wgsl::Options) -> Result<Kernel, String> {
    let shader = wgsl::shader(step, plan, options);
    let (module, info) = wgsl::parse(&shader)?;
    emit::emit(&module, &info, wgsl::data_dependent(step.kernel))
}

/// Bytes of an allocation: whole vectors of four words.
fn bytes_for(words: usize) -> u64 {
    (4 * words as u64).next_multiple_of(16).max(16)
}

/// How a step is to run.
enum Planned {
    Kernel(usize),
    Products,
}

impl Cuda {
    pub(super) fn load_plan(&mut self, plan: Arc<Plan>) -> Result<ProgramId, ExecError> {
        let plan = match self.numerics {
            Numerics::Portable => plan,
            Numerics::Fast => Arc::new(split(&plan)),
        };
        let (kernels, planned) = self.kernels(&plan)?;
        let places = self.allocate(&plan)?;
        let functions = self.build(&plan, &kernels, &planned)?;
        let mut works = Vec::with_capacity(plan.steps.len());
        for (n, how) in planned.iter().enumerate() {
            let made = self.work(&plan, n, how, &places, (&kernels, &functions));
            works.push(made.map_err(|t| self.failed(&t, &steps_place(&plan, n..n + 1)))?);
        }
        self.programs.push(Loaded {
            plan,
            places,
            works,
            way: Way::New,
        });
        Ok(ProgramId(self.programs.len() - 1))
    }

    /// The distinct kernels of a plan, and how each step runs.
    fn kernels(&self, plan: &Plan) -> Result<(Vec<Kernel>, Vec<Planned>), ExecError> {
        let numerics = self.numerics;
        let fast = numerics == Numerics::Fast;
        let emitted: Vec<Option<Result<Kernel, String>>> = plan
            .steps
            .par_iter()
            .map(|s| match fast && products(s, plan).is_some() {
                true => None,
                false => Some(kernel(s, plan, options(numerics))),
            })
            .collect();
        let mut numbers: HashMap<Kernel, usize> = HashMap::new();
        let (mut kernels, mut planned) = (vec![], vec![]);
        for (n, e) in emitted.into_iter().enumerate() {
            let Some(e) = e else {
                planned.push(Planned::Products);
                continue;
            };
            let k = e.map_err(|why| {
                let at = steps_place(plan, n..n + 1);
                ExecError::Device(format!("the kernel {at} has no CUDA text: {why}"))
            })?;
            let number = *numbers.entry(k.clone()).or_insert_with(|| {
                kernels.push(k);
                kernels.len() - 1
            });
            planned.push(Planned::Kernel(number));
        }
        Ok((kernels, planned))
    }

    /// Compiles what is new.
    fn build(
        &mut self,
        plan: &Plan,
        kernels: &[Kernel],
        planned: &[Planned],
    ) -> Result<Vec<super::Function>, ExecError> {
        let new: Vec<Kernel> = (kernels.iter())
            .filter(|k| !self.functions.contains_key(k))
            .cloned()
            .collect();
        let built = self.driver.build(&new).map_err(|(i, t)| {
            let is = |p: &Planned| matches!(p, Planned::Kernel(k) if kernels[*k] == new[i]);
            let n = planned.iter().position(is).unwrap_or(0);
            self.failed(&t, &steps_place(plan, n..n + 1))
        })?;
        self.functions.extend(new.into_iter().zip(built));
        Ok(kernels.iter().map(|k| self.functions[k]).collect())
    }

    /// Memory for what a plan adds: told before anything is allocated, if it does not fit.
    fn allocate(&mut self, plan: &Plan) -> Result<Vec<Place>, ExecError> {
        let mut states: Vec<(&str, usize)> = vec![];
        let mut pool: Vec<usize> = self.slots.iter().map(|s| s.words).collect();
        let map = share(&mut pool, &plan.slots);
        let mut places = Vec::with_capacity(plan.bufs.len());
        for b in &plan.bufs {
            places.push(match (b.class, self.names.get(&b.name)) {
                (Class::State, Some(&i)) => {
                    same_len(&b.name, b.words(), self.states[i].words)?;
                    Place::State(i)
                }
                (Class::State, None) => {
                    states.push((&b.name, b.words()));
                    Place::State(self.states.len() + states.len() - 1)
                }
                _ => Place::Slot(map[b.slot]),
            });
        }
        let slots = &pool[self.slots.len()..];
        let need = slots.iter().chain(states.iter().map(|s| &s.1));
        let need: u64 = need.map(|w| bytes_for(*w)).sum();
        let loading = format!("while program {} was loaded", plan.name);
        let have = self.driver.free_bytes();
        let have = have.map_err(|t| self.failed(&t, &loading))?;
        let refused = |cuda: &Cuda, have| ExecError::Memory {
            what: format!("the {} program", plan.name),
            device: format!("{} (cuda)", cuda.driver.facts().name),
            need,
            have,
        };
        if need > have {
            return Err(refused(self, have));
        }
        let words = slots.iter().copied().chain(states.iter().map(|s| s.1));
        let mut made: Vec<Slab> = vec![];
        for words in words {
            match self.driver.allocate(bytes_for(words)) {
                Ok(at) => made.push(Slab { at, words }),
                Err(t) => {
                    made.iter().for_each(|s| self.driver.release(s.at));
                    return Err(match t {
                        Trouble::Memory => refused(self, have),
                        t => self.failed(&t, &loading),
                    });
                }
            }
        }
        for (name, _) in &states {
            self.names.insert(name.to_string(), self.names.len());
        }
        let new_states = made.split_off(slots.len());
        self.slots.extend(made);
        self.states.extend(new_states);
        self.memory.allocated += need;
        self.memory.peak = self.memory.peak.max(self.memory.allocated);
        Ok(places)
    }

    /// What a step enqueues.
    fn work(
        &mut self,
        plan: &Plan,
        n: usize,
        how: &Planned,
        places: &[Place],
        (kernels, functions): (&[Kernel], &[super::Function]),
    ) -> Result<Work, Trouble> {
        let step = &plan.steps[n];
        let at = |b: crate::plan::BufId| match places[b.0 as usize] {
            Place::State(i) => self.states[i].at,
            Place::Slot(i) => self.slots[i].at,
        };
        let Planned::Kernel(k) = *how else {
            let list = products(step, plan).map_or(vec![], |p| p.0);
            let (a, b, c) = (at(step.reads[0]), at(step.reads[1]), at(step.writes[0]));
            let size = match plan.buf(step.reads[0]).ty.dtype.packed() {
                true => 2,
                false => 4,
            };
            let mut out = Vec::with_capacity(list.len());
            for (product, [first, second, result]) in list {
                self.driver.prepare(&product)?;
                // Column by column, the right operand comes first.
                let places = [
                    Address(b.0 + size * first),
                    Address(a.0 + size * second),
                    Address(c.0 + 4 * result),
                ];
                out.push((product, places));
            }
            return Ok(Work::Products(out));
        };
        let kernel = &kernels[k];
        let buffers: Vec<(u64, u32)> = (step.reads.iter().chain(&step.writes))
            .map(|&b| (at(b).0, plan.buf(b).words() as u32))
            .collect();
        if buffers.len() != kernel.buffers {
            return Err(Trouble::Failed(format!(
                "the kernel binds {} buffers, its step has {}",
                kernel.buffers,
                buffers.len()
            )));
        }
        Ok(Work::Kernel {
            function: functions[k],
            grid: grid(wgsl::workgroups(step, plan, options(self.numerics)), BLOCKS),
            threads: kernel.threads,
            argument: kernel.argument(&buffers, &step.params.words),
        })
    }
}
