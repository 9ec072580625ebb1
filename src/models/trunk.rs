//! The trunk of a generator: residual MLP blocks, one stack of them or several with a router before.
//!
//! Routing is **dense**: each expert computes every row, and a row's output is the sum of its top experts'
//! outputs times their gates, in ascending order of the experts; the others' gates are 0. So the order of
//! every sum depends on shapes alone, there is nothing to scatter and no atomic addition. It costs the
//! arithmetic of all experts.

use super::step::{Constant, Named, linear};
use super::weight::{Init, Weight};
use crate::graph::{Graph, Tx};
use crate::ops::Op;

/// Epsilon of the norms.
const EPS: f32 = 1e-5;
/// Keeps divisions by gates and logarithms of them away from 0.
const TINY: f32 = 1e-8;

/// Experts and a router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Routing {
    /// Experts, each a stack of blocks.
    pub experts: usize,
    /// How many of them a row gets.
    pub top: usize,
}

/// Residual MLP blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trunk {
    /// Width.
    pub hidden: usize,
    /// Blocks of a stack.
    pub blocks: usize,
    /// Experts; none: one plain stack.
    pub routing: Option<Routing>,
}

/// What the router adds to the loss.
#[derive(Clone, Copy)]
pub struct Routed<'g> {
    /// Experts times the sum, over the experts, of the share of rows and the mean probability that each
    /// gets (Fedus et al., arXiv:2101.03961): 1 where all are used alike.
    pub balance: Tx<'g>,
    /// Mean entropy of a row's probabilities, in nats.
    pub entropy: Tx<'g>,
}

impl Trunk {
    /// Number of its stacks of blocks.
    pub fn stacks(&self) -> usize {
        self.routing.map_or(1, |r| r.experts)
    }

    /// The stacks' names under a prefix.
    fn names(&self, prefix: &str) -> Vec<String> {
        match self.routing {
            None => vec![prefix.to_string()],
            Some(r) => (0..r.experts)
                .map(|e| format!("{prefix}.experts.{e}"))
                .collect(),
        }
    }

    /// The weights.
    pub fn weights(&self, prefix: &str) -> Vec<Weight> {
        let h = self.hidden;
        let mut out = Vec::new();
        if let Some(r) = self.routing {
            let name = format!("{prefix}.router.weight");
            out.push(Weight::new(name, &[r.experts, h], Init::FanIn));
        }
        for stack in self.names(prefix) {
            for i in 0..self.blocks {
                let part = |p: &str| format!("{stack}.blocks.{i}.{p}.weight");
                out.push(Weight::new(part("norm"), &[h], Init::Ones));
                out.push(Weight::new(part("fc"), &[h, h], Init::FanIn));
                out.push(Weight::new(part("proj"), &[h, h], Init::FanIn));
            }
        }
        out
    }

    /// Masks that the router reads.
    pub fn constants(&self) -> Vec<Constant> {
        let Some(r) = self.routing else {
            return vec![];
        };
        let e = r.experts;
        let before = |i: usize, j: usize| f32::from(j < i);
        let mut out = vec![Constant::matrix("experts.before", [e, e], before)];
        out.extend((0..e).map(|k| {
            let pick = |_: usize, j: usize| f32::from(j == k);
            Constant::matrix(&format!("experts.pick.{k}"), [1, e], pick)
        }));
        out
    }

    /// h[n, hidden] -> features [n, hidden], of the same type with a router and without.
    pub fn forward<'g>(
        &self,
        g: &'g Graph,
        w: &Named<'g>,
        prefix: &str,
        h: Tx<'g>,
    ) -> (Tx<'g>, Option<Routed<'g>>) {
        let stack = |name: &str| (0..self.blocks).fold(h, |x, i| block(g, w, name, i, x));
        let Some(r) = self.routing else {
            return (stack(prefix), None);
        };
        let (gates, routed) = g.scope("router", || gates(r, w, prefix, h));
        let mut sum: Option<Tx> = None;
        for (name, gate) in self.names(prefix).iter().zip(gates) {
            let y = stack(name);
            // The gates come down to the experts' type here: under a policy this scope has that type.
            sum = Some(g.scope("combine", || {
                let part = y * gate;
                sum.map_or(part, |s| s + part)
            }));
        }
        (sum.expect("at least one expert"), Some(routed))
    }
}

/// Block `i` of a stack: x[n, h] -> x + proj(gelu(fc(norm(x)))).
fn block<'g>(g: &'g Graph, w: &Named<'g>, stack: &str, i: usize, x: Tx<'g>) -> Tx<'g> {
    let weight = |p: &str| w[&format!("{stack}.blocks.{i}.{p}.weight")];
    g.scope(&format!("blocks.{i}"), || {
        let y = norm(x, weight("norm"));
        let y = linear(y, weight("fc")).gelu();
        x + linear(y, weight("proj"))
    })
}

/// Layer norm.
pub(super) fn norm<'g>(x: Tx<'g>, gain: Tx<'g>) -> Tx<'g> {
    x.op(Op::LayerNorm(EPS.to_bits()), &[gain])
}

/// The gate of each expert, [n, 1] each, and the router's losses.
fn gates<'g>(r: Routing, w: &Named<'g>, prefix: &str, h: Tx<'g>) -> (Vec<Tx<'g>>, Routed<'g>) {
    let n = h.shape().dim(0);
    let p = linear(h, w[&format!("{prefix}.router.weight")]).op(Op::Softmax, &[]); // [n,e]
    let mask = top(r, p, w["const.experts.before"]);
    let kept = p * mask;
    let shares = kept / (kept.sum(2) + p.constant(TINY));
    let each = (0..r.experts).map(|k| {
        let pick = w[&format!("const.experts.pick.{k}")];
        (shares * pick).sum(2)
    });
    let mean = |x: Tx<'g>| x.sum(1) * x.constant(1.0 / n as f32); // [1,e]
    let used = mean(mask) * p.constant(r.experts as f32 / r.top as f32);
    let balance = (used * mean(p)).sum(3).reshape(&[]);
    let surprise = p * (p + p.constant(TINY)).log();
    let entropy = -(mean(surprise).sum(2).reshape(&[]));
    (each.collect(), Routed { balance, entropy })
}

/// 1 for the `top` most probable experts of each row, else 0; of equal ones the first comes first. It is
/// constant but for jumps, so no gradient passes through the choice.
fn top<'g>(r: Routing, p: Tx<'g>, before: Tx<'g>) -> Tx<'g> {
    let (n, e) = (p.shape().dim(0), r.experts);
    let own = p.reshape(&[n, e, 1]);
    let other = p.reshape(&[n, 1, e]);
    let ahead = other.gt(own); // [n,e,e]
    let equal = p.constant(1.0) - ahead - own.gt(other);
    let rank = (ahead + equal * before).sum(4).reshape(&[n, e]);
    p.constant(r.top as f32 - 0.5)
        .broadcast(rank.shape())
        .gt(rank)
}
