//! A drawing as PNG, on a light ground.

use super::font::{self, Pen};
use super::scene::{Anchor, Mark, Point, Scene, outline};
use super::style::Ink;
use crate::error::Error;
use tiny_skia::{Color, FillRule, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform};

/// Pixels of a unit.
const SCALE: f32 = 2.0;

/// The file's bytes.
///
/// # Errors
/// A drawing without extent.
pub fn png(scene: &Scene) -> Result<Vec<u8>, Error> {
    let fault = |what: &str| Error::Internal(format!("plot as PNG: {what}"));
    let (w, h) = (scene.width as f32 * SCALE, scene.height as f32 * SCALE);
    let mut map =
        Pixmap::new(w.ceil() as u32, h.ceil() as u32).ok_or_else(|| fault("no extent"))?;
    map.fill(colour(Ink::Ground));
    for mark in &scene.marks {
        draw(&mut map, mark);
    }
    map.encode_png().map_err(|e| fault(&e.to_string()))
}

fn colour(ink: Ink) -> Color {
    let [r, g, b] = ink.colours().0;
    Color::from_rgba8(r, g, b, 255)
}

fn paint(ink: Ink) -> Paint<'static> {
    let mut p = Paint::default();
    p.set_color(colour(ink));
    p.anti_alias = true;
    p
}

fn polygon(points: &[Point], close: bool) -> Option<Path> {
    let mut b = PathBuilder::new();
    for (i, (x, y)) in points.iter().enumerate() {
        match i {
            0 => b.move_to(*x as f32, *y as f32),
            _ => b.line_to(*x as f32, *y as f32),
        }
    }
    if close {
        b.close();
    }
    b.finish()
}

fn fill(map: &mut Pixmap, path: Option<Path>, ink: Ink) {
    if let Some(path) = path {
        let scale = Transform::from_scale(SCALE, SCALE);
        map.fill_path(&path, &paint(ink), FillRule::Winding, scale, None);
    }
}

fn draw(map: &mut Pixmap, mark: &Mark) {
    match mark {
        Mark::Line {
            points,
            ink,
            width,
            dash,
            ..
        } => {
            let stroke = Stroke {
                width: *width,
                line_join: tiny_skia::LineJoin::Round,
                dash: StrokeDash::new(dash.to_vec(), 0.0),
                ..Stroke::default()
            };
            if let Some(path) = polygon(points, false) {
                let scale = Transform::from_scale(SCALE, SCALE);
                map.stroke_path(&path, &paint(*ink), &stroke, scale, None);
            }
        }
        Mark::Rect { at, size, ink, .. } => {
            let (x, y) = (at.0 + size.0, at.1 + size.1);
            let corners = [*at, (x, at.1), (x, y), (at.0, y)];
            fill(map, polygon(&corners, true), *ink);
        }
        Mark::Marker {
            at,
            shape,
            radius,
            ink,
            ..
        } => {
            for part in outline(*shape, *at, *radius) {
                fill(map, polygon(&part, true), *ink);
            }
        }
        Mark::Text {
            at,
            size,
            anchor,
            ink,
            bold,
            text,
        } => {
            let width = font::width(text, *size, *bold);
            let x = match anchor {
                Anchor::Start => at.0,
                Anchor::Middle => at.0 - width / 2.0,
                Anchor::End => at.0 - width,
            };
            let mut pen = Outline(PathBuilder::new());
            font::draw(text, (x, at.1), *size, *bold, &mut pen);
            fill(map, pen.0.finish(), *ink);
        }
    }
}

struct Outline(PathBuilder);

impl Pen for Outline {
    fn move_to(&mut self, x: f64, y: f64) {
        self.0.move_to(x as f32, y as f32);
    }
    fn line_to(&mut self, x: f64, y: f64) {
        self.0.line_to(x as f32, y as f32);
    }
    fn quad_to(&mut self, a: Point, x: f64, y: f64) {
        self.0.quad_to(a.0 as f32, a.1 as f32, x as f32, y as f32);
    }
    fn cubic_to(&mut self, a: Point, b: Point, x: f64, y: f64) {
        let (a, b) = ((a.0 as f32, a.1 as f32), (b.0 as f32, b.1 as f32));
        self.0.cubic_to(a.0, a.1, b.0, b.1, x as f32, y as f32);
    }
    fn close(&mut self) {
        self.0.close();
    }
}
