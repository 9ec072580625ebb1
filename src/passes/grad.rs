//! Reverse-mode differentiation as a pass: one walk back over the graph, new nodes for the gradients.
//!
//! Closure rule: an operation without a rule of its own is expanded first, all the way down, so the
//! result can be differentiated again. Cotangents that meet are summed in f32.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId, Phase, Tx};
use crate::ops::{self, Op, Vjp};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Gradients of the scalar `y` by each of `wrt`. A node that `y` does not depend on has gradient zero.
///
/// # Errors
/// An operation on the way that cannot be differentiated, with its reason.
pub fn grad<'g>(g: &'g Graph, y: Tx<'g>, wrt: &[Tx<'g>]) -> Result<Vec<Tx<'g>>, String> {
    assert_eq!(y.shape().elems(), 1, "only a scalar has a gradient");
    let y = expand_undifferentiable(g, y, wrt);
    let wanted = depends_on(g, y.id, wrt);
    let mut cotangents: BTreeMap<NodeId, Vec<Tx<'g>>> = BTreeMap::new();
    cotangents.insert(y.id, vec![y.constant(1.0).broadcast(y.shape())]);
    let mut done: HashMap<NodeId, Tx<'g>> = HashMap::new();
    while let Some((id, parts)) = cotangents.pop_last() {
        let sum = || g.phase(Phase::Backward, || total(g.tx(id), &parts));
        let t = g.labelled_as(id, sum);
        done.insert(id, t);
        let node = g.node(id);
        match &ops::def(&node.op).vjp {
            Vjp::Leaf => {}
            Vjp::Stop(why) => return Err(format!("{}: {why}", ops::def(&node.op).name)),
            Vjp::ViaExpand => unreachable!("expanded above"),
            Vjp::Rule(rule) => {
                if !node.src.iter().any(|s| wanted.contains(s)) {
                    continue;
                }
                let parts = g.labelled_as(id, || g.phase(Phase::Backward, || rule(g.tx(id), t)));
                for (&s, part) in node.src.iter().zip(parts) {
                    if let (Some(part), true) = (part, wanted.contains(&s)) {
                        assert_eq!(
                            part.shape(),
                            g.ty(s).shape,
                            "gradient of {} has another shape",
                            ops::def(&node.op).name
                        );
                        cotangents.entry(s).or_default().push(part);
                    }
                }
            }
        }
    }
    Ok(wrt
        .iter()
        .map(|w| {
            done.get(&w.id)
                .copied()
                .unwrap_or_else(|| w.constant(0.0).broadcast(w.shape()))
        })
        .collect())
}

/// The sum of the cotangents of a node, in f32, in the node's type.
fn total<'g>(node: Tx<'g>, parts: &[Tx<'g>]) -> Tx<'g> {
    let dtype = node.ty().dtype;
    if let [only] = parts {
        return only.cast(dtype);
    }
    let sum = parts
        .iter()
        .map(|p| p.cast(DType::F32))
        .reduce(|a, b| a + b);
    sum.expect("a visited node has a cotangent").cast(dtype)
}

/// The nodes between `wrt` and `y`, those of `wrt` included.
fn depends_on(g: &Graph, y: NodeId, wrt: &[Tx]) -> HashSet<NodeId> {
    let mut out: HashSet<NodeId> = wrt.iter().map(|w| w.id).collect();
    for id in g.live(&[y]) {
        if g.node(id).src.iter().any(|s| out.contains(s)) {
            out.insert(id);
        }
    }
    out
}

/// Rebuilds `y` with every operation expanded that has no rule of its own and lies on a path from `wrt`.
fn expand_undifferentiable<'g>(g: &'g Graph, mut y: Tx<'g>, wrt: &[Tx<'g>]) -> Tx<'g> {
    loop {
        let wanted = depends_on(g, y.id, wrt);
        let needs = |op: &Op| matches!(ops::def(op).vjp, Vjp::ViaExpand);
        let live = g.live(&[y.id]);
        if !live
            .iter()
            .any(|id| wanted.contains(id) && needs(&g.node(*id).op))
        {
            return y;
        }
        let mut map: HashMap<NodeId, NodeId> = HashMap::new();
        for id in live {
            let node = g.node(id);
            let new = if wrt.iter().any(|w| w.id == id) || node.src.is_empty() {
                id
            } else {
                let src: Vec<NodeId> = node.src.iter().map(|s| map[s]).collect();
                g.labelled_as(id, || {
                    let same = g.add(node.op.clone(), &src);
                    match ops::def(&node.op).expand {
                        Some(expand) if needs(&node.op) && wanted.contains(&id) => {
                            expand(g.tx(same)).id
                        }
                        _ => same,
                    }
                })
            };
            map.insert(id, new);
        }
        y = g.tx(map[&y.id]);
    }
}
