//! What a plan costs in bytes: held, by class, and moved.

use super::{Buf, BufId, Class, Plan, Step};
use crate::graph::Phase;
use crate::kernels::Host;
use std::collections::{BTreeMap, HashSet};

/// Bytes of one class of a training program's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// Held at the step at which most is live.
    pub peak: u64,
    /// Of all buffers of the class, whenever they are freed.
    pub all: u64,
}

/// Bytes that a training program holds, by class. What the slots hold at the peak beyond gradients,
/// activations and copies of weights is workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Weights.
    pub parameters: u64,
    /// Both moments of the optimizer.
    pub moments: u64,
    /// Weights in another type, for products.
    pub copies: Amount,
    /// Gradients of weights.
    pub gradients: Amount,
    /// What the forward pass saves for the backward pass.
    pub activations: Amount,
    /// Inputs, outputs and everything else in the slots.
    pub workspace: u64,
}

impl Held {
    /// All classes together, at the peak.
    pub fn total(&self) -> u64 {
        let temporaries = self.copies.peak + self.gradients.peak + self.activations.peak;
        self.parameters + self.moments + temporaries + self.workspace
    }
}

/// One kernel's part of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Launches.
    pub launches: u64,
    /// Bytes of all buffers that they read or write, each launch counted for itself.
    pub bytes: u64,
}

/// Kernels that write weights.
pub(super) const UPDATES: [&str; 3] = ["adamw", "adamw_stochastic", "adamw_compensated"];

fn size(b: &Buf) -> u64 {
    4 * b.words() as u64
}

/// Launches and bytes moved by each kernel in a run.
pub fn moved(plan: &Plan) -> BTreeMap<&'static str, Moved> {
    let mut out: BTreeMap<&'static str, Moved> = BTreeMap::new();
    for s in &plan.steps {
        let entry = out.entry(s.kernel.name).or_default();
        entry.launches += 1;
        entry.bytes += step_bytes(plan, s);
    }
    out
}

/// Launches and bytes moved in a run.
pub fn total(plan: &Plan) -> Moved {
    moved(plan).values().fold(Moved::default(), |t, m| Moved {
        launches: t.launches + m.launches,
        bytes: t.bytes + m.bytes,
    })
}

/// Bytes of all buffers that a step reads or writes.
pub fn step_bytes(plan: &Plan, s: &Step) -> u64 {
    s.reads
        .iter()
        .chain(&s.writes)
        .map(|&b| size(plan.buf(b)))
        .sum()
}

/// Floating-point operations of a step, an addition and a product counting as one each: exact for
/// products, sums and expressions (an operation of an expression is one, whatever it costs); for
/// attention the two or five products of each pair of a query and a key that it sees, as FlashAttention
/// counts them (arXiv:2205.14135); for norms, softmax, cross-entropy and AdamW the terms of their
/// formulas. Movement of data counts as none.
pub fn step_flops(plan: &Plan, s: &Step) -> u64 {
    let p = |i: usize| s.params.at(i) as u64;
    let out = || plan.buf(s.writes[0]).ty.shape.elems() as u64;
    let read = |i: usize| plan.buf(s.reads[i]).ty.shape.elems() as u64;
    // b, t, heads, width: pairs times the width.
    let attention = || p(0) * p(2) * (p(1) * (p(1) + 1) / 2) * p(3);
    let own = match s.kernel.name {
        // m, n, k, chunk, batch
        "gemm" => 2 * p(0) * p(1) * p(2) * p(4),
        "gemm_tree" => p(0) * (p(1) - 1),
        "attention" => 4 * attention(),
        "attention_grad" => 10 * attention(),
        "reduce" => p(0) * p(1) * p(2),
        "norm_fwd" => 8 * read(0),
        "norm_stats" => 5 * read(0),
        "norm_dx" => 14 * read(0),
        "softmax" => 4 * read(0),
        "softmax_grad" => 4 * read(0),
        "lse" => 3 * read(0),
        "xent" => read(1),
        "xent_grad" => 3 * read(0),
        "gather_grad" => read(0),
        name if UPDATES.contains(&name) => 15 * out(),
        _ => 0,
    };
    let expression = s.params.expr.as_ref().map_or(0, |e| {
        let elements = match s.kernel.host {
            Host::Prologue => p(0) * p(1) * p(2),
            _ => out(),
        };
        e.code.len() as u64 * elements
    });
    own + expression
}

/// Steps from the first write of a temporary to its last use.
struct Life {
    id: BufId,
    first: usize,
    last: usize,
}

fn lives(plan: &Plan) -> Vec<Life> {
    let mut lives: BTreeMap<BufId, (usize, usize)> = BTreeMap::new();
    for (n, s) in plan.steps.iter().enumerate() {
        for &b in s.reads.iter().chain(&s.writes) {
            if plan.buf(b).class == Class::Temp {
                lives.entry(b).or_insert((n, n)).1 = n;
            }
        }
    }
    let life = |(id, (first, last))| Life { id, first, last };
    lives.into_iter().map(life).collect()
}

/// Temporaries that are made of states alone.
fn copies(plan: &Plan) -> HashSet<BufId> {
    let mut out = HashSet::new();
    for s in &plan.steps {
        let made = |b: &BufId| plan.buf(*b).class == Class::State || out.contains(b);
        if !s.reads.is_empty() && s.reads.iter().all(made) {
            out.extend(s.writes.iter().copied());
        }
    }
    out
}

/// The bytes of a training program by class.
pub fn held(plan: &Plan) -> Held {
    let is_update = |s: &&Step| UPDATES.contains(&s.kernel.name);
    let updates = || plan.steps.iter().filter(is_update);
    let gradients: HashSet<BufId> = updates().map(|s| s.reads[0]).collect();
    let weights: HashSet<BufId> = updates().map(|s| s.writes[0]).collect();
    let copies = copies(plan);
    // The forward pass ends where the loss is written; a micro-batch's with its last operation.
    let loss = plan.find(Class::Output, "loss");
    let writes_loss = |s: &Step| s.writes.iter().any(|&w| Some(w) == loss);
    let end = plan.steps.iter().position(writes_loss);
    let forward = |s: &Step| s.origin.phase == Phase::Forward;
    let end = end.or_else(|| plan.steps.iter().rposition(forward));
    let end = end.unwrap_or(plan.steps.len());
    let lives = lives(plan);
    let is_saved = |l: &Life| {
        let other = gradients.contains(&l.id) || copies.contains(&l.id);
        l.first <= end && l.last > end && !other
    };
    let bytes = |l: &Life| size(plan.buf(l.id));
    let at = |n: usize| lives.iter().filter(move |l| l.first <= n && n <= l.last);
    let peak = (0..plan.steps.len()).max_by_key(|&n| at(n).map(bytes).sum::<u64>());
    let amount = |f: &dyn Fn(&Life) -> bool| Amount {
        peak: peak.map_or(0, |n| at(n).filter(|l| f(l)).map(bytes).sum()),
        all: lives.iter().filter(|l| f(l)).map(bytes).sum(),
    };
    let states = |want: bool| -> u64 {
        let of = |(i, b): &(usize, &Buf)| {
            b.class == Class::State && weights.contains(&BufId(*i as u32)) == want
        };
        let states = plan.bufs.iter().enumerate().filter(of);
        states.map(|(_, b)| size(b)).sum()
    };
    let mut h = Held {
        parameters: states(true),
        moments: states(false),
        copies: amount(&|l| copies.contains(&l.id)),
        gradients: amount(&|l| gradients.contains(&l.id)),
        activations: amount(&is_saved),
        workspace: 0,
    };
    let others = h.copies.peak + h.gradients.peak + h.activations.peak;
    h.workspace = plan.slot_bytes().saturating_sub(others);
    h
}

/// The bytes of a step with several micro-batches by class: of the update's program and of a micro-batch's,
/// which take turns on the same slots. The sums of gradients and loss, states that a micro-batch writes,
/// count as gradients.
pub fn held_of_parts(update: &Plan, micro: &Plan) -> Held {
    let (u, m) = (held(update), held(micro));
    let written = micro.steps.iter().flat_map(|s| &s.writes);
    let states = written.filter(|w| micro.buf(**w).class == Class::State);
    let sums: HashSet<BufId> = states.copied().collect();
    let sums: u64 = sums.iter().map(|&b| size(micro.buf(b))).sum();
    let more = |a: Amount, b: Amount| if a.peak >= b.peak { a } else { b };
    let temporary = more(u.gradients, m.gradients);
    let mut h = Held {
        parameters: u.parameters,
        moments: u.moments.saturating_sub(sums),
        copies: more(u.copies, m.copies),
        gradients: Amount {
            peak: temporary.peak + sums,
            all: temporary.all + sums,
        },
        activations: more(u.activations, m.activations),
        workspace: 0,
    };
    let slots = update.slot_bytes().max(micro.slot_bytes());
    let others = h.copies.peak + temporary.peak + h.activations.peak;
    h.workspace = slots.saturating_sub(others);
    h
}
