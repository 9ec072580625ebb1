//! Text of a plan, stable from run to run: golden files and the plan's hash are made of it.

use super::{BufId, Class, Plan, Step};
use crate::kernels::pointwise::Expr;
use std::fmt::Write;

/// Buffers, then steps.
pub fn print(p: &Plan) -> String {
    let mut out = format!("plan {}\n", p.name);
    for (i, b) in p.bufs.iter().enumerate() {
        let class = match b.class {
            Class::State => "state".to_string(),
            Class::Input => format!("input  slot {}", b.slot),
            Class::Output => format!("output slot {}", b.slot),
            Class::Temp => format!("temp   slot {}", b.slot),
        };
        let _ = writeln!(out, "b{i}: {} {class} {}", b.ty, b.name);
    }
    for (i, s) in p.steps.iter().enumerate() {
        let _ = writeln!(out, "{i}: {}", step(s));
    }
    out
}

/// One step.
pub fn step(s: &Step) -> String {
    let list = |ids: &[BufId]| {
        ids.iter()
            .map(|b| format!("b{}", b.0))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut out = format!(
        "{} = {}({})",
        list(&s.writes),
        s.kernel.name,
        list(&s.reads)
    );
    let _ = write!(out, " {:?}", &s.params.words[1..]);
    for (name, v) in &s.params.spec {
        let _ = write!(out, " {name}={v}");
    }
    if let Some(e) = &s.params.expr {
        let _ = write!(out, " {}", expression(e));
    }
    if !s.label.is_empty() {
        let _ = write!(out, "  # {}", s.label);
    }
    out
}

/// An expression, one instruction after the other.
fn expression(e: &Expr) -> String {
    let consts = e.consts.iter().map(|c| format!("{:?}", f32::from_bits(*c)));
    let regs: Vec<String> = (0..e.inputs)
        .map(|i| format!("x{i}"))
        .chain(consts)
        .collect();
    let name = |r: u16| {
        regs.get(r as usize)
            .cloned()
            .unwrap_or_else(|| format!("t{}", r as usize - regs.len()))
    };
    let code = e.code.iter().map(|i| {
        let args = i.args[..i.op.arity()]
            .iter()
            .map(|&a| name(a))
            .collect::<Vec<_>>()
            .join(" ");
        format!("({} {args})", i.op.name())
    });
    let text = code.collect::<Vec<_>>().join(" ");
    if text.is_empty() { name(0) } else { text }
}
