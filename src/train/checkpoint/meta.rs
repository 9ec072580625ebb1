//! What a checkpoint says about itself: the JSON text under the key `isobit` of the file's metadata.
//!
//! Any change of meaning raises [`FORMAT`]. A field that a later scheme needs has its place already:
//! [`Meta::scaler`], [`Meta::random`] and the roles of [`Role`].

use crate::config::Settings;
use crate::report::cost::Cost;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Version of the format that this program writes; it reads this one and no newer one.
pub const FORMAT: u32 = 1;

/// Key of the JSON text in the metadata of the safetensors file.
pub const KEY: &str = "isobit";

/// Everything besides the tensors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// Version of the format.
    pub format: u32,
    /// Version of the program that wrote the file.
    pub version: String,
    /// Hash of the training program's plan: another one may give other bits.
    pub plan: String,
    /// The model's extents.
    pub model: Extents,
    /// The precision scheme.
    pub scheme: String,
    /// Type of weights and moments: `f32` or `bf16`.
    pub storage: String,
    /// Appended to the names of the run's files.
    pub tag: String,
    /// Steps done.
    pub step: u64,
    /// Updates applied: Adam's counter, which a skipped step leaves alone.
    pub updates: u64,
    /// Where the training batches go on.
    pub cursor: Cursor,
    /// Moving average of the training loss.
    pub train_ema: Option<f64>,
    /// The loss scaler's state, of a scheme that has one.
    pub scaler: Option<Scaler>,
    /// Counters of random streams that a scheme keeps besides the batches, by name.
    pub random: BTreeMap<String, u64>,
    /// The best validation loss in fp32 so far.
    pub best: Option<Best>,
    /// The schemes that the weights went through before this one.
    pub lineage: Vec<Ancestor>,
    /// Settings of the run; paths are absolute.
    pub settings: Settings,
    /// The data.
    pub data: DataId,
    /// The characters, by token.
    pub vocabulary: String,
    /// The ledger so far, but for the columns that are tensors.
    pub ledger: LedgerMeta,
    /// Every tensor's role, by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// Digest of weights and moments, 16 hex digits, as in the run's files.
    pub digest: String,
    /// SHA-256 of this text with 64 zeros in this place, followed by the tensors (name, type, extents,
    /// bytes) in the order of their names.
    pub sha256: String,
}

/// The model's extents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extents {
    /// `char-gpt`.
    pub kind: String,
    /// Distinct characters.
    pub vocab: usize,
    /// Context length.
    pub block: usize,
    /// Blocks.
    pub n_layer: usize,
    /// Heads.
    pub n_head: usize,
    /// Width.
    pub n_embd: usize,
}

/// Where the training batches go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Cursor {
    /// Drawn from a counter-based stream: its seed, number and next counter.
    Stream {
        /// Seed.
        seed: u64,
        /// Number of the stream.
        stream: u32,
        /// Next counter.
        next: u32,
    },
    /// Replayed from a file: the next row, from 0.
    Rows {
        /// Next row.
        next: u64,
    },
}

/// State of a loss scaler.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaler {
    /// Present scale.
    pub scale: f64,
    /// Good steps since it last changed.
    pub good_steps: u64,
    /// Steps skipped so far.
    pub skipped: u64,
}

/// The best evaluation so far.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// Its step.
    pub step: u64,
    /// Validation loss in fp32.
    #[serde(deserialize_with = "number")]
    pub val_loss: f64,
}

/// A scheme that the weights were trained under before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ancestor {
    /// The scheme.
    pub scheme: String,
    /// Its last step.
    pub until: u64,
    /// Digest of weights and moments at that step, in that scheme's types.
    pub digest: String,
    /// Elements of weights and moments that lost bits on the way to the next scheme's types.
    pub rounded: u64,
}

/// Which data the run reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataId {
    /// Name or path of the text, for messages.
    pub name: String,
    /// SHA-256 of the text.
    pub sha256: String,
    /// SHA-256 of the replayed training offsets, as little-endian words.
    pub train_offsets: Option<String>,
    /// SHA-256 of the validation offsets, replayed or drawn.
    pub val_offsets: String,
    /// SHA-256 of the initial weights, in the model's order.
    pub init: String,
}

/// The sparse columns of the ledger. The dense ones are the tensors `ledger.lr` (F64), `ledger.loss` and
/// `ledger.grad_norm` (F32), one element a step from `first` to the present step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerMeta {
    /// Step of the first row, from 1: later than 1 after a change of scheme.
    pub first: u64,
    /// (step, digest) where it was taken.
    pub digests: Vec<(u64, String)>,
    /// (step, validation loss, moving average of the training loss).
    #[serde(deserialize_with = "rows")]
    pub curve: Vec<(u64, f64, f64)>,
    /// (step, validation loss in fp32, moving average of the training loss).
    #[serde(deserialize_with = "rows")]
    pub curve_fp32: Vec<(u64, f64, f64)>,
    /// (step, share of swallowed updates).
    pub swallow: Vec<(u64, f64)>,
    /// Rows of the loss scaler, of a scheme that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaler: Vec<ScalerEntry>,
    /// (log10 of the lower edge, count) of the gradient histogram.
    pub histogram: Vec<(f64, u64)>,
    /// Milliseconds of the timed steps together.
    pub timed_ms: f64,
    /// Timed steps.
    pub timed_steps: u64,
    /// Peak of the executor's allocations, in bytes.
    pub peak_bytes: u64,
    /// (step, swallowed updates of each weight in the model's order).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensor_swallow: Vec<(u64, Vec<u64>)>,
    /// Of a run that keeps the full ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<FullMeta>,
    /// Where the time went.
    #[serde(default)]
    pub cost: Cost,
}

/// What the tensors of the full ledger are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullMeta {
    /// Step before which no look was taken.
    pub start: u64,
    /// Bytes of each table's text, by its name.
    pub bytes: BTreeMap<String, u64>,
}

/// A number, which JSON cannot hold where it is none: it is null there.
fn number<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::NAN))
}

/// Rows of such numbers.
fn rows<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<(u64, f64, f64)>, D::Error> {
    let rows = Vec::<(u64, Option<f64>, Option<f64>)>::deserialize(d)?;
    let of = |x: Option<f64>| x.unwrap_or(f64::NAN);
    Ok(rows
        .into_iter()
        .map(|(n, a, b)| (n, of(a), of(b)))
        .collect())
}

/// A row of the loss scaler: [`crate::report::ledger::ScalerRow`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalerEntry {
    /// Step.
    pub step: u64,
    /// Scale that it used.
    pub scale: f64,
    /// Whether it was skipped.
    pub skipped: bool,
    /// Updates applied.
    pub applied: u64,
    /// Factor of clipping.
    pub clip: Option<f64>,
    /// First operation that was not finite.
    pub first: String,
}

/// What a tensor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A weight, under PyTorch's name.
    Weight,
    /// First moment of the weight `of`.
    M,
    /// Second moment of the weight `of`.
    V,
    /// Compensation of the weight `of`: what rounding took away (Kahan).
    Kahan,
    /// A dense column of the ledger.
    Ledger,
}

/// A tensor's role.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// What it is for.
    pub role: Role,
    /// The weight that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_are_no_numbers_come_back() {
        let meta = LedgerMeta {
            curve: vec![(1, f64::NAN, 2.5), (3, f64::INFINITY, f64::NAN)],
            ..LedgerMeta::default()
        };
        let text = serde_json::to_string(&meta).expect("JSON");
        let back: LedgerMeta = serde_json::from_str(&text).expect("what was written");
        assert!(back.curve[0].1.is_nan() && back.curve[0].2 == 2.5 && back.curve[1].2.is_nan());
        let best: Best = serde_json::from_str(r#"{"step":1,"val_loss":null}"#).expect("JSON");
        assert!(best.val_loss.is_nan());
    }
}
