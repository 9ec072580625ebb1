//! Common mistakes, found before a run: what the settings, the initial weights and the vocabulary say.

use crate::config::Settings;
use crate::train::schedule::lr_at;
use crate::train::session::Programs;

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// A mistake that cannot be made here.
    Fine,
    /// Worth knowing.
    Note,
    /// Probably not what is wanted.
    Warning,
}

impl Level {
    /// Its name in front of a line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Fine => "fine",
            Level::Note => "note",
            Level::Warning => "warning",
        }
    }
}

/// A finding: one line.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// The line.
    pub text: String,
}

/// Standard deviation of an AdamW update, in learning rates: measured runs lie near it.
const UPDATE: f64 = 0.2;
/// Fewer characters a step leave a device idle.
const FEW: usize = 256;
/// A predicted share of swallowed updates that is worth a warning.
const MUCH: f64 = 0.5;

/// Weights by name.
type Weights = [(String, Vec<f32>)];

/// What there is to say of a run, the worst first.
pub fn lint(s: &Settings, vocab: usize, weights: &Weights) -> Vec<Finding> {
    let names: Vec<&str> = s.schemes.iter().map(|x| x.name()).collect();
    let mut out = Vec::new();
    let mut add = |level, text: String| out.push(Finding { level, text });
    if names.contains(&"bf16") {
        swallow(s, weights, &mut add);
    }
    if names.contains(&"fp16") {
        loss_scale(s, &mut add);
    }
    rules(s, &mut add);
    idle_rules(s, vocab, &mut add);
    schedule(s, &mut add);
    size(s, &mut add);
    if names.iter().any(|n| *n != "fp32") {
        padding(s, vocab, &mut add);
        narrow(s, &names, &mut add);
    }
    out.sort_by_key(|f| std::cmp::Reverse(f.level));
    out
}

/// Rules that bring fp16 into a scheme without a loss scale.
fn rules(s: &Settings, add: &mut impl FnMut(Level, String)) {
    let narrow = |(pattern, dtype): (&String, &String)| (dtype == "fp16").then(|| pattern.clone());
    let patterns: Vec<String> = s.policy.iter().filter_map(narrow).collect();
    let unscaled = s.schemes.iter().filter(|x| !x.policy().scaled);
    let names: Vec<&str> = unscaled.map(|x| x.name()).collect();
    if !patterns.is_empty() && !names.is_empty() {
        add(
            Level::Warning,
            format!(
                "[policy] {} = \"fp16\": {} has no loss scale, so small gradients underflow there (only the scheme fp16 has one)",
                patterns.join(", "),
                names.join(", ")
            ),
        );
    }
}

/// Rules without which every scheme's training program is the same.
fn idle_rules(s: &Settings, vocab: usize, add: &mut impl FnMut(Level, String)) {
    let plan = |s: &Settings, scheme| {
        let programs = Programs::compile(&s.model(vocab), s, scheme, false);
        programs.map(|p| p.hash().to_string()).ok()
    };
    if s.policy.is_empty() {
        return;
    }
    let with: Vec<_> = s.schemes.iter().map(|&x| plan(s, x)).collect();
    for pattern in s.policy.keys() {
        let mut without = s.clone();
        without.policy.remove(pattern);
        if s.schemes
            .iter()
            .zip(&with)
            .all(|(&x, with)| *with == plan(&without, x))
        {
            let names: Vec<&str> = s.schemes.iter().map(|x| x.name()).collect();
            add(
                Level::Warning,
                format!(
                    "[policy] {pattern} = {:?} changes nothing: {} would be computed the same without it",
                    s.policy[pattern],
                    names.join(", ")
                ),
            );
        }
    }
}

/// The share of updates that weights in bf16 would swallow, where an update is normal with standard
/// deviation [`UPDATE`] times the learning rate: an update below half of the distance to the next bf16
/// value is rounded away.
pub fn predicted(weights: &Weights, lr: f64) -> f64 {
    let (mut lost, mut all) = (0.0, 0u64);
    for w in weights.iter().flat_map(|(_, w)| w) {
        lost += libm::erf(half_ulp(*w) / (UPDATE * lr * std::f64::consts::SQRT_2));
        all += 1;
    }
    match all {
        0 => 0.0,
        n => lost / n as f64,
    }
}

/// Half of the distance between a value's bf16 neighbours: 2^(exponent - 8).
fn half_ulp(w: f32) -> f64 {
    let exponent = ((w.to_bits() >> 23 & 0xff) as i32 - 127).max(-126);
    libm::exp2((exponent - 8) as f64)
}

fn swallow(s: &Settings, weights: &Weights, add: &mut impl FnMut(Level, String)) {
    let peak = (0..s.steps.min(s.warmup + 1))
        .map(|i| lr_at(s, i))
        .fold(0.0, f64::max);
    let last = lr_at(s, s.steps - 1);
    let (at_peak, at_end) = (predicted(weights, peak), predicted(weights, last));
    let percent = |x: f64| format!("{:.0}%", 100.0 * x);
    let (level, so) = match at_peak > MUCH {
        true => (
            Level::Warning,
            "too small for bf16 weights: mixed, bf16-sr and bf16-kahan keep them",
        ),
        false => (Level::Note, "the share to expect of bf16, not a fault"),
    };
    add(
        level,
        format!(
            "bf16: at lr = {peak:.1e} about {} of the updates are predicted to be swallowed, \
                and {} at the last step's {last:.1e} ({so})",
            percent(at_peak),
            percent(at_end)
        ),
    );
}

fn loss_scale(s: &Settings, add: &mut impl FnMut(Level, String)) {
    add(
        Level::Fine,
        "fp16 without a loss scaler: impossible here, the scheme always has one; so is clipping \
            before unscaling, the order is fixed"
            .into(),
    );
    if s.fp16.growth_interval >= s.steps as u64 {
        add(
            Level::Warning,
            format!(
                "fp16: growth_interval = {} is not below steps = {}: the loss scale can fall, \
                    but never grow",
                s.fp16.growth_interval, s.steps
            ),
        );
    }
    if s.fp16.init_scale < 256.0 {
        add(
            Level::Warning,
            format!(
                "fp16: init_scale = {} hardly lifts small gradients out of fp16's subnormals; \
                    65536 is usual",
                s.fp16.init_scale
            ),
        );
    }
}

fn schedule(s: &Settings, add: &mut impl FnMut(Level, String)) {
    if s.warmup >= s.steps {
        add(
            Level::Warning,
            format!(
                "warmup = {} is not below steps = {}: the run ends before the learning rate \
                    reaches lr = {}",
                s.warmup, s.steps, s.lr
            ),
        );
    }
    let l = &s.ledger;
    for (level, key, interval, so) in [
        (
            Level::Note,
            "swallow_interval",
            l.swallow_interval,
            "swallowed updates are never counted",
        ),
        (
            Level::Warning,
            "full_interval",
            l.full_interval,
            "the full ledger never looks",
        ),
    ] {
        if interval > s.steps as u64 {
            let last = s.steps;
            add(
                level,
                format!("{key} = {interval} is past the last step {last}: {so}"),
            );
        }
    }
}

fn size(s: &Settings, add: &mut impl FnMut(Level, String)) {
    let tokens = s.batch * s.block;
    if tokens < FEW {
        add(
            Level::Warning,
            format!(
                "batch {} x block {} is {tokens} characters a step: too few for precision to \
                    matter to the time, which goes into launches",
                s.batch, s.block
            ),
        );
    }
}

/// Narrow rows hold two elements a word, so that an odd one is padded.
fn padding(s: &Settings, vocab: usize, add: &mut impl FnMut(Level, String)) {
    let extents = [
        ("n_embd", s.n_embd),
        ("head width n_embd / n_head =", s.n_embd / s.n_head),
        ("block", s.block),
        ("vocabulary", vocab),
    ];
    for (name, n) in extents.iter().filter(|e| !e.1.is_multiple_of(2)) {
        let share = 100.0 / (n + 1) as f64;
        // A vocabulary is what the text makes it.
        let level = match *name != "vocabulary" && share >= 1.0 {
            true => Level::Warning,
            false => Level::Note,
        };
        add(
            level,
            format!(
                "{name} {n} is odd: narrow rows are padded to {}, {share:.1}% of their bytes \
                    are never used",
                n + 1
            ),
        );
    }
}

fn narrow(s: &Settings, names: &[&str], add: &mut impl FnMut(Level, String)) {
    let low: Vec<&str> = names.iter().copied().filter(|n| *n != "fp32").collect();
    let level = match s.numerics {
        crate::exec::Numerics::Fast => Level::Warning,
        crate::exec::Numerics::Portable => Level::Note,
    };
    add(
        level,
        format!(
            "{}: narrow types are emulated by integer code in training, also with --numerics \
                fast: do not expect speed of them",
            low.join(", ")
        ),
    );
    add(
        Level::Note,
        format!(
            "{}: val_loss is computed in the scheme's own precision; compare schemes by \
                curve_fp32eval_*.csv, the same weights in fp32",
            low.join(", ")
        ),
    );
    let stored: Vec<&str> = low
        .iter()
        .copied()
        .filter(|n| n.starts_with("bf16"))
        .collect();
    if !stored.is_empty() {
        add(
            Level::Note,
            format!(
                "{}: checkpoints hold weights in bf16; --save, and export by default, write \
                    f32, which others expect",
                stored.join(", ")
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Preset, Scheme};

    fn small(lr: f64) -> (Settings, Vec<(String, Vec<f32>)>) {
        let mut s = Settings::preset(Preset::Small);
        (s.lr, s.min_lr) = (lr, 0.1 * lr);
        let weights = s.model(65).initial(1337);
        (s, weights)
    }

    fn lines(s: &Settings, vocab: usize, weights: &Weights, level: Level) -> Vec<String> {
        let all = lint(s, vocab, weights);
        all.into_iter()
            .filter(|f| f.level == level)
            .map(|f| f.text)
            .collect()
    }

    #[test]
    fn half_an_ulp_is_2_to_the_exponent_less_8() {
        // bf16 neighbours of 1 are 2^-7 above and 2^-8 below it; those of 0.02 are 2^-13 apart.
        assert_eq!(half_ulp(1.0), 1.0 / 256.0);
        assert_eq!(half_ulp(0.02), 1.0 / 16_384.0);
        assert_eq!(half_ulp(-0.02), half_ulp(0.02));
        assert!(half_ulp(0.0) > 0.0);
    }

    #[test]
    fn the_prediction_is_near_what_pytorch_measured() {
        // PyTorch 2.15, `small` on tiny-shakespeare, step 200: 0.2105 at lr 1e-3, 0.7432 at 1e-4.
        let (_, weights) = small(1e-3);
        let (high, low) = (predicted(&weights, 1e-3), predicted(&weights, 1e-4));
        assert!((high - 0.2105).abs() < 0.05, "{high}");
        assert!((low - 0.7432).abs() < 0.05, "{low}");
        assert!(predicted(&weights, 1e-5) > 0.93);
    }

    #[test]
    fn a_low_rate_is_a_warning_for_bf16_alone() {
        let (mut s, weights) = small(1e-4);
        s.schemes = vec![Scheme::Bf16];
        let found = lines(&s, 64, &weights, Level::Warning);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("bf16: at lr = 1.0e-4 about 78%"),
            "{found:?}"
        );
        s.schemes = vec![Scheme::Fp32, Scheme::Mixed];
        assert_eq!(
            lines(&s, 64, &weights, Level::Warning),
            Vec::<String>::new()
        );
        let (mut s, weights) = small(1e-3);
        s.schemes = vec![Scheme::Bf16];
        assert_eq!(
            lines(&s, 64, &weights, Level::Warning),
            Vec::<String>::new()
        );
    }

    #[test]
    fn extents_batches_and_schedules_are_looked_at() {
        let (mut s, weights) = small(1e-3);
        (s.batch, s.block, s.n_embd, s.n_head) = (2, 33, 45, 9);
        (s.warmup, s.steps) = (50, 50);
        s.schemes = vec![Scheme::Mixed];
        let found = lines(&s, 65, &weights, Level::Warning).join("\n");
        for part in [
            "batch 2 x block 33 is 66 characters",
            "block 33 is odd: narrow rows are padded to 34, 2.9%",
            "n_embd 45 is odd",
            "head width n_embd / n_head = 5 is odd",
            "warmup = 50 is not below steps = 50",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
        let notes = lines(&s, 65, &weights, Level::Note).join("\n");
        assert!(notes.contains("vocabulary 65 is odd: narrow rows are padded to 66, 1.5%"));
        assert!(notes.contains("emulated") && notes.contains("curve_fp32eval_"));
        s.schemes = vec![Scheme::Fp32];
        let alone = lines(&s, 65, &weights, Level::Note).join("\n");
        assert!(
            !alone.contains("odd") && !alone.contains("emulated"),
            "{alone}"
        );
    }

    #[test]
    fn rules_without_effect_are_named() {
        let (mut s, weights) = small(1e-3);
        s.schemes = vec![Scheme::Fp32, Scheme::Mixed];
        let rule = |pattern: &str, dtype: &str| (pattern.to_string(), dtype.to_string());
        s.policy = [rule("attention", "fp32"), rule("blocks.0.fc*", "fp32")].into();
        assert_eq!(
            lines(&s, 65, &weights, Level::Warning),
            Vec::<String>::new()
        );
        // The softmax of a char-GPT is inside of its attention.
        s.policy = [rule("attention", "fp32"), rule("softmax", "bf16")].into();
        let found = lines(&s, 65, &weights, Level::Warning);
        assert_eq!(found.len(), 1, "{found:?}");
        let says = "[policy] softmax = \"bf16\" changes nothing: fp32, mixed would";
        assert!(found[0].starts_with(says), "{found:?}");
    }

    #[test]
    fn a_ledger_that_never_looks_is_a_warning() {
        let (mut s, weights) = small(1e-3);
        (s.schemes, s.ledger.full_interval) = (vec![Scheme::Fp32], s.steps as u64 + 1);
        let found = lines(&s, 65, &weights, Level::Warning);
        assert!(
            found.len() == 1 && found[0].contains("never looks"),
            "{found:?}"
        );
    }

    #[test]
    fn the_presets_are_without_warnings() {
        for p in [Preset::Tiny, Preset::Small] {
            let s = Settings::preset(p);
            let weights = s.model(65).initial(s.seed);
            assert_eq!(
                lines(&s, 65, &weights, Level::Warning),
                Vec::<String>::new(),
                "{p:?}"
            );
        }
    }
}
