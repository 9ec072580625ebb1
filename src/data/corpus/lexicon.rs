//! Nouns and verbs with their inflected forms.

use super::words;

/// A countable noun.
pub struct Noun {
    pub one: &'static str,
    pub many: String,
}

/// A verb in the forms that English distinguishes.
pub struct Verb {
    pub base: String,
    pub third: String,
    pub past: String,
    pub participle: String,
    pub ing: String,
}

/// When something happens, and how it is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tense {
    Past,
    PastProgressive,
    PastPerfect,
    Perfect,
    Present,
    Progressive,
    Future,
    /// After `must`, `can` and the like.
    Bare,
}

/// What the verb agrees with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Agree {
    I,
    One,
    Many,
}

/// Classes of nouns that can be owned, eaten, met or asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Thing,
    Food,
    Animal,
    Trade,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Thing, Kind::Food, Kind::Animal, Kind::Trade];
}

/// Classes of verbs, by the object that they take or the subject.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum VerbKind {
    OfThing,
    OfFood,
    OfLiving,
    Alone,
    Object,
    Nature,
}

/// Every inflected word of the play.
pub struct Lexicon {
    nouns: [Vec<Noun>; 4],
    verbs: [Vec<Verb>; 6],
}

impl Lexicon {
    pub fn new() -> Self {
        let nouns = [words::THINGS, words::FOODS, words::ANIMALS, words::TRADES]
            .map(|list| list.split_whitespace().map(noun).collect());
        let lists = [
            words::V_THING,
            words::V_FOOD,
            words::V_LIVING,
            words::V_ALONE,
            words::V_OBJECT,
            words::V_NATURE,
        ];
        Self {
            nouns,
            verbs: lists.map(|list| list.split_whitespace().map(verb).collect()),
        }
    }

    pub fn nouns(&self, kind: Kind) -> &[Noun] {
        &self.nouns[kind as usize]
    }

    pub fn verbs(&self, kind: VerbKind) -> &[Verb] {
        &self.verbs[kind as usize]
    }
}

fn is_vowel(c: char) -> bool {
    "aeiou".contains(c)
}

/// Whether the word ends in a consonant and `y`.
fn ends_in_y(word: &str) -> bool {
    let mut back = word.chars().rev();
    back.next() == Some('y') && back.next().is_some_and(|c| !is_vowel(c))
}

/// The ending `s`, as nouns and verbs take it.
fn with_s(word: &str) -> String {
    if ends_in_y(word) {
        return format!("{}ies", &word[..word.len() - 1]);
    }
    let hissing = ["s", "sh", "ch", "x", "z"]
        .iter()
        .any(|end| word.ends_with(end));
    format!("{word}{}", if hissing { "es" } else { "s" })
}

fn noun(entry: &'static str) -> Noun {
    match entry.split_once('/') {
        Some((one, many)) => Noun {
            one,
            many: many.to_string(),
        },
        None => Noun {
            one: entry,
            many: with_s(entry),
        },
    }
}

fn verb(entry: &str) -> Verb {
    let mut forms = entry.split('/');
    let first = forms.next().unwrap_or(entry);
    let base = first.trim_end_matches('+');
    let stem = match base.chars().last() {
        Some(last) if first.ends_with('+') => format!("{base}{last}"),
        _ => base.to_string(),
    };
    let past = forms
        .next()
        .map_or_else(|| regular_past(base, &stem), str::to_string);
    let participle = forms.next().map_or_else(|| past.clone(), str::to_string);
    Verb {
        base: base.to_string(),
        third: with_s(base),
        ing: ing_form(base, &stem),
        past,
        participle,
    }
}

fn regular_past(base: &str, stem: &str) -> String {
    if base.ends_with('e') {
        format!("{base}d")
    } else if ends_in_y(base) {
        format!("{}ied", &base[..base.len() - 1])
    } else {
        format!("{stem}ed")
    }
}

fn ing_form(base: &str, stem: &str) -> String {
    if let Some(root) = base.strip_suffix("ie") {
        format!("{root}ying")
    } else if base.ends_with('e') && !base.ends_with("ee") {
        format!("{}ing", &base[..base.len() - 1])
    } else {
        format!("{stem}ing")
    }
}

/// The verb with its auxiliaries, as it stands after a subject.
pub fn conjugate(verb: &Verb, tense: Tense, agree: Agree, negative: bool) -> String {
    let not = if negative { "not " } else { "" };
    match (tense, negative) {
        (Tense::Past, false) => verb.past.clone(),
        (Tense::Present, false) if agree == Agree::One => verb.third.clone(),
        (Tense::Present, false) | (Tense::Bare, _) => verb.base.clone(),
        (Tense::Past | Tense::Present | Tense::Future, _) => {
            format!("{} {not}{}", auxiliary(tense, agree), verb.base)
        }
        (Tense::PastPerfect | Tense::Perfect, _) => {
            format!("{} {not}{}", auxiliary(tense, agree), verb.participle)
        }
        (Tense::PastProgressive | Tense::Progressive, _) => {
            format!("{} {not}{}", auxiliary(tense, agree), verb.ing)
        }
    }
}

/// The auxiliary of a question, a short answer or a negative.
pub fn auxiliary(tense: Tense, agree: Agree) -> &'static str {
    match (tense, agree) {
        (Tense::Past, _) => "did",
        (Tense::Present, Agree::One) => "does",
        (Tense::Present, _) => "do",
        (Tense::Future | Tense::Bare, _) => "will",
        (Tense::PastPerfect, _) => "had",
        (Tense::Perfect, Agree::One) => "has",
        (Tense::Perfect, _) => "have",
        (Tense::Progressive, _) => be(false, agree),
        (Tense::PastProgressive, _) => be(true, agree),
    }
}

/// The verb `be`, in the past or the present.
pub fn be(past: bool, agree: Agree) -> &'static str {
    match (past, agree) {
        (true, Agree::Many) => "were",
        (true, _) => "was",
        (false, Agree::I) => "am",
        (false, Agree::One) => "is",
        (false, Agree::Many) => "are",
    }
}
