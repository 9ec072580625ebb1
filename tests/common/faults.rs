//! A CPU executor with faults: what `check` must find.
#![allow(dead_code)] // each test uses a part of it

use isobit::dtype::DType;
use isobit::exec::cpu::Cpu;
use isobit::exec::{DeviceInfo, ExecError, Executor, Memory, ProgramId, StepTime, Watch};
use isobit::graph::Type;
use isobit::kernels::{Host, KernelDef, Params, View, ViewMut, gemm, read_u32, update};
use isobit::plan::{Buf, BufId, Class, Plan, Step};
use std::sync::Arc;

/// One bit of one word that one operation writes is flipped at one training step.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The training step, from 1.
    pub step: usize,
    /// The operation's number in the plan.
    pub op: usize,
    /// Which of its writes.
    pub write: usize,
    /// The word.
    pub word: usize,
    /// The bits to flip; 1 is one unit in the last place.
    pub bits: u32,
    /// Whether it comes every time that the step is taken, or only the first time.
    pub every_time: bool,
}

impl Fault {
    pub fn ulp(step: usize, op: usize, word: usize) -> Fault {
        Fault {
            step,
            op,
            write: 0,
            word,
            bits: 1,
            every_time: true,
        }
    }
}

static FLIP: KernelDef = KernelDef {
    name: "flip",
    bindings: &[read_u32("armed"), update("x")],
    host: Host::No,
    cpu: |p, reads, writes| {
        if reads[0].words[0] == 1 {
            writes[0].words[p.at(0)] ^= p.words[2];
        }
    },
};

/// The CPU executor, with faults and with an edit of each plan.
pub struct Faulty {
    inner: Cpu,
    faults: Vec<Fault>,
    edit: fn(&mut Plan),
    /// The optimizer's scalars of each training step so far: they tell steps apart.
    seen: Vec<Vec<u32>>,
}

impl Faulty {
    pub fn new(faults: &[Fault]) -> Faulty {
        let mut faults = faults.to_vec();
        faults.sort_by_key(|f| f.op);
        Faulty {
            inner: Cpu::new(Some(2)).expect("threads"),
            faults,
            edit: |_| {},
            seen: vec![],
        }
    }

    pub fn edited(edit: fn(&mut Plan)) -> Faulty {
        Faulty {
            edit,
            ..Faulty::new(&[])
        }
    }
}

fn armed(i: usize) -> String {
    format!("armed.{i}")
}

impl Executor for Faulty {
    /// Each fault is a step of its own, right behind its operation.
    fn load(&mut self, plan: Arc<Plan>) -> Result<ProgramId, ExecError> {
        let mut plan = (*plan).clone();
        (self.edit)(&mut plan);
        for (i, f) in self.faults.iter().enumerate().rev() {
            let x = plan.steps[f.op].writes[f.write];
            let switch = BufId(plan.bufs.len() as u32);
            plan.bufs.push(Buf {
                name: armed(i),
                ty: Type::new(&[1], DType::U32),
                class: Class::Input,
                slot: plan.slots.len(),
            });
            plan.slots.push(1);
            let step = Step {
                kernel: &FLIP,
                params: Params::new(&[f.word as u32, f.bits]),
                reads: vec![switch],
                writes: vec![x],
                label: "a fault".into(),
                origin: Default::default(),
            };
            plan.steps.insert(f.op + 1, step);
        }
        plan.check().expect("a sound plan");
        self.inner.load(Arc::new(plan))
    }

    fn write_state(&mut self, name: &str, words: &[u32]) -> Result<(), ExecError> {
        self.inner.write_state(name, words)
    }

    fn read_state(&mut self, name: &str) -> Result<Vec<u32>, ExecError> {
        self.inner.read_state(name)
    }

    fn write_input(&mut self, p: ProgramId, name: &str, words: &[u32]) -> Result<(), ExecError> {
        if name == "hyper" {
            let known = self.seen.iter().position(|s| s == words);
            let step = known.unwrap_or(self.seen.len()) + 1;
            if known.is_none() {
                self.seen.push(words.to_vec());
            }
            for (i, f) in self.faults.iter().enumerate() {
                let on = f.step == step && (f.every_time || known.is_none());
                self.inner.write_input(p, &armed(i), &[on as u32])?;
            }
        }
        self.inner.write_input(p, name, words)
    }

    fn run(&mut self, p: ProgramId) -> Result<(), ExecError> {
        self.inner.run(p)
    }

    fn read_output(&mut self, p: ProgramId, name: &str) -> Result<Vec<u32>, ExecError> {
        self.inner.read_output(p, name)
    }

    /// As if there were no fault steps: an operation is told of with what stands after its faults.
    fn trace(&mut self, p: ProgramId, watch: &mut Watch) -> Result<(), ExecError> {
        type Told = (usize, Step, Vec<(BufId, Vec<u32>)>);
        let mut all: Vec<Told> = Vec::new();
        self.inner.trace(p, &mut |_, step, wrote| {
            if step.kernel.name == FLIP.name {
                let last = &mut all.last_mut().expect("a fault follows its operation").2;
                let there = last.iter_mut().find(|w| w.0 == wrote[0].0);
                there.expect("its buffer").1 = wrote[0].1.clone();
            } else {
                all.push((all.len(), step.clone(), wrote.to_vec()));
            }
            true
        })?;
        for (n, step, wrote) in &all {
            if !watch(*n, step, wrote) {
                break;
            }
        }
        Ok(())
    }

    fn profile(&mut self, p: ProgramId) -> Result<Vec<StepTime>, ExecError> {
        self.inner.profile(p)
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
}

/// The matrix product that folds k from its end to its beginning.
pub static BACKWARD_GEMM: KernelDef = KernelDef {
    name: "gemm",
    bindings: gemm::GEMM.bindings,
    host: gemm::GEMM.host,
    cpu: backward,
};

fn backward(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let [m, n, k] = [0, 1, 2].map(|i| p.at(i));
    // x[rows, cols] with its rows, or the elements of each row, in reverse.
    let turn = |v: &View, rows: usize, cols: usize, by_row: bool| -> Vec<u32> {
        assert_eq!(v.words.len(), rows * cols, "f32, one matrix");
        let at = |r: usize, c: usize| match by_row {
            true => v.words[(rows - 1 - r) * cols + c],
            false => v.words[r * cols + cols - 1 - c],
        };
        (0..rows * cols).map(|i| at(i / cols, i % cols)).collect()
    };
    let (ta, tb) = (p.spec("TA") == 1, p.spec("TB") == 1);
    let a = if ta {
        turn(&reads[0], k, m, true)
    } else {
        turn(&reads[0], m, k, false)
    };
    let b = if tb {
        turn(&reads[1], n, k, false)
    } else {
        turn(&reads[1], k, n, true)
    };
    let mut turned = reads.to_vec();
    (turned[0].words, turned[1].words) = (&a, &b);
    (gemm::GEMM.cpu)(p, &turned, writes);
}
