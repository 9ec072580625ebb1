//! Settings of a run: presets, then a TOML file, then flags; each later one overrides.

use crate::dtype::DType;
use crate::error::{Error, usage};
use crate::exec::Numerics;
use crate::models::char_gpt::CharGpt;
use crate::passes::autocast::{FP32, Policy};
use crate::passes::rules::{Rules, parse as parse_rules};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) mod file;
mod scheme;
pub use scheme::{DEFAULT_SCHEMES, SCHEMES, Scheme};

/// A model and a schedule under one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// 2 layers, width 64, block 64: two minutes for all schemes on two CPU cores.
    Tiny,
    /// 4 layers, width 128, block 64: some minutes a scheme on two CPU cores.
    Small,
    /// 6 layers, width 384, block 256, batch 64: for a GPU.
    Seed,
}

impl Preset {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Tiny => "tiny",
            Preset::Small => "small",
            Preset::Seed => "seed",
        }
    }
}

/// `[fp16]`: loss scaling.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fp16 {
    /// First loss scale.
    pub init_scale: f64,
    /// Good steps before it doubles.
    pub growth_interval: u64,
    /// The largest loss scale.
    #[serde(default = "max_scale")]
    pub max_scale: f64,
}

/// A scale past which doubling gains nothing: the smallest subnormal of binary16 is 2^-24.
fn max_scale() -> f64 {
    16_777_216.0
}

fn one() -> usize {
    1
}

fn is_none(n: &usize) -> bool {
    *n == 0
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

/// `[ledger]`: what is measured when.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerSettings {
    /// Steps between counts of swallowed updates.
    pub swallow_interval: u64,
    /// Step of the gradient histogram.
    pub gradhist_step: u64,
    /// Steps between looks of the full ledger; 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub full_interval: u64,
}

impl LedgerSettings {
    /// Whether the full ledger looks at a step, from 1.
    pub fn looks_at(&self, step: usize) -> bool {
        self.full_interval > 0 && (step as u64).is_multiple_of(self.full_interval)
    }
}

/// Everything that a run depends on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name for the output folder: the preset, or the config file's.
    pub name: String,
    /// Blocks.
    pub n_layer: usize,
    /// Heads.
    pub n_head: usize,
    /// Width.
    pub n_embd: usize,
    /// Context length.
    pub block: usize,
    /// Initial weights (safetensors), else drawn from the seed.
    pub init: Option<PathBuf>,
    /// Text file or name of a data set, else the built-in corpus.
    pub text: Option<PathBuf>,
    /// Batches to replay.
    pub train_offsets: Option<PathBuf>,
    /// Validation batches to replay.
    pub val_offsets: Option<PathBuf>,
    /// Schemes to run.
    pub schemes: Vec<Scheme>,
    /// What is promised of the bits.
    #[serde(default)]
    pub numerics: Numerics,
    /// Sequences a batch.
    pub batch: usize,
    /// Batches a step: their gradients are summed before one update.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: usize,
    /// Steps.
    pub steps: usize,
    /// How many of the last steps run in fp32.
    #[serde(default, skip_serializing_if = "is_none")]
    pub final_fp32: usize,
    /// Steps of linear warm-up.
    pub warmup: usize,
    /// Highest learning rate.
    pub lr: f64,
    /// Last learning rate.
    pub min_lr: f64,
    /// Decay rates of the moments.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay, of every tensor.
    pub weight_decay: f64,
    /// Largest norm of the gradient; 0: not clipped.
    pub clip: f64,
    /// Steps between evaluations.
    pub eval_interval: usize,
    /// Batches of an evaluation, where they are not replayed.
    pub eval_iters: usize,
    /// Seed of weights and batches.
    pub seed: u64,
    /// Overrides of the schemes' policies: operation or part of the model, and `fp32`, `bf16` or `fp16`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policy: BTreeMap<String, String>,
    /// Loss scaling.
    pub fp16: Fp16,
    /// Ledger.
    pub ledger: LedgerSettings,
}

impl Settings {
    /// A preset's settings: the seed document's schedule, with the preset's extents.
    pub fn preset(p: Preset) -> Settings {
        let (n_layer, n_head, n_embd, block, batch, steps) = match p {
            Preset::Tiny => (2, 2, 64, 64, 8, 2000),
            Preset::Small => (4, 4, 128, 64, 12, 2000),
            Preset::Seed => (6, 6, 384, 256, 64, 6000),
        };
        Settings {
            name: p.name().into(),
            n_layer,
            n_head,
            n_embd,
            block,
            init: None,
            text: None,
            train_offsets: None,
            val_offsets: None,
            schemes: DEFAULT_SCHEMES.to_vec(),
            numerics: Numerics::default(),
            batch,
            accumulate: 1,
            steps,
            final_fp32: 0,
            warmup: 100,
            lr: 1e-3,
            min_lr: 1e-4,
            betas: [0.9, 0.95],
            eps: 1e-8,
            weight_decay: 0.1,
            clip: 0.0,
            eval_interval: 100,
            eval_iters: 20,
            seed: 1337,
            policy: BTreeMap::new(),
            fp16: Fp16 {
                init_scale: 65536.0,
                growth_interval: 2000,
                max_scale: max_scale(),
            },
            ledger: LedgerSettings {
                swallow_interval: 200,
                gradhist_step: 500,
                full_interval: 0,
            },
        }
    }

    /// A scheme's policy with this run's overrides.
    ///
    /// # Errors
    /// As [`Settings::validate`], of the overrides.
    pub fn policy_of(&self, scheme: Scheme) -> Result<Policy, Error> {
        let places = self.model(1).places();
        Ok(Policy {
            rules: Rules::keep(&self.policy, &places).map_err(Error::Usage)?,
            ..scheme.policy()
        })
    }

    /// The policy of a scheme's last steps, where they run in fp32: the same weights and moments.
    ///
    /// # Errors
    /// The scheme keeps its weights in another type.
    pub fn final_policy(&self, scheme: Scheme) -> Result<Option<Policy>, Error> {
        if self.final_fp32 == 0 || scheme == Scheme::Fp32 {
            return Ok(None);
        }
        if scheme.policy().storage == DType::F32 {
            return Ok(Some(FP32));
        }
        let name = scheme.name();
        usage(format!(
            "final_fp32 = {}: {name} keeps its weights in bf16, so its last steps cannot be fp32; choose mixed or fp16 with --schemes, or stop with --stop-after and go on with --resume-as fp32",
            self.final_fp32
        ))
    }

    /// Whether a step, from 1, is one of the last ones that run in fp32.
    pub fn is_final(&self, step: usize) -> bool {
        step + self.final_fp32 > self.steps
    }

    /// The model, for a vocabulary.
    pub fn model(&self, vocab: usize) -> CharGpt {
        let Settings {
            n_layer,
            n_head,
            n_embd,
            block,
            ..
        } = *self;
        CharGpt {
            vocab,
            block,
            n_layer,
            n_head,
            n_embd,
        }
    }

    /// Applies a config file over these settings. Paths in it are relative to it.
    ///
    /// # Errors
    /// A file that cannot be read, is no TOML, or has unknown keys or values of the wrong kind.
    pub fn apply_file(&mut self, path: &Path) -> Result<(), Error> {
        let meta = std::fs::metadata(path).map_err(Error::io("read", path))?;
        if !meta.is_file() || meta.len() > 1 << 20 {
            return usage(format!(
                "{}: a config is a file of at most 1 MiB",
                path.display()
            ));
        }
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        self.apply_text(path, &text)
    }

    /// As [`Settings::apply_file`], from the file's text.
    ///
    /// # Errors
    /// As [`Settings::apply_file`].
    pub fn apply_text(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        let file = file::parse(path, text)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let stem = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or("config");
        let folder = path
            .canonicalize()
            .ok()
            .and_then(|p| Some(p.parent()?.file_name()?.to_str()?.to_string()));
        self.name = if stem == "config" {
            folder.unwrap_or_else(|| stem.into())
        } else {
            stem.into()
        };
        file.apply(self, dir)
            .map_err(|e| Error::Usage(format!("{}: {e}", path.display())))
    }

    /// Refuses values that no run can use.
    ///
    /// # Errors
    /// The first of them, with the key and its bounds.
    pub fn validate(&self) -> Result<(), Error> {
        within("n_layer", self.n_layer as u64, 1, 1024)?;
        within("n_embd", self.n_embd as u64, 1, 65_536)?;
        within("n_head", self.n_head as u64, 1, 1024)?;
        within("block", self.block as u64, 1, 65_536)?;
        within("batch", self.batch as u64, 1, 65_536)?;
        within("accumulate", self.accumulate as u64, 1, 65_536)?;
        within("steps", self.steps as u64, 1, 1_000_000_000)?;
        within("final_fp32", self.final_fp32 as u64, 0, self.steps as u64)?;
        within("warmup", self.warmup as u64, 0, 1_000_000_000)?;
        within("eval_interval", self.eval_interval as u64, 1, 1_000_000_000)?;
        within("eval_iters", self.eval_iters as u64, 1, 1_000_000)?;
        within(
            "growth_interval",
            self.fp16.growth_interval,
            1,
            1_000_000_000,
        )?;
        within(
            "swallow_interval",
            self.ledger.swallow_interval,
            1,
            1_000_000_000,
        )?;
        within("full_interval", self.ledger.full_interval, 0, 1_000_000_000)?;
        within("gradhist_step", self.ledger.gradhist_step, 0, 1_000_000_000)?;
        if !self.n_embd.is_multiple_of(self.n_head) {
            return usage(format!(
                "n_head = {} does not divide n_embd = {}",
                self.n_head, self.n_embd
            ));
        }
        if !self.policy.is_empty() {
            parse_rules(&self.policy, &self.model(1).places()).map_err(Error::Usage)?;
        }
        if self.eval_iters * self.batch > 1 << 28 {
            return usage(format!(
                "eval_iters {} times batch {} is more than 2^28 sequences an evaluation",
                self.eval_iters, self.batch
            ));
        }
        if self.batch * self.block > 1 << 30 {
            return usage(format!(
                "batch {} times block {} is more than 2^30 positions a step",
                self.batch, self.block
            ));
        }
        if self.steps as u128 * self.accumulate as u128 * self.batch as u128 > 1 << 40 {
            return usage(format!(
                "steps {} times accumulate {} times batch {} is more than 2^40 sequences",
                self.steps, self.accumulate, self.batch
            ));
        }
        number(
            "lr",
            self.lr,
            |x| x > 0.0 && x <= 1e6,
            "above 0 and at most 1e6",
        )?;
        let ok = |x: f64| x >= 0.0 && x <= self.lr;
        number(
            "min_lr",
            self.min_lr,
            ok,
            &format!("at least 0 and at most lr = {}", self.lr),
        )?;
        for (i, b) in self.betas.iter().enumerate() {
            number(
                &format!("betas[{i}]"),
                *b,
                |x| (0.0..1.0).contains(&x),
                "at least 0 and below 1",
            )?;
        }
        number(
            "eps",
            self.eps,
            |x| (1e-30..=1.0).contains(&x),
            "at least 1e-30 and at most 1",
        )?;
        number(
            "weight_decay",
            self.weight_decay,
            |x| (0.0..=10.0).contains(&x),
            "at least 0 and at most 10",
        )?;
        number(
            "clip",
            self.clip,
            |x| (0.0..=1e9).contains(&x),
            "at least 0 (0: no clipping) and at most 1e9",
        )?;
        number(
            "max_scale",
            self.fp16.max_scale,
            |x| (1.0..=1_099_511_627_776.0).contains(&x) && f64::from(x as f32) == x,
            "an f32 of at least 1 and at most 2^40",
        )?;
        number(
            "init_scale",
            self.fp16.init_scale,
            |x| (1.0..=self.fp16.max_scale).contains(&x) && f64::from(x as f32) == x,
            &format!(
                "an f32 of at least 1 and at most max_scale = {}",
                self.fp16.max_scale
            ),
        )
    }
}

fn within(key: &str, value: u64, low: u64, high: u64) -> Result<(), Error> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    usage(format!(
        "{key} = {value}: must be at least {low} and at most {high}"
    ))
}

fn number(key: &str, value: f64, ok: impl Fn(f64) -> bool, bounds: &str) -> Result<(), Error> {
    if value.is_finite() && ok(value) {
        Ok(())
    } else {
        usage(format!("{key} = {value}: must be {bounds}"))
    }
}
