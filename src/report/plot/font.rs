//! The bundled font: widths for layout, outlines for PNG. A subset of Inter (see `assets/fonts/OFL.txt`),
//! so that a plot needs no font of the system and is the same everywhere.

use std::sync::OnceLock;
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// The plain face.
pub const REGULAR: &[u8] = include_bytes!("../../../assets/fonts/Inter-Regular-subset.ttf");
/// The bold face.
pub const BOLD: &[u8] = include_bytes!("../../../assets/fonts/Inter-SemiBold-subset.ttf");

fn face(bold: bool) -> Option<&'static Face<'static>> {
    static FACES: OnceLock<[Option<Face<'static>>; 2]> = OnceLock::new();
    let faces = FACES.get_or_init(|| [REGULAR, BOLD].map(|b| Face::parse(b, 0).ok()));
    faces[bold as usize].as_ref()
}

/// A character's glyph; those that the font lacks are shown as a question mark.
fn glyph(f: &Face, c: char) -> GlyphId {
    f.glyph_index(c)
        .or_else(|| f.glyph_index('?'))
        .unwrap_or(GlyphId(0))
}

fn advance(f: &Face, g: GlyphId, size: f64) -> f64 {
    f.glyph_hor_advance(g).unwrap_or(0) as f64 * size / f.units_per_em() as f64
}

/// Width of a text.
pub fn width(text: &str, size: f64, bold: bool) -> f64 {
    match face(bold) {
        Some(f) => text.chars().map(|c| advance(f, glyph(f, c), size)).sum(),
        None => 0.6 * size * text.chars().count() as f64,
    }
}

/// Draws the outlines of a text whose base line begins at a point.
pub fn draw(text: &str, at: (f64, f64), size: f64, bold: bool, out: &mut dyn Pen) {
    let Some(f) = face(bold) else { return };
    let scale = size / f.units_per_em() as f64;
    let mut x = at.0;
    for c in text.chars() {
        let g = glyph(f, c);
        let mut placed = Placed {
            x,
            y: at.1,
            scale,
            out: &mut *out,
        };
        let _ = f.outline_glyph(g, &mut placed); // a space has none
        x += advance(f, g, size);
    }
}

/// Takes outlines.
pub trait Pen {
    /// Starts a contour.
    fn move_to(&mut self, x: f64, y: f64);
    /// A straight line.
    fn line_to(&mut self, x: f64, y: f64);
    /// A curve with one control point.
    fn quad_to(&mut self, a: (f64, f64), x: f64, y: f64);
    /// A curve with two control points.
    fn cubic_to(&mut self, a: (f64, f64), b: (f64, f64), x: f64, y: f64);
    /// Ends a contour.
    fn close(&mut self);
}

struct Placed<'a> {
    x: f64,
    y: f64,
    scale: f64,
    out: &'a mut dyn Pen,
}

impl Placed<'_> {
    fn at(&self, x: f32, y: f32) -> (f64, f64) {
        (
            self.x + x as f64 * self.scale,
            self.y - y as f64 * self.scale,
        )
    }
}

impl OutlineBuilder for Placed<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.out.move_to(x, y);
    }
    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.out.line_to(x, y);
    }
    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let (a, (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.out.quad_to(a, x, y);
    }
    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let (a, b, (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.out.cubic_to(a, b, x, y);
    }
    fn close(&mut self) {
        self.out.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_plots_write() {
        let f = face(false).expect("the font");
        for c in "aZ09 ×≥−⁻²⁰¹µ–—·…".chars() {
            assert!(f.glyph_index(c).is_some(), "{c}");
        }
        assert!(width("0.25", 12.0, false) > 20.0 && width("0.25", 12.0, false) < 30.0);
        assert!(width("mixed", 12.0, true) > width("mixed", 12.0, false));
    }
}
