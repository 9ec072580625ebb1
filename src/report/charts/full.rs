//! Plots of the full ledger.

use super::{cells, ends, line_cells, look, sample};
use crate::report::plot::chart::*;
use crate::report::plot::evenly;
use crate::report::plot::scale::{Form, grouped, raised};
use crate::report::read::full::{Full, Range as Row};
use crate::report::read::{Group, Scheme};
use crate::report::sheets::WHOLE;
use std::collections::BTreeMap;

fn percent(v: f64) -> String {
    format!("{:.1}%", 100.0 * v)
}

/// The scheme whose tables tell most of what is asked: the first of these that has them.
fn first<'a>(g: &'a Group, order: &[&str], has: impl Fn(&Full) -> bool) -> Option<&'a Scheme> {
    let all = order.iter().filter_map(|n| g.scheme(n));
    all.into_iter().find(|s| has(&s.full))
}

fn lines(series: &[Series], y_label: &str, form: Form, range: Option<(f64, f64)>) -> Kind {
    Kind::Lines(Lines {
        y_label: y_label.into(),
        form,
        zero: false,
        range,
        series: series.to_vec(),
        marks: vec![],
        marks_name: String::new(),
    })
}

/// A line for each scheme that has points.
fn by_scheme(g: &Group, points: impl Fn(&Scheme) -> Vec<(f64, f64)>) -> Vec<Series> {
    let of = |s: &Scheme| Series {
        name: s.name.into(),
        look: look(s.name),
        stairs: false,
        points: points(s),
    };
    let all = g.schemes.iter().map(of);
    all.filter(|s| !s.points.is_empty()).collect()
}

/// How far what was stored of each update points where AdamW pointed.
pub(super) fn cosines(g: &Group) -> Option<Chart> {
    let series = by_scheme(g, |s| {
        (s.full.updates.iter())
            .filter(|u| u.tensor == WHOLE)
            .filter_map(|u| Some((u.step as f64, u.cosine?)))
            .collect()
    });
    (!series.is_empty()).then(|| Chart {
        id: format!("update-cosine{}", g.tag),
        title: "What is left of each update".into(),
        caption: "Cosine of the angle between what the stored weights have changed by and what \
            AdamW's formula gives in f64, over all weights: 1 where nothing is lost."
            .into(),
        says: ends(&series, |v| format!("{v:.4}")),
        cells: line_cells(&series, |v| format!("{v:.6}"), "the file"),
        kind: lines(&series, "cosine", Form::Linear, Some((0.0, 1.0))),
    })
}

/// What each way of storing would have swallowed of the same updates.
pub(super) fn ways(g: &Group) -> Option<Chart> {
    let s = first(g, &["mixed", "fp32", "fp16"], |f| !f.ways.is_empty())?;
    let mut by: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (step, way, share) in &s.full.ways {
        by.entry(way).or_default().push((*step as f64, *share));
    }
    let series: Vec<Series> = by
        .into_iter()
        .map(|(way, points)| Series {
            name: way.into(),
            look: look(way),
            stairs: false,
            points,
        })
        .collect();
    Some(Chart {
        id: format!("ways{}", g.tag),
        title: format!("The updates of {}, stored in other ways", s.name),
        caption: "The share of all weights of whose update nothing would have been left, had \
            they been kept so: bf16 to nearest, with stochastic rounding, with a compensation (a \
            stateless stand-in), and fp16. Each step stands for itself."
            .into(),
        says: ends(&series, percent),
        cells: line_cells(&series, percent, "the file"),
        kind: lines(
            &series,
            "share of all weights",
            Form::Percent,
            Some((0.0, 1.0)),
        ),
    })
}

/// Sizes of the updates of the last look against the distance of bf16 numbers.
pub(super) fn ulps(g: &Group) -> Option<Chart> {
    let s = first(g, &["mixed", "fp32", "fp16", "bf16"], |f| {
        !f.ulps.is_empty()
    })?;
    let step = s.full.ulps.last()?.0;
    let rows: Vec<(i64, u64)> = (s.full.ulps.iter())
        .filter(|r| r.0 == step)
        .map(|r| (r.1, r.2))
        .collect();
    let total: u64 = rows.iter().map(|r| r.1).sum();
    let share = |n: u64| n as f64 / total.max(1) as f64;
    let name = |k: i64| format!("2{}", raised(k));
    let bars = rows.iter().map(|&(k, n)| Bar {
        name: name(k),
        look: look(s.name),
        values: vec![100.0 * share(n)],
        shown: percent(share(n)),
        mark: None,
    });
    let below: u64 = rows.iter().filter(|r| r.0 < -1).map(|r| r.1).sum();
    let table = rows
        .iter()
        .map(|&(k, n)| vec![name(k), name(k + 1), grouped(n as i64), percent(share(n))]);
    Some(Chart {
        id: format!("update-ulps{}", g.tag),
        title: format!("How large the updates of {} are in bf16's steps", s.name),
        caption: format!(
            "Updates other than zero at step {step}, in units of the last place of their weight in \
             bf16, by powers of two; each bar begins at the value beside it. Below half a unit \
             (2⁻¹) bf16 to nearest does not move."
        ),
        says: format!(
            "{} of {} updates at step {step} are below half a unit of the last place.",
            percent(share(below)),
            grouped(total as i64)
        ),
        cells: cells(
            &["from", "to", "updates", "share"],
            table.collect(),
            "the file",
        ),
        kind: Kind::Bars(Bars {
            label: "percent of the updates".into(),
            parts: vec![],
            bars: bars.collect(),
        }),
    })
}

/// A heat map: the names of its rows, and (row, step, share).
fn heat(
    (id, title, caption, says): (String, String, String, String),
    names: &[String],
    values: &[(usize, u64, f64)],
) -> Option<Chart> {
    let mut steps: Vec<u64> = values.iter().map(|v| v.1).collect();
    steps.sort_unstable();
    steps.dedup();
    if steps.is_empty() {
        return None;
    }
    let all = (steps.len(), names.len());
    let steps: Vec<u64> = evenly(all.0, 40).into_iter().map(|i| steps[i]).collect();
    let mut grid = vec![vec![None; steps.len()]; names.len()];
    for &(row, step, share) in values {
        if let Ok(c) = steps.binary_search(&step) {
            grid[row][c] = Some(share);
        }
    }
    let kept = sample(all.1);
    let rows: Vec<(String, Vec<Option<f64>>)> = kept
        .iter()
        .map(|&i| (names[i].clone(), grid[i].clone()))
        .collect();
    let shown = evenly(steps.len(), 12);
    let heads: Vec<String> = shown
        .iter()
        .map(|&c| format!("step {}", grouped(steps[c] as i64)))
        .collect();
    let header: Vec<&str> = std::iter::once("name")
        .chain(heads.iter().map(String::as_str))
        .collect();
    let table = rows.iter().map(|(name, shares)| {
        let cells = shown
            .iter()
            .map(|&c| shares[c].map_or(String::new(), percent));
        std::iter::once(name.clone()).chain(cells).collect()
    });
    Some(Chart {
        id,
        title,
        caption,
        says,
        cells: cells(&header, table.collect(), "the file"),
        kind: Kind::Heat(Heat { steps, rows }),
    })
}

/// Where weights stand still.
pub(super) fn still(g: &Group) -> Option<Chart> {
    let order = ["bf16", "bf16-sr", "bf16-kahan", "mixed", "fp16", "fp32"];
    let s = first(g, &order, |f| !f.updates.is_empty())?;
    let mut names: Vec<String> = vec![];
    let mut values = vec![];
    for u in s.full.updates.iter().filter(|u| u.tensor != WHOLE) {
        let row = names
            .iter()
            .position(|n| *n == u.tensor)
            .unwrap_or_else(|| {
                names.push(u.tensor.clone());
                names.len() - 1
            });
        values.push((row, u.step, u.still));
    }
    let last = s.full.updates.iter().rev().find(|u| u.tensor == WHOLE)?;
    let words = (
        format!("still{}", g.tag),
        format!("Weights of {} that stand still", s.name),
        "The share of each tensor's stored weights that have the value of the look before, in \
            percent."
            .to_string(),
        format!(
            "At step {}, {} of all weights have the value of the look before, and {} have not been \
             seen to move at all.",
            last.step,
            percent(last.still),
            percent(last.unmoved)
        ),
    );
    heat(words, &names, &values)
}

fn named(r: &Row) -> String {
    let [place, op, tensor, dtype] = &r.name;
    match tensor.is_empty() {
        true => format!("{place} {op} {dtype}"),
        false => format!("{op} → {tensor} {dtype}"),
    }
}

/// Which operations of the backward pass fp16 would lose values of.
pub(super) fn losses(g: &Group) -> Option<Chart> {
    const MOST: usize = 40;
    let s = first(g, &["mixed", "fp32", "fp16"], |f| !f.ranges.is_empty())?;
    let back = || s.full.ranges.iter().filter(|r| r.backward);
    let mut worst: BTreeMap<String, f64> = BTreeMap::new();
    for r in back() {
        let most = worst.entry(named(r)).or_default();
        *most = most.max(r.below);
    }
    let all = worst.len();
    let mut names: Vec<(String, f64)> = worst.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    names.truncate(MOST);
    let (top, share) = names.first()?.clone();
    let names: Vec<String> = names.into_iter().map(|n| n.0).collect();
    let row = |r: &Row| names.iter().position(|n| *n == named(r));
    let values: Vec<(usize, u64, f64)> = back()
        .filter_map(|r| Some((row(r)?, r.step, r.below)))
        .collect();
    let words = (
        format!("fp16-losses{}", g.tag),
        format!(
            "Values of {}'s backward pass below fp16's least number",
            s.name
        ),
        format!(
            "The share of each operation's results that are not zero and below 2⁻²⁴, in percent: \
             the {} operations of {all} with the most. Values of fp16 bear its loss scale.",
            names.len()
        ),
        format!("Most in {top}: {} at worst.", percent(share)),
    );
    heat(words, &names, &values)
}

/// Which loss scale would have suited.
pub(super) fn scales(g: &Group) -> Option<Chart> {
    let series = by_scheme(g, |s| {
        (s.full.scales.iter())
            .filter_map(|r| Some((r.step as f64, r.best?)))
            .collect()
    });
    (!series.is_empty()).then(|| Chart {
        id: format!("suitable-scale{}", g.tag),
        title: "Loss scales that would suit".into(),
        caption: "The largest power of two that keeps the largest narrow value of the backward \
            pass below 65504 / 4, from each scheme's own gradients."
            .into(),
        says: ends(&series, |v| format!("{v}")),
        cells: line_cells(&series, |v| format!("{v}"), "the file"),
        kind: lines(&series, "loss scale", Form::Log2, Some((0.0, 25.0))),
    })
}
