//! What the full ledger says, in words.

use super::{Statement, Tone, percent, statement};
use crate::report::read::full::{Full, Scale};
use crate::report::read::{Group, Scheme};

/// A share from which on something counts as lost.
const SOME: f64 = 0.001;

/// The scheme whose own numbers are nearest to exact: the first of these that has them.
fn nearest(g: &Group, has: impl Fn(&Full) -> bool) -> Option<&Scheme> {
    let order = ["mixed", "fp32", "fp16"];
    order
        .iter()
        .filter_map(|n| g.scheme(n))
        .find(|s| has(&s.full))
}

/// What other ways of storing would have made of the updates.
pub(super) fn stored(g: &Group) -> Option<Statement> {
    const ASKED: &str = "Would weights kept in fewer bits have taken the updates?";
    let s = nearest(g, |f| !f.ways.is_empty())?;
    let step = s.full.ways.last()?.0;
    let of = |way: &str| {
        let mut rows = s.full.ways.iter();
        rows.find(|r| r.0 == step && r.1 == way).map(|r| r.2)
    };
    let bf16 = of("bf16")?;
    let others = [
        ("bf16-sr", "stochastic rounding"),
        ("bf16-kahan", "a compensation"),
        ("fp16", "fp16"),
    ];
    let others: Vec<String> = others
        .iter()
        .filter_map(|(way, name)| Some(format!("{} with {name}", percent(of(way)?))))
        .collect();
    let figures = format!(
        "At step {step} of {}, updates of which nothing would have been stored: {} with bf16 to nearest, {}. \
         Each way starts there from the f32 weights.",
        s.name,
        percent(bf16),
        others.join(", ")
    );
    let cured = of("bf16-kahan").is_some_and(|k| k < 0.5 * bf16);
    Some(match (bf16, cured) {
        (b, _) if b < 0.05 => statement(
            ASKED,
            format!("Yes: bf16 would have lost only {} of them.", percent(b)),
            figures,
            Tone::Good,
        ),
        (b, true) => statement(
            ASKED,
            format!(
                "Not bf16 to nearest, which would have lost {}; with a compensation far more would have stayed.",
                percent(b)
            ),
            figures,
            Tone::Bad,
        ),
        (b, false) => statement(
            ASKED,
            format!("No: bf16 would have lost {} of them.", percent(b)),
            figures,
            Tone::Bad,
        ),
    })
}

/// Whether fp16 would have rounded the backward pass to zero, and which scale would have helped.
pub(super) fn backward(g: &Group) -> Option<Statement> {
    const ASKED: &str = "Would the backward pass have underflowed in fp16?";
    let s = nearest(g, |f| !f.scales.is_empty())?;
    let rows = &s.full.scales;
    let by = |f: &dyn Fn(&Scale) -> f64| {
        let all = rows.iter().max_by(|a, b| f(a).total_cmp(&f(b)));
        all.map(|r| (r.step, f(r)))
    };
    let (step, worst) = by(&|r| r.unscaled)?;
    let (_, left) = by(&|r| r.at_best.unwrap_or(0.0))?;
    let bests: Vec<f64> = rows.iter().filter_map(|r| r.best).collect();
    let least = bests.iter().copied().fold(f64::INFINITY, f64::min);
    let most = bests.iter().copied().fold(0.0, f64::max);
    let size = |r: &Scale| r.largest.unwrap_or(0.0);
    let top = rows
        .iter()
        .filter(|r| r.largest.is_some())
        .max_by(|a, b| size(a).total_cmp(&size(b)));
    let mut figures = format!(
        "Of the narrow values of {}'s backward pass, looked at in {} steps, up to {} (step {step}) are below \
         what fp16 can hold. ",
        s.name,
        rows.len(),
        percent(worst)
    );
    if let Some(r) = top {
        figures += &format!(
            "The largest, {:.2e}, came from {} at step {}. ",
            size(r),
            r.from,
            r.step
        );
    }
    if most > 0.0 {
        let scales = match least == most {
            true => format!("A loss scale of {least}"),
            false => format!("Loss scales of {least} to {most}"),
        };
        figures += &format!(
            "{scales} would have left room above and at most {} below.",
            percent(left)
        );
    }
    let (answer, tone) = match (worst >= SOME, worst > 0.0, left >= SOME) {
        (true, _, false) => (
            format!(
                "Yes: up to {} of it without a loss scale; a suitable one cures it.",
                percent(worst)
            ),
            Tone::Bad,
        ),
        (true, _, true) => (
            format!(
                "Yes: up to {} of it without a loss scale, and {} with the best one.",
                percent(worst),
                percent(left)
            ),
            Tone::Bad,
        ),
        (false, true, _) => (
            format!("Hardly: {} of it, without a loss scale.", percent(worst)),
            Tone::Plain,
        ),
        _ => (
            "No: nothing in the steps that were looked at.".into(),
            Tone::Good,
        ),
    };
    Some(statement(ASKED, answer, figures, tone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(bf16: f64, kahan: f64, unscaled: f64, at_best: f64) -> Group {
        let way = |name: &str, share| (400, name.to_string(), share);
        let scale = |step, best| Scale {
            step,
            largest: Some(0.25),
            from: "matmul in head".into(),
            unscaled: unscaled / step as f64 * 400.0,
            at_best: Some(at_best),
            best: Some(best),
        };
        let full = Full {
            ways: vec![
                way("bf16", bf16),
                way("bf16-sr", 0.4 * bf16),
                way("bf16-kahan", kahan),
                way("fp16", 0.5 * bf16),
            ],
            scales: vec![scale(400, 1024.0), scale(800, 65536.0)],
            ..Full::default()
        };
        Group {
            schemes: vec![Scheme {
                name: "mixed",
                full,
                ..Scheme::default()
            }],
            ..Group::default()
        }
    }

    #[test]
    fn storing_turns_with_its_figures() {
        let of = |g: &Group| stored(g).expect("a statement");
        let lost = of(&group(0.74, 0.01, 0.0, 0.0));
        assert!(lost.answer.contains("74.0%") && lost.answer.contains("compensation"));
        assert!(
            lost.figures.contains("29.6% with stochastic rounding"),
            "{}",
            lost.figures
        );
        assert_eq!(lost.tone, Tone::Bad);
        let kept = of(&group(0.002, 0.0, 0.0, 0.0));
        assert!(
            kept.answer
                .starts_with("Yes: bf16 would have lost only 0.2%"),
            "{}",
            kept.answer
        );
        assert_eq!(kept.tone, Tone::Good);
        let hopeless = of(&group(0.74, 0.7, 0.0, 0.0));
        assert!(hopeless.answer.starts_with("No: "), "{}", hopeless.answer);
        assert_eq!(stored(&Group::default()), None);
    }

    #[test]
    fn underflow_turns_with_its_figures() {
        let of = |g: &Group| backward(g).expect("a statement");
        let yes = of(&group(0.5, 0.0, 0.31, 0.0));
        assert!(yes.answer.starts_with("Yes: up to 31.0%") && yes.answer.contains("cures"));
        assert!(
            yes.figures.contains("Loss scales of 1024 to 65536"),
            "{}",
            yes.figures
        );
        assert!(yes.figures.contains("matmul in head"));
        let both = of(&group(0.5, 0.0, 0.31, 0.02));
        assert!(
            both.answer.contains("2.0% with the best one"),
            "{}",
            both.answer
        );
        let hardly = of(&group(0.5, 0.0, 0.0004, 0.0));
        assert!(hardly.answer.starts_with("Hardly"), "{}", hardly.answer);
        let no = of(&group(0.5, 0.0, 0.0, 0.0));
        assert!(no.answer.starts_with("No: "), "{}", no.answer);
        assert_eq!(no.tone, Tone::Good);
        assert_eq!(backward(&Group::default()), None);
    }
}
