//! What a checkpoint must be before anything is made of it.

use super::file::fault;
use super::meta::{FORMAT, Meta};
use super::{COLUMNS, Columns, State, full, layout, plain_tag, roles, stored, to_words};
use crate::config::Scheme;
use crate::data::text::MAX_VOCAB;
use crate::error::Error;
use crate::models::char_gpt::CharGpt;
use crate::passes::autocast::Rounding;
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

/// The metadata, if this program knows its format.
pub(super) fn parse_meta(path: &Path, text: &str) -> Result<Meta, Error> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: u64,
        #[serde(default)]
        version: String,
    }
    let unreadable = |e: serde_json::Error| {
        fault(
            path,
            format!("is damaged: its metadata is unreadable ({e})"),
        )
    };
    let head: Head = serde_json::from_str(text).map_err(unreadable)?;
    if head.format != u64::from(FORMAT) {
        let version: String = head.version.chars().take(20).collect();
        return Err(fault(
            path,
            format!(
                "has checkpoint format {}, written by isobit {version:?}; this isobit {} reads format {FORMAT}; \
                 use a newer isobit",
                head.format,
                env!("CARGO_PKG_VERSION")
            ),
        ));
    }
    serde_json::from_str(text).map_err(unreadable)
}

/// Refuses metadata that no run can have written.
pub(super) fn check_meta(m: &Meta, scheme: Scheme, vocab: &[char]) -> Result<(), String> {
    let ensure = |ok: bool, what: &str| {
        if ok {
            Ok(())
        } else {
            Err(format!("is damaged: {what}"))
        }
    };
    let s = &m.settings;
    s.validate().map_err(|e| format!("is damaged: {e}"))?;
    let x = &m.model;
    if x.kind != "char-gpt" {
        return Err(format!(
            "has a model of the kind {:?}; this version has \"char-gpt\"",
            x.kind
        ));
    }
    ensure(
        (x.n_layer, x.n_head, x.n_embd, x.block) == (s.n_layer, s.n_head, s.n_embd, s.block),
        "its model is not that of its settings",
    )?;
    ensure(
        !vocab.is_empty() && vocab.len() <= MAX_VOCAB && x.vocab == vocab.len(),
        "its vocabulary has not the model's extent",
    )?;
    ensure(
        vocab.windows(2).all(|w| w[0] < w[1]),
        "its vocabulary is not in order",
    )?;
    ensure(
        m.storage == scheme.policy().storage.name(),
        "its storage type is not its scheme's",
    )?;
    ensure(
        m.step >= 1 && m.step <= s.steps as u64 && m.updates <= m.step,
        "its steps do not fit its settings",
    )?;
    ensure(plain_tag(&m.tag), "its tag cannot be part of a file name")?;
    ensure(
        m.best.is_none_or(|b| b.step <= m.step),
        "its best step is yet to come",
    )?;
    let l = &m.ledger;
    ensure(
        l.first >= 1 && l.first <= m.step + 1,
        "its ledger starts past its end",
    )?;
    let inside = |steps: &mut dyn Iterator<Item = u64>| {
        let steps: Vec<u64> = steps.collect();
        steps.windows(2).all(|w| w[0] < w[1])
            && steps.iter().all(|n| (l.first..=m.step).contains(n))
    };
    ensure(
        inside(&mut l.digests.iter().map(|r| r.0))
            && inside(&mut l.curve.iter().map(|r| r.0))
            && inside(&mut l.curve_fp32.iter().map(|r| r.0))
            && inside(&mut l.swallow.iter().map(|r| r.0))
            && inside(&mut l.scaler.iter().map(|r| r.step)),
        "its ledger has steps out of order",
    )?;
    ensure(
        m.scaler.is_some() == scheme.policy().scaled,
        "its scheme and its loss scaler do not fit",
    )?;
    if let Some(x) = &m.scaler {
        let f32s = |v: f64| v.is_finite() && f64::from(v as f32) == v;
        ensure(
            f32s(x.scale) && (1.0..=s.fp16.max_scale).contains(&x.scale),
            "its loss scale is out of bounds",
        )?;
        ensure(
            x.good_steps < s.fp16.growth_interval && x.skipped <= m.step - m.updates,
            "the counts of its loss scaler do not fit its steps",
        )?;
    }
    let plain = |text: &str| text.len() <= 200 && !text.chars().any(char::is_control);
    ensure(
        l.scaler.iter().all(|r| plain(&r.first)),
        "its ledger has a name that is none",
    )?;
    let hex = |d: &str| d.len() == 16 && d.bytes().all(|b| b.is_ascii_hexdigit());
    ensure(
        l.digests.iter().all(|r| hex(&r.1)),
        "its ledger has a digest that is none",
    )?;
    ensure(
        inside(&mut l.tensor_swallow.iter().map(|r| r.0))
            && l.tensor_swallow
                .iter()
                .all(|r| r.1.len() <= m.tensors.len()),
        "its ledger counts tensors that it has not",
    )?;
    ensure(
        l.full.as_ref().is_none_or(|f| f.start <= m.step),
        "its full ledger starts past its end",
    )?;
    ensure(
        l.histogram.len() <= 1 << 16,
        "its histogram is longer than any",
    )
}

/// Holds the model's extents against the file before anything of their size is made.
pub(super) fn check_extent(
    m: &Meta,
    model: &CharGpt,
    scheme: Scheme,
    tensors: &SafeTensors,
) -> Result<(), String> {
    let have: u128 = tensors.iter().map(|(_, t)| t.data().len() as u128).sum();
    let policy = scheme.policy();
    let states = match policy.rounding {
        Rounding::Compensated => 4,
        Rounding::Nearest | Rounding::Stochastic => 3,
    };
    let element = if policy.storage.packed() { 2 } else { 4 };
    let rows = (m.step + 1 - m.ledger.first) as u128;
    let own = model.parameters() * states * element + rows * 16;
    let need = own + full::extent(m, model.parameters());
    if have != need {
        return Err(format!(
            "is damaged: its model and ledger take {need} bytes, it has {have}"
        ));
    }
    if m.tensors != roles(model, &policy, m.ledger.full.is_some()) {
        return Err("is damaged: its list of tensors is not that of its model".into());
    }
    match tensors
        .names()
        .iter()
        .find(|n| !m.tensors.contains_key(**n))
    {
        Some(extra) => Err(format!(
            "has a tensor {:?} that the model has not",
            extra.chars().take(80).collect::<String>()
        )),
        None => Ok(()),
    }
}

/// The bytes of a tensor of a type and extents.
pub(super) fn data<'a>(
    tensors: &'a SafeTensors,
    name: &str,
    dtype: Dtype,
    dims: &[usize],
) -> Result<&'a [u8], String> {
    let t = tensors
        .tensor(name)
        .map_err(|_| format!("has no tensor {name}"))?;
    if t.dtype() != dtype || t.shape() != dims {
        return Err(format!(
            "{name} is {:?} {:?}, expected {dtype:?} {dims:?}",
            t.dtype(),
            t.shape()
        ));
    }
    Ok(t.data())
}

/// Weights and moments; each must be finite.
pub(super) fn states(
    model: &CharGpt,
    scheme: Scheme,
    tensors: &SafeTensors,
) -> Result<Vec<State>, String> {
    let dtype = scheme.policy().storage;
    let mut out = layout(model, &scheme.policy());
    for state in &mut out {
        let bytes = data(tensors, &state.name, stored(dtype), &state.dims)?;
        state.words = to_words(dtype, state.row(), bytes);
        if let Some(i) = state.values().iter().position(|v| !v.is_finite()) {
            return Err(format!(
                "{} element {i} is not finite: training cannot go on from it",
                state.name
            ));
        }
    }
    Ok(out)
}

/// The dense columns of the ledger.
pub(super) fn columns(m: &Meta, tensors: &SafeTensors) -> Result<Columns, String> {
    let n = (m.step + 1 - m.ledger.first) as usize;
    let [lr, loss, norm] = COLUMNS.map(|(name, dtype)| data(tensors, name, dtype, &[n]));
    let f32s = |b: &[u8]| -> Vec<f32> {
        let each = b.chunks_exact(4);
        each.map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect()
    };
    let wide = |c: &[u8]| f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
    Ok(Columns {
        lr: lr?.chunks_exact(8).map(wide).collect(),
        loss: f32s(loss?),
        grad_norm: f32s(norm?),
    })
}
