//! What the runs of an experiment ended with: one row a seed and scheme.

use super::files::write_atomic;
use super::ledger::{other_rows, table};
use crate::error::{Error, usage};
use std::path::Path;

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Ending {
    /// Its seed.
    pub seed: i64,
    /// Its scheme.
    pub scheme: String,
    /// The last validation loss, in the scheme's own precision.
    pub loss: f64,
    /// Digest of weights and moments after the last step, 16 hex digits.
    pub digest: String,
}

impl Ending {
    /// The loss above that of another scheme from the same seed.
    pub fn above(&self, all: &[Ending], scheme: &str) -> Option<f64> {
        let same = |r: &&Ending| r.seed == self.seed && r.scheme == scheme;
        all.iter().find(same).map(|r| self.loss - r.loss)
    }
}

/// Reads the ends of runs from their folder: the first seed's files bear the tag alone.
///
/// # Errors
/// A run that is not there.
pub fn read(
    dir: &Path,
    tag: &str,
    schemes: &[&str],
    seeds: impl Iterator<Item = i64>,
) -> Result<Vec<Ending>, Error> {
    let mut out = vec![];
    for (i, seed) in seeds.enumerate() {
        let tag = match i {
            0 => tag.to_string(),
            _ => format!("{tag}_seed{seed}"),
        };
        let summary = other_rows(dir, &tag, &[]);
        for scheme in schemes {
            let row = summary.iter().find(|r| r[0] == *scheme);
            let loss = row.and_then(|r| r[3].parse().ok());
            let digest = digest(&dir.join(format!("steps_{scheme}{tag}.csv")));
            let (Some(loss), Some(digest)) = (loss, digest) else {
                return usage(format!(
                    "{}: has no finished run of {scheme} from seed {seed}",
                    dir.display()
                ));
            };
            out.push(Ending {
                seed,
                scheme: scheme.to_string(),
                loss,
                digest,
            });
        }
    }
    Ok(out)
}

/// The last digest of a run's steps.
fn digest(path: &Path) -> Option<String> {
    let mut file = csv::Reader::from_path(path).ok()?;
    let column = file.headers().ok()?.iter().position(|h| h == "digest")?;
    let last = file.records().last()?.ok()?;
    last.get(column).filter(|d| !d.is_empty()).map(String::from)
}

/// Writes the table.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, rows: &[Ending]) -> Result<(), Error> {
    let rows = rows.iter().map(|r| {
        [
            r.seed.to_string(),
            r.scheme.clone(),
            format!("{:.7}", r.loss),
            r.digest.clone(),
        ]
    });
    let header = ["seed", "scheme", "final_val_loss", "digest"];
    write_atomic(path, &table(header, rows)?)
}
