//! Bars from zero.

use super::chart::Bars;
use super::scale::{Form, Scale};
use super::scene::{Anchor, Mark, Scene, Shape};
use super::style::{CLASSES, Ink, LOOKS};
use super::{GAP, Legend, SMALL, Sample, font};

pub fn draw(b: &Bars, width: f64) -> Scene {
    let narrow = width < 400.0;
    let mut s = Scene::new(width, 0.0);
    let total = |v: &[f64]| v.iter().sum::<f64>();
    let ends = b
        .bars
        .iter()
        .map(|b| total(&b.values).max(b.mark.as_ref().map_or(0.0, |m| m.0)));
    let most = ends.fold(0.0, f64::max).max(1e-12);
    let label = |b: &super::chart::Bar| font::width(&b.name, SMALL, true);
    let names = b
        .bars
        .iter()
        .map(label)
        .fold(0.0, f64::max)
        .min(0.4 * width);
    let shown = |b: &super::chart::Bar| font::width(&b.shown, SMALL, false);
    let beside = b.bars.iter().map(shown).fold(0.0, f64::max);
    let left = names + 10.0;
    // On a narrow page the value stands above its bar.
    let above = narrow && beside > 0.3 * width;
    let right = if above {
        width - 8.0
    } else {
        width - beside - 14.0
    };
    let x = Scale::between(Form::Linear, 0.0, most).drawn(left, right);
    let mut entries: Vec<(&str, Sample)> = vec![];
    if b.parts.len() > 1 {
        let boxes = b.parts.iter().enumerate();
        entries.extend(boxes.map(|(i, p)| (p.as_str(), Sample::Box(Ink::Class(i % CLASSES)))));
    }
    if b.bars.iter().any(|b| b.mark.is_some()) {
        entries.push(("measured peak", Sample::Tick));
    }
    let legend = Legend { entries }.draw(&mut s, 0.0, 0.0, width);
    let head = legend + 16.0;
    s.text((0.0, head), SMALL, Anchor::Start, Ink::Soft, &b.label);
    let (row, tall) = (if above { 46.0 } else { 32.0 }, 18.0);
    let top = head + 12.0;
    for (i, bar) in b.bars.iter().enumerate() {
        let y = top + i as f64 * row + if above { 16.0 } else { 0.0 };
        s.label(
            (names, y + 13.0),
            SMALL,
            Anchor::End,
            Ink::Text,
            true,
            &bar.name,
        );
        let mut from = 0.0;
        for (k, v) in bar.values.iter().enumerate() {
            let (a, z) = (x.at(from), x.at(from + v));
            from += v;
            let (ink, part) = match b.parts.get(k) {
                Some(p) if b.parts.len() > 1 => (Ink::Class(k % CLASSES), format!(", {p}")),
                _ => (Ink::Scheme(bar.look), String::new()),
            };
            let says = format!("{}{part}: {}", bar.name, bar.shown);
            let gap = if b.parts.len() > 1 { 0.8 } else { 0.0 };
            let extent = ((z - a - gap).max(0.4), tall);
            s.bar((a, y), extent, ink, says, k == 0);
        }
        if b.parts.len() <= 1 {
            // Bars differ by more than colour.
            s.marks.push(Mark::Marker {
                at: (left + 10.0, y + tall / 2.0),
                shape: LOOKS[bar.look].shape,
                radius: 3.6,
                ink: Ink::Ground,
                says: None,
                focus: false,
            });
        }
        let mut end = x.at(from);
        if let Some((v, says)) = &bar.mark {
            let at = x.at(*v);
            end = end.max(at);
            s.stroke(
                vec![(at, y - 3.0), (at, y + tall + 3.0)],
                Ink::Text,
                1.6,
                &[],
            );
            s.marks.push(Mark::Marker {
                at: (at, y - 4.0),
                shape: Shape::Down,
                radius: 3.2,
                ink: Ink::Text,
                says: Some(says.clone()),
                focus: false,
            });
        }
        let (at, anchor) = match above {
            true => ((left, y - 5.0), Anchor::Start),
            false => ((end + GAP, y + 13.0), Anchor::Start),
        };
        s.text(at, SMALL, anchor, Ink::Text, &bar.shown);
    }
    let bottom = top + b.bars.len() as f64 * row - 6.0;
    s.rule((left, top - 4.0), (left, bottom), Ink::Axis);
    s.height = bottom + 8.0;
    s
}
