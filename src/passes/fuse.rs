//! Fusion of pointwise work, on the plan. It never changes a bit: each instruction of an expression
//! still rounds to its own type and flushes, as its step would have on storing.
//!
//! A pointwise step goes into its pointwise consumer when nobody else reads its result. A widening
//! conversion goes into every pointwise consumer, since reading the narrow value costs less than reading
//! the wide one. Nothing is fused across a step that writes one of the operands, nor past the number of
//! buffers that every device binds.

use crate::kernels::pointwise::{Expr, Instr, POINTWISE, params};
use crate::plan::{BufId, Class, Plan, Step};
use std::collections::BTreeSet;

/// Most inputs of a fused step: with its output, 7 storage buffers.
const MAX_INPUTS: usize = 6;

/// Returns the plan with pointwise steps fused.
pub fn fuse(mut plan: Plan) -> Plan {
    let mut links = Links::new(&plan);
    let mut dropped = vec![false; plan.steps.len()];
    for q in 0..plan.steps.len() {
        while let Some((p, read, fused)) = candidate(&plan, &links, q) {
            dropped[p] = links.fused(&plan, p, q, read, &fused);
            plan.steps[q] = fused;
        }
    }
    let mut drop = dropped.into_iter();
    plan.steps.retain(|_| !drop.next().unwrap_or(false));
    remove_unused(plan)
}

/// Which steps read and write each buffer.
struct Links {
    readers: Vec<BTreeSet<usize>>,
    writers: Vec<Vec<usize>>,
}

impl Links {
    fn new(plan: &Plan) -> Links {
        let n = plan.bufs.len();
        let mut links = Links {
            readers: vec![BTreeSet::new(); n],
            writers: vec![Vec::new(); n],
        };
        for (i, s) in plan.steps.iter().enumerate() {
            links.reads(i, s);
            s.writes
                .iter()
                .for_each(|w| links.writers[w.0 as usize].push(i));
        }
        links
    }

    fn reads(&mut self, i: usize, s: &Step) {
        s.reads.iter().for_each(|r| {
            self.readers[r.0 as usize].insert(i);
        });
    }

    /// Records that step `p`, which writes `read`, went into step `q`; returns whether nobody reads its
    /// result any more.
    fn fused(&mut self, plan: &Plan, p: usize, q: usize, read: BufId, step: &Step) -> bool {
        self.reads(q, step);
        let left = &mut self.readers[read.0 as usize];
        left.remove(&q);
        let unread = left.is_empty();
        if unread {
            for r in &plan.steps[p].reads {
                self.readers[r.0 as usize].remove(&p);
            }
        }
        unread
    }
}

/// (div, len) of a pointwise step's read number `j`.
fn access(s: &Step, j: usize) -> (usize, usize) {
    (s.params.at(1 + 2 * j), s.params.at(2 + 2 * j))
}

/// A producer that can go into step `q`, its result, and the fused step.
fn candidate(plan: &Plan, links: &Links, q: usize) -> Option<(usize, BufId, Step)> {
    let consumer = &plan.steps[q];
    consumer.params.expr.as_ref()?;
    let n = consumer.params.at(0);
    consumer.reads.iter().find_map(|&read| {
        let [p] = links.writers[read.0 as usize][..] else {
            return None;
        };
        let producer = &plan.steps[p];
        let expr = producer.params.expr.as_deref()?;
        // The consumer must read it element for element.
        let same = |j: usize| consumer.reads[j] != read || access(consumer, j) == (1, n);
        let aligned = producer.params.at(0) == n && (0..consumer.reads.len()).all(same);
        let widening = expr.code.is_empty() && expr.inputs == 1;
        let only_here = links.readers[read.0 as usize].len() == 1;
        let between = |w: &usize| (p + 1..q).contains(w);
        let overwritten = producer
            .reads
            .iter()
            .any(|r| links.writers[r.0 as usize].iter().any(between));
        let wanted = plan.buf(read).class == Class::Temp && (only_here || widening);
        if !aligned || !wanted || overwritten {
            return None;
        }
        Some((p, read, compose(producer, consumer, read)?))
    })
}

/// An expression under construction, with its inputs.
#[derive(Default)]
struct Builder {
    inputs: Vec<(BufId, (usize, usize))>,
    consts: Vec<u32>,
    /// Instructions whose registers count inputs, constants and results each from 0.
    code: Vec<(Instr, [Reg; 3])>,
}

#[derive(Clone, Copy)]
enum Reg {
    Input(usize),
    Const(usize),
    Result(usize),
}

impl Builder {
    /// Appends a step's expression; reads of `replaced` take its value from the register. Returns the
    /// register of the result.
    fn append(&mut self, s: &Step, replaced: Option<(BufId, Reg)>) -> Reg {
        let expr = s.params.expr.as_deref().expect("a pointwise step");
        let mut regs = Vec::new();
        for (j, &buf) in s.reads.iter().enumerate() {
            regs.push(match replaced {
                Some((b, reg)) if b == buf => reg,
                _ => {
                    let key = (buf, access(s, j));
                    Reg::Input(position(&mut self.inputs, key))
                }
            });
        }
        for &c in &expr.consts {
            regs.push(Reg::Const(position(&mut self.consts, c)));
        }
        for i in &expr.code {
            let args = std::array::from_fn(|k| {
                if k < i.op.arity() {
                    regs[i.args[k] as usize]
                } else {
                    regs[0]
                }
            });
            self.code.push((*i, args));
            regs.push(Reg::Result(self.code.len() - 1));
        }
        if expr.code.is_empty() {
            regs[0]
        } else {
            regs[regs.len() - 1]
        }
    }

    fn finish(&self) -> Expr {
        let (inputs, consts) = (self.inputs.len(), self.consts.len());
        let number = |r: Reg| match r {
            Reg::Input(i) => i as u16,
            Reg::Const(i) => (inputs + i) as u16,
            Reg::Result(i) => (inputs + consts + i) as u16,
        };
        let code = self
            .code
            .iter()
            .map(|(i, args)| Instr {
                args: args.map(number),
                ..*i
            })
            .collect();
        Expr {
            inputs: inputs as u16,
            consts: self.consts.clone(),
            code,
        }
    }
}

/// The place of an element, added if it is not there.
fn position<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|x| *x == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

/// The consumer with the producer's expression in the place of `read`.
fn compose(producer: &Step, consumer: &Step, read: BufId) -> Option<Step> {
    let mut b = Builder::default();
    let value = b.append(producer, None);
    let result = b.append(consumer, Some((read, value)));
    // A result that is not an instruction's must be the expression's first register.
    let plain = b.inputs.len() + b.consts.len() == 1;
    if b.inputs.len() > MAX_INPUTS || (b.code.is_empty() && !plain) {
        return None;
    }
    debug_assert!(b.code.is_empty() || matches!(result, Reg::Result(i) if i + 1 == b.code.len()));
    let (reads, at): (Vec<BufId>, Vec<(usize, usize)>) = b.inputs.iter().copied().unzip();
    let n = consumer.params.at(0);
    Some(Step {
        kernel: &POINTWISE,
        params: params(n, &at, b.finish()),
        reads,
        writes: consumer.writes.clone(),
        label: consumer.label.clone(),
    })
}

/// Drops temporaries that no step touches any more and renumbers the rest.
fn remove_unused(mut plan: Plan) -> Plan {
    let mut touched = vec![false; plan.bufs.len()];
    for s in &plan.steps {
        s.reads
            .iter()
            .chain(&s.writes)
            .for_each(|b| touched[b.0 as usize] = true);
    }
    let mut map = vec![BufId(0); plan.bufs.len()];
    let mut bufs = Vec::new();
    for (i, b) in plan.bufs.drain(..).enumerate() {
        if touched[i] || b.class != Class::Temp {
            map[i] = BufId(bufs.len() as u32);
            bufs.push(b);
        }
    }
    for s in &mut plan.steps {
        for b in s.reads.iter_mut().chain(&mut s.writes) {
            *b = map[b.0 as usize];
        }
    }
    plan.bufs = bufs;
    plan
}
