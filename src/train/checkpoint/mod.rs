//! Checkpoints: one safetensors file each, from which a run goes on bit for bit.
//!
//! ```text
//! <outdir>/checkpoints/<scheme><tag>/step-00000123.safetensors
//!                                    best.safetensors            lowest validation loss in fp32
//! ```
//!
//! * Weights stand under PyTorch's names in the scheme's own type (F32 or BF16), unpadded; the moments
//!   of `x` are `x.m` and `x.v`, its compensation, of a scheme that has one, is `x.c`; the ledger's dense columns are `ledger.lr` (F64), `ledger.loss` and
//!   `ledger.grad_norm` (F32). A run with the full ledger adds its tables as text (`ledger.updates`, …, U8),
//!   each weight's value at the last look, `ledger.seen` (F32), and the look that first saw it,
//!   `ledger.since` (U32), both in the model's order. A reader of weights alone passes over the others.
//! * [`Meta`] is JSON under the key `isobit` of the file's metadata. It holds all else that the run
//!   depends on, the rest of the ledger included, so that the run's files go on as if unbroken wherever
//!   the one file is taken.
//! * A seal (SHA-256 of metadata and tensors) shows any changed byte; the digest of weights and moments
//!   is computed anew from what was read.
//!
//! A file is hostile until it is checked: its length bounds what its header may claim, and the extents in
//! its metadata must account for every tensor before one of them is looked at.

mod check;
pub mod convert;
pub(crate) mod file;
pub mod full;
pub mod inspect;
pub mod keeper;
pub mod locate;
pub mod meta;
pub mod resume;
#[cfg(test)]
mod tests;

use crate::config::Scheme;
use crate::dtype::DType;
use crate::error::Error;
use crate::kernels::digest::{combine, element};
use crate::models::char_gpt::CharGpt;
use crate::passes::autocast::Policy;
pub(crate) use crate::report::files::plain_tag;
use crate::train::weights::Tensors;
use file::Content;
use file::fault;
pub use file::{MAX_HEADER, parse, read};
pub use full::Full;
pub use locate::{Which, locate};
pub use meta::{FORMAT, KEY, Meta, Role};
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The dense columns of the ledger: names and types.
pub(crate) const COLUMNS: [(&str, Dtype); 3] = [
    ("ledger.lr", Dtype::F64),
    ("ledger.loss", Dtype::F32),
    ("ledger.grad_norm", Dtype::F32),
];

/// A state of the model: a weight or a moment.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The weight that it belongs to.
    pub of: String,
    /// Extents.
    pub dims: Vec<usize>,
    /// Element type.
    pub dtype: DType,
    /// Its words, as an executor holds them: narrow elements packed two to a word in padded rows.
    pub words: Vec<u32>,
}

impl State {
    /// Its elements, widened exactly.
    pub fn values(&self) -> Vec<f32> {
        self.dtype.unpack(self.row(), &self.words)
    }

    /// Length of its last dimension.
    pub fn row(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }
}

/// The dense columns of the ledger, one element a step.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Columns {
    /// Learning rate.
    pub lr: Vec<f64>,
    /// Training loss.
    pub loss: Vec<f32>,
    /// Norm of the gradient.
    pub grad_norm: Vec<f32>,
}

/// A checkpoint that has passed every check.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// The file.
    pub path: PathBuf,
    /// All but the tensors.
    pub meta: Meta,
    /// Weights and moments, in the order of their digests.
    pub states: Vec<State>,
    /// The ledger's dense columns.
    pub columns: Columns,
    /// The full ledger, of a run that keeps it.
    pub full: Option<Full>,
    scheme: Scheme,
    vocab: Vec<char>,
}

impl Checkpoint {
    /// Reads and checks a checkpoint. See [`locate`] for folders.
    ///
    /// # Errors
    /// Anything that is not a whole checkpoint of this or an older format, in one line.
    pub fn load(path: &Path) -> Result<Checkpoint, Error> {
        Checkpoint::from_bytes(path, &read(path)?)
    }

    /// As [`Checkpoint::load`], from the bytes of a file; `path` stands for it in messages.
    ///
    /// # Errors
    /// As [`Checkpoint::load`].
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Checkpoint, Error> {
        let (tensors, head) = parse(path, bytes)?;
        let Some(text) = head.get(KEY) else {
            return Err(fault(
                path,
                "is a safetensors file, but no checkpoint of isobit: it has no metadata `isobit`; \
                 weights alone are taken by --init",
            ));
        };
        let meta = check::parse_meta(path, text)?;
        let scheme = Scheme::parse(&meta.scheme).map_err(|e| fault(path, e.to_string()))?;
        let vocab: Vec<char> = meta.vocabulary.chars().collect();
        check::check_meta(&meta, scheme, &vocab).map_err(|why| fault(path, why))?;
        let model = meta.settings.model(vocab.len());
        check::check_extent(&meta, &model, scheme, &tensors).map_err(|why| fault(path, why))?;
        if !file::sealed(text, &meta, &tensors) {
            return Err(fault(
                path,
                "is damaged: its bytes do not match their SHA-256; take an older checkpoint",
            ));
        }
        let states = check::states(&model, scheme, &tensors).map_err(|why| fault(path, why))?;
        let columns = check::columns(&meta, &tensors).map_err(|why| fault(path, why))?;
        let full = full::read(&meta, model.parameters(), &tensors);
        let full = full.map_err(|why| fault(path, why))?;
        let digest = format!("{:016x}", digest(&states));
        if digest != meta.digest {
            let why = format!(
                "is damaged: its weights and moments have the digest {digest}, it claims {}",
                meta.digest
            );
            return Err(fault(path, why));
        }
        Ok(Checkpoint {
            path: path.to_path_buf(),
            meta,
            states,
            columns,
            full,
            scheme,
            vocab,
        })
    }

    /// The model.
    pub fn model(&self) -> CharGpt {
        self.meta.settings.model(self.vocab.len())
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The characters, by token, ascending by code point.
    pub fn vocab(&self) -> &[char] {
        &self.vocab
    }

    /// The weights with their extents, widened exactly.
    pub fn tensors(&self) -> Tensors {
        let weights = self.states.iter().filter(|s| s.role == Role::Weight);
        weights
            .map(|s| (s.name.clone(), s.dims.clone(), s.values()))
            .collect()
    }

    /// The weights in the model's order, widened exactly.
    pub fn weights(&self) -> Vec<(String, Vec<f32>)> {
        let weights = self.states.iter().filter(|s| s.role == Role::Weight);
        weights.map(|s| (s.name.clone(), s.values())).collect()
    }
}

/// The safetensors type of a state.
fn stored(dtype: DType) -> Dtype {
    match dtype {
        DType::Bf16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::F32 => Dtype::F32,
        DType::U32 => Dtype::U32,
    }
}

/// The states of a model in the order of their digests, without words.
pub(crate) fn layout(model: &CharGpt, policy: &Policy) -> Vec<State> {
    let mut out = Vec::new();
    for w in model.weights() {
        let roles = [Role::Weight, Role::M, Role::V, Role::Kahan];
        for (role, name) in roles.into_iter().zip(w.states(policy)) {
            out.push(State {
                name,
                role,
                of: w.name.clone(),
                dims: w.dims.clone(),
                dtype: policy.storage,
                words: vec![],
            });
        }
    }
    out
}

/// The roles of all tensors, for the metadata; those of the full ledger among them where there is one.
pub(crate) fn roles(
    model: &CharGpt,
    policy: &Policy,
    full: bool,
) -> BTreeMap<String, meta::Tensor> {
    let states = layout(model, policy).into_iter().map(|s| {
        let (role, of) = (s.role, Some(s.of));
        (s.name, meta::Tensor { role, of })
    });
    let more = full.then(full::names).into_iter().flatten();
    let ledger = COLUMNS.map(|(name, _)| name.to_string()).into_iter();
    let ledger = ledger.chain(more).map(|name| {
        let role = Role::Ledger;
        (name, meta::Tensor { role, of: None })
    });
    states.chain(ledger).collect()
}

/// Little-endian elements, unpadded, to words in padded rows.
pub(crate) fn to_words(dtype: DType, row: usize, bytes: &[u8]) -> Vec<u32> {
    if !dtype.packed() {
        let each = bytes.chunks_exact(4);
        return each
            .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect();
    }
    let half = |c: &[u8]| u32::from(u16::from_le_bytes([c[0], c[1]]));
    let pair = |c: &[u8]| half(c) | if c.len() == 4 { half(&c[2..]) << 16 } else { 0 };
    bytes
        .chunks(row.max(1) * 2)
        .flat_map(|r| r.chunks(4).map(pair))
        .collect()
}

/// Undoes [`to_words`].
pub(crate) fn to_bytes(dtype: DType, row: usize, words: &[u32]) -> Vec<u8> {
    if !dtype.packed() {
        return words.iter().flat_map(|w| w.to_le_bytes()).collect();
    }
    let row = row.max(1);
    let mut out = Vec::with_capacity(words.len() * 4);
    for r in words.chunks(row.div_ceil(2)) {
        let start = out.len();
        r.iter().for_each(|w| out.extend(w.to_le_bytes()));
        out.truncate(start + row * 2);
    }
    out
}

/// The digest of states, as the device computes it.
pub fn digest(states: &[State]) -> u64 {
    let (mut a, mut b) = (0u32, 0u32);
    for (tensor, s) in states.iter().enumerate() {
        for (i, &word) in s.words.iter().enumerate() {
            let (p, q) = element(tensor as u32, i as u32, word);
            (a, b) = (a.wrapping_add(p), b.wrapping_add(q));
        }
    }
    combine([a, b])
}

/// A checkpoint's tensors: states, numbered as in `states`, whose words are not looked at; the ledger's
/// columns; and `more`, those of the full ledger.
pub(crate) fn entries(
    states: &[State],
    columns: &Columns,
    more: Vec<file::Entry>,
) -> Vec<file::Entry> {
    let mut entries = more;
    let own = states.iter().enumerate().map(|(i, s)| file::Entry {
        name: s.name.clone(),
        dtype: stored(s.dtype),
        dims: s.dims.clone(),
        content: Content::State(i),
    });
    entries.extend(own);
    let n = columns.lr.len();
    let f32s = |x: &[f32]| x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let all = [
        columns.lr.iter().flat_map(|v| v.to_le_bytes()).collect(),
        f32s(&columns.loss),
        f32s(&columns.grad_norm),
    ];
    entries.extend(
        COLUMNS
            .into_iter()
            .zip(all)
            .map(|((name, dtype), data)| file::Entry {
                name: name.to_string(),
                dtype,
                dims: vec![n],
                content: Content::Bytes(data),
            }),
    );
    entries
}
