//! Where a run's time went, and what its ledgers cost.

use super::files::write_atomic;
use super::ledger::{kept, table};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Times of one scheme's run in ms, all processes of a resumed run together.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Training steps that only train, and how many.
    pub plain: (f64, u64),
    /// Steps that count gradients too.
    pub histogram: (f64, u64),
    /// Steps that the full ledger looks at.
    pub looks: (f64, u64),
    /// Copies of weights and counts of swallowed updates, and reading them back.
    pub swallow: f64,
    /// Evaluations.
    pub evaluation: f64,
    /// The ledger's files and checkpoints.
    pub files: f64,
}

/// The parts that a run's time is split into, in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parts {
    /// Training.
    pub training: f64,
    /// Evaluation.
    pub evaluation: f64,
    /// The seed's two ledgers.
    pub ledger: f64,
    /// The full ledger.
    pub full: f64,
    /// Files.
    pub files: f64,
}

impl Cost {
    /// Split into parts: of a step that is measured too, what it takes beyond the mean of the others. None
    /// where no step was left alone.
    pub fn parts(&self) -> Option<Parts> {
        let mean = match self.plain {
            (_, 0) => return None,
            (ms, n) => ms / n as f64,
        };
        let beyond = |(ms, n): (f64, u64)| (ms - n as f64 * mean).max(0.0);
        let (histogram, full) = (beyond(self.histogram), beyond(self.looks));
        let steps = self.plain.0 + self.histogram.0 + self.looks.0;
        let seconds = |ms: f64| ms / 1e3;
        Some(Parts {
            training: seconds(steps - histogram - full),
            evaluation: seconds(self.evaluation),
            ledger: seconds(self.swallow + histogram),
            full: seconds(full),
            files: seconds(self.files),
        })
    }
}

impl Parts {
    /// Seconds of all together.
    pub fn total(&self) -> f64 {
        self.training + self.evaluation + self.ledger + self.full + self.files
    }

    /// Name and seconds of each; the full ledger's where it was kept.
    fn each(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("training", self.training),
            ("evaluation", self.evaluation),
            ("ledger", self.ledger),
            ("full_ledger", self.full),
            ("files", self.files),
        ];
        let full = self.full > 0.0;
        all.into_iter()
            .filter(move |p| full || p.0 != "full_ledger")
    }

    /// What the ledgers cost, for people.
    pub fn says(&self) -> String {
        let total = self.total();
        let of = |s: f64| format!("{s:.2} s ({:.1}%)", 100.0 * s / total);
        let full = match self.full > 0.0 {
            true => format!(", the full ledger {}", of(self.full)),
            false => String::new(),
        };
        format!("of {total:.2} s the ledger took {}{full}", of(self.ledger))
    }
}

/// The columns of `cost{tag}.csv`.
pub(super) const COST: [&str; 4] = ["scheme", "part", "seconds", "share"];

/// Writes `cost{tag}.csv`; with `keep` the rows of schemes that are not among `own` stay.
///
/// # Errors
/// The file cannot be written.
pub fn write_cost(
    dir: &Path,
    tag: &str,
    rows: &[(&'static str, Cost)],
    own: &[&str],
    keep: bool,
) -> Result<(), Error> {
    let path = dir.join(format!("cost{tag}.csv"));
    let before = match keep {
        true => kept(&path, COST, own),
        false => vec![],
    };
    let of = |(scheme, cost): &(&'static str, Cost)| {
        let parts = cost.parts();
        let rows = parts.iter().flat_map(|p| {
            let total = p.total().max(f64::MIN_POSITIVE);
            p.each().map(move |(name, s)| (name, s, s / total))
        });
        let row = |(name, s, share): (&str, f64, f64)| {
            [
                scheme.to_string(),
                name.to_string(),
                format!("{s:.3}"),
                format!("{share:.5}"),
            ]
        };
        rows.map(row).collect::<Vec<_>>()
    };
    let rows = rows.iter().flat_map(of);
    write_atomic(&path, &table(COST, before.into_iter().chain(rows))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_plain_step_is_the_ledgers() {
        let cost = Cost {
            plain: (800.0, 80),
            histogram: (14.0, 1),
            looks: (300.0, 5),
            swallow: 6.0,
            evaluation: 90.0,
            files: 40.0,
        };
        let p = cost.parts().expect("plain steps");
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(p.training, 0.86);
        near(p.ledger, 0.010);
        near(p.full, 0.25);
        near(p.total(), 1.25);
        assert_eq!(
            p.says(),
            "of 1.25 s the ledger took 0.01 s (0.8%), the full ledger 0.25 s (20.0%)"
        );
        // A step that happens to be faster costs nothing.
        let fast = Cost {
            histogram: (9.0, 1),
            looks: (0.0, 0),
            ..cost
        };
        let p = fast.parts().expect("plain steps");
        near(p.ledger, 0.006);
        assert_eq!(p.each().count(), 4);
        assert_eq!(Cost::default().parts(), None);
    }
}
