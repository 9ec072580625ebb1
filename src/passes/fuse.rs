//! Fusion of pointwise work, on the plan. It never changes a bit: each instruction of an expression
//! still rounds to its own type and flushes, as its step would have on storing.
//!
//! A pointwise step goes into its consumer when nobody else reads its result: another pointwise step, a
//! reduction (a prologue), or the expression that a kernel hosts. A kernel that can host an epilogue takes
//! in the pointwise step that alone reads its result. A widening conversion goes into every consumer,
//! since reading the narrow value costs less than reading the wide one. Nothing is fused across a step
//! that writes one of the operands, nor past the number of buffers that every device binds.

use crate::dtype::DType;
use crate::kernels::pointwise::{Expr, Instr};
use crate::kernels::{Host, Params};
use crate::plan::{BufId, Class, Plan, Step};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most storage buffers of a step.
const MAX_BUFFERS: usize = 7;

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
            for w in step
                .writes
                .iter()
                .filter(|w| plan.steps[p].writes.contains(w))
            {
                self.writers[w.0 as usize] = vec![q];
            }
        }
        unread
    }
}

/// The expression with which a step reads its operands, and over how many elements; of a reduction
/// without a prologue, the operand as it is.
fn consumes(plan: &Plan, s: &Step) -> Option<(Part, usize)> {
    let host = s.kernel.host;
    if let Some(expr) = &s.params.expr {
        let n = match host {
            Host::No => s.params.at(0),
            Host::Epilogue => plan.buf(s.writes[0]).ty.shape.elems(),
            Host::Prologue => s.params.at(0) * s.params.at(1) * s.params.at(2),
        };
        let own = host == Host::Epilogue;
        let (expr, operands) = (expr.clone(), s.operands());
        return Some((
            Part {
                expr,
                own,
                operands,
            },
            n,
        ));
    }
    let &[x] = &s.reads[..] else { return None };
    (host == Host::Prologue).then(|| {
        let n = plan.buf(x).ty.shape.elems();
        let expr = Arc::new(Expr::convert(DType::F32));
        let operands = vec![(x, (1, n))];
        let own = false;
        (
            Part {
                expr,
                own,
                operands,
            },
            n,
        )
    })
}

/// The expression with which a step makes its first result; of a host without an epilogue, its own value
/// as it is.
fn produces(s: &Step) -> Option<Part> {
    let own = s.kernel.host == Host::Epilogue;
    match (&s.params.expr, s.kernel.host) {
        (Some(_), Host::Prologue) | (None, Host::No | Host::Prologue) => None,
        (Some(expr), _) => Some(Part {
            expr: expr.clone(),
            own,
            operands: s.operands(),
        }),
        (None, Host::Epilogue) => Some(Part {
            expr: Arc::new(Expr::convert(DType::F32)),
            own,
            operands: vec![],
        }),
    }
}

/// A producer that can go into step `q`, its result, and the fused step.
fn candidate(plan: &Plan, links: &Links, q: usize) -> Option<(usize, BufId, Step)> {
    let consumer = &plan.steps[q];
    let (wants, n) = consumes(plan, consumer)?;
    wants.operands.iter().find_map(|&(read, _)| {
        let [p] = links.writers[read.0 as usize][..] else {
            return None;
        };
        let producer = &plan.steps[p];
        let gives = produces(producer)?;
        let buf = plan.buf(read);
        // The consumer must read it element for element.
        let all = wants.operands.iter();
        let aligned = buf.ty.shape.elems() == n
            && producer.writes[0] == read
            && all.clone().all(|o| o.0 != read || o.1 == (1, n));
        let widening = !gives.own && gives.expr.code.is_empty() && gives.expr.inputs == 1;
        let only_here = links.readers[read.0 as usize].len() == 1;
        let between = |w: &usize| (p + 1..q).contains(w);
        let written = |b: &BufId| links.writers[b.0 as usize].iter().any(between);
        let read_between = |b: &BufId| links.readers[b.0 as usize].iter().any(between);
        // The producer moves to the consumer's place, with its other results.
        let moves = !producer.reads.iter().any(written)
            && !producer.writes[1..]
                .iter()
                .any(|w| read_between(w) || consumer.reads.contains(w));
        // A packed result has the rows that the host knows.
        let out = plan.buf(consumer.writes[0]).ty;
        let rows = !gives.own || !out.dtype.packed() || out.shape.row() == buf.ty.shape.row();
        let one_host = !gives.own || consumer.kernel.host == Host::No;
        let wanted = buf.class == Class::Temp && (only_here || widening);
        if !aligned || !wanted || !moves || !one_host || !rows {
            return None;
        }
        Some((
            p,
            read,
            compose((producer, &gives), (consumer, &wants), read)?,
        ))
    })
}

/// An expression with its operands. `own`: its first input is a host's value.
struct Part {
    expr: Arc<Expr>,
    own: bool,
    operands: Vec<(BufId, (usize, usize))>,
}

/// An expression under construction, with its operands.
#[derive(Default)]
struct Builder {
    /// The first input is a host's value.
    own: bool,
    inputs: Vec<(BufId, (usize, usize))>,
    consts: Vec<u32>,
    /// Instructions whose registers count inputs, constants and results each from 0.
    code: Vec<(Instr, [Reg; 3])>,
}

#[derive(Clone, Copy)]
enum Reg {
    Own,
    Input(usize),
    Const(usize),
    Result(usize),
}

impl Builder {
    /// Appends an expression; reads of `replaced` take its value from the register. Returns the
    /// register of the result.
    fn append(&mut self, part: &Part, replaced: Option<(BufId, Reg)>) -> Reg {
        let mut regs = Vec::new();
        if part.own {
            self.own = true;
            regs.push(Reg::Own);
        }
        for &key in &part.operands {
            regs.push(match replaced {
                Some((b, reg)) if b == key.0 => reg,
                _ => Reg::Input(position(&mut self.inputs, key)),
            });
        }
        for &c in &part.expr.consts {
            regs.push(Reg::Const(position(&mut self.consts, c)));
        }
        for i in &part.expr.code {
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
        if part.expr.code.is_empty() {
            regs[0]
        } else {
            regs[regs.len() - 1]
        }
    }

    fn finish(&self) -> Expr {
        let own = usize::from(self.own);
        let (inputs, consts) = (own + self.inputs.len(), self.consts.len());
        let number = |r: Reg| match r {
            Reg::Own => 0,
            Reg::Input(i) => (own + i) as u16,
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

/// The consumer with the producer's expression in the place of `read`, run by whichever is a host.
fn compose(producer: (&Step, &Part), consumer: (&Step, &Part), read: BufId) -> Option<Step> {
    let mut b = Builder::default();
    let value = b.append(producer.1, None);
    let result = b.append(consumer.1, Some((read, value)));
    let runs = if producer.1.own {
        producer.0
    } else {
        consumer.0
    };
    let hosting = runs.params.expr.is_some();
    // A prologue's own operand has gone into the expression.
    let own = match runs.kernel.host {
        Host::Prologue => 0,
        _ => runs.kernel.own_reads(hosting),
    };
    let mut writes = runs.writes.clone();
    writes[0] = consumer.0.writes[0];
    // A result that is not an instruction's must be the expression's first register.
    let plain = usize::from(b.own) + b.inputs.len() + b.consts.len() == 1;
    if own + b.inputs.len() + writes.len() > MAX_BUFFERS || (b.code.is_empty() && !plain) {
        return None;
    }
    debug_assert!(b.code.is_empty() || matches!(result, Reg::Result(i) if i + 1 == b.code.len()));
    let old = if hosting { runs.operands().len() } else { 0 };
    let mut words = runs.params.words[..runs.params.words.len() - 2 * old].to_vec();
    let mut reads = runs.reads[..own].to_vec();
    for &(buf, (div, len)) in &b.inputs {
        reads.push(buf);
        words.extend([div as u32, len as u32]);
    }
    Some(Step {
        kernel: runs.kernel,
        params: Params {
            words,
            spec: runs.params.spec.clone(),
            expr: Some(Arc::new(b.finish())),
        },
        reads,
        writes,
        label: consumer.0.label.clone(),
        origin: producer.0.origin.then(&consumer.0.origin),
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
