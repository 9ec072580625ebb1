//! A drawing as a list of marks, for the SVG and for the PNG writer.

use super::font;
use super::style::Ink;

/// A marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Circle.
    Circle,
    /// Square.
    Square,
    /// Triangle, point up.
    Triangle,
    /// Triangle, point down.
    Down,
    /// Square on its corner.
    Diamond,
    /// Two strokes.
    Cross,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    /// To the right of it.
    Start,
    /// Around it.
    Middle,
    /// To the left of it.
    End,
}

/// A point, x to the right, y down.
pub type Point = (f64, f64);

/// A mark of a drawing.
#[derive(Clone, PartialEq, Debug)]
pub enum Mark {
    /// A line through points.
    Line {
        /// The points.
        points: Vec<Point>,
        /// Its colour.
        ink: Ink,
        /// Its width.
        width: f32,
        /// Dashes and gaps.
        dash: &'static [f32],
        /// Whether it shows measured values.
        data: bool,
    },
    /// A filled rectangle.
    Rect {
        /// Left, top.
        at: Point,
        /// Width, height.
        size: Point,
        /// Its colour.
        ink: Ink,
        /// What it says, where it shows a measured value.
        says: Option<String>,
        /// Whether a keyboard reaches it.
        focus: bool,
    },
    /// A marker.
    Marker {
        /// Its middle.
        at: Point,
        /// Its form.
        shape: Shape,
        /// Half its extent.
        radius: f64,
        /// Its colour.
        ink: Ink,
        /// What it says.
        says: Option<String>,
        /// Whether a keyboard reaches it.
        focus: bool,
    },
    /// A line of text.
    Text {
        /// Its point on the base line.
        at: Point,
        /// Size.
        size: f64,
        /// Where it stands relative to the point.
        anchor: Anchor,
        /// Its colour.
        ink: Ink,
        /// Whether it is bold.
        bold: bool,
        /// The text.
        text: String,
    },
}

/// A drawing.
#[derive(Clone, PartialEq, Debug)]
pub struct Scene {
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// Marks, the lowest first.
    pub marks: Vec<Mark>,
}

impl Scene {
    /// An empty drawing.
    pub fn new(width: f64, height: f64) -> Scene {
        Scene {
            width,
            height,
            marks: vec![],
        }
    }

    /// A line of the frame.
    pub fn rule(&mut self, from: Point, to: Point, ink: Ink) {
        self.stroke(vec![from, to], ink, 1.0, &[]);
    }

    /// A line that shows no data.
    pub fn stroke(&mut self, points: Vec<Point>, ink: Ink, width: f32, dash: &'static [f32]) {
        let data = false;
        self.marks.push(Mark::Line {
            points,
            ink,
            width,
            dash,
            data,
        });
    }

    /// A plain rectangle.
    pub fn rect(&mut self, at: Point, size: Point, ink: Ink) {
        let (says, focus) = (None, false);
        self.marks.push(Mark::Rect {
            at,
            size,
            ink,
            says,
            focus,
        });
    }

    /// A rectangle that shows a value.
    pub fn bar(&mut self, at: Point, size: Point, ink: Ink, says: String, focus: bool) {
        let says = Some(says);
        self.marks.push(Mark::Rect {
            at,
            size,
            ink,
            says,
            focus,
        });
    }

    /// A text.
    pub fn text(&mut self, at: Point, size: f64, anchor: Anchor, ink: Ink, text: &str) {
        self.label(at, size, anchor, ink, false, text);
    }

    /// A text, plain or bold.
    pub fn label(
        &mut self,
        at: Point,
        size: f64,
        anchor: Anchor,
        ink: Ink,
        bold: bool,
        text: &str,
    ) {
        self.marks.push(Mark::Text {
            at,
            size,
            anchor,
            ink,
            bold,
            text: text.into(),
        });
    }

    /// Text broken into lines of a width; returns how many there are.
    pub fn paragraph(&mut self, at: Point, size: f64, width: f64, ink: Ink, text: &str) -> usize {
        let lines = wrap(text, size, width);
        for (i, line) in lines.iter().enumerate() {
            let y = at.1 + i as f64 * size * 1.35;
            self.text((at.0, y), size, Anchor::Start, ink, line);
        }
        lines.len()
    }
}

/// Words in lines of a width.
pub fn wrap(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        let fits = lines
            .last()
            .map(|l| format!("{l} {word}"))
            .filter(|l| font::width(l, size, false) <= width);
        match (fits, lines.last_mut()) {
            (Some(longer), Some(last)) => *last = longer,
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// The outline of a marker; a cross is two strokes.
pub fn outline(shape: Shape, (x, y): Point, r: f64) -> Vec<Vec<Point>> {
    let p = |dx: f64, dy: f64| (x + r * dx, y + r * dy);
    match shape {
        Shape::Circle => vec![
            (0..24)
                .map(|i| {
                    let a = std::f64::consts::TAU * i as f64 / 24.0;
                    p(libm::cos(a), libm::sin(a))
                })
                .collect(),
        ],
        Shape::Square => vec![vec![p(-0.9, -0.9), p(0.9, -0.9), p(0.9, 0.9), p(-0.9, 0.9)]],
        Shape::Triangle => vec![vec![p(0.0, -1.15), p(1.05, 0.75), p(-1.05, 0.75)]],
        Shape::Down => vec![vec![p(0.0, 1.15), p(1.05, -0.75), p(-1.05, -0.75)]],
        Shape::Diamond => vec![vec![
            p(0.0, -1.25),
            p(1.25, 0.0),
            p(0.0, 1.25),
            p(-1.25, 0.0),
        ]],
        Shape::Cross => {
            // Two strokes from corner to corner, which turn the same way and so fill as one.
            let (a, t) = (0.95, 0.3);
            let bar = |s: f64| {
                let at = |end: f64, side: f64| p(end * a + side * s * t, end * s * a - side * t);
                vec![at(-1.0, 1.0), at(1.0, 1.0), at(1.0, -1.0), at(-1.0, -1.0)]
            };
            vec![bar(1.0), bar(-1.0)]
        }
    }
}
