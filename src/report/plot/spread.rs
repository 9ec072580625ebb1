//! Means with their spread: a marker, a line of a standard deviation to both sides, ticks at the ends.

use super::chart::Spread;
use super::scale::{Form, Scale};
use super::scene::{Anchor, Mark, Scene};
use super::style::{Ink, LOOKS};
use super::{SMALL, font};

pub fn draw(p: &Spread, width: f64) -> Scene {
    let mut s = Scene::new(width, 0.0);
    let values = p
        .rows
        .iter()
        .flat_map(|r| [r.mean - r.std, r.mean + r.std, r.ends.0, r.ends.1].into_iter());
    let label = |name: &str, bold| font::width(name, SMALL, bold);
    let names = p
        .rows
        .iter()
        .map(|r| label(&r.name, true))
        .fold(0.0, f64::max);
    let left = names + 12.0;
    let right = width - 12.0;
    let x = Scale::over(Form::Linear, values, false).drawn(left, right);
    s.text((0.0, 16.0), SMALL, Anchor::Start, Ink::Soft, &p.label);
    let (top, row) = (30.0, 44.0);
    let bottom = top + p.rows.len() as f64 * row;
    for (v, text) in x.ticks(if width < 400.0 { 4 } else { 6 }) {
        s.rule((x.at(v), top), (x.at(v), bottom), Ink::Grid);
        let half = label(&text, false) / 2.0;
        let at = x.at(v).min(width - half);
        s.text((at, bottom + 16.0), SMALL, Anchor::Middle, Ink::Soft, &text);
    }
    s.rule((left, bottom), (right, bottom), Ink::Axis);
    for (i, r) in p.rows.iter().enumerate() {
        let y = top + i as f64 * row + 28.0;
        let ink = Ink::Scheme(r.look);
        s.label(
            (names, y + 4.0),
            SMALL,
            Anchor::End,
            Ink::Text,
            true,
            &r.name,
        );
        let (a, b) = (x.at(r.mean - r.std), x.at(r.mean + r.std));
        s.stroke(vec![(a, y), (b, y)], ink, 5.0, &[]);
        for end in [r.ends.0, r.ends.1] {
            s.stroke(
                vec![(x.at(end), y - 7.0), (x.at(end), y + 7.0)],
                ink,
                1.6,
                &[],
            );
        }
        s.stroke(
            vec![(x.at(r.ends.0), y), (x.at(r.ends.1), y)],
            ink,
            1.6,
            &[],
        );
        s.marks.push(Mark::Marker {
            at: (x.at(r.mean), y),
            shape: LOOKS[r.look].shape,
            radius: 5.0,
            ink,
            says: Some(format!("{}: {}", r.name, r.shown)),
            focus: true,
        });
        let half = label(&r.shown, false) / 2.0;
        let at = x
            .at(r.mean)
            .clamp(left + half, (width - half).max(left + half));
        s.text((at, y - 11.0), SMALL, Anchor::Middle, Ink::Text, &r.shown);
    }
    s.height = bottom + 24.0;
    s
}
