//! Rows of the operation table, filled with numbers and run.

use isobit::dtype::DType;
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::graph::eval::Tensor;
use isobit::graph::{Graph, Program, Tx};
use isobit::kernels::rng::Stream;
use isobit::ops::{self, Case, Fill};
use isobit::passes::compile;
use isobit::plan::Plan;
use std::sync::Arc;

/// Every row of the table.
pub fn all_cases() -> Vec<Case> {
    let mut out: Vec<Case> = ops::all().iter().flat_map(|d| (d.cases)()).collect();
    out.extend(ops::pointwise::cases());
    out
}

/// A row with its operands' values.
pub struct Filled {
    case: Case,
    /// Values in f32 (ids as numbers).
    pub values: Vec<Vec<f32>>,
}

impl Filled {
    pub fn new(case: &Case, seed: u64) -> Filled {
        let fill = |i: usize, n: usize, f: Fill| {
            let mut s = Stream::new(seed, i as u32);
            (0..n)
                .map(|k| match f {
                    Fill::Normal(scale) => (s.normal() * scale) as f32,
                    Fill::Uniform(a, b) => (a + (b - a) * s.unit()) as f32,
                    Fill::Ids(bound) => s.below(bound as u64) as f32,
                    Fill::Ascending(a, step) => (a + step * k as f64) as f32,
                })
                .collect()
        };
        let values = case
            .src
            .iter()
            .enumerate()
            .map(|(i, (ty, f))| fill(i, ty.shape.elems(), *f))
            .collect();
        let mut out = Filled {
            case: case.clone(),
            values,
        };
        out.round();
        out
    }

    /// Narrow operands hold narrow values.
    fn round(&mut self) {
        for (v, (ty, _)) in self.values.iter_mut().zip(&self.case.src) {
            v.iter_mut().for_each(|x| *x = ty.dtype.round(*x));
        }
    }

    /// Replaces some elements by what devices treat differently: subnormals, values around the floors,
    /// zeros of both signs, large values.
    pub fn roughen(&mut self) {
        const ROUGH: [u32; 12] = [
            0x0000_0001,
            0x8000_0001,
            0x007f_ffff,
            0x0080_0000,
            0x00ff_ffff,
            0x0100_0000,
            0x8000_0000,
            0x2600_0000,
            0x25ff_ffff,
            0x0c80_0000,
            0x0c7f_ffff,
            0x4b00_0001,
        ];
        for (v, (ty, fill)) in self.values.iter_mut().zip(&self.case.src) {
            if ty.dtype.is_float() && !matches!(fill, Fill::Ids(_) | Fill::Ascending(..)) {
                for (k, x) in v.iter_mut().enumerate().filter(|(k, _)| k % 5 == 3) {
                    *x = f32::from_bits(ROUGH[(k / 5) % ROUGH.len()]);
                    if ty.dtype == DType::F16 {
                        *x = x.min(65504.0);
                    }
                }
            }
        }
        self.round();
    }

    /// The operation on states `x0`, `x1`, …
    pub fn build<'g>(&self, g: &'g Graph) -> Tx<'g> {
        let src: Vec<Tx> = self
            .case
            .src
            .iter()
            .enumerate()
            .map(|(i, (ty, _))| g.state(&format!("x{i}"), *ty))
            .collect();
        g.tx(g.add(
            self.case.op.clone(),
            &src.iter().map(|t| t.id).collect::<Vec<_>>(),
        ))
    }

    pub fn f64(&self) -> Vec<Tensor> {
        let each = self.case.src.iter().zip(&self.values);
        each.map(|((ty, _), v)| Tensor::new(ty.shape, v.iter().map(|&x| x as f64).collect()))
            .collect()
    }

    /// (operand number, node) of the operands that have a gradient.
    pub fn float_operands<'g>(&self, g: &'g Graph) -> Vec<(usize, Tx<'g>)> {
        let states = g.states();
        (0..self.case.src.len())
            .filter(|&i| {
                self.case.src[i].0.dtype.is_float() && !matches!(self.case.src[i].1, Fill::Ids(_))
            })
            .map(|i| {
                let index = states
                    .iter()
                    .position(|s| s.name == format!("x{i}"))
                    .expect("declared");
                (i, g.tx(g.add(ops::Op::State(index as u32), &[])))
            })
            .collect()
    }

    /// The plan that computes the operation into the output `y`.
    pub fn plan(&self) -> Plan {
        let graph = Graph::new();
        let y = self.build(&graph).id;
        compile(
            "case",
            Program {
                graph,
                outputs: vec![("y".into(), y)],
                updates: vec![],
            },
        )
        .expect("compiles")
    }

    /// The operands' words.
    pub fn words(&self, i: usize) -> Vec<u32> {
        let ty = self.case.src[i].0;
        if ty.dtype == DType::U32 {
            return self.values[i].iter().map(|&v| v as u32).collect();
        }
        ty.dtype.pack(ty.shape.row(), &self.values[i])
    }

    /// Loads a plan, writes the operands.
    pub fn load(&self, exec: &mut dyn Executor, plan: Plan) -> isobit::exec::ProgramId {
        let used: Vec<String> = plan.states().map(|b| b.name.clone()).collect();
        let id = exec.load(Arc::new(plan)).expect("loads");
        for i in 0..self.values.len() {
            let name = format!("x{i}");
            if used.contains(&name) {
                exec.write_state(&name, &self.words(i)).expect("written");
            }
        }
        id
    }
}

fn numbers(case: &Case, words: Vec<u32>) -> Vec<f64> {
    let g = Graph::new();
    let ty = Filled::new(case, 0).build(&g).ty();
    if ty.dtype == DType::U32 {
        return words.into_iter().map(|w| w as f64).collect();
    }
    ty.dtype
        .unpack(ty.shape.row(), &words)
        .into_iter()
        .map(|v| v as f64)
        .collect()
}

fn run(case: &Case, filled: &Filled, plan: Plan) -> Vec<f64> {
    let mut cpu = Cpu::new(Some(2)).expect("two threads");
    let id = filled.load(&mut cpu, plan);
    cpu.run(id).expect("runs");
    numbers(case, cpu.read_output(id, "y").expect("an output"))
}

/// The row on the CPU executor.
pub fn run_cpu(case: &Case, filled: &Filled) -> Vec<f64> {
    run(case, filled, filled.plan())
}

/// The row with one constant of one kernel changed at a time: (kernel, result). Constants are the float
/// words of the uniform block and the constants of expressions.
pub fn run_cpu_perturbed(case: &Case, filled: &Filled) -> Vec<(&'static str, Vec<f64>)> {
    let mut out = Vec::new();
    let plan = filled.plan();
    for (n, step) in plan.steps.iter().enumerate() {
        let floats: &[usize] = match step.kernel.name {
            "norm_fwd" | "norm_stats" | "norm_dx" => &[3],
            "attention" | "attention_grad" => &[5],
            _ => &[],
        };
        for &w in floats {
            let mut plan = plan.clone();
            let word = &mut plan.steps[n].params.words[w];
            *word = (f32::from_bits(*word) * 1.1).to_bits();
            out.push((step.kernel.name, run(case, filled, plan)));
        }
        if let Some(expr) = &step.params.expr {
            for (k, other) in isobit::kernels::pointwise::TABLE.iter().enumerate() {
                // Another operation of the same arity in the place of the first one.
                let mut expr = (**expr).clone();
                if k > 3
                    || expr.code.is_empty()
                    || expr.code[0].op == other.0
                    || expr.code[0].op.arity() != other.2
                {
                    continue;
                }
                expr.code[0].op = other.0;
                let mut plan = plan.clone();
                plan.steps[n].params.expr = Some(Arc::new(expr));
                out.push((step.kernel.name, run(case, filled, plan)));
            }
        }
    }
    out
}
