//! Plots: a [`chart::Chart`] becomes a [`scene::Scene`] of any width, and that SVG or PNG.

mod bars;
pub mod chart;
pub mod font;
mod heat;
mod histogram;
mod lines;
pub mod png;
pub mod scale;
pub mod scene;
mod spread;
pub mod style;
pub mod svg;

use chart::{Chart, Kind};
pub use heat::evenly;
use scene::{Anchor, Mark, Scene};
use style::Ink;

/// Size of labels.
const SMALL: f64 = 12.0;
/// Between labels and what they stand at.
const GAP: f64 = 6.0;

/// A plot of a width, without its heading.
pub fn draw(chart: &Chart, width: f64) -> Scene {
    match &chart.kind {
        Kind::Lines(l) => lines::draw(l, width),
        Kind::Heat(h) => heat::draw(h, width),
        Kind::Histogram(h) => histogram::draw(h, width),
        Kind::Bars(b) => bars::draw(b, width),
        Kind::Spread(s) => spread::draw(s, width),
    }
}

/// A plot for a file of its own: heading above, caption below.
pub fn draw_alone(chart: &Chart) -> Scene {
    const MARGIN: f64 = 24.0;
    let width = if chart.wide() { 1040.0 } else { 720.0 };
    let inner = draw(chart, width);
    let mut out = Scene::new(width + 2.0 * MARGIN, 0.0);
    out.label(
        (MARGIN, MARGIN + 16.0),
        18.0,
        Anchor::Start,
        Ink::Text,
        true,
        &chart.title,
    );
    let top = MARGIN + 34.0;
    out.marks
        .extend(inner.marks.into_iter().map(|m| moved(m, MARGIN, top)));
    let below = top + inner.height + 22.0;
    let lines = out.paragraph((MARGIN, below), 12.5, width, Ink::Soft, &chart.caption);
    out.height = below + lines as f64 * 17.0 + MARGIN - 12.0;
    out
}

fn moved(mut m: Mark, dx: f64, dy: f64) -> Mark {
    let shift = |p: &mut (f64, f64)| *p = (p.0 + dx, p.1 + dy);
    match &mut m {
        Mark::Line { points, .. } => points.iter_mut().for_each(shift),
        Mark::Rect { at, .. } | Mark::Marker { at, .. } | Mark::Text { at, .. } => shift(at),
    }
    m
}

/// Names with samples of how they are drawn, in as many rows as the width asks for.
struct Legend<'a> {
    entries: Vec<(&'a str, Sample)>,
}

/// How an entry is drawn.
#[derive(Clone, Copy)]
enum Sample {
    Line(usize),
    Box(Ink),
    Tick,
}

impl Legend<'_> {
    /// Draws it from the top left; returns its height.
    fn draw(&self, s: &mut Scene, left: f64, top: f64, right: f64) -> f64 {
        const ROW: f64 = 19.0;
        let (mut x, mut y) = (left, top + 12.0);
        for (name, sample) in &self.entries {
            let swatch = match sample {
                Sample::Line(_) => 30.0,
                Sample::Box(_) | Sample::Tick => 12.0,
            };
            let width = swatch + GAP + font::width(name, SMALL, false);
            if x > left && x + width > right {
                (x, y) = (left, y + ROW);
            }
            let mid = y - 4.0;
            match sample {
                Sample::Line(look) => {
                    let l = &style::LOOKS[*look];
                    let ink = Ink::Scheme(*look);
                    s.stroke(vec![(x, mid), (x + swatch, mid)], ink, l.width, l.dash);
                    s.marks.push(Mark::Marker {
                        at: (x + swatch / 2.0, mid),
                        shape: l.shape,
                        radius: 3.6,
                        ink,
                        says: None,
                        focus: false,
                    });
                }
                Sample::Box(ink) => s.rect((x, mid - 6.0), (12.0, 12.0), *ink),
                Sample::Tick => s.stroke(
                    vec![(x + 6.0, mid - 6.0), (x + 6.0, mid + 6.0)],
                    Ink::Text,
                    1.5,
                    &[],
                ),
            }
            s.text((x + swatch + GAP, y), SMALL, Anchor::Start, Ink::Text, name);
            x += width + 18.0;
        }
        if self.entries.is_empty() {
            0.0
        } else {
            y + 8.0 - top
        }
    }
}
