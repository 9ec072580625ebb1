//! Overrides of a policy, as data: a type for a class of operations (`softmax`), or for a part of the
//! model by name (`blocks.0.*`). What is under f32 is an island: its operands are widened, and since
//! autocast stands before `grad`, its backward pass is in f32 too.

use super::autocast::LOSS;
use crate::dtype::DType;
use crate::ops;
use std::collections::BTreeMap;

/// One override.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// An operation's name, or a pattern in which `*` stands for any text.
    pub pattern: String,
    /// Whether it names an operation.
    pub class: bool,
    /// The type: what low operations compute from, and what others round to.
    pub dtype: DType,
}

/// The overrides of a policy. They live as long as the process, which reads one config.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules(&'static [Rule]);

/// Most overrides of a config.
const MOST: usize = 64;
/// Longest pattern.
const LONGEST: usize = 128;

impl Rules {
    /// No override.
    pub const NONE: Rules = Rules(&[]);

    /// The overrides of a table (pattern, type's name), for a model that has parts of these names.
    ///
    /// # Errors
    /// A type that there is not, or a pattern that names nothing, in one line.
    pub fn keep(table: &BTreeMap<String, String>, places: &[String]) -> Result<Rules, String> {
        let rules = parse(table, places)?;
        Ok(match rules.is_empty() {
            true => Rules::NONE,
            false => Rules(Vec::leak(rules)),
        })
    }

    /// The overrides.
    pub fn all(self) -> &'static [Rule] {
        self.0
    }

    /// The type of an operation by name in a part of the model; none without an override. A part's name
    /// goes before an operation's, a longer pattern before a shorter one.
    pub fn of(self, op: &str, place: &str) -> Option<DType> {
        self.find(op, place).map(|r| r.dtype)
    }

    /// The override that holds for an operation.
    pub fn find(self, op: &str, place: &str) -> Option<&'static Rule> {
        let named = self.0.iter().filter(|r| !r.class && fits(r, place));
        let longest = named.max_by_key(|r| (r.pattern.len(), &r.pattern));
        let class = || self.0.iter().find(|r| r.class && class_of(op) == r.pattern);
        longest.or_else(class)
    }
}

/// Checks a table and reads it.
///
/// # Errors
/// As [`Rules::keep`].
pub fn parse(table: &BTreeMap<String, String>, places: &[String]) -> Result<Vec<Rule>, String> {
    if table.len() > MOST {
        return Err(format!(
            "[policy] has {} rules, at most {MOST}",
            table.len()
        ));
    }
    let one = |(pattern, name): (&String, &String)| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._*-".contains(c);
        if pattern.is_empty() || pattern.len() > LONGEST || !pattern.chars().all(plain) {
            return Err(format!(
                "[policy] {pattern:?}: a pattern has at most {LONGEST} letters, digits, `.`, `_`, `-` and `*`"
            ));
        }
        let dtype = match name.as_str() {
            "fp32" => DType::F32,
            "bf16" => DType::Bf16,
            "fp16" => DType::F16,
            _ => {
                return Err(format!(
                    "[policy] {pattern} = {name:?}: must be \"fp32\", \"bf16\" or \"fp16\""
                ));
            }
        };
        if pattern == LOSS && dtype != DType::F32 {
            return Err(format!(
                "[policy] {pattern} = {name:?}: the loss is f32 in every scheme; leave the rule out"
            ));
        }
        let class = classes().contains(&pattern.as_str());
        let rule = Rule {
            pattern: pattern.clone(),
            class,
            dtype,
        };
        if !class && !places.iter().any(|p| fits(&rule, p)) {
            return Err(format!(
                "[policy] {pattern:?}: names no operation ({}) and no part of the model ({}); `*` stands for any text",
                classes().join(", "),
                short(places)
            ));
        }
        Ok(rule)
    };
    table.iter().map(one).collect()
}

/// The operations that a rule may name: those that autocast treats.
pub fn classes() -> Vec<&'static str> {
    const NONE: [&str; 9] = [
        "reshape",
        "broadcast",
        "permute",
        "cast",
        "put_rows",
        "digest",
        "histogram",
        "loss_scale",
        "step_scalars",
    ];
    let mut out: Vec<&str> = ops::all().iter().map(|d| class_of(d.name)).collect();
    out.retain(|n| !NONE.contains(n) && !n.starts_with("adamw") && !n.ends_with("_grad"));
    let mut seen = std::collections::HashSet::new();
    out.retain(|n| seen.insert(*n));
    out
}

/// Operations that are one to a person: generation's forms of training's.
fn class_of(op: &str) -> &str {
    match op {
        "linear" => "matmul",
        "attention_cached" | "attention_lse" => "attention",
        other => other,
    }
}

/// A list for a message.
fn short(places: &[String]) -> String {
    match places {
        [first @ .., last] if places.len() > 12 => {
            format!("{}, …, {last}", first[..8].join(", "))
        }
        all => all.join(", "),
    }
}

/// Whether a pattern fits a part's name, or that of its weight.
fn fits(rule: &Rule, place: &str) -> bool {
    let pattern = rule.pattern.as_bytes();
    glob(pattern, place.as_bytes()) || glob(pattern, format!("{place}.weight").as_bytes())
}

/// Whether a pattern with `*` fits a text: greedy, with one place to go back to.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut back) = (0, 0, None);
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            back = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star, from)) = back {
            back = Some((star, from + 1));
            (p, t) = (star + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, text, fit) in [
            ("blocks.0.*", "blocks.0.attn", true),
            ("blocks.0.*", "blocks.01.attn", false),
            ("*.ln1", "blocks.3.ln1", true),
            ("*", "", true),
            ("a*b*c", "aXbbYc", true),
            ("a*b*c", "aXbbY", false),
            ("head", "head", true),
            ("head", "heads", false),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes()),
                fit,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn names_go_before_classes_and_longer_names_before_shorter_ones() {
        let places = ["blocks.0.attn", "blocks.0.fc", "blocks.1.fc", "head"].map(String::from);
        let table = |rows: &[(&str, &str)]| {
            let rows = rows.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            rows.collect::<BTreeMap<_, _>>()
        };
        let rows = [
            ("matmul", "fp16"),
            ("blocks.*", "bf16"),
            ("blocks.0.*", "fp32"),
            ("softmax", "bf16"),
        ];
        let rules = Rules::keep(&table(&rows), &places).expect("sound");
        assert_eq!(rules.of("matmul", "head"), Some(DType::F16));
        assert_eq!(rules.of("linear", "head"), Some(DType::F16));
        assert_eq!(rules.of("gelu", "head"), None);
        assert_eq!(rules.of("matmul", "blocks.1.fc"), Some(DType::Bf16));
        assert_eq!(rules.of("matmul", "blocks.0.fc"), Some(DType::F32));
        assert_eq!(rules.of("softmax", ""), Some(DType::Bf16));
        for (bad, says) in [
            ([("blocks.7.*", "fp32")], "names no operation"),
            ([("sofmax", "bf16")], "softmax"),
            ([("matmul", "fp8")], "\"fp32\""),
            ([("a\nb", "fp32")], "at most"),
        ] {
            let e = parse(&table(&bad), &places).expect_err("refused");
            assert!(e.contains(says) && !e.contains('\n'), "{e}");
        }
    }
}
