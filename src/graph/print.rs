//! Text of a graph, one node a line, stable from run to run (golden files compare it).

use super::Program;
use crate::ops::{self, Op};
use std::fmt::Write;

/// The live nodes of a program, then its outputs and updates.
pub fn print(p: &Program) -> String {
    let g = &p.graph;
    let (states, inputs) = (g.states(), g.inputs());
    let mut out = String::new();
    for id in g.live(&p.roots()) {
        let n = g.node(id);
        let what = match &n.op {
            Op::State(i) => format!("state {}", states[*i as usize].name),
            Op::Input(i) => format!("input {}", inputs[*i as usize].name),
            op => {
                let src = n
                    .src
                    .iter()
                    .map(|s| format!("{s:?}"))
                    .collect::<Vec<_>>()
                    .join(", ");
                format!("{}({src}){}", ops::def(op).name, ops::attributes(op))
            }
        };
        let label = g.label(id);
        let label = if label.is_empty() {
            label
        } else {
            format!("  # {label}")
        };
        let _ = writeln!(out, "{id:?}: {} = {what}{label}", n.ty);
    }
    for (name, id) in &p.outputs {
        let _ = writeln!(out, "output {name} = {id:?}");
    }
    for (s, id) in &p.updates {
        let _ = writeln!(out, "update {} = {id:?}", states[*s as usize].name);
    }
    out
}
