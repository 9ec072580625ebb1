//! Gradient magnitudes, under the ranges of types.

use super::chart::{Histogram, Range};
use super::scale::{Form, Scale, grouped, power_of_ten, raised};
use super::scene::{Anchor, Scene};
use super::style::Ink;
use super::{GAP, Legend, SMALL, Sample, font};

const STRIP: f64 = 20.0;

pub fn draw(h: &Histogram, width: f64) -> Scene {
    let narrow = width < 400.0;
    let body = if narrow { 190.0 } else { 250.0 };
    let mut s = Scene::new(width, 0.0);
    let used: Vec<usize> = (0..h.counts.len()).filter(|&i| h.counts[i] > 0).collect();
    let low = used.first().map_or(-8.0, |&i| h.edges[i]);
    let high = used.last().map_or(0.0, |&i| h.edges[i] + h.width);
    // All of fp16's range is on the axis.
    let x = Scale::between(
        Form::Linear,
        libm::floor(low.min(-8.0) - 0.4),
        high.max(5.2),
    );
    let most = h.counts.iter().max().copied().unwrap_or(1).max(1) as f64;
    let y = Scale::between(Form::Log10, -0.3, libm::log10(most) + 0.1);
    let name = |r: &Range| font::width(&r.name, SMALL, true);
    let names = h.ranges.iter().map(name).fold(30.0, f64::max);
    let left = names + GAP + 2.0;
    let right = width - 8.0;
    let x = x.drawn(left, right);
    let entries = vec![
        ("normal numbers", Sample::Box(Ink::Axis)),
        ("subnormal: fewer bits", Sample::Box(Ink::Faint)),
    ];
    let strips = Legend { entries }.draw(&mut s, 0.0, 0.0, width) + 4.0;
    for (i, r) in h.ranges.iter().enumerate() {
        strip(&mut s, r, strips + i as f64 * STRIP, left, &x);
    }
    let head = strips + h.ranges.len() as f64 * STRIP + 18.0;
    s.text(
        (0.0, head),
        SMALL,
        Anchor::Start,
        Ink::Soft,
        "gradients in a range of a quarter decade",
    );
    let top = head + 10.0;
    let bottom = top + body;
    let y = y.drawn(bottom, top);
    for (v, text) in y.ticks(7) {
        s.rule((left, y.at(v)), (right, y.at(v)), Ink::Grid);
        s.text(
            (left - GAP, y.at(v) + 4.0),
            SMALL,
            Anchor::End,
            Ink::Soft,
            &text,
        );
    }
    for &i in &used {
        let (a, b) = (x.at(h.edges[i]), x.at(h.edges[i] + h.width));
        let at = y.at(h.counts[i] as f64);
        let says = format!(
            "{} to {}: {} gradients",
            power_of_ten(h.edges[i]),
            power_of_ten(h.edges[i] + h.width),
            grouped(h.counts[i] as i64)
        );
        let extent = ((b - a - 1.0).max(0.8), bottom - at);
        s.bar((a + 0.5, at), extent, Ink::Scheme(1), says, false);
    }
    // fp16's edges go through the counts.
    if let Some(r) = h.ranges.iter().find(|r| r.name == "fp16") {
        for edge in [r.least, r.normal] {
            let at = x.at(edge);
            let below = strips + h.ranges.len() as f64 * STRIP;
            for part in [
                vec![(at, strips), (at, below)],
                vec![(at, top), (at, bottom)],
            ] {
                s.stroke(part, Ink::Scheme(r.look), 1.3, &[4.0, 3.0]);
            }
        }
    }
    s.rule((left, bottom), (right, bottom), Ink::Axis);
    let every = if narrow { 4 } else { 2 };
    for k in -60..=60i64 {
        let at = x.at(k as f64);
        if !x.holds(k as f64) || k % every != 0 {
            continue;
        }
        s.rule((at, bottom), (at, bottom + 4.0), Ink::Axis);
        let text = match k {
            0 => "1".to_string(),
            k => format!("10{}", raised(k)),
        };
        s.text((at, bottom + 18.0), SMALL, Anchor::Middle, Ink::Soft, &text);
    }
    s.text(
        (right, bottom + 36.0),
        SMALL,
        Anchor::End,
        Ink::Soft,
        "magnitude of a gradient",
    );
    s.height = bottom + 42.0;
    s
}

/// The range of a type; where it leaves the axis, it ends in an arrow.
fn strip(s: &mut Scene, r: &Range, top: f64, left: f64, x: &Scale) {
    const TALL: f64 = 10.0;
    let edge = |v: f64| match x.holds(v) {
        true => x.at(v),
        false => x.at(v).clamp(left, s.width - 8.0),
    };
    let (a, b, c) = (edge(r.least), edge(r.normal), edge(r.most));
    let y = top + 4.0;
    let ink = Ink::Scheme(r.look);
    s.label(
        (left - GAP - 2.0, y + 9.0),
        SMALL,
        Anchor::End,
        Ink::Text,
        true,
        &r.name,
    );
    let says = format!(
        "{}: normal from {} to {}, subnormal from {}",
        r.name,
        power_of_ten(r.normal),
        power_of_ten(r.most),
        power_of_ten(r.least)
    );
    let outside = (!x.holds(r.normal), !x.holds(r.most));
    if b > a {
        s.bar((a, y), (b - a, TALL), Ink::Faint, says.clone(), false);
    }
    s.bar((b, y), ((c - b).max(0.5), TALL), ink, says, false);
    let mid = y + TALL / 2.0;
    let arrow = |at: f64, d: f64| vec![(at + d, mid - 3.5), (at, mid), (at + d, mid + 3.5)];
    if outside.0 {
        s.stroke(arrow(b + 3.0, 4.0), Ink::Ground, 1.6, &[]);
    }
    if outside.1 {
        s.stroke(arrow(c - 3.0, -4.0), Ink::Ground, 1.6, &[]);
    }
}
