//! What a run reads, and what it is asked to leave besides the ledger.

use crate::config::{Scheme, Settings};
use crate::data::batches::Batches;
use crate::data::named;
use crate::data::text::{Offsets, Text};
use crate::error::{Error, usage};
use crate::train::checkpoint::keeper::rows_sha256;
use crate::train::checkpoint::meta::DataId;
use std::path::PathBuf;

/// Stream numbers of the random batches.
const TRAIN_STREAM: u32 = 1;
/// The seed document's own seed for validation batches: the same for every run.
const VAL_SEED: u64 = 4242;
/// A text and the batches drawn from it.
pub struct Data {
    /// The text.
    pub text: Text,
    /// Training offsets to replay.
    train: Option<Offsets>,
    /// Validation batches.
    val: Vec<Vec<u32>>,
}

impl Data {
    /// Loads the text and, where given, the offsets, and checks that they fit the settings.
    ///
    /// # Errors
    /// A file that cannot be used, or a text too short for the block.
    pub fn load(s: &Settings) -> Result<Data, Error> {
        let text = match &s.text {
            Some(path) => named::load(path)?,
            None => Text::from_str("built-in dialogue", &crate::data::corpus::dialogue())?,
        };
        for (part, name) in [(&text.train, "first 90%"), (&text.val, "last 10%")] {
            if part.len() < s.block + 2 {
                return usage(format!(
                    "{}: its {name} has {} characters, block {} needs at least {}; take a longer text or a smaller block",
                    text.name,
                    part.len(),
                    s.block,
                    s.block + 2
                ));
            }
        }
        let train = match &s.train_offsets {
            Some(p) => Some(Offsets::load(p, s.batch, s.block, text.train.len())?),
            None => None,
        };
        if let (Some(o), Some(p)) = (&train, &s.train_offsets)
            && o.rows.len() < s.steps * s.accumulate
        {
            let n = o.rows.len();
            let each = match s.accumulate {
                1 => String::new(),
                n => format!(" of {n} batches"),
            };
            return usage(format!(
                "{}: has {n} rows for {} steps{each}; lower --steps or take another file",
                p.display(),
                s.steps
            ));
        }
        let val = match &s.val_offsets {
            Some(p) => Offsets::load(p, s.batch, s.block, text.val.len())?.rows,
            None => {
                let mut stream = Batches::stream(VAL_SEED, 0, text.val.len(), s.block, s.batch);
                (0..s.eval_iters).map(|_| stream.next_offsets()).collect()
            }
        };
        if val.is_empty() {
            return usage("the validation offsets have no row");
        }
        Ok(Data { text, train, val })
    }

    /// Offsets of the validation batches.
    pub fn validation(&self) -> &[Vec<u32>] {
        &self.val
    }

    /// The training batches, from the first on.
    pub fn batches(&self, s: &Settings) -> Batches {
        match &self.train {
            Some(o) => Batches::Rows(o.clone(), 0),
            None => Batches::stream(
                s.seed,
                TRAIN_STREAM,
                self.text.train.len(),
                s.block,
                s.batch,
            ),
        }
    }
}

/// What a run is asked to leave besides the ledger.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Weights after the last step.
    pub save: Option<PathBuf>,
    /// Gradients of a step.
    pub dump_grads: Option<(usize, PathBuf)>,
}

impl Extras {
    /// The files it names.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.save.iter().chain(self.dump_grads.iter().map(|d| &d.1))
    }

    /// The files of one scheme: as they are if it runs alone, else with the scheme's name before the
    /// extension.
    pub fn of(&self, scheme: Scheme, schemes: usize) -> Extras {
        let name = |p: &PathBuf| {
            if schemes == 1 {
                return p.clone();
            }
            let stem = p.file_stem().unwrap_or_default().to_string_lossy();
            let end = p
                .extension()
                .map_or(String::new(), |e| format!(".{}", e.to_string_lossy()));
            p.with_file_name(format!("{stem}_{}{end}", scheme.name()))
        };
        Extras {
            save: self.save.as_ref().map(name),
            dump_grads: self.dump_grads.as_ref().map(|(n, p)| (*n, name(p))),
        }
    }
}

impl Data {
    /// What a checkpoint must say of the data; `init` is the digest of the initial weights.
    pub fn id(&self, init: String) -> DataId {
        DataId {
            name: self.text.name.clone(),
            sha256: self.text.sha256.clone(),
            train_offsets: self.train.as_ref().map(|o| rows_sha256(&o.rows)),
            val_offsets: rows_sha256(&self.val),
            init,
        }
    }
}
