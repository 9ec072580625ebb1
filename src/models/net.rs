//! One network of a generator: embeddings of what is given, a trunk, a head.

use super::step::{Constant, Named, linear};
use super::trunk::{Routed, Trunk, norm};
use super::weight::{Init, Weight};
use crate::graph::{Graph, Tx};

/// Numbers that describe an event's conditions: energy, angle, and a constant 1, which stands for biases.
pub const CONDITIONS: usize = 3;
/// Numbers of a time's embedding.
pub const TIME: usize = 32;

/// A network from rows to rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Net {
    /// Its name: the first part of its weights' names.
    pub name: &'static str,
    /// Width of its input.
    pub input: usize,
    /// Width of its output.
    pub output: usize,
    /// Whether it is told a time.
    pub time: bool,
    /// Whether it is told the event's total.
    pub total: bool,
    /// Of an autoregressive network, the positions: it makes one at a time, told those before.
    pub positions: usize,
    /// Its middle.
    pub trunk: Trunk,
}

/// What a network is given; shapes in rows n, or 1 where all rows share it.
#[derive(Clone, Copy)]
pub struct Given<'g> {
    /// f32[n, input].
    pub x: Tx<'g>,
    /// f32[n, CONDITIONS].
    pub conditions: Tx<'g>,
    /// f32[n or 1, TIME], of a network with time.
    pub time: Option<Tx<'g>>,
    /// f32[n, 1], of a network with total.
    pub total: Option<Tx<'g>>,
    /// Of an autoregressive network: the positions before as f32[n, positions] with 0 from this one on,
    /// and this one as 1 among zeros, f32[1, positions].
    pub place: Option<(Tx<'g>, Tx<'g>)>,
}

impl Net {
    /// The weights, in order.
    pub fn weights(&self) -> Vec<Weight> {
        let h = self.trunk.hidden;
        let mut out = Vec::new();
        let mut embed = |part: &str, width: usize, wanted: bool| {
            if wanted {
                let name = format!("{}.{part}.weight", self.name);
                out.push(Weight::new(name, &[h, width], Init::FanIn));
            }
        };
        embed("x", self.input, true);
        embed("conditions", CONDITIONS, true);
        embed("time", TIME, self.time);
        embed("total", 1, self.total);
        embed("before", self.positions, self.positions > 0);
        embed("position", self.positions, self.positions > 0);
        out.extend(self.trunk.weights(self.name));
        let head = |part: &str| format!("{}.head.{part}", self.name);
        out.push(Weight::new(head("norm"), &[h], Init::Ones));
        out.push(Weight::new(head("weight"), &[self.output, h], Init::FanIn));
        out.push(Weight::new(head("bias"), &[self.output], Init::Zeros));
        out
    }

    /// The network of the shares of `layers`, beside this one of their total.
    pub fn of_shares(self, layers: usize, autoregressive: bool) -> Net {
        let d = layers - 1;
        let (width, positions) = if autoregressive { (1, d) } else { (d, 0) };
        Net {
            name: "shares",
            input: width,
            output: width,
            total: true,
            positions,
            ..self
        }
    }

    /// Masks that it reads.
    pub fn constants(&self) -> Vec<Constant> {
        let mut out = self.trunk.constants();
        let d = self.positions;
        if d > 0 {
            let before = |i: usize, j: usize| f32::from(j < i);
            out.push(Constant::matrix("positions.before", [d, d], before));
            let own = |i: usize, j: usize| f32::from(i == j);
            out.push(Constant::matrix("positions.own", [d, d], own));
        }
        out
    }

    fn embed<'g>(&self, w: &Named<'g>, part: &str, x: Tx<'g>) -> Tx<'g> {
        linear(x, w[&format!("{}.{part}.weight", self.name)])
    }

    /// What does not depend on a position: [n, hidden].
    fn base<'g>(&self, w: &Named<'g>, given: &Given<'g>) -> Tx<'g> {
        let mut h = self.embed(w, "conditions", given.conditions);
        if let Some(time) = given.time {
            h = h + self.embed(w, "time", time);
        }
        if let Some(total) = given.total {
            h = h + self.embed(w, "total", total);
        }
        h
    }

    /// -> f32[n, output], and the router's losses.
    pub fn forward<'g>(
        &self,
        g: &'g Graph,
        w: &Named<'g>,
        given: &Given<'g>,
    ) -> (Tx<'g>, Option<Routed<'g>>) {
        g.scope(self.name, || {
            let h = g.scope("embed", || {
                let h = self.embed(w, "x", given.x) + self.base(w, given);
                given.place.map_or(h, |(before, own)| {
                    h + self.embed(w, "before", before) + self.embed(w, "position", own)
                })
            });
            self.finish(g, w, h)
        })
    }

    /// All positions of an autoregressive network at once, each told the true ones before it: x and `truth`
    /// f32[n, positions] -> f32[n, positions].
    pub fn forward_all<'g>(
        &self,
        g: &'g Graph,
        w: &Named<'g>,
        given: &Given<'g>,
        truth: Tx<'g>,
    ) -> (Tx<'g>, Option<Routed<'g>>) {
        let (n, d, hidden) = (given.x.shape().dim(0), self.positions, self.trunk.hidden);
        g.scope(self.name, || {
            let h = g.scope("embed", || {
                let before = truth.reshape(&[n, 1, d]) * w["const.positions.before"];
                let rows = |part, x: Tx<'g>, width| {
                    let h = self.embed(w, part, x.reshape(&[n * d, width]));
                    h.reshape(&[n, d, hidden])
                };
                let own = self.embed(w, "position", w["const.positions.own"]); // [d,h]
                let base = self.base(w, given).reshape(&[n, 1, hidden]);
                let h = rows("x", given.x, 1) + rows("before", before, d) + base + own;
                h.reshape(&[n * d, hidden])
            });
            let (y, routed) = self.finish(g, w, h);
            (y.reshape(&[n, d]), routed)
        })
    }

    fn finish<'g>(&self, g: &'g Graph, w: &Named<'g>, h: Tx<'g>) -> (Tx<'g>, Option<Routed<'g>>) {
        let (features, routed) = self.trunk.forward(g, w, self.name, h);
        let part = |p: &str| w[&format!("{}.head.{p}", self.name)];
        let y = g.scope("head", || {
            linear(norm(features, part("norm")), part("weight")) + part("bias")
        });
        (y, routed)
    }
}
