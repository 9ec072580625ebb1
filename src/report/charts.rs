//! Which plots a folder gives, and why others are missing.

use super::plot::chart::*;
use super::plot::scale::{Form, grouped};
use super::read::{Folder, Group, Point, SCHEMES, Scheme, TensorShares};
use super::verdict::{FP16_LEAST, FP16_MOST, FP16_NORMAL, common};

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
            curve(g, "val-loss", "Validation loss, each in its own precision", |s| &s.curve, |p| p.val),
            curve(g, "val-loss-fp32", "Validation loss, the same weights in fp32", |s| &s.fp32, |p| p.val),
            gaps(g),
            curve(g, "train-ema", "Training loss, moving average", |s| &s.curve, |p| p.ema),
            spread(g).ok_or_else(|| format!("No mean and spread over seeds: there is no seeds{t}.csv (`isobit train --seeds 3`).")),
        ],
    );
    add(
        "updates",
        "Updates that bf16 weights would swallow",
        vec![
            swallow(g).ok_or_else(|| format!("No share of swallowed updates: there is no swallow{t}.csv, which a mixed run writes every `swallow_interval` steps.")),
            heat(g).ok_or_else(|| format!("No shares by tensor: there is no tensor_swallow{t}.csv.")),
        ],
    );
    let other = match t.is_empty() {
        true => {
            "No gradient histogram: there is no gradhist.csv, which a mixed run writes at `gradhist_step`."
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

fn cells(header: &[&str], rows: Vec<Vec<String>>, file: &str) -> Cells {
    let all = rows.len();
    let step = all.div_ceil(MOST_ROWS).max(1);
    let kept = |(i, r): (usize, Vec<String>)| (i % step == 0 || i + 1 == all).then_some(r);
    let note = match step {
        1 => String::new(),
        n => format!("Every {n}th of {all} rows; {file} has them all."),
    };
    Cells {
        header: header.iter().map(|h| h.to_string()).collect(),
        rows: rows.into_iter().enumerate().filter_map(kept).collect(),
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
    let mut at = vec![0; series.len()];
    let rows = steps.iter().map(|&step| {
        let mut row = vec![grouped(step as i64)];
        for (s, at) in series.iter().zip(&mut at) {
            match s.points.get(*at).filter(|p| p.0 as u64 == step) {
                Some(p) => {
                    *at += 1;
                    row.push(show(p.1));
                }
                None => row.push(String::new()),
            }
        }
        row
    });
    let names = series.iter().map(|s| s.name.as_str());
    let header: Vec<&str> = std::iter::once("step").chain(names).collect();
    cells(&header, rows.collect(), file)
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

fn curve<'a>(
    g: &'a Group,
    id: &str,
    title: &str,
    of: impl Fn(&'a Scheme) -> &'a Vec<Point>,
    value: impl Fn(&Point) -> f64,
) -> Result<Chart, String> {
    let series: Vec<Series> = g
        .schemes
        .iter()
        .filter(|s| !of(s).is_empty())
        .map(|s| Series {
            name: s.name.into(),
            look: look(s.name),
            stairs: false,
            points: of(s).iter().map(|p| (p.step as f64, value(p))).collect(),
        })
        .collect();
    let file = match id {
        "val-loss-fp32" => format!("curve_fp32eval_{{scheme}}{}.csv", g.tag),
        _ => format!("curve_{{scheme}}{}.csv", g.tag),
    };
    if series.is_empty() {
        return Err(format!("No {}: there is no {file}.", title.to_lowercase()));
    }
    let caption = match id {
        "val-loss" => "Mean loss over the validation batches, computed as each scheme computes.",
        "val-loss-fp32" => {
            "The weights of each scheme, widened exactly and evaluated in fp32: what the weights alone are worth."
        }
        _ => {
            "Exponential moving average (0.98) of the loss of the training batches, as it was at each evaluation."
        }
    };
    Ok(Chart {
        id: format!("{id}{}", g.tag),
        title: title.into(),
        caption: caption.into(),
        says: ends(&series, loss),
        cells: line_cells(&series, loss, &file),
        kind: Kind::Lines(Lines {
            y_label: "loss, nats a character".into(),
            form: Form::Linear,
            zero: false,
            range: None,
            series,
            marks: vec![],
            marks_name: String::new(),
        }),
    })
}

fn gaps(g: &Group) -> Result<Chart, String> {
    let missing = || {
        "No distances from fp32: they take fp32 and another scheme, evaluated at the same steps."
            .to_string()
    };
    let base = g.scheme("fp32").ok_or_else(missing)?;
    let mut all_fp32 = true;
    let mut series = Vec::new();
    for s in g.schemes.iter().filter(|s| s.name != "fp32") {
        let (rows, fp32) = common(base, s);
        if rows.is_empty() {
            continue;
        }
        all_fp32 &= fp32;
        series.push(Series {
            name: s.name.into(),
            look: look(s.name),
            stairs: false,
            points: rows.iter().map(|r| (r.0 as f64, r.2 - r.1)).collect(),
        });
    }
    if series.is_empty() {
        return Err(missing());
    }
    let show = |v: f64| format!("{v:+.4}").replace('-', "−");
    let how = if all_fp32 {
        "all weights evaluated in fp32"
    } else {
        "each in its own precision where there is no evaluation in fp32"
    };
    Ok(Chart {
        id: format!("gap{}", g.tag),
        title: "Validation loss above fp32's".into(),
        caption: format!(
            "The scheme's loss minus fp32's at the same step, {how}: 0 is a perfect match, above 0 is worse."
        ),
        says: ends(&series, show),
        cells: line_cells(&series, show, "the curve files"),
        kind: Kind::Lines(Lines {
            y_label: "difference, nats a character".into(),
            form: Form::Linear,
            zero: true,
            range: None,
            series,
            marks: vec![],
            marks_name: String::new(),
        }),
    })
}

fn spread(g: &Group) -> Option<Chart> {
    let row = |r: &super::read::SeedsRow| SpreadRow {
        name: r.scheme.into(),
        look: look(r.scheme),
        mean: r.mean,
        std: r.std,
        ends: (r.min, r.max),
        shown: format!("{:.4} ± {:.4} ({} seeds)", r.mean, r.std, r.seeds),
    };
    let mut rows: Vec<SpreadRow> = g.seeds.iter().map(row).collect();
    rows.sort_by_key(|r| r.look);
    (!rows.is_empty()).then(|| Chart {
        id: format!("seeds{}", g.tag),
        title: "Final validation loss over seeds".into(),
        caption: "Marker: mean. Thick line: one standard deviation to both sides. Ticks: the best and the worst seed.".into(),
        says: rows.iter().map(|r| format!("{}: {}", r.name, r.shown)).collect::<Vec<_>>().join("; ") + ".",
        cells: cells(
            &["scheme", "seeds", "mean", "standard deviation", "least", "most"],
            g.seeds
                .iter()
                .map(|r| vec![r.scheme.into(), r.seeds.to_string(), loss(r.mean), loss(r.std), loss(r.min), loss(r.max)])
                .collect(),
            "the file",
        ),
        kind: Kind::Spread(Spread {
            label: "validation loss, nats a character".into(),
            rows,
        }),
    })
}

fn share(v: f64) -> String {
    format!("{:.1}%", 100.0 * v)
}

fn swallow(g: &Group) -> Option<Chart> {
    let series = vec![Series {
        name: "mixed".into(),
        look: look("mixed"),
        stairs: false,
        points: g.swallow.iter().map(|r| (r.0 as f64, r.1)).collect(),
    }];
    (!g.swallow.is_empty()).then(|| Chart {
        id: format!("swallow{}", g.tag),
        title: "Swallowed updates, whole model".into(),
        caption: "Of all weights of the mixed run, the share whose update would leave them as they are, if they were kept in bf16: bf16(bf16(w) + delta) = bf16(w).".into(),
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

fn heat(g: &Group) -> Option<Chart> {
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
    let row = |t: &TensorShares| {
        (
            t.name.clone(),
            steps.iter().map(|s| at(t, s)).collect::<Vec<_>>(),
        )
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = g.tensors.iter().map(row).collect();
    // A page's table has room for so many columns; the file has all.
    let shown = super::plot::evenly(steps.len(), 12);
    let names: Vec<String> = shown
        .iter()
        .map(|&i| format!("step {}", grouped(steps[i] as i64)))
        .collect();
    let header: Vec<&str> = ["tensor", "elements"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let table = g.tensors.iter().zip(&rows).map(|(t, r)| {
        let shares = shown.iter().map(|&i| r.1[i].map_or(String::new(), share));
        [t.name.clone(), grouped(t.elements as i64)]
            .into_iter()
            .chain(shares)
            .collect()
    });
    let mut cells = cells(&header, table.collect(), "the file");
    if shown.len() < steps.len() {
        cells.note += &format!(
            " {} of {} steps; the file has them all.",
            shown.len(),
            steps.len()
        );
    }
    let last = |r: &(String, Vec<Option<f64>>)| r.1.last().copied().flatten().unwrap_or(0.0);
    let most = rows.iter().max_by(|a, b| last(a).total_cmp(&last(b)))?;
    let least = rows.iter().min_by(|a, b| last(a).total_cmp(&last(b)))?;
    let says = format!(
        "{} tensors at {} steps. At the last step most in {}, {}; least in {}, {}.",
        rows.len(),
        steps.len(),
        most.0,
        share(last(most)),
        least.0,
        share(last(least))
    );
    Some(Chart {
        id: format!("swallow-tensors{}", g.tag),
        title: "Swallowed updates by tensor and step".into(),
        caption: "The same share within each tensor, in percent. Where weights are large against their updates, bf16 loses most.".into(),
        says,
        cells,
        kind: Kind::Heat(Heat { steps, rows }),
    })
}

fn histogram(g: &Group) -> Option<Chart> {
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
        caption: "Counts of all gradients at one step of the mixed run, on a logarithmic scale, under the ranges of the types. Dashed: where fp16 loses bits, and where it ends. fp16 × 2¹⁶ is the range under a loss scale of 65536.".into(),
        says: format!(
            "{} gradients from 10^{low} to 10^{high}, most of them from 10^{} to 10^{}. fp16 is normal from 10^-4.2 to 10^4.8, subnormal from 10^-7.2.",
            grouped(total as i64), mode.0, mode.0 + width
        ),
        cells: cells(
            &["log10 from", "log10 to", "gradients", "share"],
            h.iter()
                .filter(|b| b.1 > 0)
                .map(|b| vec![format!("{}", b.0), format!("{}", b.0 + width), grouped(b.1 as i64), format!("{:.3}%", 100.0 * b.1 as f64 / total as f64)])
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

fn scaler(g: &Group) -> Option<Chart> {
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
    let rows = rows.map(|(_, r)| {
        let skipped = if r.skipped { "yes" } else { "" };
        vec![
            grouped(r.step as i64),
            format!("{}", r.scale),
            skipped.into(),
            r.culprit.clone(),
        ]
    });
    Some(Chart {
        id: format!("loss-scale{}", g.tag),
        title: "Loss scale and skipped steps".into(),
        caption: "The scale by which fp16 multiplies the loss. It halves at a gradient that is not finite, whose step is skipped, and doubles after a run of good ones.".into(),
        says: format!(
            "{} of {} steps skipped; the scale is {} at step {}.",
            skipped.len(), last.step, last.scale, last.step
        ),
        cells: cells(
            &["step", "loss scale", "skipped", "first not finite"],
            rows.collect(),
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

const MIB: f64 = 1_048_576.0;

fn memory(g: &Group) -> Option<Chart> {
    let mut parts: Vec<String> = vec![];
    for r in &g.memory {
        if !parts.contains(&r.class) && parts.len() < 16 {
            parts.push(r.class.clone());
        }
    }
    let of = |name: &str, class: &str| {
        let mut found = g
            .memory
            .iter()
            .filter(|r| r.scheme == name && r.class == class);
        found.next().map_or(0.0, |r| r.bytes as f64 / MIB)
    };
    let bar = |s: &Scheme| {
        let peak = s.summary.as_ref().map(|r| r.peak_gib * 1024.0);
        let planned: Vec<f64> = parts.iter().map(|p| of(s.name, p)).collect();
        let whole: f64 = planned.iter().sum();
        let says = |p: f64| format!("{}: measured peak {p:.2} MiB", s.name);
        match (whole > 0.0, peak) {
            (false, None) => None,
            (false, Some(p)) => Some((vec![p], format!("{p:.2}"), None)),
            (true, None) => Some((planned, format!("{whole:.2} planned"), None)),
            (true, Some(p)) => Some((planned, format!("{p:.2}"), Some((p, says(p))))),
        }
        .map(|(values, shown, mark)| Bar {
            name: s.name.into(),
            look: look(s.name),
            values,
            shown,
            mark,
        })
    };
    let bars: Vec<Bar> = g.schemes.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return None;
    }
    let caption = match parts.is_empty() {
        true => {
            "Peak of the executor's own allocations, measured; the evaluation in fp32 is left out."
        }
        false => {
            "What the plan of the training step holds when most is live, by class; other: evaluation and ledgers. The tick is the measured peak of the executor's own allocations."
        }
    };
    let header: Vec<&str> = ["scheme"]
        .into_iter()
        .chain(parts.iter().map(String::as_str))
        .chain(["measured peak"])
        .collect();
    let rows = g.schemes.iter().map(|s| {
        let planned = parts.iter().map(|p| format!("{:.2}", of(s.name, p)));
        let peak = s
            .summary
            .as_ref()
            .map_or(String::new(), |r| format!("{:.2}", r.peak_gib * 1024.0));
        [s.name.to_string()]
            .into_iter()
            .chain(planned)
            .chain([peak])
            .collect()
    });
    Some(Chart {
        id: format!("memory{}", g.tag),
        title: "Memory".into(),
        caption: caption.into(),
        says: bars
            .iter()
            .map(|b| format!("{}: {} MiB", b.name, b.shown))
            .collect::<Vec<_>>()
            .join("; ")
            + ".",
        cells: cells(&header, rows.collect(), "the file"),
        kind: Kind::Bars(Bars {
            label: "MiB".into(),
            parts,
            bars,
        }),
    })
}

fn times(g: &Group) -> Option<Chart> {
    let time = |s: &Scheme| s.summary.as_ref().and_then(|r| r.step_ms);
    let bar = |s: &Scheme| {
        let ms = time(s)?;
        Some(Bar {
            name: s.name.into(),
            look: look(s.name),
            values: vec![ms],
            shown: format!("{ms:.2}"),
            mark: None,
        })
    };
    let bars: Vec<Bar> = g.schemes.iter().filter_map(bar).collect();
    let base = g.scheme("fp32").and_then(time);
    let rows = g.schemes.iter().filter_map(|s| {
        let ms = time(s)?;
        let ratio = base
            .filter(|b| *b > 0.0)
            .map_or(String::new(), |b| format!("{:.2}", ms / b));
        let kind = if s.name == "fp32" {
            "native"
        } else {
            "emulated"
        };
        Some(vec![
            s.name.to_string(),
            format!("{ms:.2}"),
            ratio,
            kind.into(),
        ])
    });
    (!bars.is_empty()).then(|| Chart {
        id: format!("step-time{}", g.tag),
        title: "Time of a step".into(),
        caption: "Mean over all steps but the first 20 and those that count for the ledger. Narrow types are emulated in training: packed two to a word and unpacked by integer code.".into(),
        says: bars.iter().map(|b| format!("{}: {} ms", b.name, b.shown)).collect::<Vec<_>>().join("; ") + ".",
        cells: cells(&["scheme", "ms a step", "of fp32's", "arithmetic"], rows.collect(), "the file"),
        kind: Kind::Bars(Bars {
            label: "ms a step".into(),
            parts: vec![],
            bars,
        }),
    })
}

/// The throughput of matrix products.
pub fn gemm(f: &Folder) -> Option<Chart> {
    let more = |r: &super::read::GemmRow, c: &str| {
        r.more
            .iter()
            .find(|m| m.0 == c)
            .map_or(String::new(), |m| m.1.clone())
    };
    let bars: Vec<Bar> = f
        .gemm
        .iter()
        .take(40)
        .filter_map(|r| {
            let t = r.tflops?;
            let how = [more(r, "emulation"), more(r, "path")]
                .into_iter()
                .filter(|s| !s.is_empty())
                .collect::<Vec<_>>()
                .join(", ");
            Some(Bar {
                name: r.dtype.clone(),
                look: match r.dtype.as_str() {
                    "fp32" | "f32" | "float32" => look("fp32"),
                    "bf16" | "bfloat16" => look("bf16"),
                    "fp16" | "f16" | "float16" => look("fp16"),
                    _ => look("mixed"),
                },
                values: vec![t],
                shown: if how.is_empty() {
                    figure(t)
                } else {
                    format!("{} ({how})", figure(t))
                },
                mark: None,
            })
        })
        .collect();
    if bars.is_empty() {
        return None;
    }
    let names: Vec<&str> = f.gemm[0].more.iter().map(|m| m.0).collect();
    let header: Vec<&str> = ["dtype", "ms", "TFLOPS"].into_iter().chain(names).collect();
    let rows = f.gemm.iter().map(|r| {
        let shown = |v: Option<f64>| v.map_or(String::new(), figure);
        [r.dtype.clone(), shown(r.ms), shown(r.tflops)]
            .into_iter()
            .chain(r.more.iter().map(|m| m.1.clone()))
            .collect()
    });
    Some(Chart {
        id: "gemm".into(),
        title: "Throughput of matrix products".into(),
        caption: "From gemm.csv: what this device does with one large product, and whether the type is native there or emulated.".into(),
        says: bars.iter().map(|b| format!("{}: {} TFLOPS", b.name, b.shown)).collect::<Vec<_>>().join("; ") + ".",
        cells: cells(&header, rows.collect(), "gemm.csv"),
        kind: Kind::Bars(Bars {
            label: "TFLOPS".into(),
            parts: vec![],
            bars,
        }),
    })
}

/// Four significant digits.
fn figure(v: f64) -> String {
    match v {
        0.0 => "0".into(),
        v if v.abs() < 0.01 || v.abs() >= 1e6 => format!("{v:.3e}"),
        v if v.abs() < 1.0 => format!("{v:.4}"),
        v if v.abs() < 100.0 => format!("{v:.2}"),
        v => format!("{v:.0}"),
    }
}
