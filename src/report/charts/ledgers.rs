//! Plots of swallowed updates, gradients and the loss scale.

use super::{cells, ends, line_cells, look, sample, sampled};
use crate::report::plot::chart::*;
use crate::report::plot::evenly;
use crate::report::plot::scale::{Form, grouped, power_of_ten};
use crate::report::read::{Group, ScalerRow, TensorShares};
use crate::report::verdict::{FP16_LEAST, FP16_MOST, FP16_NORMAL};

fn share(v: f64) -> String {
    format!("{:.1}%", 100.0 * v)
}

pub(super) fn swallow(g: &Group) -> Option<Chart> {
    let series = vec![Series {
        name: "mixed".into(),
        look: look("mixed"),
        stairs: false,
        points: g.swallow.iter().map(|r| (r.0 as f64, r.1)).collect(),
    }];
    (!g.swallow.is_empty()).then(|| Chart {
        id: format!("swallow{}", g.tag),
        title: "Swallowed updates, whole model".into(),
        caption: "Of all weights of the mixed run, the share whose update would leave them as \
            they are, if they were kept in bf16: bf16(bf16(w) + delta) = bf16(w)."
            .into(),
        says: ends(&series, share),
        cells: line_cells(&series, share, "the file"),
        kind: Kind::Lines(Lines {
            y_label: "share of all weights".into(),
            form: Form::Percent,
            zero: true,
            range: Some((0.0, 1.0)),
            series,
            marks: vec![],
            marks_name: String::new(),
        }),
    })
}

pub(super) fn heat(g: &Group) -> Option<Chart> {
    let mut steps: Vec<u64> = g
        .tensors
        .iter()
        .flat_map(|t| t.shares.iter().map(|s| s.0))
        .collect();
    steps.sort_unstable();
    steps.dedup();
    if steps.is_empty() {
        return None;
    }
    let at = |t: &TensorShares, step: &u64| {
        let found = t.shares.binary_search_by_key(step, |s| s.0);
        found.ok().map(|i| t.shares[i].1)
    };
    // The page has room for so many steps and tensors; the file has them all.
    let all = (steps.len(), g.tensors.len());
    let steps: Vec<u64> = evenly(all.0, 40).into_iter().map(|i| steps[i]).collect();
    let tensors: Vec<&TensorShares> = sample(all.1).into_iter().map(|i| &g.tensors[i]).collect();
    let row = |t: &&TensorShares| {
        let shares = steps.iter().map(|s| at(t, s));
        (t.name.clone(), shares.collect::<Vec<_>>())
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = tensors.iter().map(row).collect();
    let shown = evenly(steps.len(), 12);
    let names: Vec<String> = shown
        .iter()
        .map(|&i| format!("step {}", grouped(steps[i] as i64)))
        .collect();
    let header: Vec<&str> = ["tensor", "elements"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let table = tensors.iter().zip(&rows).map(|(t, r)| {
        let shares = shown.iter().map(|&i| r.1[i].map_or(String::new(), share));
        [t.name.clone(), grouped(t.elements as i64)]
            .into_iter()
            .chain(shares)
            .collect()
    });
    let mut cells = sampled(&header, table.collect(), all.1, "the file");
    if shown.len() < all.0 {
        let steps = format!(
            " {} of {} steps; the file has them all.",
            shown.len(),
            all.0
        );
        cells.note += &steps;
    }
    let last = |r: &(String, Vec<Option<f64>>)| r.1.last().copied().flatten().unwrap_or(0.0);
    let most = rows.iter().max_by(|a, b| last(a).total_cmp(&last(b)))?;
    let least = rows.iter().min_by(|a, b| last(a).total_cmp(&last(b)))?;
    let says = format!(
        "{} tensors at {} steps. At the last step most in {}, {}; least in {}, {}.",
        all.1,
        all.0,
        most.0,
        share(last(most)),
        least.0,
        share(last(least))
    );
    Some(Chart {
        id: format!("swallow-tensors{}", g.tag),
        title: "Swallowed updates by tensor and step".into(),
        caption: "The same share within each tensor, in percent. Where weights are large \
            against their updates, bf16 loses most."
            .into(),
        says,
        cells,
        kind: Kind::Heat(Heat { steps, rows }),
    })
}

pub(super) fn histogram(g: &Group) -> Option<Chart> {
    let h = &g.histogram;
    if h.iter().all(|b| b.1 == 0) {
        return None;
    }
    let width = h[1].0 - h[0].0;
    let range = |name: &str, scheme, least, normal, most| Range {
        name: name.into(),
        look: look(scheme),
        least,
        normal,
        most,
    };
    let scale = 16.0 * std::f64::consts::LOG10_2;
    let ranges = vec![
        range("fp16", "fp16", FP16_LEAST, FP16_NORMAL, FP16_MOST),
        range(
            "fp16 × 2¹⁶",
            "fp16",
            FP16_LEAST - scale,
            FP16_NORMAL - scale,
            FP16_MOST - scale,
        ),
        range("bf16", "bf16", -40.04, -37.93, 38.53),
        range("fp32", "fp32", -44.85, -37.93, 38.53),
    ];
    let total: u64 = h.iter().map(|b| b.1).sum();
    let mode = h.iter().max_by_key(|b| b.1)?;
    let filled = || h.iter().filter(|b| b.1 > 0).map(|b| b.0);
    let (low, high) = (
        filled().fold(f64::INFINITY, f64::min),
        filled().fold(f64::NEG_INFINITY, f64::max) + width,
    );
    Some(Chart {
        id: format!("gradients{}", g.tag),
        title: "Gradient magnitudes and what each type can hold".into(),
        caption: "Counts of all gradients at one step of the mixed run, on a logarithmic scale, \
            under the ranges of the types. Dashed: where fp16 loses bits, and where it ends. \
            fp16 × 2¹⁶ is the range under a loss scale of 65536."
            .into(),
        says: format!(
            "{} gradients from {} to {}, most of them from {} to {}. fp16 is normal from {} to \
                {}, subnormal from {}.",
            grouped(total as i64),
            power_of_ten(low),
            power_of_ten(high),
            power_of_ten(mode.0),
            power_of_ten(mode.0 + width),
            power_of_ten(FP16_NORMAL),
            power_of_ten(FP16_MOST),
            power_of_ten(FP16_LEAST)
        ),
        cells: cells(
            &["log10 from", "log10 to", "gradients", "share"],
            h.iter()
                .filter(|b| b.1 > 0)
                .map(|b| {
                    vec![
                        format!("{}", b.0),
                        format!("{}", b.0 + width),
                        grouped(b.1 as i64),
                        format!("{:.3}%", 100.0 * b.1 as f64 / total as f64),
                    ]
                })
                .collect(),
            "gradhist.csv",
        ),
        kind: Kind::Histogram(Histogram {
            edges: h.iter().map(|b| b.0).collect(),
            counts: h.iter().map(|b| b.1).collect(),
            width,
            ranges,
        }),
    })
}

pub(super) fn scaler(g: &Group) -> Option<Chart> {
    let last = g.scaler.last()?;
    let skipped: Vec<u64> = g
        .scaler
        .iter()
        .filter(|r| r.skipped)
        .map(|r| r.step)
        .collect();
    let series = vec![Series {
        name: "fp16".into(),
        look: look("fp16"),
        stairs: true,
        points: g.scaler.iter().map(|r| (r.step as f64, r.scale)).collect(),
    }];
    let rows = g.scaler.iter().enumerate().filter(|(i, r)| {
        *i == 0 || r.skipped || *i + 1 == g.scaler.len() || g.scaler[i - 1].scale != r.scale
    });
    let rows: Vec<&ScalerRow> = rows.map(|(_, r)| r).collect();
    let row = |i: usize| {
        let r = rows[i];
        let skipped = if r.skipped { "yes" } else { "" };
        vec![
            grouped(r.step as i64),
            format!("{}", r.scale),
            skipped.into(),
            r.culprit.clone(),
        ]
    };
    Some(Chart {
        id: format!("loss-scale{}", g.tag),
        title: "Loss scale and skipped steps".into(),
        caption: "The scale by which fp16 multiplies the loss. It halves at a gradient that is \
            not finite, whose step is skipped, and doubles after a run of good ones."
            .into(),
        says: format!(
            "{} of {} steps skipped; the scale is {} at step {}.",
            skipped.len(),
            last.step,
            last.scale,
            last.step
        ),
        cells: sampled(
            &["step", "loss scale", "skipped", "first not finite"],
            sample(rows.len()).into_iter().map(row).collect(),
            rows.len(),
            "the file",
        ),
        kind: Kind::Lines(Lines {
            y_label: "loss scale".into(),
            form: Form::Log2,
            zero: false,
            range: scale_range(&g.scaler.iter().map(|r| r.scale).collect::<Vec<_>>()),
            series,
            marks: skipped,
            marks_name: "skipped step".into(),
        }),
    })
}

/// Whole powers of two around the scales.
fn scale_range(scales: &[f64]) -> Option<(f64, f64)> {
    let logs = || scales.iter().map(|s| libm::log2(*s));
    let (low, high) = (
        logs().fold(f64::INFINITY, f64::min),
        logs().fold(f64::NEG_INFINITY, f64::max),
    );
    (low <= high).then(|| (libm::floor(low) - 1.0, libm::ceil(high) + 1.0))
}
