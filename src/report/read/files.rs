//! The rows of each kind of file.

use super::table::Table;
use super::{
    GemmRow, Group, Kind, MemoryRow, Place, Point, PolicyRow, SCHEMES, ScalerRow, Scheme, SeedsRow,
    Summary, TensorShares,
};
use crate::error::{Error, usage};
use crate::report::ledger::{SEEDS, SUMMARY};
use std::collections::BTreeMap;
use std::path::Path;

/// A loss above this is no loss of a model that anyone compares.
const LARGEST_LOSS: f64 = 1e30;

pub(super) fn read_into(g: &mut Group, place: &Place, path: &Path) -> Result<(), Error> {
    match place.kind {
        Kind::Curve | Kind::CurveFp32 => {
            let (points, astray) = curve(path)?;
            let s = g.scheme_mut(place.scheme);
            s.astray = s.astray.into_iter().chain(astray).min();
            match place.kind {
                Kind::Curve => s.curve = points,
                _ => s.fp32 = points,
            }
        }
        Kind::Steps => steps(g.scheme_mut(place.scheme), path)?,
        Kind::Summary => summary(g, path)?,
        Kind::Swallow => g.swallow = swallow(path)?,
        Kind::TensorSwallow => g.tensors = tensors(path)?,
        Kind::Histogram => g.histogram = histogram(path)?,
        Kind::Scaler => g.scaler = scaler(path)?,
        Kind::Seeds => g.seeds = seeds(path)?,
        Kind::Memory => g.memory = memory(path)?,
        Kind::Policy => g.policy = policy(path)?,
        Kind::Full(sheet) => g.scheme_mut(place.scheme).full.take(sheet, path)?,
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

/// The evaluations whose losses are numbers, and the first step where one is none.
fn curve(path: &Path) -> Result<(Vec<Point>, Option<u64>), Error> {
    let rows = by_step(path, &["step", "val_loss", "train_ema"], |t, r, step| {
        let loss = |c: &str| t.astray(r, c, 0.0, LARGEST_LOSS);
        let point = loss("val_loss")?.zip(loss("train_ema")?);
        Ok((step, point.map(|(val, ema)| Point { step, val, ema })))
    })?;
    let astray = rows.iter().find(|r| r.1.is_none()).map(|r| r.0);
    Ok((rows.into_iter().filter_map(|r| r.1).collect(), astray))
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
    let rows = rows(path, &SUMMARY, |t, r| {
        let row = Summary {
            step_ms: t.maybe(r, "step_ms", 0.0, 1e9)?,
            peak_gib: t.number(r, "peak_mem_gib", 0.0, 1e6)?,
            loss: match t.text(r, "final_val_loss").trim() {
                "" => None,
                _ => t.astray(r, "final_val_loss", 0.0, LARGEST_LOSS)?,
            },
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
        let count = t.count(r, "count")?.min(1 << 50);
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
    let all = rows(path, &SEEDS, |t, r| {
        let n = |c: &str| t.number(r, c, 0.0, LARGEST_LOSS);
        // Of runs that went astray there is no mean.
        if t.astray(r, "val_loss_mean", 0.0, LARGEST_LOSS)?.is_none() {
            return Ok(None);
        }
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
        let bytes = t.count(r, "bytes")?.min(1 << 50);
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

pub(super) fn gemm(path: &Path) -> Result<Vec<GemmRow>, Error> {
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

/// The known name of a scheme of a file.
fn known(name: &str) -> Option<&'static str> {
    SCHEMES.iter().copied().find(|s| *s == name)
}
