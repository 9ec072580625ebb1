//! The CPU executor: the definition of the bits, and the default where there is no GPU.
//!
//! Threads split outputs, never sums, so their number cannot change a bit. A step's writes are moved out
//! of the storage while it runs, which lets the borrow checker prove that no kernel aliases.

use super::{
    Clock, DeviceInfo, ExecError, Executor, Memory, Numerics, Place, ProgramId, StepTime, Watch,
    find, same_len, state,
};
use crate::kernels::{View, ViewMut, simd};
use crate::passes::memory::share;
use crate::plan::{BufId, Class, Plan};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

struct Loaded {
    plan: Arc<Plan>,
    places: Vec<Place>,
}

/// Runs plans on the CPU's threads.
pub struct Cpu {
    pool: Arc<ThreadPool>,
    numerics: Numerics,
    names: HashMap<String, usize>,
    states: Vec<Vec<u32>>,
    /// Buffers that the programs' slots are mapped to; programs take turns, so they share them.
    slots: Vec<Vec<u32>>,
    programs: Vec<Loaded>,
    memory: Memory,
}

impl Cpu {
    /// An executor on `threads` threads, or on all cores.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn new(threads: Option<usize>) -> Result<Cpu, ExecError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads.unwrap_or(0))
            .build()
            .map_err(|e| {
                ExecError::Device(format!(
                    "cannot start {} threads: {e}",
                    threads.unwrap_or(0)
                ))
            })?;
        Ok(Cpu {
            pool: Arc::new(pool),
            numerics: Numerics::default(),
            names: HashMap::new(),
            states: vec![],
            slots: vec![],
            programs: vec![],
            memory: Memory::default(),
        })
    }

    /// The same executor in another grade of numerics: in `fast`, f32 products are fused with their sums
    /// where the instruction set can (AVX2, AVX-512, NEON).
    pub fn with_numerics(mut self, numerics: Numerics) -> Cpu {
        self.numerics = numerics;
        self
    }

    /// The grade that it was made for.
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    fn place<'a>(&'a self, p: &'a Loaded, b: BufId) -> &'a [u32] {
        let words = p.plan.buf(b).words();
        match p.places[b.0 as usize] {
            Place::State(i) => &self.states[i][..words],
            Place::Slot(i) => &self.slots[i][..words],
        }
    }

    fn storage(&mut self, program: usize, b: BufId) -> &mut Vec<u32> {
        match self.programs[program].places[b.0 as usize] {
            Place::State(i) => &mut self.states[i],
            Place::Slot(i) => &mut self.slots[i],
        }
    }

    fn step(&mut self, program: usize, n: usize) {
        let plan = self.programs[program].plan.clone();
        let step = &plan.steps[n];
        let mut taken: Vec<Vec<u32>> = step
            .writes
            .iter()
            .map(|&w| std::mem::take(self.storage(program, w)))
            .collect();
        let p = &self.programs[program];
        let reads: Vec<View> = step
            .reads
            .iter()
            .map(|&r| {
                let ty = plan.buf(r).ty;
                View {
                    dtype: ty.dtype,
                    row: ty.shape.row(),
                    words: self.place(p, r),
                }
            })
            .collect();
        let mut writes: Vec<ViewMut> = step
            .writes
            .iter()
            .zip(&mut taken)
            .map(|(&w, words)| {
                let b = plan.buf(w);
                ViewMut {
                    dtype: b.ty.dtype,
                    row: b.ty.shape.row(),
                    words: &mut words[..b.words()],
                }
            })
            .collect();
        let fused = self.numerics == Numerics::Fast;
        self.pool.install(|| {
            simd::with_fused(fused, || {
                (step.kernel.cpu)(&step.params, &reads, &mut writes)
            })
        });
        for (&w, words) in step.writes.iter().zip(taken) {
            *self.storage(program, w) = words;
        }
    }

    fn find(&self, program: ProgramId, class: Class, name: &str) -> Result<BufId, ExecError> {
        find(&self.programs[program.0].plan, class, name)
    }

    fn state(&self, name: &str) -> Result<usize, ExecError> {
        state(&self.names, name)
    }
}

/// Memory that the system can still give, in bytes.
pub fn free_memory() -> u64 {
    // A system that tells nothing is not refused: the allocator has the last word there.
    let Ok(mut s) = sysinfo::System::new() else {
        return u64::MAX;
    };
    s.refresh_memory();
    let free = s.available_memory();
    // A container may allow less than the machine has.
    s.cgroup_limits().map_or(free, |c| free.min(c.free_memory))
}

impl Executor for Cpu {
    fn load(&mut self, plan: Arc<Plan>) -> Result<ProgramId, ExecError> {
        let new: u64 = plan
            .states()
            .filter(|b| !self.names.contains_key(&b.name))
            .map(|b| b.words() as u64 * 4)
            .sum();
        let mut pool: Vec<usize> = self.slots.iter().map(Vec::len).collect();
        let map = share(&mut pool, &plan.slots);
        let grown: usize = pool[self.slots.len()..].iter().sum();
        let need = new + grown as u64 * 4;
        let have = free_memory();
        if need > have {
            let what = format!("the {} program", plan.name);
            return Err(ExecError::Memory {
                what,
                device: "this machine".into(),
                need,
                have,
            });
        }
        let mut places = Vec::with_capacity(plan.bufs.len());
        for b in &plan.bufs {
            places.push(if b.class == Class::State {
                let next = self.states.len();
                let i = *self.names.entry(b.name.clone()).or_insert(next);
                if i == next {
                    self.states.push(vec![0; b.words()]);
                }
                same_len(&b.name, b.words(), self.states[i].len())?;
                Place::State(i)
            } else {
                Place::Slot(map[b.slot])
            });
        }
        self.slots
            .extend(pool[self.slots.len()..].iter().map(|&w| vec![0u32; w]));
        self.memory.allocated += need;
        self.memory.peak = self.memory.peak.max(self.memory.allocated);
        self.programs.push(Loaded { plan, places });
        Ok(ProgramId(self.programs.len() - 1))
    }

    fn write_state(&mut self, name: &str, words: &[u32]) -> Result<(), ExecError> {
        let i = self.state(name)?;
        same_len(name, words.len(), self.states[i].len())?;
        self.states[i].copy_from_slice(words);
        Ok(())
    }

    fn read_state(&mut self, name: &str) -> Result<Vec<u32>, ExecError> {
        Ok(self.states[self.state(name)?].clone())
    }

    fn write_input(
        &mut self,
        program: ProgramId,
        name: &str,
        words: &[u32],
    ) -> Result<(), ExecError> {
        let b = self.find(program, Class::Input, name)?;
        same_len(
            name,
            words.len(),
            self.programs[program.0].plan.buf(b).words(),
        )?;
        self.storage(program.0, b)[..words.len()].copy_from_slice(words);
        Ok(())
    }

    fn run(&mut self, program: ProgramId) -> Result<(), ExecError> {
        // One hand-over to the pool for all steps: short steps would spend their time on it.
        let pool = self.pool.clone();
        pool.install(|| {
            (0..self.programs[program.0].plan.steps.len()).for_each(|n| self.step(program.0, n));
        });
        Ok(())
    }

    fn read_output(&mut self, program: ProgramId, name: &str) -> Result<Vec<u32>, ExecError> {
        let b = self.find(program, Class::Output, name)?;
        Ok(self.place(&self.programs[program.0], b).to_vec())
    }

    fn trace(&mut self, program: ProgramId, watch: &mut Watch) -> Result<(), ExecError> {
        let plan = self.programs[program.0].plan.clone();
        for (n, step) in plan.steps.iter().enumerate() {
            self.step(program.0, n);
            let p = &self.programs[program.0];
            let wrote: Vec<_> = step
                .writes
                .iter()
                .map(|&w| (w, self.place(p, w).to_vec()))
                .collect();
            if !watch(n, step, &wrote) {
                break;
            }
        }
        Ok(())
    }

    fn profile(&mut self, program: ProgramId) -> Result<Vec<StepTime>, ExecError> {
        let pool = self.pool.clone();
        let path = simd::isa().name();
        let steps = 0..self.programs[program.0].plan.steps.len();
        let timed = |n| {
            let start = Instant::now();
            self.step(program.0, n);
            StepTime {
                ms: start.elapsed().as_secs_f64() * 1e3,
                clock: Clock::Host,
                path,
            }
        };
        Ok(pool.install(|| steps.map(timed).collect()))
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            backend: "cpu".into(),
            name: std::env::consts::ARCH.into(),
            driver: simd::isa().name().into(),
            kind: "cpu".into(),
            threads: Some(self.pool.current_num_threads()),
        }
    }
}
