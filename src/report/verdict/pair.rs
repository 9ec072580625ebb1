//! Two schemes' losses against each other.

use super::SAME;
use crate::report::read::{Group, Losses, Point, Scheme, SeedsRow};

/// A scheme against fp32.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// fp32's loss, or its mean over seeds.
    pub base: f64,
    /// The scheme's.
    pub own: f64,
    /// How far apart two of the same kind may be.
    pub noise: f64,
    /// What was compared, in words.
    pub basis: String,
}

impl Pair {
    /// The scheme's loss above fp32's.
    pub fn gap(&self) -> f64 {
        self.own - self.base
    }

    /// Whether the two count as the same.
    pub fn same(&self) -> bool {
        self.gap().abs() <= self.noise
    }

    pub(super) fn figures(&self, name: &str) -> String {
        format!(
            "{name} {:.4}, fp32 {:.4}: a difference of {} nats a character ({}). ",
            self.own,
            self.base,
            signed(self.gap()),
            self.basis
        )
    }
}

fn signed(v: f64) -> String {
    match v < 0.0 {
        true => format!("−{:.4}", -v),
        false => format!("+{v:.4}"),
    }
}

/// The evaluations of both at the steps that both have: step, fp32's, the scheme's. In fp32 where both
/// were evaluated so.
pub fn common(base: &Scheme, own: &Scheme) -> (Vec<(u64, f64, f64)>, bool) {
    let join = |a: &[Point], b: &[Point]| -> Vec<(u64, f64, f64)> {
        let mut out = vec![];
        let mut rest = a.iter().peekable();
        for p in b {
            while rest.next_if(|q| q.step < p.step).is_some() {}
            if let Some(q) = rest.peek().filter(|q| q.step == p.step) {
                out.push((p.step, q.val, p.val));
            }
        }
        out
    };
    let fp32 = join(&base.fp32, &own.fp32);
    match fp32.is_empty() {
        false => (fp32, true),
        true => (join(&base.curve, &own.curve), false),
    }
}

/// A scheme against fp32 over seeds, each run against the one of its own seed: what a seed does to both is
/// no difference between them. None of fewer than two seeds.
fn paired(g: &Group, name: &str) -> Option<Pair> {
    let both = |run: &Losses| Some((*run.get("fp32")?, *run.get(name)?));
    let pairs: Vec<(f64, f64)> = g.seed_losses.iter().filter_map(both).collect();
    let n = pairs.len() as f64;
    if pairs.len() < 2 {
        return None;
    }
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(f).sum::<f64>() / n;
    let gap = mean(&|p| p.1 - p.0);
    let squares: f64 = pairs.iter().map(|p| (p.1 - p.0 - gap).powi(2)).sum();
    let std = (squares / (n - 1.0)).sqrt();
    Some(Pair {
        base: mean(&|p| p.0),
        own: mean(&|p| p.1),
        noise: (2.0 * std / n.sqrt()).max(SAME),
        basis: format!(
            "means of {n} seeds; seed by seed the differences have a standard deviation of {std:.4}"
        ),
    })
}

/// A scheme of a group against fp32: seed by seed where the runs are there, over seeds where there are several, else at the last step that both
/// have.
pub fn pair(g: &Group, name: &str) -> Option<Pair> {
    if let Some(p) = paired(g, name) {
        return Some(p);
    }
    let seeds = |n: &str| g.seeds.iter().find(|r| r.scheme == n && r.seeds > 1);
    if let (Some(a), Some(b)) = (seeds("fp32"), seeds(name)) {
        let error = |r: &SeedsRow| r.std * r.std / r.seeds as f64;
        let noise = 2.0 * (error(a) + error(b)).sqrt();
        return Some(Pair {
            base: a.mean,
            own: b.mean,
            noise: noise.max(SAME),
            basis: format!(
                "means of {} and {} seeds, standard deviations {:.4} and {:.4}",
                b.seeds, a.seeds, b.std, a.std
            ),
        });
    }
    let (base, own) = (g.scheme("fp32")?, g.scheme(name)?);
    let (rows, fp32) = common(base, own);
    let &(step, a, b) = rows.last()?;
    let how = if fp32 {
        "both weights evaluated in fp32"
    } else {
        "each evaluated in its own precision"
    };
    let ends = [base, own].map(|s| s.curve.last().map_or(0, |p| p.step));
    let short = match ends.iter().all(|e| *e <= step) {
        true => "",
        false => ", the last step that both runs have",
    };
    Some(Pair {
        base: a,
        own: b,
        noise: SAME,
        basis: format!("{how} at step {step}{short}; one run of each"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(runs: &[(f64, f64)]) -> Group {
        let losses = |r: &(f64, f64)| Losses::from([("fp32", r.0), ("bf16", r.1)]);
        let row = |scheme| SeedsRow {
            scheme,
            seeds: 3,
            mean: 2.0,
            std: 0.1,
            min: 1.9,
            max: 2.1,
        };
        Group {
            seed_losses: runs.iter().map(losses).collect(),
            seeds: vec![row("fp32"), row("bf16")],
            ..Group::default()
        }
    }

    /// The seeds differ by 0.2, the schemes by 0.03 within each: a difference that means and standard
    /// deviations of unpaired runs would hide.
    #[test]
    fn runs_are_compared_seed_by_seed() {
        let p = pair(&group(&[(2.0, 2.03), (2.2, 2.231), (1.9, 1.929)]), "bf16").expect("a pair");
        assert!((p.gap() - 0.03).abs() < 1e-9 && !p.same(), "{p:?}");
        assert!(p.basis.contains("seed by seed"), "{}", p.basis);
        let p = pair(&group(&[(2.0, 2.03), (2.2, 2.17), (1.9, 1.901)]), "bf16").expect("a pair");
        assert!(p.same(), "{p:?}");
        // One run alone is no pair of seeds: then the table of means has to do.
        let p = pair(&group(&[(2.0, 2.03)]), "bf16").expect("a pair");
        assert!(p.basis.contains("standard deviations"), "{}", p.basis);
        assert_eq!(p.gap(), 0.0);
    }
}
