//! The probe's own kernels and plans. They are no part of any training plan.

use super::facts;
use super::micro::{self, File, Micro, Triple};
use crate::dtype::DType;
use crate::graph::Type;
use crate::kernels::{Host, KernelDef, Params, View, ViewMut, read_u32, write_u32};
use crate::plan::{Buf, BufId, Class, Plan, Step};

static ARITHMETIC: KernelDef = KernelDef {
    name: "probe_arithmetic",
    bindings: &[read_u32("x"), write_u32("out")],
    host: Host::No,
    cpu: |p, reads, writes| records(p, reads, writes, |op, t| micro_cpu(File::Arithmetic, op, t)),
};

static FUNCTIONS: KernelDef = KernelDef {
    name: "probe_functions",
    bindings: &[read_u32("x"), write_u32("out")],
    host: Host::No,
    cpu: |p, reads, writes| records(p, reads, writes, |op, t| micro_cpu(File::Functions, op, t)),
};

static FACTS: KernelDef = KernelDef {
    name: "probe_facts",
    bindings: &[read_u32("x"), write_u32("out")],
    host: Host::No,
    cpu: |p, reads, writes| records(p, reads, writes, fact_cpu),
};

static HALVES: KernelDef = KernelDef {
    name: "probe_halves",
    bindings: &[read_u32("x"), write_u32("out")],
    host: Host::No,
    cpu: |p, reads, writes| records(p, reads, writes, fact_cpu),
};

static WORKGROUP: KernelDef = KernelDef {
    name: "probe_workgroup",
    bindings: &[read_u32("x"), write_u32("out")],
    host: Host::No,
    cpu: workgroup,
};

/// Blocks of 64 numbers of the workgroup's tree.
pub const BLOCKS: usize = 64;

/// Runs (operation, a, b, c) after (operation, a, b, c).
fn records(_: &Params, reads: &[View], writes: &mut [ViewMut], one: impl Fn(u32, Triple) -> u32) {
    let records = reads[0].words.chunks_exact(4);
    for (out, r) in writes[0].words.iter_mut().zip(records) {
        *out = one(r[0], [r[1], r[2], r[3]]);
    }
}

fn micro_cpu(file: File, op: u32, t: Triple) -> u32 {
    let row = micro::TABLE.iter().find(|m| m.file == file && m.op == op);
    row.map_or(0, |m| (m.cpu)(t))
}

fn fact_cpu(op: u32, t: Triple) -> u32 {
    let row = facts::TABLE.iter().find(|m| m.op == op);
    row.map_or(0, |m| (m.cpu)(t))
}

/// The halving tree; the second half of the blocks in another order.
fn workgroup(_: &Params, reads: &[View], writes: &mut [ViewMut]) {
    for (b, out) in writes[0].words.iter_mut().enumerate() {
        let x = &reads[0].words[64 * (b % BLOCKS)..][..64];
        let at = |i: usize| x[if b < BLOCKS { i } else { i / 2 + 32 * (i % 2) }];
        let mut part: [f32; 64] = std::array::from_fn(|i| f32::from_bits(at(i)));
        let mut half = 32;
        while half > 0 {
            (0..half).for_each(|i| part[i] += part[i + half]);
            half /= 2;
        }
        *out = part[0].to_bits();
    }
}

/// What the tree must give, by f64 sums rounded once.
pub fn workgroup_want(x: &[u32]) -> Vec<u32> {
    let trees = x.chunks_exact(64).map(|x| {
        let mut part: Vec<f64> = x.iter().map(|&u| f32::from_bits(u) as f64).collect();
        while part.len() > 1 {
            let half = part.len() / 2;
            let sum = |i: usize| (part[i] + part[i + half]) as f32 as f64;
            part = (0..half).map(sum).collect();
        }
        (part[0] as f32).to_bits()
    });
    trees.collect()
}

/// A plan of one kernel step each: input `name` of records, output `name.out`.
struct Builder(Plan);

impl Builder {
    fn new(name: &str) -> Builder {
        let name = name.into();
        Builder(Plan {
            name,
            ..Plan::default()
        })
    }

    fn step(
        &mut self,
        name: &str,
        kernel: &'static KernelDef,
        words: usize,
        outs: usize,
        n: usize,
    ) {
        let plan = &mut self.0;
        let mut buf = |name: String, words: usize, class| {
            let slot = plan.slots.len();
            let ty = Type::new(&[words], DType::U32);
            plan.bufs.push(Buf {
                name,
                ty,
                class,
                slot,
            });
            plan.slots.push(words);
            BufId(slot as u32)
        };
        let x = buf(name.into(), words, Class::Input);
        let out = buf(format!("{name}.out"), outs, Class::Output);
        plan.steps.push(Step {
            kernel,
            params: Params::new(&[n as u32]),
            reads: vec![x],
            writes: vec![out],
            label: name.into(),
            origin: Default::default(),
        });
    }

    fn done(mut self) -> Plan {
        self.0.seal();
        self.0
    }
}

fn input(records: impl Iterator<Item = (u32, Triple)>) -> Vec<u32> {
    records.flat_map(|(op, [a, b, c])| [op, a, b, c]).collect()
}

/// A plan, its inputs by name, and nothing else.
pub type Task = (Plan, Vec<(String, Vec<u32>)>);

fn of_file(file: File) -> impl Iterator<Item = &'static Micro> {
    micro::TABLE.iter().filter(move |m| m.file == file)
}

/// Records of a file's rows, one row after the other.
fn rows(file: File) -> Vec<u32> {
    input(of_file(file).flat_map(|m| (m.vectors)().into_iter().map(|t| (m.op, t))))
}

/// The arithmetic rows alone: for the runs with less protection.
pub fn arithmetic() -> Task {
    let x = rows(File::Arithmetic);
    let mut b = Builder::new("probe-arithmetic");
    b.step("arithmetic", &ARITHMETIC, x.len(), x.len() / 4, x.len() / 4);
    (b.done(), vec![("arithmetic".into(), x)])
}

/// All micro-kernels.
pub fn micro() -> Task {
    let (x, y) = (rows(File::Arithmetic), rows(File::Functions));
    let mut b = Builder::new("probe");
    b.step("arithmetic", &ARITHMETIC, x.len(), x.len() / 4, x.len() / 4);
    b.step("functions", &FUNCTIONS, y.len(), y.len() / 4, y.len() / 4);
    let z = super::vectors::tree(64 * BLOCKS);
    b.step("workgroup", &WORKGROUP, z.len(), 2 * BLOCKS, BLOCKS);
    let inputs = [("arithmetic", x), ("functions", y), ("workgroup", z)];
    (b.done(), inputs.map(|(n, x)| (n.to_string(), x)).into())
}

/// The facts; with `halves` those of the built-in fp16 conversions, which not every device offers.
pub fn facts(halves: bool) -> Task {
    let some = facts::TABLE.iter().filter(|t| t.halves() == halves);
    let x = input(some.flat_map(|t| t.vectors.iter().map(|v| (t.op, *v))));
    let kernel = if halves { &HALVES } else { &FACTS };
    let mut b = Builder::new("probe-facts");
    b.step("facts", kernel, x.len(), x.len() / 4, x.len() / 4);
    (b.done(), vec![("facts".into(), x)])
}
