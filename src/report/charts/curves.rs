//! Plots of losses.

use super::{cells, ends, line_cells, look, loss};
use crate::report::plot::chart::*;
use crate::report::plot::scale::Form;
use crate::report::read::{Group, Point, Scheme, SeedsRow};
use crate::report::verdict::common;

pub(super) fn curve<'a>(
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
            "The weights of each scheme, widened exactly and evaluated in fp32: what the \
                weights alone are worth."
        }
        _ => {
            "Exponential moving average (0.98) of the loss of the training batches, as it was \
                at each evaluation."
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

pub(super) fn gaps(g: &Group) -> Result<Chart, String> {
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
            "The scheme's loss minus fp32's at the same step, {how}: 0 is a perfect match, \
                above 0 is worse."
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

pub(super) fn spread(g: &Group) -> Option<Chart> {
    let row = |r: &SeedsRow| SpreadRow {
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
        caption: "Marker, in each scheme's own shape: mean. Thick line: one standard deviation to both sides. Ticks: the \
            best and the worst seed."
            .into(),
        says: rows
            .iter()
            .map(|r| format!("{}: {}", r.name, r.shown))
            .collect::<Vec<_>>()
            .join("; ")
            + ".",
        cells: cells(
            &[
                "scheme",
                "seeds",
                "mean",
                "standard deviation",
                "least",
                "most",
            ],
            g.seeds
                .iter()
                .map(|r| {
                    vec![
                        r.scheme.into(),
                        r.seeds.to_string(),
                        loss(r.mean),
                        loss(r.std),
                        loss(r.min),
                        loss(r.max),
                    ]
                })
                .collect(),
            "the file",
        ),
        kind: Kind::Spread(Spread {
            label: "validation loss, nats a character".into(),
            rows,
        }),
    })
}
