//! A plot before it is drawn: its data, its words, and the table that says the same.

use super::scale::Form;

/// The same data as text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cells {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
    /// What is left out, if anything.
    pub note: String,
}

/// A plot.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// A plain name, unique in the page: also the name of its files.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What it shows, in a sentence or two.
    pub caption: String,
    /// The same data in words, for those who do not see it.
    pub says: String,
    /// What is drawn.
    pub kind: Kind,
    /// The same data as a table.
    pub cells: Cells,
}

/// What is drawn.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Lines over steps.
    Lines(Lines),
    /// Shares by tensor and step.
    Heat(Heat),
    /// Gradient magnitudes and the ranges of types.
    Histogram(Histogram),
    /// Bars from zero.
    Bars(Bars),
    /// Means with their spread.
    Spread(Spread),
}

/// Lines over steps.
#[derive(Clone, PartialEq, Debug)]
pub struct Lines {
    /// What is drawn upwards, with its unit.
    pub y_label: String,
    /// How it is laid out.
    pub form: Form,
    /// Whether zero is on the axis.
    pub zero: bool,
    /// Ends of the axis, where they are fixed.
    pub range: Option<(f64, f64)>,
    /// The lines.
    pub series: Vec<Series>,
    /// Steps to mark, and their name.
    pub marks: Vec<u64>,
    /// What the marks are.
    pub marks_name: String,
}

/// A line.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The number of its look.
    pub look: usize,
    /// Whether a value holds until the next.
    pub stairs: bool,
    /// Step, value.
    pub points: Vec<(f64, f64)>,
}

/// Shares by row and step.
#[derive(Clone, PartialEq, Debug)]
pub struct Heat {
    /// Steps.
    pub steps: Vec<u64>,
    /// Name and shares of each row; none where a step has no count.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// Counts of magnitudes.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    /// Lower edges, log10.
    pub edges: Vec<f64>,
    /// Counts.
    pub counts: Vec<u64>,
    /// Width of a range.
    pub width: f64,
    /// The ranges of types.
    pub ranges: Vec<Range>,
}

/// What a type can represent, log10.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// The type.
    pub name: String,
    /// The number of its look.
    pub look: usize,
    /// Smallest subnormal.
    pub least: f64,
    /// Smallest normal number.
    pub normal: f64,
    /// Largest number.
    pub most: f64,
}

/// Bars from zero.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// What is measured, with its unit.
    pub label: String,
    /// Names of the parts, where bars have several.
    pub parts: Vec<String>,
    /// Bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// The number of its look, where it has no parts.
    pub look: usize,
    /// Its parts' lengths, or its one length.
    pub values: Vec<f64>,
    /// What stands at its end.
    pub shown: String,
    /// Another value to mark, with what it says.
    pub mark: Option<(f64, String)>,
}

/// Means with their spread.
#[derive(Clone, PartialEq, Debug)]
pub struct Spread {
    /// What is measured, with its unit.
    pub label: String,
    /// Name, look, mean, standard deviation, least, most, what stands beside.
    pub rows: Vec<SpreadRow>,
}

/// A mean.
#[derive(Clone, PartialEq, Debug)]
pub struct SpreadRow {
    /// Its name.
    pub name: String,
    /// The number of its look.
    pub look: usize,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
    /// Lowest and highest.
    pub ends: (f64, f64),
    /// What stands beside.
    pub shown: String,
}

impl Chart {
    /// Whether it takes the page's whole width.
    pub fn wide(&self) -> bool {
        matches!(self.kind, Kind::Heat(_) | Kind::Histogram(_))
    }

    /// How many values it shows.
    pub fn values(&self) -> usize {
        match &self.kind {
            Kind::Lines(l) => l.series.iter().map(|s| s.points.len()).sum(),
            Kind::Heat(h) => h.rows.iter().map(|r| r.1.iter().flatten().count()).sum(),
            Kind::Histogram(h) => h.counts.iter().filter(|c| **c > 0).count(),
            Kind::Bars(b) => b.bars.iter().map(|b| b.values.len()).sum(),
            Kind::Spread(s) => s.rows.len(),
        }
    }
}
