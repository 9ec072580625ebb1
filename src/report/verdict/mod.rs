//! The report in words: every sentence follows from figures that were read, and turns with them.

mod full;
mod pair;

pub use pair::{Pair, common, pair};

use super::plot::scale::{power_of_ten, raised};
use super::read::Group;

/// Losses nearer than this, in nats a character, count as the same: some seeds differ by as much.
pub const SAME: f64 = 0.01;
/// Below it fp16 has subnormals, log10 of 2^-14.
pub const FP16_NORMAL: f64 = -4.214_419_939_295_736;
/// fp16's smallest subnormal, log10 of 2^-24.
pub const FP16_LEAST: f64 = -7.224_719_895_935_548;
/// Below it fp16 rounds to zero, log10 of 2^-25.
pub const FP16_ZERO: f64 = -7.525_749_891_599_529;
/// fp16's largest number, log10 of 65504.
pub const FP16_MOST: f64 = 4.816_267_820_555_92;
/// The first loss scale of a run, log10 of 65536.
const FIRST_SCALE: f64 = 4.816_479_930_623_698;

/// How an answer stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// Nothing was lost.
    Good,
    /// Something was.
    Bad,
    /// Neither, or not known.
    Plain,
}

/// A question, its answer and what it rests on.
#[derive(Clone, PartialEq, Debug)]
pub struct Statement {
    /// The question.
    pub question: String,
    /// The answer in a sentence.
    pub answer: String,
    /// The figures behind it.
    pub figures: String,
    /// How it stands.
    pub tone: Tone,
}

fn statement(question: &str, answer: String, figures: String, tone: Tone) -> Statement {
    Statement {
        question: question.into(),
        answer,
        figures,
        tone,
    }
}

/// The statements of a group.
pub fn verdict(g: &Group) -> Vec<Statement> {
    let mut out: Vec<Statement> = g.schemes.iter().filter_map(astray).collect();
    out.push(mixed(g));
    out.extend(bf16(g));
    out.extend(["bf16-sr", "bf16-kahan"].iter().filter_map(|n| cure(g, n)));
    out.extend(fp16_run(g));
    let backward = full::backward(g);
    out.extend(full::stored(g));
    // One of the two says enough where the other was not measured.
    if backward.is_none() || !g.histogram.is_empty() {
        out.push(fp16_range(g));
    }
    out.extend(backward);
    out.push(worth(g));
    out
}

/// A run whose loss is no number any more.
fn astray(s: &super::read::Scheme) -> Option<Statement> {
    let step = s.astray?;
    let last = s
        .curve
        .last()
        .map_or("There is none before it.".into(), |p| {
            format!(
                "The last loss before it is {:.4}, at step {}.",
                p.val, p.step
            )
        });
    Some(statement(
        &format!("Did {} train to its end?", s.name),
        format!("No: its loss is no number at step {step}."),
        format!("{last} Nothing after it is compared or drawn."),
        Tone::Bad,
    ))
}

fn mixed(g: &Group) -> Statement {
    const ASKED: &str = "Does mixed match fp32?";
    let Some(p) = pair(g, "mixed") else {
        return statement(
            ASKED,
            "Not measured here.".into(),
            "It takes a run of fp32 and one of mixed with evaluations at the same steps.".into(),
            Tone::Plain,
        );
    };
    let bound = format!("Within {:.3} the two count as the same.", p.noise);
    let figures = p.figures("mixed") + &bound;
    match (p.same(), p.gap() > 0.0) {
        (true, _) => statement(
            ASKED,
            "Yes: mixed ends where fp32 does.".into(),
            figures,
            Tone::Good,
        ),
        (false, true) => statement(
            ASKED,
            format!("No: mixed ends {:.3} worse than fp32.", p.gap()),
            figures,
            Tone::Bad,
        ),
        (false, false) => statement(
            ASKED,
            format!("Mixed ends {:.3} better than fp32 here.", -p.gap()),
            figures + " A better end of one run is no reason to expect it of another.",
            Tone::Plain,
        ),
    }
}

/// The step from which on a scheme stays worse than fp32 by more than [`SAME`].
fn opens(g: &Group, name: &str) -> Option<u64> {
    let (rows, _) = common(g.scheme("fp32")?, g.scheme(name)?);
    let worse = |r: &&(u64, f64, f64)| r.2 - r.1 > SAME;
    rows.iter().rev().take_while(worse).last().map(|r| r.0)
}

fn percent(share: f64) -> String {
    match share {
        s if s > 0.0 && s < 0.0005 => format!("{:.3}%", 100.0 * s),
        s => format!("{:.1}%", 100.0 * s),
    }
}

/// How the share of swallowed updates went, and in which tensors.
fn swallowed(g: &Group) -> String {
    let (Some(first), Some(last)) = (g.swallow.first(), g.swallow.last()) else {
        return "The share of swallowed updates was not counted: it is counted in a mixed run. "
            .into();
    };
    let mut text = format!(
        "In the mixed run bf16 weights would have swallowed {} of the updates at step {}",
        percent(first.1),
        first.0
    );
    if last.0 != first.0 {
        text += &format!(" and {} at step {}", percent(last.1), last.0);
    }
    text += ". ";
    let mut ends: Vec<(f64, &str)> = g
        .tensors
        .iter()
        .filter_map(|t| Some((t.shares.last()?.1, t.name.as_str())))
        .collect();
    ends.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    if let (Some(top), Some(low), true) = (ends.first(), ends.last(), ends.len() > 1) {
        text += &format!(
            "By tensor, at the last count: most in {} ({}), least in {} ({}). ",
            top.1,
            percent(top.0),
            low.1,
            percent(low.0)
        );
    }
    text
}

fn bf16(g: &Group) -> Option<Statement> {
    const ASKED: &str = "What did pure bf16 lose, and where?";
    let p = pair(g, "bf16")?;
    let mut figures = p.figures("bf16");
    if p.same() {
        return Some(statement(
            ASKED,
            "Nothing that can be measured here.".into(),
            figures + &swallowed(g),
            Tone::Good,
        ));
    }
    if p.gap() < 0.0 {
        let answer = format!("Nothing: it ends {:.3} better than fp32 here.", -p.gap());
        return Some(statement(
            ASKED,
            answer,
            figures + &swallowed(g),
            Tone::Plain,
        ));
    }
    if let Some(step) = opens(g, "bf16") {
        let rate = g.scheme("bf16").and_then(|s| {
            let at = s.rates.iter().take_while(|r| r.0 <= step).last();
            at.map(|r| format!(", at a learning rate of {:.2e}", r.1))
        });
        figures += &format!(
            "From step {step} on{} it stays more than {SAME} behind. ",
            rate.unwrap_or_default()
        );
    }
    let answer = format!("It ends {:.3} nats a character worse than fp32.", p.gap());
    Some(statement(ASKED, answer, figures + &swallowed(g), Tone::Bad))
}

fn cure(g: &Group, name: &str) -> Option<Statement> {
    let p = pair(g, name)?;
    let what = match name {
        "bf16-sr" => "stochastic rounding (bf16-sr)",
        _ => "a compensation term (bf16-kahan)",
    };
    let asked = format!("Does {what} make up for it?");
    let figures = p.figures(name);
    let lost = pair(g, "bf16").filter(|b| !b.same() && b.gap() > 0.0);
    let (answer, tone) = match (lost, p.same()) {
        (Some(_), true) => ("Yes: it ends where fp32 does.".to_string(), Tone::Good),
        (None, true) => ("It ends where fp32 does.".into(), Tone::Good),
        (Some(b), false) if p.gap() > 0.0 && p.gap() < b.gap() => (
            format!(
                "In part: it ends {:.3} worse than fp32, bf16 without it {:.3}.",
                p.gap(),
                b.gap()
            ),
            Tone::Plain,
        ),
        (_, false) if p.gap() > 0.0 => (
            format!("No: it ends {:.3} worse than fp32.", p.gap()),
            Tone::Bad,
        ),
        _ => (
            format!("It ends {:.3} better than fp32 here.", -p.gap()),
            Tone::Plain,
        ),
    };
    Some(statement(&asked, answer, figures, tone))
}

fn fp16_run(g: &Group) -> Option<Statement> {
    const ASKED: &str = "How did fp16 with loss scaling do?";
    let skips = g.scaler.iter().filter(|r| r.skipped).count();
    let scales = g.scaler.iter().map(|r| r.scale);
    let (low, high) = scales.fold((f64::INFINITY, 0.0f64), |(a, b), s| (a.min(s), b.max(s)));
    let mut text = match g.scaler.len() {
        0 => String::new(),
        n => {
            // Only steps that tell something new have a row.
            let steps = g.scaler[n - 1].step;
            format!(
                "The loss scale lay between {low} and {high}; {skips} of {steps} steps were skipped. "
            )
        }
    };
    let culprit = g.scaler.iter().find(|r| r.skipped && !r.culprit.is_empty());
    if let Some(r) = culprit {
        text += &format!(
            "The first skip, at step {}, came from {}. ",
            r.step, r.culprit
        );
    }
    let p = pair(g, "fp16")?;
    let figures = p.figures("fp16") + &text;
    Some(match (p.same(), p.gap() > 0.0) {
        (true, _) => statement(
            ASKED,
            "It ends where fp32 does.".into(),
            figures,
            Tone::Good,
        ),
        (_, true) => statement(
            ASKED,
            format!("It ends {:.3} worse than fp32.", p.gap()),
            figures,
            Tone::Bad,
        ),
        _ => statement(
            ASKED,
            format!("It ends {:.3} better than fp32 here.", -p.gap()),
            figures,
            Tone::Plain,
        ),
    })
}

/// The least and the greatest share of counted magnitudes below a limit (log10): the ranges that lie
/// below it as a whole, and those that it cuts too.
pub fn below(histogram: &[(f64, u64)], limit: f64) -> (f64, f64) {
    let total: f64 = histogram.iter().map(|b| b.1 as f64).sum();
    let upper = |i: usize| histogram.get(i + 1).map_or(f64::INFINITY, |b| b.0);
    let (mut least, mut most) = (0.0, 0.0);
    for (i, &(low, count)) in histogram.iter().enumerate() {
        least += if upper(i) <= limit { count as f64 } else { 0.0 };
        most += if low < limit { count as f64 } else { 0.0 };
    }
    match total > 0.0 {
        true => (least / total, most / total),
        false => (0.0, 0.0),
    }
}

fn between((least, most): (f64, f64)) -> String {
    match percent(least) == percent(most) {
        true => percent(least),
        false => format!("{} to {}", percent(least), percent(most)),
    }
}

fn fp16_range(g: &Group) -> Statement {
    const ASKED: &str = "Would gradients have underflowed in fp16?";
    let total: u64 = g.histogram.iter().map(|b| b.1).sum();
    if total == 0 {
        return statement(
            ASKED,
            "Not measured here.".into(),
            "It takes the gradient histogram of a mixed run without a tag.".into(),
            Tone::Plain,
        );
    }
    let zero = below(&g.histogram, FP16_ZERO);
    let thin = below(&g.histogram, FP16_NORMAL);
    let scaled = below(&g.histogram, FP16_ZERO - FIRST_SCALE);
    let top = g.histogram.iter().rposition(|b| b.1 > 0).unwrap_or(0);
    // The upper edge of the highest range that holds any.
    let width = g.histogram[1].0 - g.histogram[0].0;
    let highest = g
        .histogram
        .get(top + 1)
        .map_or(g.histogram[top].0 + width, |b| b.0);
    let best = libm::floor((FP16_MOST - highest) / std::f64::consts::LOG10_2).clamp(0.0, 24.0);
    let figures = format!(
        "Of {total} gradients that are not zero, {} would be rounded to zero in fp16, and {} are below its \
         normal numbers. \
         At a loss scale of 65536 {} would be zero. The largest are below {}: a scale of up to 2{} keeps them \
         under 65504.",
        between(zero),
        between(thin),
        between(scaled),
        power_of_ten(highest),
        raised(best as i64),
    );
    let (answer, tone) = match zero {
        (least, _) if least >= 0.001 => (
            format!("Yes: {} of them, without loss scaling.", between(zero)),
            Tone::Bad,
        ),
        (_, most) if most > 0.0 => (
            format!("Hardly: {} of them, without loss scaling.", between(zero)),
            Tone::Plain,
        ),
        _ => ("No: none at the step that was counted.".into(), Tone::Good),
    };
    statement(ASKED, answer, figures, tone)
}

fn worth(g: &Group) -> Statement {
    const ASKED: &str = "Is low precision worth it here?";
    let row = |n: &str| g.scheme(n).and_then(|s| s.summary.as_ref());
    let (Some(fp32), Some(mixed)) = (row("fp32"), row("mixed")) else {
        return statement(
            ASKED,
            "Not measured here.".into(),
            "It takes the summaries of fp32 and mixed.".into(),
            Tone::Plain,
        );
    };
    let time = fp32
        .step_ms
        .zip(mixed.step_ms)
        .filter(|t| t.0 > 0.0 && t.1 > 0.0);
    let speed = time.map(|(a, b)| a / b);
    let memory = (fp32.peak_gib > 0.0).then(|| mixed.peak_gib / fp32.peak_gib);
    let mut figures = match time {
        Some((a, b)) => format!("A step took {b:.2} ms in mixed and {a:.2} ms in fp32. "),
        None => "The runs were too short to time a step. ".into(),
    };
    if let Some(m) = memory {
        figures += &format!(
            "Mixed held {:.0}% of fp32's memory at its peak. ",
            100.0 * m
        );
    }
    let faster = speed.is_some_and(|s| s >= 1.1);
    let smaller = memory.is_some_and(|m| m <= 0.85);
    let loses = pair(g, "mixed").is_some_and(|p| !p.same() && p.gap() > 0.0);
    let gain = match (faster, smaller) {
        (true, true) => "time and memory",
        (true, false) => "time",
        _ => "memory",
    };
    let (answer, tone) = match (faster || smaller, loses) {
        (true, false) => (
            format!("Yes: mixed saves {gain} and loses nothing."),
            Tone::Good,
        ),
        (true, true) => (
            format!("It saves {gain}, but ends worse than fp32: weigh the two."),
            Tone::Plain,
        ),
        (false, _) => (
            "Do not bother here: mixed saves neither time nor much memory on this device.".into(),
            Tone::Bad,
        ),
    };
    figures += "Narrow types are emulated in training: no tensor core was used, and these times say nothing of hardware that has them. \
                Small models, element-wise work and CPUs gain least.";
    statement(ASKED, answer, figures, tone)
}
