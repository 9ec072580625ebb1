//! The verifier: run after every pass.

use super::{Graph, NodeId, Program};
use crate::dtype::DType;
use crate::ops::{self, Numeric, Op};

/// Checks a graph's live nodes: sources precede users, every type is what the operation's rule gives,
/// and guarded operations see no low-precision operand.
///
/// # Errors
/// The first violation, with the node printed.
pub fn check_nodes(g: &Graph, roots: &[NodeId], pass: &str) -> Result<(), String> {
    for id in g.live(roots) {
        let node = g.node(id);
        let fail = |why: &str| {
            Err(format!(
                "after {pass}: {id:?} {}: {why}",
                ops::def(&node.op).name
            ))
        };
        if node.src.iter().any(|&s| s >= id) {
            return fail("a source does not precede its user");
        }
        if !matches!(node.op, Op::State(_) | Op::Input(_)) {
            let types: Vec<_> = node.src.iter().map(|&s| g.ty(s)).collect();
            match (ops::def(&node.op).infer)(&node.op, &types) {
                Ok(ty) if ty == node.ty => {}
                Ok(ty) => return fail(&format!("has type {}, its rule gives {ty}", node.ty)),
                Err(e) => return fail(&e),
            }
            let guarded = ops::numeric(&node.op) == Numeric::Guard;
            if guarded
                && types
                    .iter()
                    .any(|t| matches!(t.dtype, DType::Bf16 | DType::F16))
            {
                return fail("a guarded operation must not see a low-precision operand");
            }
        }
    }
    Ok(())
}

/// Checks a whole program: its nodes, and that updates fit their states.
///
/// # Errors
/// The first violation.
pub fn check(p: &Program, pass: &str) -> Result<(), String> {
    check_nodes(&p.graph, &p.roots(), pass)?;
    let states = p.graph.states();
    for &(s, node) in &p.updates {
        let leaf = &states[s as usize];
        let ty = p.graph.ty(node);
        if ty != leaf.ty {
            return Err(format!(
                "after {pass}: update of {} has type {ty}, the state has {}",
                leaf.name, leaf.ty
            ));
        }
    }
    for (i, &(s, _)) in p.updates.iter().enumerate() {
        if p.updates[..i].iter().any(|u| u.0 == s) {
            return Err(format!(
                "after {pass}: {} is updated twice",
                states[s as usize].name
            ));
        }
    }
    Ok(())
}
