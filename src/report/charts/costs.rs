//! Plots of memory, time and throughput.

use super::{cells, look};
use crate::report::plot::chart::*;
use crate::report::read::{Folder, GemmRow, Group, Scheme};

const MIB: f64 = 1_048_576.0;

pub(super) fn memory(g: &Group) -> Option<Chart> {
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
            "What the plan of the training step holds when most is live, by class; other: \
                evaluation and ledgers. The tick is the measured peak of the executor's own \
                allocations."
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

pub(super) fn times(g: &Group) -> Option<Chart> {
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
        caption: "Mean over all steps but the first 20 and those that count for the ledger. \
            Narrow types are emulated in training: packed two to a word and unpacked by integer \
            code."
            .into(),
        says: bars
            .iter()
            .map(|b| format!("{}: {} ms", b.name, b.shown))
            .collect::<Vec<_>>()
            .join("; ")
            + ".",
        cells: cells(
            &["scheme", "ms a step", "of fp32's", "arithmetic"],
            rows.collect(),
            "the file",
        ),
        kind: Kind::Bars(Bars {
            label: "ms a step".into(),
            parts: vec![],
            bars,
        }),
    })
}

/// The throughput of matrix products.
pub fn gemm(f: &Folder) -> Option<Chart> {
    let more = |r: &GemmRow, c: &str| {
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
        caption: "From gemm.csv: what this device does with one large product, and whether the \
            type is native there or emulated."
            .into(),
        says: bars
            .iter()
            .map(|b| format!("{}: {} TFLOPS", b.name, b.shown))
            .collect::<Vec<_>>()
            .join("; ")
            + ".",
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
