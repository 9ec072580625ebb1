//! The probe: some sixty small rows that establish what a device does, against constants computed on
//! the CPU.
//!
//! * Micro-kernels ([`micro`]): roundings, fences, floors, integers, the project's functions. They run
//!   as shipped; their arithmetic half runs once more with the fence alone (where there is a belt) and
//!   once with neither, which shows what fence and belt do on this device.
//! * Production kernels ([`production`]), in the variants that the device is given.
//! * Controls: rows that compute something else on purpose. One that does not differ means a blind probe.
//! * Facts ([`facts`]): what the device does where nothing holds it. They decide nothing.
//!
//! Everything is a few plans of a few launches, so that the whole takes a second or two.

mod facts;
mod kernels;
mod micro;
mod production;
mod vectors;

use super::passport::{Device, Difference, FactLine, Kind, Passport, Row};
use crate::exec::cpu::Cpu;
use crate::exec::wgpu::adapter;
use crate::exec::wgpu::{Tuning, Wgpu};
use crate::exec::{ExecError, Executor};
use crate::kernels::digest;
use kernels::Task;
use micro::File;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// For tests of the refusal: names a row whose first answer is then falsified. A passport under it says
/// so and is never kept.
pub const FAULT: &str = "ISOBIT_PROBE_FAULT";

/// What is probed.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The CPU executor, on so many threads.
    Cpu(Option<usize>),
    /// A device.
    Gpu(&'a adapter::Found),
    /// Any other executor, in portable numerics.
    Other(&'a Open<'a>),
}

/// Opens an executor.
pub type Open<'a> = dyn Fn() -> Result<Box<dyn Executor>, ExecError> + 'a;

/// The probe's plans, for tests that walk shaders.
///
/// # Panics
/// If the program violates its own invariants.
pub fn plans() -> Vec<crate::plan::Plan> {
    let production = (0..production::PARTS).map(|p| production::task(p).expect("compiles"));
    let own = [
        kernels::micro(),
        kernels::facts(false),
        kernels::facts(true),
    ];
    own.into_iter().chain(production).map(|t| t.0).collect()
}

/// Answers by output.
type Answers = HashMap<String, Vec<u32>>;

/// Probes a device.
///
/// # Errors
/// The device failed.
pub fn probe(target: Target) -> Result<Passport, ExecError> {
    let start = Instant::now();
    let mut tasks = Vec::with_capacity(production::PARTS);
    for part in 0..production::PARTS {
        tasks.push(production::task(part).map_err(ExecError::Device)?);
    }
    let mut one = Cpu::new(Some(1))?;
    let want: Result<Vec<_>, _> = tasks.iter().map(|t| run(&mut one, t)).collect();
    let found = match target {
        Target::Cpu(threads) => on_one(&mut Cpu::new(threads)?, &tasks)?,
        Target::Other(open) => on_one(open()?.as_mut(), &tasks)?,
        Target::Gpu(found) => on_gpu(found, &tasks)?,
    };
    let mut seen = Seen {
        rows: vec![],
        words: vec![],
    };
    seen.take(&found, &want?);
    let Found { device, facts, .. } = found;
    let mut passport = Passport::new(device, seen.rows, facts, digest_of(&seen.words));
    passport.ms = start.elapsed().as_secs_f64() * 1e3;
    passport.fault = std::env::var(FAULT).ok();
    Ok(passport)
}

/// What a device answers.
struct Found {
    device: Device,
    /// The micro-kernels as shipped.
    micro: Answers,
    /// Their arithmetic with less protection, and how.
    less: Vec<(&'static str, Answers)>,
    /// The production kernels, part by part.
    production: Vec<Answers>,
    facts: Vec<FactLine>,
}

/// An executor that has nothing to switch off.
fn on_one(exec: &mut dyn Executor, tasks: &[Task]) -> Result<Found, ExecError> {
    Ok(Found {
        device: Device::of(&exec.info(), None),
        micro: run(exec, &kernels::micro())?,
        less: vec![],
        production: tasks
            .iter()
            .map(|t| run(exec, t))
            .collect::<Result<_, _>>()?,
        facts: ask(exec)?,
    })
}

/// Two executors work side by side, because drivers compile on one thread each.
fn on_gpu(found: &adapter::Found, tasks: &[Task]) -> Result<Found, ExecError> {
    let open = |belt, fence| Wgpu::new(found, Tuning { belt, fence });
    let (rest, attention) = (&tasks[0], &tasks[1]);
    std::thread::scope(|scope| {
        let beside = scope.spawn(move || {
            // On GL, two devices of one listing would share a context.
            let again = found
                .again()
                .ok_or_else(|| ExecError::Device(format!("{} is gone", found.title())))?;
            run(&mut Wgpu::new(&again, Tuning::default())?, attention)
        });
        let mut gpu = open(true, true)?;
        let micro = run(&mut gpu, &kernels::micro())?;
        let made = run(&mut gpu, rest)?;
        let belt = gpu.has_belt();
        let device = Device::of(&gpu.info(), Some(belt));
        drop(gpu);
        let arithmetic = kernels::arithmetic();
        let mut less = Vec::new();
        if belt {
            less.push(("fence alone", run(&mut open(false, true)?, &arithmetic)?));
        }
        let mut bare = open(false, false)?;
        less.push(("neither", run(&mut bare, &arithmetic)?));
        let facts = ask(&mut bare)?;
        let attention = beside
            .join()
            .map_err(|_| ExecError::Device("the probe's second thread failed".into()))??;
        Ok(Found {
            device,
            micro,
            less,
            production: vec![made, attention],
            facts,
        })
    })
}

fn run(exec: &mut dyn Executor, (plan, inputs): &Task) -> Result<Answers, ExecError> {
    let plan = Arc::new(plan.clone());
    let id = exec.load(plan.clone())?;
    for (name, words) in inputs {
        exec.write_input(id, name, words)?;
    }
    exec.run(id)?;
    let outputs = plan
        .bufs
        .iter()
        .filter(|b| b.class == crate::plan::Class::Output);
    outputs
        .map(|b| Ok((b.name.clone(), exec.read_output(id, &b.name)?)))
        .collect()
}

/// Rows as they come in.
struct Seen {
    rows: Vec<Row>,
    /// Answers of the rows that decide, one after the other.
    words: Vec<u32>,
}

impl Seen {
    /// Compares what a device answered; `want` are the production kernels on one thread of the CPU.
    fn take(&mut self, found: &Found, want: &[Answers]) {
        let have = &found.micro;
        for file in [File::Arithmetic, File::Functions] {
            let name = match file {
                File::Arithmetic => "arithmetic.out",
                File::Functions => "functions.out",
            };
            let mut at = 0;
            for m in micro::TABLE.iter().filter(|m| m.file == file) {
                let vectors = (m.vectors)();
                let range = at..at + vectors.len();
                at = range.end;
                let right: Vec<u32> = vectors.iter().map(|t| (m.want)(*t)).collect();
                let answers = &have[name][range.clone()];
                let row = self.row(m.name, m.kind, &right, answers, Some(&vectors));
                if file == File::Arithmetic {
                    let less = found.less.iter();
                    let differ = less.map(|(how, a)| {
                        (how.to_string(), differing(&right, &a[name][range.clone()]))
                    });
                    row.less = differ.collect();
                }
            }
        }
        let right = kernels::workgroup_want(&vectors::tree(64 * kernels::BLOCKS));
        let (tree, other) = have["workgroup.out"].split_at(kernels::BLOCKS);
        self.row(
            "a workgroup's tree of sums",
            Kind::Required,
            &right,
            tree,
            None,
        );
        self.row(
            "control: the tree in another order",
            Kind::Control,
            &right,
            other,
            None,
        );
        for (part, (want, made)) in want.iter().zip(&found.production).enumerate() {
            for (i, name) in production::names(part).into_iter().enumerate() {
                let out = format!("out.{i}");
                self.row(name, Kind::Production, &want[&out], &made[&out], None);
            }
        }
    }

    fn row(
        &mut self,
        name: &str,
        kind: Kind,
        want: &[u32],
        have: &[u32],
        vectors: Option<&[micro::Triple]>,
    ) -> &mut Row {
        let mut have = have.to_vec();
        if std::env::var(FAULT).is_ok_and(|f| f == name) {
            have[0] ^= 1;
        }
        let first = (0..want.len()).find(|&i| !same(want[i], have[i]));
        let first = first.map(|i| Difference {
            at: i,
            operands: vectors.map_or(vec![], |v| v[i].map(hex).to_vec()),
            want: hex(want[i]),
            have: hex(have[i]),
        });
        let differ = differing(want, &have);
        if matches!(kind, Kind::Required | Kind::Production) {
            self.words.extend(have);
        }
        self.rows.push(Row {
            name: name.into(),
            kind,
            cases: want.len(),
            differ,
            less: vec![],
            first: first.filter(|_| kind != Kind::Control),
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }
}

fn hex(u: u32) -> String {
    format!("{u:08x}")
}

/// Equal bits. Which NaN it is stands outside the contract.
fn same(a: u32, b: u32) -> bool {
    let nan = |u: u32| u & 0x7fff_ffff > 0x7f80_0000;
    a == b || (nan(a) && nan(b))
}

fn differing(want: &[u32], have: &[u32]) -> usize {
    want.iter()
        .zip(have)
        .filter(|(a, b)| !same(**a, **b))
        .count()
}

/// The facts in words.
fn ask(exec: &mut dyn Executor) -> Result<Vec<FactLine>, ExecError> {
    let main = run(exec, &kernels::facts(false))?;
    // A device without these conversions refuses their shader, and is none the worse for it.
    let halves = run(exec, &kernels::facts(true)).ok();
    let mut at = [0, 0];
    let each = facts::TABLE.iter().map(|t| {
        let at = &mut at[t.halves() as usize];
        let range = *at..*at + t.vectors.len();
        *at = range.end;
        let answers = if t.halves() {
            halves.as_ref()
        } else {
            Some(&main)
        };
        FactLine {
            name: t.name.into(),
            finding: answers.map_or("not offered".into(), |a| t.say(&a["facts.out"][range])),
        }
    });
    Ok(each.collect())
}

/// One number for all answers that decide: the same on every device that passes.
fn digest_of(words: &[u32]) -> String {
    let sums = words.iter().enumerate().flat_map(|(i, &w)| {
        let (a, b) = digest::element(0, i as u32, w);
        [a, b]
    });
    format!("{:016x}", digest::combine(sums))
}
