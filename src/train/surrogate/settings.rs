//! Settings of a run that trains a generator of showers: defaults, TOML file, checks.

use crate::config::file::in_one_line;
use crate::error::{Error, usage};
use crate::exec::bytes;
use crate::models::showers::{Denoiser, mixed};
use crate::models::trunk::{Routing, Trunk};
use crate::models::wgan::Gan;
use crate::passes::autocast::{FP32, Policy};
use clap::ValueEnum;
use serde::Deserialize;
use std::path::Path;

/// Most blocks in a row.
const LONGEST: usize = 1024;

/// How a generator is trained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Flow matching: a velocity from noise to data, followed in equal steps.
    Flow,
    /// Denoising diffusion: the noise in a noised event, taken out step by step.
    Ddpm,
    /// A Wasserstein critic with gradient penalty against a generator.
    Wgan,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Flow => "flow",
            Kind::Ddpm => "ddpm",
            Kind::Wgan => "wgan",
        }
    }
}

/// The networks' middle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TrunkKind {
    /// One stack of residual blocks.
    Plain,
    /// Several, with a router that gives each event its best ones.
    Routed,
}

/// How the layers' shares are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// All at once.
    OneShot,
    /// One after the other, each told those before it.
    Autoregressive,
}

/// Everything that shapes a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// How it is trained.
    pub kind: Kind,
    /// The networks' middle.
    pub trunk: TrunkKind,
    /// How shares are made.
    pub shares: Shares,
    /// Width.
    pub hidden: usize,
    /// Residual blocks.
    pub blocks: usize,
    /// Experts of a routed trunk.
    pub experts: usize,
    /// How many of them an event gets.
    pub top: usize,
    /// Layers of the calorimeter.
    pub layers: usize,
    /// Events to train on.
    pub events: usize,
    /// Events that quality is measured on, and that a draw makes.
    pub reference: usize,
    /// Name of the precision.
    pub precision: String,
    /// Steps; of the generator, in a game of two.
    pub steps: usize,
    /// Events a batch.
    pub batch: usize,
    /// Highest learning rate.
    pub lr: f64,
    /// Steps of linear warm-up.
    pub warmup: usize,
    /// Largest norm of the gradient; 0: not clipped.
    pub clip: f64,
    /// Decay of the weights' moving average, once it is warm.
    pub ema: f64,
    /// Steps between evaluations.
    pub eval_interval: usize,
    /// Steps of a draw, and of DDPM's schedule.
    pub noise_steps: usize,
    /// Critic steps for each of the generator.
    pub n_critic: usize,
    /// Seed of events, weights, batches, noise.
    pub seed: u64,
}

impl Settings {
    /// The defaults of a kind.
    pub fn new(kind: Kind) -> Settings {
        let gan = kind == Kind::Wgan;
        Settings {
            kind,
            trunk: TrunkKind::Plain,
            shares: Shares::OneShot,
            hidden: 64,
            blocks: 2,
            experts: 4,
            top: 2,
            layers: 8,
            events: 16384,
            reference: 2048,
            precision: "fp32".into(),
            steps: 500,
            batch: 256,
            lr: if gan { 1e-3 } else { 2e-3 },
            warmup: 20,
            clip: if gan { 0.0 } else { 1.0 },
            ema: 0.999,
            eval_interval: 100,
            noise_steps: if kind == Kind::Ddpm { 50 } else { 25 },
            n_critic: 5,
            seed: 1337,
        }
    }

    /// The middle of the networks.
    pub fn middle(&self) -> Trunk {
        let routing = Routing {
            experts: self.experts,
            top: self.top,
        };
        Trunk {
            hidden: self.hidden,
            blocks: self.blocks,
            routing: (self.trunk == TrunkKind::Routed).then_some(routing),
        }
    }

    /// The networks that flow matching and DDPM train.
    pub fn denoiser(&self) -> Denoiser {
        Denoiser {
            layers: self.layers,
            trunk: self.middle(),
            autoregressive: self.shares == Shares::Autoregressive,
            batch: self.batch,
        }
    }

    /// The networks of the game of two.
    pub fn gan(&self) -> Gan {
        Gan {
            layers: self.layers,
            trunk: self.middle(),
            autoregressive: self.shares == Shares::Autoregressive,
            batch: self.batch,
        }
    }

    /// Reads a TOML file over the settings.
    ///
    /// # Errors
    /// A file that cannot be read, a key that there is not, a value of another type.
    pub fn apply_file(&mut self, path: &Path) -> Result<(), Error> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        let file: File = toml::from_str(&text).map_err(|e| in_one_line(path, &text, &e))?;
        if let Some(kind) = file.model.kind
            && kind != self.kind
        {
            *self = Settings::new(kind);
        }
        macro_rules! take {
            ($($table:ident . $key:ident),* $(,)?) => {
                $(if let Some(x) = file.$table.$key { self.$key = x; })*
            };
        }
        take!(
            model.trunk,
            model.shares,
            model.hidden,
            model.blocks,
            model.experts,
            model.top,
            data.layers,
            data.events,
            data.reference,
            train.precision,
            train.steps,
            train.batch,
            train.lr,
            train.warmup,
            train.clip,
            train.ema,
            train.eval_interval,
            train.noise_steps,
            train.n_critic,
            train.seed,
        );
        Ok(())
    }

    /// Checks ranges and what must fit together; the precision is [`resolve_precision`]'s.
    ///
    /// # Errors
    /// The first key that is out of range.
    pub fn validate(&self) -> Result<(), Error> {
        let rows = [
            ("hidden", self.hidden, 2, 8192),
            ("blocks", self.blocks, 1, 64),
            ("experts", self.experts, 1, 64),
            ("top", self.top, 1, self.experts),
            ("layers", self.layers, 2, 64),
            ("events", self.events, 1, 10_000_000),
            ("reference", self.reference, 2, 1_000_000),
            ("steps", self.steps, 1, 100_000_000),
            ("batch", self.batch, 1, 1_000_000),
            ("warmup", self.warmup, 0, 100_000_000),
            ("eval_interval", self.eval_interval, 1, 100_000_000),
            (
                "noise_steps",
                self.noise_steps,
                self.fewest_noise_steps(),
                10_000,
            ),
            ("n_critic", self.n_critic, 1, 1000),
        ];
        for (key, value, low, high) in rows {
            if !(low..=high).contains(&value) {
                return usage(format!(
                    "{key} = {value}: must be at least {low} and at most {high}"
                ));
            }
        }
        let reals = [
            ("lr", self.lr, f64::MIN_POSITIVE, 1.0),
            ("clip", self.clip, 0.0, 1e30),
            ("ema", self.ema, 0.0, 1.0 - f64::EPSILON),
        ];
        for (key, value, low, high) in reals {
            if !(low..=high).contains(&value) {
                return usage(format!(
                    "{key} = {value}: must be at least {low:e} and at most {high:e}"
                ));
            }
        }
        for (key, value) in [("lr", self.lr), ("clip", self.clip)] {
            if value != 0.0 && (value as f32) < f32::MIN_POSITIVE {
                return usage(format!(
                    "{key} = {value:e}: is 0 in f32; must be at least {:e}{}",
                    f32::MIN_POSITIVE,
                    if key == "clip" {
                        ", or 0: not clipped"
                    } else {
                        ""
                    }
                ));
            }
        }
        // A draw one by one in the game of two is one long graph.
        let copies = (self.layers - 1) * self.blocks * self.middle().stacks();
        let unrolled = self.kind == Kind::Wgan && self.shares == Shares::Autoregressive;
        if unrolled && copies > LONGEST {
            return usage(format!(
                "layers, blocks and experts make {copies} blocks in a row, at most {LONGEST} with autoregressive wgan; take fewer layers or blocks"
            ));
        }
        Ok(())
    }

    /// Refuses what the machine cannot hold, from the extents alone: weights, gradients, moments and
    /// averages, and the events.
    ///
    /// # Errors
    /// More bytes than `have`.
    pub fn check_memory(&self, have: u64) -> Result<(), Error> {
        let h = self.hidden as u64;
        let stacks = self.middle().stacks() as u64;
        let weights = 2 * stacks * self.blocks as u64 * 2 * h * h * 4 * 5;
        let events = self.events as u64 * self.layers as u64 * 16;
        let need = weights + events;
        if need <= have {
            return Ok(());
        }
        usage(format!(
            "these networks and events need at least {} of memory, {} are free; take a smaller hidden, blocks, experts or events",
            bytes(need),
            bytes(have)
        ))
    }

    /// DDPM's largest step must leave something of an event.
    fn fewest_noise_steps(&self) -> usize {
        if self.kind == Kind::Ddpm { 21 } else { 1 }
    }
}

/// The policy of a precision by name.
///
/// # Errors
/// A name that there is not, or fp16 with the reasons why these trainers refuse it.
pub fn policy(name: &str) -> Result<Policy, Error> {
    match name {
        "fp32" => Ok(FP32),
        "mixed" => Ok(mixed()),
        "fp16" => usage(
            "precision fp16: refused for these trainers: the router's epsilons of 1e-8 are below fp16's smallest subnormal of 6e-8 and vanish, and the gradient penalty's norm overflows at 65504; take mixed (products in bf16) or fp32",
        ),
        "bf16" => usage(
            "precision bf16: weights kept in bf16 lose small updates, and these trainers do not offer it; bf16 products with f32 weights are called mixed here",
        ),
        other => usage(format!(
            "precision {other:?}: there are fp32 and mixed (products in bf16, weights in f32)"
        )),
    }
}

/// The policy of a precision on a device, and a sentence that says how the device computes it. What the
/// device cannot do is refused, never replaced.
///
/// # Errors
/// As [`policy`], with the device's name.
pub fn resolve_precision(name: &str, device: &str) -> Result<(Policy, &'static str), Error> {
    let on = |e: Error| match e {
        Error::Usage(text) => Error::Usage(format!("{text} ({device})")),
        e => e,
    };
    let policy = policy(name).map_err(on)?;
    // WGSL has no bf16, and the CPU's kernels use none of its bf16 instructions.
    let how = match name {
        "fp32" => "native f32",
        _ => "bf16 operands, emulated: stored in 16 bits, multiplied in f32",
    };
    Ok((policy, how))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    model: ModelTable,
    data: DataTable,
    train: TrainTable,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ModelTable {
    kind: Option<Kind>,
    trunk: Option<TrunkKind>,
    shares: Option<Shares>,
    hidden: Option<usize>,
    blocks: Option<usize>,
    experts: Option<usize>,
    top: Option<usize>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct DataTable {
    layers: Option<usize>,
    events: Option<usize>,
    reference: Option<usize>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct TrainTable {
    precision: Option<String>,
    steps: Option<usize>,
    batch: Option<usize>,
    lr: Option<f64>,
    warmup: Option<usize>,
    clip: Option<f64>,
    ema: Option<f64>,
    eval_interval: Option<usize>,
    noise_steps: Option<usize>,
    n_critic: Option<usize>,
    seed: Option<u64>,
}
