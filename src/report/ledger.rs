//! The CSV files of a run: their columns, and their rows as they grow.

use super::files::{csv_bytes, write_atomic};
use super::sheets::{SHEETS, Sheets, maybe};
use crate::error::Error;
use std::path::{Path, PathBuf};

/// A row of `steps_{scheme}{tag}.csv`.
#[derive(Clone, Debug)]
pub struct StepRow {
    /// Step, from 1.
    pub step: usize,
    /// Learning rate.
    pub lr: f64,
    /// Training loss, before the update.
    pub loss: f32,
    /// Norm of all gradients together, before clipping.
    pub grad_norm: f32,
    /// Digest of weights and moments after the update, at evaluations and at the last step.
    pub digest: Option<u64>,
    /// Validation loss, where evaluated.
    pub val_loss: Option<f64>,
}

/// A row of `curve_{scheme}{tag}.csv`.
#[derive(Clone, Copy, Debug)]
pub struct CurveRow {
    /// Step, from 1.
    pub step: usize,
    /// Mean loss over the validation batches.
    pub val_loss: f64,
    /// Moving average of the training loss, 0.98.
    pub train_ema: f64,
}

/// A row of `scaler_fp16{tag}.csv`: the first step, every evaluation, every skipped step, and every step
/// whose loss scale is not that of the row before. Between two rows the scale is that of the earlier one,
/// and each step applies one update.
#[derive(Clone, PartialEq, Debug)]
pub struct ScalerRow {
    /// Step, from 1.
    pub step: usize,
    /// The loss scale that this step used: a change shows in the row of the next step.
    pub loss_scale: f32,
    /// Whether the step was skipped, written as 1 or 0: a gradient or the loss was not finite, and
    /// weights, moments and Adam's counter stayed as they were.
    pub skipped: bool,
    /// Updates applied so far, this step included: Adam's counter.
    pub applied_steps: u64,
    /// The factor that clipped the gradient to the largest norm, at most 1; empty without clipping and
    /// on a skipped step.
    pub clip_factor: Option<f32>,
    /// On a skipped step the first operation whose result is not finite, as `kernel in place`, found by
    /// running the step again; else empty.
    pub first_nonfinite: String,
}

/// A row of `summary{tag}.csv`.
#[derive(Clone, Debug)]
pub struct SummaryRow {
    /// Scheme.
    pub scheme: String,
    /// Mean time of a training step in ms, the first 20 left out; none if there were no others.
    pub step_ms: Option<f64>,
    /// Peak of the executor's own allocations, in GiB.
    pub peak_mem_gib: f64,
    /// Last validation loss.
    pub final_val_loss: Option<f64>,
    /// Grade of numerics: `portable` or `fast`.
    pub numerics: &'static str,
    /// Last share of updates that bf16 weights would have swallowed; shown, not written to the file.
    pub swallowed: Option<f64>,
}

/// A row of `seeds{tag}.csv`: the last validation losses of one scheme's runs from several seeds, each in
/// the scheme's own precision. The first seed's files bear the tag, the others' `{tag}_seed{seed}`.
#[derive(Clone, PartialEq, Debug)]
pub struct SeedsRow {
    /// Scheme.
    pub scheme: String,
    /// How many seeds.
    pub seeds: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample (n - 1 below the line); empty for one seed.
    pub std: Option<f64>,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
}

impl SeedsRow {
    /// Of the losses of some seeds, at least one.
    pub fn of(scheme: &str, losses: &[f64]) -> SeedsRow {
        let n = losses.len();
        let mean = losses.iter().sum::<f64>() / n as f64;
        let squares: f64 = losses.iter().map(|x| (x - mean) * (x - mean)).sum();
        SeedsRow {
            scheme: scheme.into(),
            seeds: n,
            mean,
            std: (n > 1).then(|| libm::sqrt(squares / (n - 1) as f64)),
            min: losses.iter().copied().fold(f64::INFINITY, f64::min),
            max: losses.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// Writes `seeds{tag}.csv`.
///
/// # Errors
/// The file cannot be written.
pub fn write_seeds(dir: &Path, tag: &str, rows: &[SeedsRow]) -> Result<(), Error> {
    let rows = rows.iter().map(|r| {
        [
            r.scheme.clone(),
            r.seeds.to_string(),
            format!("{:.7}", r.mean),
            maybe(r.std, |v| format!("{v:.7}")),
            format!("{:.7}", r.min),
            format!("{:.7}", r.max),
        ]
    });
    let bytes = table(SEEDS, rows)?;
    write_atomic(&dir.join(format!("seeds{tag}.csv")), &bytes)
}

/// The columns of `seeds{tag}.csv`.
pub(super) const SEEDS: [&str; 6] = [
    "scheme",
    "seeds",
    "val_loss_mean",
    "val_loss_std",
    "val_loss_min",
    "val_loss_max",
];

/// The files of one run of one scheme, rewritten whole each time they grow.
pub struct SchemeLedger {
    dir: PathBuf,
    scheme: String,
    tag: String,
    /// Every training step.
    pub steps: Vec<StepRow>,
    /// Every evaluation.
    pub curve: Vec<CurveRow>,
    /// Every evaluation of the same weights in fp32, of a scheme whose own is another.
    pub curve_fp32: Vec<CurveRow>,
    /// Step and share of swallowed updates, in a mixed run.
    pub swallow: Vec<(usize, f64)>,
    /// Rows of the loss scaler, in an fp16 run.
    pub scaler: Vec<ScalerRow>,
    /// Counts of gradient magnitudes at one step of a mixed run: log10 of the range's lower edge, count.
    pub histogram: Vec<(f64, u64)>,
    /// Step and counts of swallowed updates by tensor, in the order of `tensors`.
    pub tensor_swallow: Vec<(usize, Vec<u64>)>,
    /// Name and elements of each weight.
    pub tensors: Vec<(String, u64)>,
    /// The tables of the full ledger.
    pub sheets: Sheets,
}

pub(super) fn table<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Result<Vec<u8>, Error> {
    csv_bytes(header, rows)
}

impl SchemeLedger {
    /// An empty ledger that writes to `dir`.
    pub fn new(dir: &Path, scheme: &str, tag: &str) -> SchemeLedger {
        let (scheme, tag) = (scheme.to_string(), tag.to_string());
        SchemeLedger {
            dir: dir.to_path_buf(),
            scheme,
            tag,
            steps: Vec::new(),
            curve: Vec::new(),
            curve_fp32: Vec::new(),
            swallow: Vec::new(),
            scaler: Vec::new(),
            histogram: Vec::new(),
            tensor_swallow: Vec::new(),
            tensors: Vec::new(),
            sheets: Sheets::default(),
        }
    }

    /// Writes the files that have rows: `curve_*`, `curve_fp32eval_*`, `steps_*`, of a mixed run
    /// `swallow{tag}.csv` and, without a tag, `gradhist.csv`, and of a run with a loss scaler `scaler_*`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn flush(&self) -> Result<(), Error> {
        let name = |kind: &str| {
            self.dir
                .join(format!("{kind}_{}{}.csv", self.scheme, self.tag))
        };
        let curves = [("curve", &self.curve), ("curve_fp32eval", &self.curve_fp32)];
        let own_is_fp32 = |kind: &str| kind != "curve" && self.curve_fp32.is_empty();
        for (kind, rows) in curves.into_iter().filter(|c| !own_is_fp32(c.0)) {
            let rows = rows.iter().map(|r| {
                [
                    r.step.to_string(),
                    format!("{:.7}", r.val_loss),
                    format!("{:.7}", r.train_ema),
                ]
            });
            write_atomic(
                &name(kind),
                &table(["step", "val_loss", "train_ema"], rows)?,
            )?;
        }
        let steps = self.steps.iter().map(|r| {
            [
                r.step.to_string(),
                r.lr.to_string(),
                r.loss.to_string(),
                r.grad_norm.to_string(),
                maybe(r.digest, |d| format!("{d:016x}")),
                maybe(r.val_loss, |v| format!("{v:.7}")),
            ]
        });
        let steps = table(
            ["step", "lr", "loss", "grad_norm", "digest", "val_loss"],
            steps,
        )?;
        write_atomic(&name("steps"), &steps)?;
        if !self.swallow.is_empty() {
            let rows = self
                .swallow
                .iter()
                .map(|(step, share)| [step.to_string(), format!("{share:.6}")]);
            let file = self.dir.join(format!("swallow{}.csv", self.tag));
            write_atomic(&file, &table(["step", "swallow_frac"], rows)?)?;
        }
        if !self.scaler.is_empty() {
            let rows = self.scaler.iter().map(|r| {
                [
                    r.step.to_string(),
                    r.loss_scale.to_string(),
                    u8::from(r.skipped).to_string(),
                    r.applied_steps.to_string(),
                    maybe(r.clip_factor, |c| c.to_string()),
                    r.first_nonfinite.clone(),
                ]
            });
            write_atomic(&name("scaler"), &table(SCALER, rows)?)?;
        }
        self.flush_tensors()?;
        self.sheets.flush(&self.dir, &self.scheme, &self.tag)?;
        if !self.histogram.is_empty() && self.tag.is_empty() {
            let rows = self
                .histogram
                .iter()
                .map(|(low, count)| [format!("{low:?}"), count.to_string()]);
            write_atomic(
                &self.dir.join("gradhist.csv"),
                &table(["log10_bin_lo", "count"], rows)?,
            )?;
        }
        Ok(())
    }
}

/// The columns of `scaler_fp16{tag}.csv`.
const SCALER: [&str; 6] = [
    "step",
    "loss_scale",
    "skipped",
    "applied_steps",
    "clip_factor",
    "first_nonfinite",
];
impl SchemeLedger {
    /// Writes `tensor_swallow{tag}.csv`, where there are counts.
    fn flush_tensors(&self) -> Result<(), Error> {
        if self.tensor_swallow.is_empty() {
            return Ok(());
        }
        let of = |(step, counts): &(usize, Vec<u64>)| {
            let step = step.to_string();
            let row = |((name, elements), count): (&(String, u64), &u64)| {
                let share = *count as f64 / *elements as f64;
                [
                    step.clone(),
                    name.clone(),
                    elements.to_string(),
                    format!("{share:.6}"),
                ]
            };
            self.tensors.iter().zip(counts).map(row).collect::<Vec<_>>()
        };
        let rows = self.tensor_swallow.iter().flat_map(of);
        let file = self.dir.join(format!("tensor_swallow{}.csv", self.tag));
        let header = ["step", "tensor", "elements", "swallow_frac"];
        write_atomic(&file, &table(header, rows)?)
    }
}

/// Rows of `memory{tag}.csv`: scheme, class, bytes.
pub type MemoryRow = [String; 3];
/// Rows of `policy{tag}.csv`: scheme, operation, class, operands, result.
pub type PolicyRow = [String; 5];

/// Writes what a run plans: `memory{tag}.csv` and `policy{tag}.csv`. Rows of schemes that are not among
/// `own` stay where `keep` says so.
///
/// # Errors
/// A file cannot be written.
pub fn write_plans(
    dir: &Path,
    tag: &str,
    (memory, policy): (Vec<MemoryRow>, Vec<PolicyRow>),
    own: &[&str],
    keep: bool,
) -> Result<(), Error> {
    fn whole<const N: usize>(
        path: &Path,
        header: [&str; N],
        rows: Vec<[String; N]>,
        own: &[&str],
        keep: bool,
    ) -> Result<(), Error> {
        let kept = if keep {
            kept(path, header, own)
        } else {
            vec![]
        };
        write_atomic(path, &table(header, kept.into_iter().chain(rows))?)
    }
    let file = |kind: &str| dir.join(format!("{kind}{tag}.csv"));
    whole(
        &file("memory"),
        ["scheme", "class", "bytes"],
        memory,
        own,
        keep,
    )?;
    let header = ["scheme", "operation", "class", "operands", "result"];
    whole(&file("policy"), header, policy, own, keep)
}

/// Whether a file name is one that a run writes into its output folder.
pub fn is_ours(name: &str) -> bool {
    let kinds = [
        "curve_",
        "steps_",
        "swallow",
        "tensor_swallow",
        "gradhist",
        "summary",
        "memory",
        "policy",
        "scaler_",
        "seeds",
        "cost",
    ];
    let sheet = || SHEETS.iter().any(|s| name.starts_with(s.name()));
    let csv = || kinds.iter().any(|k| name.starts_with(k)) || sheet();
    name == "env.json" || (name.ends_with(".csv") && csv())
}

/// The columns of `summary{tag}.csv`.
pub(super) const SUMMARY: [&str; 5] = [
    "scheme",
    "step_ms",
    "peak_mem_gib",
    "final_val_loss",
    "numerics",
];

/// Rows of `summary{tag}.csv` as they are in the file.
pub type Kept = Vec<[String; SUMMARY.len()]>;

/// The rows that a run's `summary{tag}.csv` has for schemes other than `own`; none where the file is not
/// one of ours.
pub fn other_rows(dir: &Path, tag: &str, own: &[&str]) -> Kept {
    kept(&dir.join(format!("summary{tag}.csv")), SUMMARY, own)
}

/// The rows of a small table for schemes other than `own`; none where the file is not one of ours.
pub(super) fn kept<const N: usize>(
    path: &Path,
    header: [&str; N],
    own: &[&str],
) -> Vec<[String; N]> {
    let small = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() < 1 << 18);
    let Some(mut file) = small.then(|| csv::Reader::from_path(path).ok()).flatten() else {
        return vec![];
    };
    if file.headers().ok().is_none_or(|h| *h != header[..]) {
        return vec![];
    }
    let rows = file.records().flatten();
    let rows = rows.map(|r| std::array::from_fn(|i| r.get(i).unwrap_or("").to_string()));
    rows.filter(|r: &[String; N]| !own.contains(&r[0].as_str()))
        .collect()
}

/// Writes `summary{tag}.csv`: the rows of this run, and those kept of the same run's other schemes.
///
/// # Errors
/// The file cannot be written.
pub fn write_summary(dir: &Path, tag: &str, rows: &[SummaryRow], kept: &Kept) -> Result<(), Error> {
    let rows = rows.iter().map(|r| {
        [
            r.scheme.clone(),
            maybe(r.step_ms, |v| format!("{v:.2}")),
            format!("{:.6}", r.peak_mem_gib),
            maybe(r.final_val_loss, |v| format!("{v:.7}")),
            r.numerics.to_string(),
        ]
    });
    let bytes = table(SUMMARY, kept.iter().cloned().chain(rows))?;
    write_atomic(&dir.join(format!("summary{tag}.csv")), &bytes)
}
