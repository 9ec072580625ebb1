//! Rewrites that cannot change a bit: reshapes of reshapes, double negation, permutations that cancel.

use crate::graph::{Graph, NodeId, Program};
use crate::kernels::pointwise::PwOp;
use crate::ops::Op;
use std::collections::HashMap;

/// Rebuilds the program's graph with the rewrites applied; nodes that nothing needs disappear.
pub fn simplify(p: Program) -> Program {
    let out = Graph::new();
    let mut map: HashMap<NodeId, NodeId> = HashMap::new();
    for leaf in p.graph.states() {
        out.state(&leaf.name, leaf.ty);
    }
    for leaf in p.graph.inputs() {
        out.input(&leaf.name, leaf.ty);
    }
    for id in p.graph.live(&p.roots()) {
        let node = p.graph.node(id);
        let src: Vec<NodeId> = node.src.iter().map(|s| map[s]).collect();
        let label = p.graph.label(id);
        let named = || out.scope(&label, || rewrite(&out, node.op, &src));
        let new = out.phase(p.graph.phase_of(id), named);
        map.insert(id, new);
    }
    Program {
        outputs: p
            .outputs
            .iter()
            .map(|(n, id)| (n.clone(), map[id]))
            .collect(),
        updates: p.updates.iter().map(|&(s, id)| (s, map[&id])).collect(),
        graph: out,
    }
}

fn rewrite(g: &Graph, op: Op, src: &[NodeId]) -> NodeId {
    let inner = src.first().map(|&s| g.node(s));
    match (&op, inner) {
        (Op::Reshape(shape), Some(n)) => {
            if n.ty.shape == *shape {
                return src[0];
            }
            if let Op::Reshape(_) = n.op {
                return rewrite(g, op, &n.src);
            }
        }
        (Op::Broadcast(shape), Some(n)) if n.ty.shape == *shape => return src[0],
        (Op::Broadcast(_), Some(n)) if matches!(n.op, Op::Broadcast(_)) => {
            return rewrite(g, op, &n.src);
        }
        (Op::Cast(dtype), Some(n)) if n.ty.dtype == *dtype => return src[0],
        (Op::Pw(PwOp::Neg), Some(n)) if n.op == Op::Pw(PwOp::Neg) => return n.src[0],
        (Op::Permute(_), Some(n)) => {
            let axes = |o: &Op, rank: usize| match o {
                Op::Permute(p) => p[..rank].to_vec(),
                _ => Vec::new(),
            };
            let rank = n.ty.shape.rank();
            let (outer, below) = (axes(&op, rank), axes(&n.op, rank));
            if !below.is_empty()
                && outer
                    .iter()
                    .enumerate()
                    .all(|(i, &a)| below[a as usize] as usize == i)
            {
                return n.src[0];
            }
        }
        _ => {}
    }
    g.add(op, src)
}
