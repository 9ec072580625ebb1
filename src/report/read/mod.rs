//! What a run's folder holds, read back from its files alone. Files are other people's: see [`table`].

mod files;
pub mod full;
pub mod table;

use crate::error::{Error, usage};
use crate::report::files::plain_tag;
use crate::report::sheets::{SHEETS, Sheet};
use files::{gemm, read_into};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The schemes that a folder may hold, in the order in which they are shown.
pub const SCHEMES: [&str; 6] = ["fp32", "mixed", "fp16", "bf16", "bf16-sr", "bf16-kahan"];

/// Most files that a folder may have.
const MOST_FILES: usize = 10_000;

/// Most tags in a folder.
const MOST_TAGS: usize = 64;
/// Largest `env.json`.
const LARGEST_ENV: u64 = 4 << 20;

/// An evaluation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Step, from 1.
    pub step: u64,
    /// Validation loss, nats a character.
    pub val: f64,
    /// Moving average of the training loss.
    pub ema: f64,
}

/// A row of `summary{tag}.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Mean time of a step in ms.
    pub step_ms: Option<f64>,
    /// Peak of the executor's allocations, GiB.
    pub peak_gib: f64,
    /// Last validation loss.
    pub loss: Option<f64>,
    /// `portable` or `fast`.
    pub numerics: String,
}

/// One scheme of a group.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scheme {
    /// Its name, of [`SCHEMES`].
    pub name: &'static str,
    /// Evaluations in its own precision.
    pub curve: Vec<Point>,
    /// Evaluations of the same weights in fp32.
    pub fp32: Vec<Point>,
    /// Step and digest of the last row that has one.
    pub digest: Option<(u64, String)>,
    /// Its row of the summary.
    pub summary: Option<Summary>,
    /// Step, learning rate.
    pub rates: Vec<(u64, f64)>,
    /// The first evaluation whose loss is no number, or is infinite.
    pub astray: Option<u64>,
    /// The full ledger, where it was kept.
    pub full: full::Full,
}

/// A tensor's swallowed updates.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorShares {
    /// Its name.
    pub name: String,
    /// Elements.
    pub elements: u64,
    /// Step, share.
    pub shares: Vec<(u64, f64)>,
}

/// A row of `scaler_fp16{tag}.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct ScalerRow {
    /// Step.
    pub step: u64,
    /// Loss scale that the step used.
    pub scale: f64,
    /// Whether the step was skipped.
    pub skipped: bool,
    /// What was not finite, at a skip.
    pub culprit: String,
}

/// A row of `seeds{tag}.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct SeedsRow {
    /// Scheme.
    pub scheme: &'static str,
    /// Seeds.
    pub seeds: u64,
    /// Mean of the final validation losses.
    pub mean: f64,
    /// Their standard deviation.
    pub std: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

/// A row of `memory{tag}.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryRow {
    /// Scheme.
    pub scheme: &'static str,
    /// Class of buffers.
    pub class: String,
    /// Planned bytes.
    pub bytes: u64,
}

/// A row of `policy{tag}.csv`: scheme, operation, class, operands, result.
pub type PolicyRow = [String; 5];

/// A row of `gemm.csv`.
#[derive(Clone, PartialEq, Debug)]
pub struct GemmRow {
    /// Type of the operands.
    pub dtype: String,
    /// Time of a product in ms.
    pub ms: Option<f64>,
    /// Throughput.
    pub tflops: Option<f64>,
    /// The other columns, by name.
    pub more: Vec<(&'static str, String)>,
}

/// The files of one tag.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// The tag; empty where the files have none.
    pub tag: String,
    /// Its schemes, in the order of [`SCHEMES`].
    pub schemes: Vec<Scheme>,
    /// Step, share of swallowed updates in the mixed run.
    pub swallow: Vec<(u64, f64)>,
    /// The same by tensor.
    pub tensors: Vec<TensorShares>,
    /// Lower edge (log10) and count of gradient magnitudes.
    pub histogram: Vec<(f64, u64)>,
    /// The loss scaler's steps.
    pub scaler: Vec<ScalerRow>,
    /// Means over seeds.
    pub seeds: Vec<SeedsRow>,
    /// Planned memory.
    pub memory: Vec<MemoryRow>,
    /// How each operation is treated.
    pub policy: Vec<PolicyRow>,
    /// Tags of the same run from other seeds, which are not shown by themselves.
    pub folded: Vec<String>,
    /// The ends of this run and of those from other seeds, in fp32 where that was evaluated.
    pub seed_losses: Vec<Losses>,
}

/// The last validation loss of each scheme of one run.
pub type Losses = BTreeMap<&'static str, f64>;

/// A run's folder.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Folder {
    /// The groups by tag, the one without a tag first.
    pub groups: Vec<Group>,
    /// `env.json`.
    pub env: Option<Value>,
    /// Throughput of matrix products.
    pub gemm: Vec<GemmRow>,
}

impl Group {
    fn losses(&self) -> Losses {
        let end = |s: &Scheme| {
            // fp32's own curve is that of its weights in fp32.
            let curve = if s.fp32.is_empty() { &s.curve } else { &s.fp32 };
            Some((s.name, curve.last()?.val))
        };
        self.schemes.iter().filter_map(end).collect()
    }

    /// A scheme's data.
    pub fn scheme(&self, name: &str) -> Option<&Scheme> {
        self.schemes.iter().find(|s| s.name == name)
    }

    fn scheme_mut(&mut self, name: &'static str) -> &mut Scheme {
        let at = self.schemes.iter().position(|s| s.name == name);
        let at = at.unwrap_or_else(|| {
            let new = Scheme {
                name,
                ..Scheme::default()
            };
            self.schemes.push(new);
            self.schemes.len() - 1
        });
        &mut self.schemes[at]
    }
}

/// Whether a folder holds files that a report is made from.
pub fn is_run(dir: &Path) -> Result<bool, Error> {
    let known = |n: &String| place(n).is_some_and(|p| p.kind != Kind::Policy);
    Ok(names(dir)?.iter().any(known))
}

/// Reads a folder.
///
/// # Errors
/// The first file that cannot be read, is torn, or holds what no run writes.
pub fn folder(dir: &Path) -> Result<Folder, Error> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for name in names(dir)? {
        let Some(place) = place(&name) else { continue };
        let group = groups.entry(place.tag.clone()).or_default();
        group.tag = place.tag.clone();
        read_into(group, &place, &dir.join(&name))?;
    }
    fold_seeds(&mut groups);
    if groups.len() > MOST_TAGS {
        return usage(format!(
            "{}: has files of more than {MOST_TAGS} tags; make the report of fewer at a time",
            dir.display()
        ));
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    for g in &mut groups {
        let order = |s: &Scheme| SCHEMES.iter().position(|n| *n == s.name);
        g.schemes.sort_by_key(order);
        // fp32's own curve is that of its weights in fp32.
        let base = g.schemes.iter_mut().find(|s| s.name == "fp32");
        if let Some(base) = base.filter(|s| s.fp32.is_empty()) {
            base.fp32 = base.curve.clone();
        }
    }
    Ok(Folder {
        groups,
        env: env(&dir.join("env.json"))?,
        gemm: products(dir)?,
    })
}

/// Takes out the groups whose tag is another group's and `_seed` with a number: the same run from other
/// seeds, which `seeds{tag}.csv` sums up.
fn fold_seeds(groups: &mut BTreeMap<String, Group>) {
    let base = |tag: &str| {
        let (base, seed) = tag.rsplit_once("_seed")?;
        let number = !seed.is_empty() && seed.bytes().all(|b| b.is_ascii_digit());
        number.then(|| base.to_string())
    };
    let tags: Vec<String> = groups.keys().cloned().collect();
    for tag in tags {
        if let Some(of) = base(&tag).and_then(|b| groups.get_mut(&b)) {
            if of.seed_losses.is_empty() {
                let own = of.losses();
                of.seed_losses.push(own);
            }
            of.folded.push(tag.clone());
            if let Some(other) = groups.remove(&tag) {
                let losses = other.losses();
                let base = base(&tag).and_then(|b| groups.get_mut(&b));
                base.into_iter()
                    .for_each(|b| b.seed_losses.push(losses.clone()));
            }
        }
    }
}

/// `gemm.csv` of the folder, or else of the one above it, where `isobit gemm` puts it.
fn products(dir: &Path) -> Result<Vec<GemmRow>, Error> {
    let own = gemm(&dir.join("gemm.csv"))?;
    match own.is_empty() {
        true => gemm(&dir.join("../gemm.csv")),
        false => Ok(own),
    }
}

/// The names of a folder's files, sorted.
fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let entry = entry.map_err(Error::io("read", dir))?;
        if let Some(name) = entry.file_name().to_str() {
            out.push(name.to_string());
        }
        if out.len() > MOST_FILES {
            return usage(format!(
                "{}: has more than {MOST_FILES} entries; is it a run's folder?",
                dir.display()
            ));
        }
    }
    out.sort();
    Ok(out)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Curve,
    CurveFp32,
    Steps,
    Summary,
    Swallow,
    TensorSwallow,
    Histogram,
    Scaler,
    Seeds,
    Memory,
    Policy,
    Full(Sheet),
}

/// What a file of a run is.
#[derive(PartialEq, Eq, Debug)]
struct Place {
    kind: Kind,
    scheme: &'static str,
    tag: String,
}

/// What a file's name says; none where it is none of a run's. The longest name of a scheme counts:
/// `curve_bf16-sr.csv` is of `bf16-sr`, not of `bf16` with a tag.
fn place(name: &str) -> Option<Place> {
    let stem = name.strip_suffix(".csv")?;
    let of_scheme = [
        ("curve_fp32eval_", Kind::CurveFp32),
        ("curve_", Kind::Curve),
        ("steps_", Kind::Steps),
        ("scaler_", Kind::Scaler),
    ]
    .map(|(p, k)| (p.to_string(), k));
    let full = SHEETS.map(|s| (format!("{}_", s.name()), Kind::Full(s)));
    let of_run = [
        ("tensor_swallow", Kind::TensorSwallow),
        ("swallow", Kind::Swallow),
        ("gradhist", Kind::Histogram),
        ("summary", Kind::Summary),
        ("seeds", Kind::Seeds),
        ("memory", Kind::Memory),
        ("policy", Kind::Policy),
    ];
    let mut scheme = of_scheme.iter().chain(&full);
    let scheme = scheme.find_map(|(p, k)| Some((*k, stem.strip_prefix(p.as_str())?)));
    if let Some((kind, rest)) = scheme {
        let known = SCHEMES.iter().filter(|s| rest.starts_with(**s));
        let scheme = known.max_by_key(|s| s.len())?;
        let tag = rest[scheme.len()..].to_string();
        return plain_tag(&tag).then_some(Place { kind, scheme, tag });
    }
    let (kind, tag) = of_run
        .iter()
        .find_map(|(p, k)| Some((*k, stem.strip_prefix(p)?)))?;
    let scheme = "";
    let tag = tag.to_string();
    plain_tag(&tag).then_some(Place { kind, scheme, tag })
}

fn env(path: &Path) -> Result<Option<Value>, Error> {
    let Some(text) = table::text(path, LARGEST_ENV)? else {
        return Ok(None);
    };
    match serde_json::from_str(&text) {
        Ok(v) => Ok(Some(v)),
        Err(e) => usage(format!("{}: is not JSON: {e}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_seeds_are_folded_into_their_run() {
        let tags = ["", "_a", "_a_seed5", "_b_seed5", "_seed12", "_seedling"];
        let group = |t: &&str| (t.to_string(), Group::default());
        let mut groups: BTreeMap<String, Group> = tags.iter().map(group).collect();
        fold_seeds(&mut groups);
        let left: Vec<&str> = groups.keys().map(String::as_str).collect();
        assert_eq!(left, ["", "_a", "_b_seed5", "_seedling"]);
        assert_eq!(groups[""].folded, ["_seed12"]);
        assert_eq!(groups["_a"].folded, ["_a_seed5"]);
    }

    #[test]
    fn names_tell_kind_scheme_and_tag() {
        let at = |n: &str| place(n).map(|p| (p.kind, p.scheme, p.tag));
        let is = |k, s, t: &str| Some((k, s, t.to_string()));
        assert_eq!(at("curve_fp32.csv"), is(Kind::Curve, "fp32", ""));
        assert_eq!(
            at("curve_fp32eval_fp32.csv"),
            is(Kind::CurveFp32, "fp32", "")
        );
        assert_eq!(
            at("curve_bf16-sr_lowlr.csv"),
            is(Kind::Curve, "bf16-sr", "_lowlr")
        );
        assert_eq!(at("swallow_lowlr.csv"), is(Kind::Swallow, "", "_lowlr"));
        assert_eq!(at("tensor_swallow.csv"), is(Kind::TensorSwallow, "", ""));
        let cosines = Kind::Full(Sheet::Updates);
        assert_eq!(at("updates_mixed_a.csv"), is(cosines, "mixed", "_a"));
        let sizes = Kind::Full(Sheet::UpdateUlps);
        assert_eq!(at("update_ulps_bf16.csv"), is(sizes, "bf16", ""));
        assert_eq!(at("scaler_fp16_a.csv"), is(Kind::Scaler, "fp16", "_a"));
        for other in [
            "curve_fp8.csv",
            "env.json",
            "notes.csv",
            "curve_fp32 a.csv",
            "curve_",
        ] {
            assert_eq!(at(other), None, "{other}");
        }
    }
}
