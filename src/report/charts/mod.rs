//! Which plots a folder gives, and why others are missing.

mod costs;
mod curves;
mod full;
mod ledgers;

use super::plot::chart::{Cells, Chart, Series};
use super::plot::evenly;
use super::plot::scale::grouped;
use super::read::{Group, SCHEMES};
pub use costs::gemm;
use costs::{memory, times};
use curves::{curve, gaps, spread};
use ledgers::{heat, histogram, scaler, swallow};

/// Rows of a table in the page; the CSV file has them all.
const MOST_ROWS: usize = 300;

/// A chapter of a group: its heading, its plots, and a line for each that is missing.
pub struct Chapter {
    /// A plain name.
    pub id: String,
    /// Its heading.
    pub title: &'static str,
    /// Its plots.
    pub charts: Vec<Chart>,
    /// What is missing, and what would bring it.
    pub missing: Vec<String>,
}

/// The chapters of a group.
pub fn chapters(g: &Group) -> Vec<Chapter> {
    let mut out = Vec::new();
    let mut add = |id: &str, title, parts: Vec<Result<Chart, String>>| {
        let (mut charts, mut missing) = (vec![], vec![]);
        for part in parts {
            match part {
                Ok(c) => charts.push(c),
                Err(why) if why.is_empty() => {}
                Err(why) => missing.push(why),
            }
        }
        let id = format!("part-{id}{}", g.tag);
        out.push(Chapter {
            id,
            title,
            charts,
            missing,
        });
    };
    let t = &g.tag;
    add(
        "convergence",
        "Convergence",
        vec![
            curve(
                g,
                "val-loss",
                "Validation loss, each in its own precision",
                |s| &s.curve,
                |p| p.val,
            ),
            curve(
                g,
                "val-loss-fp32",
                "Validation loss, the same weights in fp32",
                |s| &s.fp32,
                |p| p.val,
            ),
            gaps(g),
            curve(
                g,
                "train-ema",
                "Training loss, moving average",
                |s| &s.curve,
                |p| p.ema,
            ),
            spread(g).ok_or_else(|| {
                format!(
                    "No mean and spread over seeds: there is no \
                seeds{t}.csv (`isobit train --seeds 3`)."
                )
            }),
        ],
    );
    add(
        "updates",
        "Updates that bf16 weights would swallow",
        vec![
            swallow(g).ok_or_else(|| {
                format!(
                    "No share of swallowed updates: there is no \
                swallow{t}.csv, which a mixed run writes every `swallow_interval` steps."
                )
            }),
            heat(g)
                .ok_or_else(|| format!("No shares by tensor: there is no tensor_swallow{t}.csv.")),
        ],
    );
    let other = match t.is_empty() {
        true => {
            "No gradient histogram: there is no gradhist.csv, which a mixed run writes at \
                `gradhist_step`."
        }
        false => "No gradient histogram: it is written by runs without a tag.",
    };
    add(
        "gradients",
        "Gradients and the range of fp16",
        vec![
            histogram(g).ok_or_else(|| other.to_string()),
            scaler(g).ok_or_else(|| {
                format!(
                    "No loss scale: there is no scaler_fp16{t}.csv, which the scheme fp16 writes."
                )
            }),
        ],
    );
    let mut looked = vec![
        full::cosines(g),
        full::ways(g),
        full::still(g),
        full::ulps(g),
        full::losses(g),
        full::scales(g),
    ];
    looked.retain(Option::is_some);
    let looked = match looked.is_empty() {
        true => vec![Err(format!(
            "No full ledger: there is no updates_SCHEME{t}.csv, which `isobit train --ledger full` writes."
        ))],
        false => looked.into_iter().flatten().map(Ok).collect(),
    };
    add("full", "The full ledger", looked);
    add(
        "costs",
        "Memory and time",
        vec![
            memory(g).ok_or_else(|| format!("No memory: there is no summary{t}.csv.")),
            times(g).ok_or_else(|| {
                "No step times: they leave out the first 20 steps, and no run here was longer."
                    .into()
            }),
        ],
    );
    out
}

/// The number of a scheme's look.
fn look(name: &str) -> usize {
    SCHEMES.iter().position(|s| *s == name).unwrap_or(0)
}

/// At most [`MOST_ROWS`] of so many rows, the first and the last among them.
fn sample(all: usize) -> Vec<usize> {
    evenly(all, MOST_ROWS)
}

fn cells(header: &[&str], rows: Vec<Vec<String>>, file: &str) -> Cells {
    let all = rows.len();
    let kept = sample(all);
    let mut rows: Vec<Option<Vec<String>>> = rows.into_iter().map(Some).collect();
    let rows = kept.iter().filter_map(|&i| rows[i].take()).collect();
    sampled(header, rows, all, file)
}

/// A table of rows that were chosen by [`sample`] of `all`.
fn sampled(header: &[&str], rows: Vec<Vec<String>>, all: usize, file: &str) -> Cells {
    let note = match rows.len() < all {
        false => String::new(),
        true => format!("{} of {all} rows; {file} has them all.", rows.len()),
    };
    Cells {
        header: header.iter().map(|h| h.to_string()).collect(),
        rows,
        note,
    }
}

/// The table of lines: a row a step, a column a line.
fn line_cells(series: &[Series], show: impl Fn(f64) -> String, file: &str) -> Cells {
    let mut steps: Vec<u64> = series
        .iter()
        .flat_map(|s| s.points.iter().map(|p| p.0 as u64))
        .collect();
    steps.sort_unstable();
    steps.dedup();
    let value = |s: &Series, step: u64| {
        let at = s.points.binary_search_by_key(&step, |p| p.0 as u64);
        at.map_or(String::new(), |i| show(s.points[i].1))
    };
    let row = |i: usize| {
        let own = series.iter().map(|s| value(s, steps[i]));
        std::iter::once(grouped(steps[i] as i64))
            .chain(own)
            .collect()
    };
    let rows = sample(steps.len()).into_iter().map(row).collect();
    let names = series.iter().map(|s| s.name.as_str());
    let header: Vec<&str> = std::iter::once("step").chain(names).collect();
    sampled(&header, rows, steps.len(), file)
}

/// Where lines end, in words.
fn ends(series: &[Series], show: impl Fn(f64) -> String) -> String {
    let end = |s: &Series| {
        s.points
            .last()
            .map(|p| format!("{} ends at {} at step {}", s.name, show(p.1), p.0))
    };
    series.iter().filter_map(end).collect::<Vec<_>>().join("; ") + "."
}

fn loss(v: f64) -> String {
    format!("{v:.4}")
}
