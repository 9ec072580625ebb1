//! The adversarial generator of showers: a Wasserstein critic with gradient penalty (Gulrajani et al.,
//! arXiv:1704.00028). Generator and critic are two [`Model`]s over the same states; the penalty holds a
//! gradient, so the critic's training differentiates twice through products, GELU and layer norm.

use super::net::{CONDITIONS, Given, Net};
use super::showers::{fractions, routing_loss, stick_constants};
use super::step::{Constant, Losses, Model, Named, declare, declare_constants, mean_all};
use super::trunk::{Routed, Trunk};
use super::weight::Weight;
use crate::graph::{Graph, Program, Tx, Type};
use crate::passes::grad::grad;

/// Weight of the gradient penalty.
pub const PENALTY: f32 = 10.0;
/// Inside the root of the gradient's norm: where a critic is flat the root's slope stays finite.
pub const INSIDE: f32 = 1e-12;
/// Noise numbers of the total.
pub const TOTAL_NOISE: usize = 2;
/// The critic sees a layer's energy over the event's, times this.
pub const SCALE: f32 = 8.0;

/// Generator and critic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gan {
    /// Layers of an event.
    pub layers: usize,
    /// The generator's networks' middle; the critic's is as wide and deep, and never routed.
    pub trunk: Trunk,
    /// Whether the shares come one after the other.
    pub autoregressive: bool,
    /// Events a batch.
    pub batch: usize,
}

/// The critic's side.
pub struct Critic(pub Gan);

/// The generator's side.
pub struct Generator(pub Gan);

impl Gan {
    fn total(&self) -> Net {
        Net {
            name: "total",
            input: TOTAL_NOISE,
            output: 1,
            time: false,
            total: false,
            positions: 0,
            trunk: self.trunk,
        }
    }

    fn shares(&self) -> Net {
        self.total().of_shares(self.layers, self.autoregressive)
    }

    fn critic(&self) -> Net {
        Net {
            name: "critic",
            input: self.layers,
            output: 1,
            trunk: Trunk {
                routing: None,
                ..self.trunk
            },
            ..self.total()
        }
    }

    /// The generator's weights.
    pub fn generator_weights(&self) -> Vec<Weight> {
        let mut out = self.total().weights();
        out.extend(self.shares().weights());
        out
    }

    fn all_constants(&self) -> Vec<Constant> {
        let mut out = self.trunk.constants();
        out.extend(stick_constants(self.layers));
        if self.autoregressive {
            out.extend(picks(self.layers - 1));
        }
        out
    }

    /// (conditions[n, c], noise) -> each layer's energy over the event's, [n, layers].
    fn generate<'g>(
        &self,
        g: &'g Graph,
        w: &Named<'g>,
        conditions: Tx<'g>,
        noise: [Tx<'g>; 2],
    ) -> (Tx<'g>, [Option<Routed<'g>>; 2]) {
        let mut given = Given {
            x: noise[0],
            conditions,
            time: None,
            total: None,
            place: None,
        };
        let (total, first) = self.total().forward(g, w, &given);
        given.total = Some(total);
        given.x = noise[1];
        let net = self.shares();
        let (shares, second) = match self.autoregressive {
            false => net.forward(g, w, &given),
            true => one_by_one(g, w, &net, given),
        };
        (fractions(g, w, total, shares), [first, second])
    }

    /// A critic's opinion of layers' energies over the events', [n, 1].
    fn judge<'g>(&self, g: &'g Graph, w: &Named<'g>, layers: Tx<'g>, conditions: Tx<'g>) -> Tx<'g> {
        let given = Given {
            x: layers * layers.constant(SCALE),
            conditions,
            time: None,
            total: None,
            place: None,
        };
        self.critic().forward(g, w, &given).0
    }

    /// The inputs `conditions`, `noise.total`, `noise.shares` of `n` events, and what is generated of them.
    fn fake<'g>(
        &self,
        g: &'g Graph,
        w: &Named<'g>,
        n: usize,
    ) -> (Tx<'g>, Tx<'g>, [Option<Routed<'g>>; 2]) {
        let input = |name: &str, width| g.input(name, Type::f32(&[n, width]));
        let conditions = input("conditions", CONDITIONS);
        let noise = [
            input("noise.total", TOTAL_NOISE),
            input("noise.shares", self.layers - 1),
        ];
        let (layers, routed) = self.generate(g, w, conditions, noise);
        (conditions, layers, routed)
    }

    /// The program that draws `n` events from the generator's averaged weights, in f32: the inputs of
    /// [`Gan`]'s training and the output `fractions` f32[n, layers].
    pub fn draw_program(&self, n: usize) -> Program {
        let graph = Graph::new();
        let out = {
            let mut w = declare(&graph, &self.generator_weights(), true);
            w.extend(declare_constants(&graph, &self.all_constants()));
            self.fake(&graph, &w, n).1.id
        };
        Program {
            graph,
            outputs: vec![("fractions".into(), out)],
            updates: vec![],
        }
    }

    /// (fake, real, mix[n, 1]) -> mean of (norm of the critic's gradient - 1)^2 at points between them. In
    /// f32 under every policy, with both backward passes.
    ///
    /// # Errors
    /// An operation of the critic that cannot be differentiated.
    pub fn penalty<'g>(
        &self,
        g: &'g Graph,
        w: &Named<'g>,
        [fake, real, mix]: [Tx<'g>; 3],
        conditions: Tx<'g>,
    ) -> Result<Tx<'g>, String> {
        g.scope("penalty", || {
            let between = fake + (real - fake) * mix;
            let opinion = self.judge(g, w, between, conditions);
            let slope = grad(g, opinion.sum(3).reshape(&[]), &[between])?[0];
            let norm = ((slope * slope).sum(2) + slope.constant(INSIDE)).sqrt();
            let off = norm - norm.constant(1.0);
            Ok(mean_all(off * off))
        })
    }
}

/// Shares one after the other, each told those before it: the network appears once for each.
fn one_by_one<'g>(
    g: &'g Graph,
    w: &Named<'g>,
    net: &Net,
    given: Given<'g>,
) -> (Tx<'g>, Option<Routed<'g>>) {
    let noise = given.x;
    let (n, d) = (noise.shape().dim(0), net.positions);
    let mut before = noise.constant(0.0).broadcast(noise.shape());
    let mut routed: Option<Routed> = None;
    for i in 0..d {
        let own = w[&format!("const.positions.pick.{i}")];
        let column = Given {
            x: (noise * own).sum(2),
            place: Some((before, own)),
            ..given
        };
        let (y, r) = net.forward(g, w, &column);
        before = before + y * own;
        routed = match (routed, r) {
            (Some(a), Some(b)) => Some(Routed {
                balance: a.balance + b.balance,
                entropy: a.entropy + b.entropy,
            }),
            (a, b) => a.or(b),
        };
    }
    (before.reshape(&[n, d]), routed)
}

/// Each position as 1 among zeros.
fn picks(d: usize) -> impl Iterator<Item = Constant> {
    (0..d).map(move |k| {
        let pick = |_: usize, j: usize| f32::from(j == k);
        Constant::matrix(&format!("positions.pick.{k}"), [1, d], pick)
    })
}

impl Model for Critic {
    fn weights(&self) -> Vec<Weight> {
        self.0.critic().weights()
    }

    fn frozen(&self) -> Vec<Weight> {
        self.0.generator_weights()
    }

    fn constants(&self) -> Vec<Constant> {
        self.0.all_constants()
    }

    /// Inputs as the generator's, with `real` f32[n, layers] and `mix` f32[n, 1]. Losses `loss`,
    /// `distance` (the critic's estimate of the Wasserstein distance), `penalty`.
    fn losses<'g>(&self, g: &'g Graph, w: &Named<'g>) -> Result<Losses<'g>, String> {
        let (gan, n) = (&self.0, self.0.batch);
        let (conditions, fake, _) = gan.fake(g, w, n);
        let real = g.input("real", Type::f32(&[n, gan.layers]));
        let mix = g.input("mix", Type::f32(&[n, 1]));
        let penalty = gan.penalty(g, w, [fake, real, mix], conditions)?;
        let good = gan.judge(g, w, real, conditions);
        let bad = gan.judge(g, w, fake, conditions);
        let (loss, distance) = g.scope("loss", || {
            let distance = mean_all(good) - mean_all(bad);
            (penalty * penalty.constant(PENALTY) - distance, distance)
        });
        Ok(vec![
            ("loss", loss),
            ("distance", distance),
            ("penalty", penalty),
        ])
    }
}

impl Model for Generator {
    fn weights(&self) -> Vec<Weight> {
        self.0.generator_weights()
    }

    fn frozen(&self) -> Vec<Weight> {
        self.0.critic().weights()
    }

    fn constants(&self) -> Vec<Constant> {
        self.0.all_constants()
    }

    fn losses<'g>(&self, g: &'g Graph, w: &Named<'g>) -> Result<Losses<'g>, String> {
        let gan = &self.0;
        let (conditions, fake, routed) = gan.fake(g, w, gan.batch);
        let opinion = gan.judge(g, w, fake, conditions);
        let loss = g.scope("loss", || {
            let loss = -mean_all(opinion);
            routing_loss(&routed).map_or(loss, |r| loss + r)
        });
        Ok(vec![("loss", loss)])
    }
}
