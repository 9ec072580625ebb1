//! A config file: its schema, and how it overrides settings.

use super::{Scheme, Settings};
use crate::data::named::is_named;
use crate::error::Error;
use crate::exec::Numerics;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Reads a config's text.
///
/// # Errors
/// No TOML, unknown keys, values of the wrong kind; in one line with its place.
pub(super) fn parse(path: &Path, text: &str) -> Result<File, Error> {
    toml::from_str(text).map_err(|e| in_one_line(path, text, &e))
}

/// A TOML error as one line with its place.
pub(crate) fn in_one_line(path: &Path, text: &str, e: &toml::de::Error) -> Error {
    let line = e.span().map_or(1, |s| {
        text[..s.start.min(text.len())].matches('\n').count() + 1
    });
    Error::Usage(format!(
        "{}, line {line}: {}",
        path.display(),
        e.message().replace('\n', " ")
    ))
}

/// The config file's schema.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    model: Option<ModelTable>,
    data: Option<DataTable>,
    train: Option<TrainTable>,
    policy: Option<BTreeMap<String, String>>,
    fp16: Option<Fp16Table>,
    ledger: Option<LedgerTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelTable {
    kind: Option<String>,
    n_layer: Option<i64>,
    n_head: Option<i64>,
    n_embd: Option<i64>,
    block: Option<i64>,
    init: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataTable {
    text: Option<PathBuf>,
    train_offsets: Option<PathBuf>,
    val_offsets: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainTable {
    precision: Option<String>,
    numerics: Option<String>,
    batch: Option<i64>,
    accumulate: Option<i64>,
    steps: Option<i64>,
    final_fp32: Option<i64>,
    warmup: Option<i64>,
    lr: Option<f64>,
    min_lr: Option<f64>,
    betas: Option<[f64; 2]>,
    eps: Option<f64>,
    weight_decay: Option<f64>,
    clip: Option<f64>,
    eval_interval: Option<i64>,
    eval_iters: Option<i64>,
    seed: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fp16Table {
    init_scale: Option<f64>,
    growth_interval: Option<i64>,
    max_scale: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerTable {
    swallow_interval: Option<i64>,
    gradhist_step: Option<i64>,
    full_interval: Option<i64>,
}

/// Sets a count from an integer of a file.
fn count<T: TryFrom<i64>>(key: &str, to: &mut T, value: Option<i64>) -> Result<(), String> {
    if let Some(v) = value {
        *to = T::try_from(v).map_err(|_| format!("{key} = {v}: must not be negative"))?;
    }
    Ok(())
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(v) = value {
        *to = v;
    }
}

impl File {
    /// Writes what the file sets over `s`; paths become relative to `dir`.
    pub(super) fn apply(self, s: &mut Settings, dir: &Path) -> Result<(), String> {
        if let Some(m) = self.model {
            if let Some(kind) = m.kind.filter(|k| k != "char-gpt") {
                return Err(format!("kind = \"{kind}\": this version has \"char-gpt\""));
            }
            count("n_layer", &mut s.n_layer, m.n_layer)?;
            count("n_head", &mut s.n_head, m.n_head)?;
            count("n_embd", &mut s.n_embd, m.n_embd)?;
            count("block", &mut s.block, m.block)?;
            s.init = m.init.map(|p| dir.join(p)).or(s.init.take());
        }
        if let Some(d) = self.data {
            let text = d.text.map(|p| if is_named(&p) { p } else { dir.join(p) });
            s.text = text.or(s.text.take());
            s.train_offsets = d.train_offsets.map(|p| dir.join(p));
            s.val_offsets = d.val_offsets.map(|p| dir.join(p));
        }
        if let Some(t) = self.train {
            if let Some(p) = t.precision {
                s.schemes = vec![Scheme::parse(&p).map_err(|e| format!("precision: {e}"))?];
            }
            if let Some(n) = t.numerics {
                let known = <Numerics as clap::ValueEnum>::from_str(&n, false);
                s.numerics = known
                    .map_err(|_| format!("numerics = \"{n}\": must be \"portable\" or \"fast\""))?;
            }
            count("batch", &mut s.batch, t.batch)?;
            count("accumulate", &mut s.accumulate, t.accumulate)?;
            count("steps", &mut s.steps, t.steps)?;
            count("final_fp32", &mut s.final_fp32, t.final_fp32)?;
            count("warmup", &mut s.warmup, t.warmup)?;
            count("eval_interval", &mut s.eval_interval, t.eval_interval)?;
            count("eval_iters", &mut s.eval_iters, t.eval_iters)?;
            count("seed", &mut s.seed, t.seed)?;
            set(&mut s.lr, t.lr);
            set(&mut s.min_lr, t.min_lr);
            set(&mut s.betas, t.betas);
            set(&mut s.eps, t.eps);
            set(&mut s.weight_decay, t.weight_decay);
            set(&mut s.clip, t.clip);
        }
        if let Some(p) = self.policy {
            s.policy = p;
        }
        if let Some(f) = self.fp16 {
            set(&mut s.fp16.init_scale, f.init_scale);
            set(&mut s.fp16.max_scale, f.max_scale);
            count(
                "growth_interval",
                &mut s.fp16.growth_interval,
                f.growth_interval,
            )?;
        }
        if let Some(l) = self.ledger {
            count(
                "swallow_interval",
                &mut s.ledger.swallow_interval,
                l.swallow_interval,
            )?;
            count(
                "gradhist_step",
                &mut s.ledger.gradhist_step,
                l.gradhist_step,
            )?;
            count(
                "full_interval",
                &mut s.ledger.full_interval,
                l.full_interval,
            )?;
        }
        Ok(())
    }
}
