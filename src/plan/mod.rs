//! The plan: a flat list of kernel steps over numbered buffers. It is all that an executor sees, and it
//! is the same on every device.

pub mod account;
pub mod print;

use crate::graph::{Phase, Type};
use crate::kernels::pointwise::Expr;
use crate::kernels::{Access, Host, KernelDef, Params};
use crate::shape::Shape;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A buffer's index in its plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct BufId(pub u32);

/// What a buffer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Outlives the run and is shared by all plans of a session, by name.
    State,
    /// Written by the host before a run.
    Input,
    /// Read by the host after a run.
    Output,
    /// Lives between two steps of a run.
    Temp,
}

/// One logical buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct Buf {
    /// Name: a state's, an input's or an output's own, a temporary's scope.
    pub name: String,
    /// Shape and element type.
    pub ty: Type,
    /// What it is for.
    pub class: Class,
    /// Physical buffer that holds it (states have their own, outside the plan).
    pub slot: usize,
}

impl Buf {
    /// 32-bit words it occupies.
    pub fn words(&self) -> usize {
        self.ty.shape.words(self.ty.dtype)
    }
}

/// The operation of the graph that a launch computes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// Its name; of launches that were fused the names of all, in their order.
    pub op: String,
    /// The part of a training step that it belongs to.
    pub phase: Phase,
    /// Whether it is one of those that a policy gives narrow operands.
    pub low: bool,
    /// Its result's shape. Launches that prepare the result may write others.
    pub shape: Option<Shape>,
}

impl Origin {
    /// Of two launches in one: the first one's result goes into the second.
    pub fn then(&self, next: &Origin) -> Origin {
        const MOST: usize = 4;
        let ops = self.op.split('+').chain(next.op.split('+'));
        let mut names: Vec<&str> = ops.filter(|n| !n.is_empty()).collect();
        names.dedup();
        if names.len() > MOST {
            names.splice(MOST - 2..names.len() - 1, ["…"]);
        }
        Origin {
            op: names.join("+"),
            low: self.low || next.low,
            ..next.clone()
        }
    }
}

/// One launch of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The kernel.
    pub kernel: &'static KernelDef,
    /// Its uniform words, specialisations and expression.
    pub params: Params,
    /// Buffers read, in the order of the kernel's bindings.
    pub reads: Vec<BufId>,
    /// Buffers written or updated, in the order of the kernel's bindings.
    pub writes: Vec<BufId>,
    /// Where in the model it comes from.
    pub label: String,
    /// What of the graph it computes; not part of the plan's hash.
    pub origin: Origin,
}

impl Step {
    /// Buffers that it must read: the kernel's own operands and those of its expression.
    pub fn reads_expected(&self) -> usize {
        let host = self.kernel.host == Host::Epilogue;
        let operands = |e: &Arc<Expr>| e.inputs as usize - usize::from(host);
        self.kernel.own_reads(self.params.expr.is_some())
            + self.params.expr.as_ref().map_or(0, operands)
    }

    /// The buffers that its expression reads, with (div, len) of [`crate::kernels::pointwise::params`]:
    /// the last of its reads.
    pub fn operands(&self) -> Vec<(BufId, (usize, usize))> {
        let own = self.kernel.own_reads(self.params.expr.is_some());
        let reads = &self.reads[own..];
        let words = &self.params.words;
        let pairs = words[words.len() - 2 * reads.len()..].chunks_exact(2);
        let at = |p: &[u32]| (p[0] as usize, p[1] as usize);
        reads.iter().copied().zip(pairs.map(at)).collect()
    }
}

/// A program ready for any executor.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Name of the program (`train`, `eval`).
    pub name: String,
    /// Logical buffers.
    pub bufs: Vec<Buf>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Words of each physical slot.
    pub slots: Vec<usize>,
    /// SHA-256 of the printed plan, 16 hex digits: equal plans run equally.
    pub hash: String,
}

impl Plan {
    /// A buffer by id.
    pub fn buf(&self, id: BufId) -> &Buf {
        &self.bufs[id.0 as usize]
    }

    /// The buffer of a class with a name.
    pub fn find(&self, class: Class, name: &str) -> Option<BufId> {
        let i = self
            .bufs
            .iter()
            .position(|b| b.class == class && b.name == name)?;
        Some(BufId(i as u32))
    }

    /// The states that the plan touches.
    pub fn states(&self) -> impl Iterator<Item = &Buf> {
        self.bufs.iter().filter(|b| b.class == Class::State)
    }

    /// Bytes of the plan's own slots (inputs, outputs and temporaries).
    pub fn slot_bytes(&self) -> u64 {
        self.slots.iter().map(|&w| w as u64 * 4).sum()
    }

    /// Bytes of the states that the plan touches.
    pub fn state_bytes(&self) -> u64 {
        self.states().map(|b| b.words() as u64 * 4).sum()
    }

    /// The name of a tensor that a step writes: that of a state, an input or an output, or `grad.` and the
    /// weight's where the optimizer reads it as a gradient. None of other temporaries.
    pub fn tensor(&self, id: BufId) -> Option<String> {
        let b = self.buf(id);
        if b.class != Class::Temp {
            return Some(b.name.clone());
        }
        let reads_it = |s: &&Step| account::UPDATES.contains(&s.kernel.name) && s.reads[0] == id;
        let update = self.steps.iter().find(reads_it)?;
        Some(format!("grad.{}", update.label))
    }

    /// How step `s` uses its write number `i`.
    pub fn access(&self, s: &Step, i: usize) -> Access {
        let writes = s
            .kernel
            .bindings
            .iter()
            .filter(|b| b.access != Access::Read);
        writes.clone().nth(i).map_or(Access::Write, |b| b.access)
    }

    /// Fills in the hash.
    pub fn seal(&mut self) {
        let digest = Sha256::digest(print::print(self));
        self.hash = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
    }

    /// Checks what executors rely on: ids in range, kernels given as many buffers as they bind, no
    /// buffer both read and written by a step, no two buffers of a step in one slot, and every
    /// temporary written before it is read.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), String> {
        let mut written: Vec<bool> = self
            .bufs
            .iter()
            .map(|b| matches!(b.class, Class::State | Class::Input))
            .collect();
        for (n, s) in self.steps.iter().enumerate() {
            let fail = |why: String| {
                Err(format!(
                    "plan {}, step {n} ({}): {why}",
                    self.name, s.kernel.name
                ))
            };
            let expected = s
                .kernel
                .bindings
                .iter()
                .filter(|b| b.access != Access::Read)
                .count();
            if s.writes.len() != expected || s.reads.len() != s.reads_expected() {
                return fail(format!(
                    "{} reads and {} writes do not fit the kernel",
                    s.reads.len(),
                    s.writes.len()
                ));
            }
            for (i, w) in s.writes.iter().enumerate() {
                if s.reads.contains(w) || s.writes[..i].contains(w) {
                    return fail(format!("buffer {} is bound twice", self.buf(*w).name));
                }
                let other = s.reads.iter().chain(&s.writes[..i]);
                let slot =
                    |b: &BufId| (self.buf(*b).class != Class::State).then(|| self.buf(*b).slot);
                if slot(w).is_some() && other.clone().any(|o| slot(o) == slot(w)) {
                    return fail(format!(
                        "buffer {} shares its slot with another of the step",
                        self.buf(*w).name
                    ));
                }
                if self.access(s, i) == Access::ReadWrite && !written[w.0 as usize] {
                    return fail(format!(
                        "buffer {} is updated before it is written",
                        self.buf(*w).name
                    ));
                }
            }
            if let Some(r) = s.reads.iter().find(|r| !written[r.0 as usize]) {
                return fail(format!(
                    "buffer {} is read before it is written",
                    self.buf(*r).name
                ));
            }
            s.writes.iter().for_each(|w| written[w.0 as usize] = true);
        }
        match self
            .bufs
            .iter()
            .zip(&written)
            .find(|(b, w)| b.class == Class::Output && !**w)
        {
            Some((b, _)) => Err(format!(
                "plan {}: output {} is never written",
                self.name, b.name
            )),
            None => Ok(()),
        }
    }
}
