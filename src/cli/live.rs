//! What a terminal shows of a run while it goes on: a bar, and two lines of figures with their course.

use crate::exec::bytes;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Columns of a course.
const COLUMNS: usize = 24;

/// Values since the start, in at most [`COLUMNS`] stretches of equal length.
#[derive(Default)]
struct Course {
    sums: Vec<(f64, u32)>,
    /// Values a stretch.
    length: u32,
}

impl Course {
    fn push(&mut self, v: f64) {
        if !v.is_finite() {
            return;
        }
        self.length = self.length.max(1);
        match self.sums.last_mut() {
            Some(last) if last.1 < self.length => *last = (last.0 + v, last.1 + 1),
            _ => self.sums.push((v, 1)),
        }
        if self.sums.len() > COLUMNS {
            let pair = |p: &[(f64, u32)]| p.iter().fold((0.0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            self.sums = self.sums.chunks(2).map(pair).collect();
            self.length *= 2;
        }
    }

    fn drawn(&self) -> String {
        let means: Vec<f64> = self.sums.iter().map(|s| s.0 / s.1 as f64).collect();
        sparkline(&means)
    }
}

/// Values as blocks of eight heights, from the lowest to the highest of them.
fn sparkline(values: &[f64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let block = |v: &f64| match high > low {
        true => BLOCKS[(7.0 * (v - low) / (high - low)).round() as usize],
        false => BLOCKS[0],
    };
    values.iter().map(block).collect()
}

/// The view.
pub struct Live {
    all: MultiProgress,
    bar: ProgressBar,
    lines: [ProgressBar; 2],
    memory: u64,
    loss: Course,
    val: Course,
    swallowed: Course,
    last: (Option<f64>, Option<f64>),
}

impl Live {
    /// Of a scheme's run of `steps` steps, `done` of them behind it, whose plans hold `memory` bytes.
    pub fn new(scheme: &str, steps: usize, done: usize, memory: u64) -> Live {
        let all = MultiProgress::new();
        let style = |text: &str| {
            ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        let bar = all.add(ProgressBar::new(steps as u64).with_prefix(scheme.to_string()));
        bar.set_style(style("{prefix} {wide_bar} {pos}/{len}, {eta} left"));
        bar.set_position(done as u64);
        bar.reset_eta();
        let lines = [(); 2].map(|()| {
            let line = all.add(ProgressBar::new(0));
            // Cut at the terminal's width.
            line.set_style(style("  {wide_msg}"));
            line
        });
        let courses = || Course::default();
        Live {
            all,
            bar,
            lines,
            memory,
            loss: courses(),
            val: courses(),
            swallowed: courses(),
            last: (None, None),
        }
    }

    /// After a step.
    pub fn step(&mut self, step: usize, loss: f64, ms: f64) {
        self.loss.push(loss);
        self.bar.set_position(step as u64);
        let text = format!(
            "loss {loss:.4} {}  {ms:.1} ms a step, {} planned",
            self.loss.drawn(),
            bytes(self.memory)
        );
        self.lines[0].set_message(text);
    }

    /// After an evaluation.
    pub fn evaluated(&mut self, val: f64) {
        self.val.push(val);
        self.last.0 = Some(val);
        self.second();
    }

    /// After a count of swallowed updates.
    pub fn swallowed(&mut self, share: f64) {
        self.swallowed.push(share);
        self.last.1 = Some(share);
        self.second();
    }

    fn second(&self) {
        let mut text = String::new();
        if let Some(val) = self.last.0 {
            text += &format!("val  {val:.4} {}", self.val.drawn());
        }
        if let Some(share) = self.last.1 {
            text += &format!(
                "  swallowed {:.1}% {}",
                100.0 * share,
                self.swallowed.drawn()
            );
        }
        self.lines[1].set_message(text);
    }

    /// Runs what prints, with the view out of the way.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.all.suspend(print)
    }

    /// Takes the view away.
    pub fn clear(&self) {
        self.lines.iter().for_each(ProgressBar::finish_and_clear);
        self.bar.finish_and_clear();
        let _ = self.all.clear(); // a terminal that is gone shows nothing anyway
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_keeps_its_shape_in_few_columns() {
        assert_eq!(sparkline(&[1.0, 2.0, 8.0]), "▁▂█");
        assert_eq!(sparkline(&[3.0, 3.0]), "▁▁");
        assert_eq!(sparkline(&[]), "");
        let mut c = Course::default();
        (0..10_000).for_each(|i| c.push(10_000.0 - i as f64));
        c.push(f64::NAN);
        let drawn: Vec<char> = c.drawn().chars().collect();
        assert!((COLUMNS / 2..=COLUMNS).contains(&drawn.len()), "{drawn:?}");
        assert!(drawn.windows(2).all(|w| w[1] <= w[0]));
        assert_eq!((drawn[0], drawn[drawn.len() - 1]), ('█', '▁'));
        let counted: u32 = c.sums.iter().map(|s| s.1).sum();
        assert_eq!(counted, 10_000);
    }
}
