//! What a run's folder holds, read back from its files alone. Files are other people's: see [`table`].

pub mod table;

use crate::error::{Error, usage};
use crate::report::files::plain_tag;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use table::Table;

/// The schemes that a folder may hold, in the order in which they are shown.
pub const SCHEMES: [&str; 6] = ["fp32", "mixed", "fp16", "bf16", "bf16-sr", "bf16-kahan"];
/// Most files that a folder may have.
const MOST_FILES: usize = 10_000;
/// Largest `env.json`.
const LARGEST_ENV: u64 = 4 << 20;
/// A loss above this is no loss of a model that anyone compares.
const LARGEST_LOSS: f64 = 1e6;

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
}

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
    ];
    let of_run = [
        ("tensor_swallow", Kind::TensorSwallow),
        ("swallow", Kind::Swallow),
        ("gradhist", Kind::Histogram),
        ("summary", Kind::Summary),
        ("seeds", Kind::Seeds),
        ("memory", Kind::Memory),
        ("policy", Kind::Policy),
    ];
    let scheme = of_scheme
        .iter()
        .find_map(|(p, k)| Some((*k, stem.strip_prefix(p)?)));
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

/// The known name of a scheme of a file.
fn known(name: &str) -> Option<&'static str> {
    SCHEMES.iter().copied().find(|s| *s == name)
}

fn read_into(g: &mut Group, place: &Place, path: &Path) -> Result<(), Error> {
    match place.kind {
        Kind::Curve => g.scheme_mut(place.scheme).curve = curve(path)?,
        Kind::CurveFp32 => g.scheme_mut(place.scheme).fp32 = curve(path)?,
        Kind::Steps => steps(g.scheme_mut(place.scheme), path)?,
        Kind::Summary => summary(g, path)?,
        Kind::Swallow => g.swallow = swallow(path)?,
        Kind::TensorSwallow => g.tensors = tensors(path)?,
        Kind::Histogram => g.histogram = histogram(path)?,
        Kind::Scaler => g.scaler = scaler(path)?,
        Kind::Seeds => g.seeds = seeds(path)?,
        Kind::Memory => g.memory = memory(path)?,
        Kind::Policy => g.policy = policy(path)?,
    }
    Ok(())
}

/// The rows of a table of ascending steps.
fn by_step<T>(
    path: &Path,
    columns: &[&str],
    row: impl Fn(&Table, usize, u64) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let Some(t) = Table::read(path, columns)? else {
        return Ok(vec![]);
    };
    let mut before = None;
    let mut out = Vec::with_capacity(t.len());
    for r in 0..t.len() {
        let step = t.step(r, before)?;
        before = Some(step);
        out.push(row(&t, r, step)?);
    }
    Ok(out)
}

/// The rows of a table.
fn rows<T>(
    path: &Path,
    columns: &[&str],
    row: impl Fn(&Table, usize) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    match Table::read(path, columns)? {
        Some(t) => (0..t.len()).map(|r| row(&t, r)).collect(),
        None => Ok(vec![]),
    }
}

fn curve(path: &Path) -> Result<Vec<Point>, Error> {
    by_step(path, &["step", "val_loss", "train_ema"], |t, r, step| {
        Ok(Point {
            step,
            val: t.number(r, "val_loss", 0.0, LARGEST_LOSS)?,
            ema: t.number(r, "train_ema", 0.0, LARGEST_LOSS)?,
        })
    })
}

fn steps(s: &mut Scheme, path: &Path) -> Result<(), Error> {
    let columns = ["step", "lr", "digest"];
    let rows = by_step(path, &columns, |t, r, step| {
        Ok((
            step,
            t.number(r, "lr", 0.0, 1e6)?,
            t.text(r, "digest").to_string(),
        ))
    })?;
    let last = rows.iter().rev().find(|r| !r.2.is_empty());
    s.digest = last.map(|r| (r.0, r.2.clone()));
    s.rates = rows.into_iter().map(|r| (r.0, r.1)).collect();
    Ok(())
}

fn summary(g: &mut Group, path: &Path) -> Result<(), Error> {
    let columns = [
        "scheme",
        "step_ms",
        "peak_mem_gib",
        "final_val_loss",
        "numerics",
    ];
    let rows = rows(path, &columns, |t, r| {
        let row = Summary {
            step_ms: t.maybe(r, "step_ms", 0.0, 1e9)?,
            peak_gib: t.number(r, "peak_mem_gib", 0.0, 1e6)?,
            loss: t.maybe(r, "final_val_loss", 0.0, LARGEST_LOSS)?,
            numerics: t.text(r, "numerics").to_string(),
        };
        Ok((known(t.text(r, "scheme")), row))
    })?;
    for (scheme, row) in rows {
        if let Some(scheme) = scheme {
            g.scheme_mut(scheme).summary = Some(row);
        }
    }
    Ok(())
}

fn swallow(path: &Path) -> Result<Vec<(u64, f64)>, Error> {
    by_step(path, &["step", "swallow_frac"], |t, r, step| {
        Ok((step, t.number(r, "swallow_frac", 0.0, 1.0)?))
    })
}

fn tensors(path: &Path) -> Result<Vec<TensorShares>, Error> {
    let columns = ["step", "tensor", "elements", "swallow_frac"];
    let all = rows(path, &columns, |t, r| {
        let share = t.number(r, "swallow_frac", 0.0, 1.0)?;
        let elements = t.count(r, "elements")?;
        Ok((
            t.step(r, None)?,
            t.text(r, "tensor").to_string(),
            elements,
            share,
        ))
    })?;
    let mut out: Vec<TensorShares> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (step, name, elements, share) in all {
        let at = *places.entry(name.clone()).or_insert(out.len());
        if at == out.len() {
            let shares = vec![];
            out.push(TensorShares {
                name,
                elements,
                shares,
            });
        }
        let shares = &mut out[at].shares;
        if shares.last().is_some_and(|s| s.0 >= step) {
            return usage(format!(
                "{}: the steps of tensor {} do not ascend",
                path.display(),
                out[at].name
            ));
        }
        shares.push((step, share));
    }
    Ok(out)
}

fn histogram(path: &Path) -> Result<Vec<(f64, u64)>, Error> {
    let bins = rows(path, &["log10_bin_lo", "count"], |t, r| {
        let low = t.number(r, "log10_bin_lo", -60.0, 60.0)?;
        let count = t.count(r, "count")?.min(1 << 60);
        Ok((low, count))
    })?;
    // The width of a range is what lies between two edges.
    if bins.windows(2).any(|w| w[1].0 <= w[0].0) || bins.len() == 1 || bins.len() > 4096 {
        return usage(format!(
            "{}: needs 2 to 4096 ranges whose edges ascend",
            path.display()
        ));
    }
    Ok(bins)
}

fn scaler(path: &Path) -> Result<Vec<ScalerRow>, Error> {
    by_step(path, &["step", "loss_scale", "skipped"], |t, r, step| {
        Ok(ScalerRow {
            step,
            scale: t.number(r, "loss_scale", 1e-30, 1e30)?,
            skipped: t.flag(r, "skipped")?,
            culprit: t.text(r, "first_nonfinite").to_string(),
        })
    })
}

fn seeds(path: &Path) -> Result<Vec<SeedsRow>, Error> {
    let columns = [
        "scheme",
        "seeds",
        "val_loss_mean",
        "val_loss_std",
        "val_loss_min",
        "val_loss_max",
    ];
    let all = rows(path, &columns, |t, r| {
        let n = |c: &str| t.number(r, c, 0.0, LARGEST_LOSS);
        let std = t.maybe(r, "val_loss_std", 0.0, LARGEST_LOSS)?;
        Ok(known(t.text(r, "scheme")).map(|scheme| {
            Ok(SeedsRow {
                scheme,
                seeds: t.count(r, "seeds")?,
                mean: n("val_loss_mean")?,
                std: std.unwrap_or(0.0),
                min: n("val_loss_min")?,
                max: n("val_loss_max")?,
            })
        }))
    })?;
    all.into_iter().flatten().collect()
}

fn memory(path: &Path) -> Result<Vec<MemoryRow>, Error> {
    let all = rows(path, &["scheme", "class", "bytes"], |t, r| {
        let bytes = t.count(r, "bytes")?.min(1 << 60);
        let class = t.text(r, "class").to_string();
        let scheme = known(t.text(r, "scheme"));
        Ok(scheme.map(|scheme| MemoryRow {
            scheme,
            class,
            bytes,
        }))
    })?;
    Ok(all.into_iter().flatten().collect())
}

fn policy(path: &Path) -> Result<Vec<PolicyRow>, Error> {
    let columns = ["scheme", "operation", "class", "operands", "result"];
    rows(path, &columns, |t, r| {
        Ok(columns.map(|c| t.text(r, c).to_string()))
    })
}

fn gemm(path: &Path) -> Result<Vec<GemmRow>, Error> {
    const MORE: [&str; 7] = [
        "device",
        "backend",
        "path",
        "grade",
        "emulation",
        "ceiling_fraction",
        "error",
    ];
    rows(path, &["dtype", "ms", "tflops"], |t, r| {
        let more = MORE.iter().filter(|c| t.has(c));
        Ok(GemmRow {
            dtype: t.text(r, "dtype").to_string(),
            ms: t.maybe(r, "ms", 0.0, 1e9)?,
            tflops: t.maybe(r, "tflops", 0.0, 1e9)?,
            more: more.map(|c| (*c, t.text(r, c).to_string())).collect(),
        })
    })
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
