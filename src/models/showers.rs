//! Generators of calorimeter showers in two stages, each a network: the total energy of an event, then
//! the layers' shares of it by stick-breaking. Here are the coordinates that both kinds of trainer use,
//! and the networks that flow matching and DDPM train; the adversarial ones are [`super::wgan`].

use super::net::{CONDITIONS, Given, Net, TIME};
use super::step::{Constant, Losses, Model, Named, declare, declare_constants, mean_all};
use super::trunk::{Routed, Trunk};
use super::weight::{Weight, state_index};
use crate::data::showers::{ENERGIES, STEEPEST, Shower};
use crate::graph::{Graph, Program, Tx, Type};
use crate::passes::autocast::{MIXED, Policy};
use crate::passes::rules::Rules;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The sum of the layers over the energy where a total's coordinate is 0.
const ORIGIN: f64 = 0.9;
/// Width of a unit of a total's coordinate, in its logarithm.
const UNIT: f64 = 0.05;
/// Weight of the router's balance in the loss.
const BALANCE: f32 = 1e-2;
/// Weight of the router's entropy in the loss: small, towards a decided router.
const ENTROPY: f32 = 1e-3;

/// f32 islands of [`mixed`], as patterns of scopes: the router's softmax and losses, the stick-breaking
/// product, the gradient penalty with both its backward passes, and the heads.
pub const ISLANDS: [&str; 4] = ["*router", "*sticks", "penalty*", "*head"];

/// The scope where gates come down to the experts' type.
const COMBINE: &str = "*combine";

/// Precision `mixed` of these models: products in bf16, but for the islands. `without` leaves one out,
/// for tests that show why it is there.
pub fn mixed_without(without: &str) -> Policy {
    let places = ["router", "sticks", "penalty", "head", "combine"].map(String::from);
    let islands = ISLANDS.iter().filter(|i| **i != without);
    let mut table: BTreeMap<String, String> =
        islands.map(|i| (i.to_string(), "fp32".into())).collect();
    table.insert(COMBINE.into(), "bf16".into());
    Policy {
        rules: Rules::keep(&table, &places).expect("patterns of these scopes"),
        ..MIXED
    }
}

/// Precision `mixed` of these models.
pub fn mixed() -> Policy {
    static KEPT: OnceLock<Policy> = OnceLock::new();
    *KEPT.get_or_init(|| mixed_without(""))
}

/// An event's conditions as a network is told them.
pub fn conditions(energy: f64, angle: f64) -> [f32; CONDITIONS] {
    let [low, high] = ENERGIES.map(libm::log);
    let energy = (2.0 * libm::log(energy) - low - high) / (high - low);
    let angle = 2.0 * angle / STEEPEST - 1.0;
    [energy as f32, angle as f32, 1.0]
}

/// Where equal shares of `layers` layers put the stick-breaking coordinate `i`: what is left is broken
/// into layers - i equal parts.
fn offset(layers: usize, i: usize) -> f64 {
    -libm::log((layers - i - 1) as f64)
}

/// An event in coordinates: of the total, and layers - 1 of the shares. They are log-odds of each layer
/// taking its part of what the layers before it left, relative to equal shares.
pub fn encode(event: &Shower) -> (f32, Vec<f32>) {
    let sum: f64 = event.layers.iter().sum();
    let total = (libm::log(sum / event.energy) - libm::log(ORIGIN)) / UNIT;
    let mut rest = sum;
    let one = |(i, &x): (usize, &f64)| {
        rest = (rest - x).max(1e-9 * sum);
        (libm::log(x / rest) - offset(event.layers.len(), i)) as f32
    };
    let last = event.layers.len() - 1;
    (
        total as f32,
        event.layers[..last].iter().enumerate().map(one).collect(),
    )
}

/// The constants of [`fractions`] for so many layers.
pub fn stick_constants(layers: usize) -> Vec<Constant> {
    let d = layers - 1;
    vec![
        Constant::matrix("sticks.offset", [1, d], |_, i| offset(layers, i) as f32),
        Constant::matrix("sticks.taken", [d, layers], |i, j| f32::from(i == j)),
        Constant::matrix("sticks.left", [d, layers], |i, j| f32::from(i < j)),
    ]
}

/// (total[n, 1], shares[n, d]) in coordinates -> each layer's energy over the event's, [n, d + 1].
///
/// A share is the product of what the layers before left and what this one takes. The product is the
/// exponential of a sum of logarithms, in f32 under every policy: in bf16 a factor of 0.999 is 1.
pub fn fractions<'g>(g: &'g Graph, w: &Named<'g>, total: Tx<'g>, shares: Tx<'g>) -> Tx<'g> {
    g.scope("sticks", || {
        let u = shares + w["const.sticks.offset"];
        let (zero, one) = (u.constant(0.0), u.constant(1.0));
        let tail = (one + (-u.abs()).exp()).log();
        let taken = u.minimum(zero) - tail; // log of 1 / (1 + exp(-u))
        let left = -(u.maximum(zero)) - tail; // log of 1 / (1 + exp(u))
        let shares = taken.matmul(w["const.sticks.taken"], false, false)
            + left.matmul(w["const.sticks.left"], false, false);
        let response = total * total.constant(UNIT as f32);
        (shares + response + total.constant(libm::log(ORIGIN) as f32)).exp()
    })
}

/// The router's losses of several networks, weighed.
pub fn routing_loss<'g>(routed: &[Option<Routed<'g>>]) -> Option<Tx<'g>> {
    let one = |r: &Routed<'g>| {
        r.balance * r.balance.constant(BALANCE) + r.entropy * r.entropy.constant(ENTROPY)
    };
    routed.iter().flatten().map(one).reduce(|a, b| a + b)
}

/// Both networks, which learn to undo noise: velocities for flow matching, the noise for DDPM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denoiser {
    /// Layers of an event.
    pub layers: usize,
    /// Both networks' middle.
    pub trunk: Trunk,
    /// Whether the shares come one after the other.
    pub autoregressive: bool,
    /// Events a batch.
    pub batch: usize,
}

impl Denoiser {
    /// The network of the total.
    pub fn total(&self) -> Net {
        Net {
            name: "total",
            input: 1,
            output: 1,
            time: true,
            total: false,
            positions: 0,
            trunk: self.trunk,
        }
    }

    /// The network of the shares.
    pub fn shares(&self) -> Net {
        self.total().of_shares(self.layers, self.autoregressive)
    }
}

impl Model for Denoiser {
    fn weights(&self) -> Vec<Weight> {
        let mut out = self.total().weights();
        out.extend(self.shares().weights());
        out
    }

    fn constants(&self) -> Vec<Constant> {
        self.shares().constants()
    }

    /// Inputs `conditions`, `time`, and for total and shares `.noised` and `.target`; `total.clean`, and
    /// `shares.clean` where they are autoregressive. Losses `loss`, `total`, `shares`.
    fn losses<'g>(&self, g: &'g Graph, w: &Named<'g>) -> Result<Losses<'g>, String> {
        let n = self.batch;
        let input = |name: &str, width| g.input(name, Type::f32(&[n, width]));
        let mut given = Given {
            x: input("total.noised", 1),
            conditions: input("conditions", CONDITIONS),
            time: Some(input("time", TIME)),
            total: None,
            place: None,
        };
        let (y, first) = self.total().forward(g, w, &given);
        let error = |y: Tx<'g>, target: Tx<'g>| {
            g.scope("loss", || {
                let d = y - target;
                mean_all(d * d)
            })
        };
        let total = error(y, input("total.target", 1));
        let d = self.layers - 1;
        given.x = input("shares.noised", d);
        given.total = Some(input("total.clean", 1));
        let (y, second) = match self.autoregressive {
            true => self
                .shares()
                .forward_all(g, w, &given, input("shares.clean", d)),
            false => self.shares().forward(g, w, &given),
        };
        let shares = error(y, input("shares.target", d));
        let loss = g.scope("loss", || {
            let routing = routing_loss(&[first, second]);
            routing.map_or(total + shares, |r| total + shares + r)
        });
        Ok(vec![("loss", loss), ("total", total), ("shares", shares)])
    }
}

/// The programs that draw events from a [`Denoiser`]'s averaged weights, in f32. What is drawn lies in
/// states: `draw.conditions`, `draw.total`, `draw.shares`, and `draw.column` where shares come one by one.
impl Denoiser {
    /// A step of one network, of `n` rows, with y its output: `x = a x + b y`, or with `noisy`, where y is
    /// the noise in x, `event = p x + q y` clipped to `low` and `high`, then `x = a x + b event + c noise`.
    /// Inputs `time` f32[1, TIME]; `a`, `b`, with `noisy` also `c`, `p`, `q`, f32[1]; `low` and `high`
    /// f32[1, width of x]; `noise` of x's shape; of autoregressive shares `own` f32[1, d].
    pub fn draw_program(&self, of_shares: bool, n: usize, noisy: bool) -> Program {
        let net = if of_shares {
            self.shares()
        } else {
            self.total()
        };
        let d = self.layers - 1;
        let graph = Graph::new();
        let update = {
            let g = &graph;
            let mut w = declare(g, &net.weights(), true);
            w.extend(declare_constants(g, &net.constants()));
            let state = |name: &str, width| g.state(name, Type::f32(&[n, width]));
            let x = match (of_shares, self.autoregressive) {
                (false, _) => state("draw.total", 1),
                (true, false) => state("draw.shares", d),
                (true, true) => state("draw.column", 1),
            };
            let given = Given {
                x,
                conditions: state("draw.conditions", CONDITIONS),
                time: Some(g.input("time", Type::f32(&[1, TIME]))),
                total: of_shares.then(|| state("draw.total", 1)),
                place: (net.positions > 0)
                    .then(|| (state("draw.shares", d), g.input("own", Type::f32(&[1, d])))),
            };
            let (y, _) = net.forward(g, &w, &given);
            let [a, b] = ["a", "b"].map(|name| g.input(name, Type::f32(&[1])));
            let new = match noisy {
                false => x * a + y * b,
                true => {
                    let [c, p, q] = ["c", "p", "q"].map(|name| g.input(name, Type::f32(&[1])));
                    let row = Type::f32(&[1, x.shape().dim(1)]);
                    let [low, high] = ["low", "high"].map(|name| g.input(name, row));
                    let event = (x * p + y * q).maximum(low).minimum(high);
                    x * a + event * b + g.input("noise", x.ty()) * c
                }
            };
            (state_index(x), new.id)
        };
        updating(graph, update)
    }

    /// Puts `draw.column` where `own` f32[1, d] has its 1 among `draw.shares`.
    pub fn put_program(&self, n: usize) -> Program {
        let d = self.layers - 1;
        let graph = Graph::new();
        let update = {
            let shares = graph.state("draw.shares", Type::f32(&[n, d]));
            let column = graph.state("draw.column", Type::f32(&[n, 1]));
            let own = graph.input("own", Type::f32(&[1, d]));
            (state_index(shares), (shares + column * own).id)
        };
        updating(graph, update)
    }

    /// Output `fractions` f32[n, layers] of `draw.total` and `draw.shares`.
    pub fn decode_program(&self, n: usize) -> Program {
        let graph = Graph::new();
        let out = {
            let w = declare_constants(&graph, &stick_constants(self.layers));
            let total = graph.state("draw.total", Type::f32(&[n, 1]));
            let shares = graph.state("draw.shares", Type::f32(&[n, self.layers - 1]));
            fractions(&graph, &w, total, shares).id
        };
        Program {
            graph,
            outputs: vec![("fractions".into(), out)],
            updates: vec![],
        }
    }
}

fn updating(graph: Graph, update: (u32, crate::graph::NodeId)) -> Program {
    Program {
        graph,
        outputs: vec![],
        updates: vec![update],
    }
}
