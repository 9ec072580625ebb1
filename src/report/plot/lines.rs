//! Lines over steps.

use super::chart::{Lines, Series};
use super::scale::{Form, Scale, grouped};
use super::scene::{Anchor, Mark, Point, Scene};
use super::style::{Ink, LOOKS};
use super::{GAP, Legend, SMALL, Sample, evenly, font};

/// Points of a line that are drawn; of more, the extremes of each stretch.
const MOST: usize = 600;
/// Markers of a line.
const MARKERS: usize = 9;

pub fn draw(l: &Lines, width: f64) -> Scene {
    let narrow = width < 400.0;
    let body = if narrow {
        200.0
    } else {
        (0.42 * width).clamp(210.0, 330.0)
    };
    let mut s = Scene::new(width, 0.0);
    let values = || l.series.iter().flat_map(|s| s.points.iter());
    let y = match l.range {
        Some((a, b)) => Scale::between(l.form, a, b),
        None => Scale::over(l.form, values().map(|p| p.1), l.zero),
    };
    let last = values().map(|p| p.0).fold(1.0, f64::max);
    let first = values().map(|p| p.0).fold(last, f64::min);
    // A run is shown from its start; a single evaluation is a point in the middle.
    let from = if first < 0.3 * last { 0.0 } else { first - 0.5 };
    let x = Scale::between(Form::Linear, from, last.max(from + 1.0));
    let ticks = y.ticks(if narrow { 5 } else { 6 });
    let label = |t: &(f64, String)| font::width(&t.1, SMALL, false);
    let left = ticks.iter().map(label).fold(0.0, f64::max) + GAP + 2.0;
    let right = width - 10.0;

    let mut entries: Vec<(&str, Sample)> = vec![];
    if l.series.len() > 1 || !l.marks.is_empty() {
        let lines = l
            .series
            .iter()
            .map(|s| (s.name.as_str(), Sample::Line(s.look)));
        entries.extend(lines);
    }
    if !l.marks.is_empty() {
        entries.push((&l.marks_name, Sample::Tick));
    }
    let legend = Legend { entries }.draw(&mut s, 0.0, 0.0, width);
    let head = legend + 16.0;
    s.text((0.0, head), SMALL, Anchor::Start, Ink::Soft, &l.y_label);
    let top = head + 14.0;
    let bottom = top + body;
    let (x, y) = (x.drawn(left, right), y.drawn(bottom, top));
    for (v, name) in &ticks {
        let at = y.at(*v);
        s.rule((left, at), (right, at), Ink::Grid);
        s.text((left - GAP, at + 4.0), SMALL, Anchor::End, Ink::Soft, name);
    }
    if y.holds(0.0) && l.form == Form::Linear && values().any(|p| p.1 < 0.0) {
        s.rule((left, y.at(0.0)), (right, y.at(0.0)), Ink::Axis);
    }
    s.rule((left, bottom), (right, bottom), Ink::Axis);
    let name = "step";
    let end = right - font::width(name, SMALL, false) - 14.0;
    for (v, text) in x.ticks(if narrow { 4 } else { 6 }) {
        let at = x.at(v);
        s.rule((at, bottom), (at, bottom + 4.0), Ink::Axis);
        let half = font::width(&text, SMALL, false) / 2.0;
        if at + half < end {
            let at = at.max(half - 1.0);
            s.text((at, bottom + 18.0), SMALL, Anchor::Middle, Ink::Soft, &text);
        }
    }
    s.text((right, bottom + 18.0), SMALL, Anchor::End, Ink::Soft, name);
    for i in evenly(l.marks.len(), MOST) {
        let at = x.at(l.marks[i] as f64);
        s.stroke(vec![(at, top), (at, top + 14.0)], Ink::Text, 1.5, &[]);
    }
    for (i, line) in l.series.iter().enumerate() {
        series(&mut s, line, i, l.series.len(), &x, &y);
    }
    s.height = bottom + 24.0;
    s
}

fn series(s: &mut Scene, line: &Series, i: usize, of: usize, x: &Scale, y: &Scale) {
    let look = &LOOKS[line.look];
    let ink = Ink::Scheme(line.look);
    let places: Vec<Point> = line.points.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
    let drawn = thin(&if line.stairs {
        stairs(&places)
    } else {
        places.clone()
    });
    if drawn.len() > 1 {
        s.marks.push(Mark::Line {
            points: drawn,
            ink,
            width: look.width,
            // One line needs nothing to tell it apart.
            dash: if of == 1 { &[] } else { look.dash },
            data: true,
        });
    }
    let says = |k: usize| {
        let (step, v) = line.points[k];
        format!(
            "{}, step {}: {}",
            line.name,
            grouped(step as i64),
            value(v, y.form)
        )
    };
    // Markers of several lines stand beside one another, not on one another.
    let n = line.points.len();
    let every = n.div_ceil(MARKERS).max(1);
    let shift = every * i / of.max(1);
    for k in (0..n).filter(|k| k % every == shift % every || k + 1 == n) {
        s.marks.push(Mark::Marker {
            at: places[k],
            shape: look.shape,
            radius: if line.look == 0 { 4.4 } else { 3.4 },
            ink,
            says: Some(says(k)),
            focus: k + 1 == n,
        });
    }
}

/// A value in words.
pub fn value(v: f64, form: Form) -> String {
    match form {
        Form::Percent => format!("{:.1}%", 100.0 * v),
        Form::Log2 if v >= 1.0 && v.fract() == 0.0 && v < 1e15 => grouped(v as i64),
        _ if v != 0.0 && v.abs() < 1e-3 => format!("{v:.2e}"),
        _ => format!("{v:.4}"),
    }
}

/// Each value held until the next.
fn stairs(points: &[Point]) -> Vec<Point> {
    let mut out: Vec<Point> = vec![];
    for &(x, y) in points {
        if let Some(&(_, before)) = out.last()
            && before != y
        {
            out.push((x, before));
        }
        out.push((x, y));
    }
    out
}

/// At most [`MOST`] points, with the lowest and the highest of each stretch among them.
fn thin(points: &[Point]) -> Vec<Point> {
    if points.len() <= MOST {
        return points.to_vec();
    }
    let chunk = points.len().div_ceil(MOST / 2);
    let mut out = vec![points[0]];
    for part in points.chunks(chunk) {
        let by = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
        let (low, high) = (part.iter().min_by(by), part.iter().max_by(by));
        let mut pair: Vec<Point> = low.into_iter().chain(high).copied().collect();
        pair.sort_by(|a, b| a.0.total_cmp(&b.0));
        out.extend(pair);
    }
    out.extend(points.last());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_ends_and_extremes() {
        let points: Vec<Point> = (0..100_000)
            .map(|i| (i as f64, if i == 61_234 { 9.0 } else { (i % 7) as f64 }))
            .collect();
        let thin = thin(&points);
        assert!(thin.len() <= MOST + 2);
        assert_eq!((thin[0], thin[thin.len() - 1]), (points[0], points[99_999]));
        assert!(thin.contains(&(61_234.0, 9.0)));
    }

    #[test]
    fn stairs_turn_at_right_angles() {
        let s = stairs(&[(1.0, 4.0), (2.0, 4.0), (3.0, 2.0)]);
        assert_eq!(s, [(1.0, 4.0), (2.0, 4.0), (3.0, 4.0), (3.0, 2.0)]);
    }
}
