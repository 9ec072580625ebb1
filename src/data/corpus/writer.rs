//! Fills the templates: alternatives, and the slots of an exchange.

use super::Rng;
use super::lexicon::{Agree, Kind, Lexicon, Tense, VerbKind, auxiliary, be};
use super::scenes;
use super::words::{self, PEOPLE};

/// A noun phrase and what pronouns and verbs need to know of it.
pub struct Phrase {
    pub(super) text: String,
    pub(super) kind: Kind,
    pub(super) noun: usize,
    pub(super) plural: bool,
}

impl Phrase {
    pub(super) fn agree(&self) -> Agree {
        if self.plural { Agree::Many } else { Agree::One }
    }

    pub(super) fn subject(&self) -> &'static str {
        if self.plural { "they" } else { "it" }
    }

    pub(super) fn object(&self) -> &'static str {
        if self.plural { "them" } else { "it" }
    }
}

/// A question, and how the person addressed takes it up.
pub struct Question {
    pub(super) asked: String,
    pub(super) subject: &'static str,
    pub(super) aux: &'static str,
    pub(super) answer: String,
}

/// Numbers with `all = part + rest`.
struct Count {
    all: u64,
    part: u64,
    rest: u64,
}

/// Fills templates from the lexicon. What stays fixed during an exchange (its
/// topic, the absent person spoken of, the numbers) is set by `begin`.
pub struct Writer {
    pub rng: Rng,
    pub(super) lexicon: Lexicon,
    pub(super) props: [Vec<usize>; 4],
    pub(super) adjectives: [Vec<&'static str>; 4],
    /// Index into `PEOPLE` of who speaks, and of who is spoken to.
    pub speaker: usize,
    pub hearer: usize,
    pub third: usize,
    pub(super) absent: usize,
    pub(super) topic: Phrase,
    pub(super) topic_verb: usize,
    count: Count,
    question: Question,
    pub(super) nested: bool,
}

/// Number words from zero to twenty.
const NUMBERS: [&str; 21] = [
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

fn list(text: &'static str) -> Vec<&'static str> {
    text.split_whitespace().collect()
}

pub(super) fn verb_kind(kind: Kind) -> VerbKind {
    match kind {
        Kind::Thing => VerbKind::OfThing,
        Kind::Food => VerbKind::OfFood,
        Kind::Animal | Kind::Trade => VerbKind::OfLiving,
    }
}

impl Writer {
    pub fn new(rng: Rng) -> Self {
        let topic = Phrase {
            text: String::new(),
            kind: Kind::Thing,
            noun: 0,
            plural: false,
        };
        let question = Question {
            asked: String::new(),
            subject: "it",
            aux: "did",
            answer: String::new(),
        };
        Self {
            rng,
            lexicon: Lexicon::new(),
            props: [const { Vec::new() }; 4],
            adjectives: [
                words::THING_ADJ,
                words::FOOD_ADJ,
                words::MOODS,
                words::MOODS,
            ]
            .map(list),
            speaker: 0,
            hearer: 1,
            third: 2,
            absent: 3,
            topic,
            topic_verb: 0,
            count: Count {
                all: 2,
                part: 1,
                rest: 1,
            },
            question,
            nested: false,
        }
    }

    /// Chooses the things, foods, animals and trades that a scene returns to.
    pub fn begin_scene(&mut self) {
        for kind in Kind::ALL {
            let len = self.lexicon.nouns(kind).len();
            self.props[kind as usize] = (0..3).map(|_| self.rng.below(len)).collect();
        }
    }

    /// Chooses the topic, the absent person, the numbers and the question of
    /// an exchange between `speaker` and `hearer`.
    pub fn begin_exchange(&mut self) {
        self.absent = self.other();
        let kind = [Kind::Thing, Kind::Thing, Kind::Food, Kind::Animal][self.rng.below(4)];
        self.topic = self.definite(kind);
        self.topic_verb = self.rng.skewed(self.lexicon.verbs(verb_kind(kind)).len());
        let all = 3 + self.rng.below(10) as u64;
        let part = 1 + self.rng.below(all as usize - 1) as u64;
        self.count = Count {
            all,
            part,
            rest: all - part,
        };
        self.question = self.ask();
    }

    /// Fills a template and puts capitals and `an` where they belong.
    pub fn write(&mut self, template: &str) -> String {
        tidy(&self.expand(template))
    }

    /// Fills one of the templates, as `write` does.
    pub fn write_one(&mut self, templates: &[&str]) -> String {
        let template = templates[self.rng.below(templates.len())];
        self.write(template)
    }

    fn expand(&mut self, template: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '[']) {
            out.push_str(&rest[..at]);
            let end = closing(&rest[at..]) + at;
            let inside = &rest[at + 1..end];
            let filled = if rest[at..].starts_with('[') {
                self.slot(inside)
            } else {
                let parts = alternatives(inside);
                let chosen = parts[self.rng.below(parts.len())];
                self.expand(chosen)
            };
            out.push_str(&filled);
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        out
    }

    pub(super) fn of(&mut self, templates: &[&str]) -> String {
        let template = templates[self.rng.below(templates.len())];
        self.expand(template)
    }

    pub(super) fn word(&mut self, text: &'static str) -> String {
        let words = list(text);
        words[self.rng.skewed(words.len())].to_string()
    }

    /// Text of a slot that belongs to the exchange; `None` for a slot that is
    /// filled afresh each time.
    fn fixed_slot(&mut self, name: &str) -> Option<String> {
        let woman = PEOPLE[self.absent].woman;
        let topic = &self.topic;
        let verb = &self.lexicon.verbs(verb_kind(topic.kind))[self.topic_verb];
        let number = |n: u64| NUMBERS[n as usize].to_string();
        let text = match name {
            "you" => PEOPLE[self.hearer].name.to_string(),
            "third" => PEOPLE[self.third].name.to_string(),
            "saying" => PEOPLE[self.speaker]
                .saying
                .trim_end_matches(['.', '!'])
                .to_string(),
            "who" => PEOPLE[self.absent].name.to_string(),
            "he" | "heshe" => self.absent_pronoun().to_string(),
            "him" => if woman { "her" } else { "him" }.to_string(),
            "his" => if woman { "her" } else { "his" }.to_string(),
            "T" => topic.text.clone(),
            "t1" => self.noun_text(topic.kind, topic.noun, false),
            "ts" => self.noun_text(topic.kind, topic.noun, true),
            "it" => topic.subject().to_string(),
            "them" => topic.object().to_string(),
            "is" => be(false, topic.agree()).to_string(),
            "was" => be(true, topic.agree()).to_string(),
            "has" => auxiliary(Tense::Perfect, topic.agree()).to_string(),
            "vb" => verb.base.clone(),
            "vd" => verb.past.clone(),
            "vn" => verb.participle.clone(),
            "n" => number(self.count.all),
            "m" => number(self.count.part),
            "d" => number(self.count.rest),
            "mis" => if self.count.part == 1 { "is" } else { "are" }.to_string(),
            "dis" => if self.count.rest == 1 { "is" } else { "are" }.to_string(),
            "n2" => number(self.count.all + 1 + self.count.part % 7),
            "Q" => self.question.asked.clone(),
            "Qsub" => self.question.subject.to_string(),
            "Qyes" => format!("{} {}", self.question.subject, self.question.aux),
            "Qno" => format!("{} {} not", self.question.subject, self.question.aux),
            "Qfull" => self.question.answer.clone(),
            _ => return None,
        };
        Some(text)
    }

    /// Text of any slot.
    ///
    /// # Panics
    /// On a name that no template of this module's own may use.
    fn slot(&mut self, name: &str) -> String {
        if let Some(text) = self.fixed_slot(name) {
            return text;
        }
        match name {
            "past" => {
                let tense = self.past_tense();
                self.clause(tense)
            }
            "pres" => {
                let tense = self.present_tense();
                self.clause(tense)
            }
            "fut" => self.clause(Tense::Future),
            "nature" => {
                let tense = self.present_tense();
                self.nature(tense)
            }
            "proverb" => self.of(scenes::PROVERBS),
            "couplet" => self.couplet(),
            "vdone" => self.predicate(Kind::Trade, Tense::Past, Agree::One),
            "youdid" => self.predicate(Kind::Trade, Tense::Past, Agree::Many),
            "vbany" => self.predicate(Kind::Trade, Tense::Bare, Agree::Many),
            "vspres" => self.predicate(Kind::Trade, Tense::Present, Agree::One),
            "vnoun" => self.verb(VerbKind::OfThing).participle.clone(),
            "when" | "ago" => self.of(scenes::PAST_TIMES),
            "soon" => self.of(scenes::SOON),
            "place" => self.place(),
            "hour" => (1 + self.rng.below(12)).to_string(),
            "minute" => format!("{:02}", 5 * self.rng.below(12)),
            "small" => NUMBERS[2 + self.rng.below(8)].to_string(),
            "season" => self.of(&["winter", "summer", "spring", "autumn"]),
            "abs" => self.word(words::ABSTRACT),
            "mood" => self.adjective(Kind::Trade).to_string(),
            "adj" => self.adjective(self.topic.kind).to_string(),
            "tadj" => self.adjective(Kind::Thing).to_string(),
            "adv" => self.word(words::ADVERBS),
            other => self.noun_slot(other),
        }
    }

    fn noun_slot(&mut self, name: &str) -> String {
        let bare = |writer: &mut Self, kind, plural| {
            let noun = writer.noun(kind);
            writer.noun_text(kind, noun, plural)
        };
        match name {
            "things" => bare(self, Kind::Thing, true),
            "foods" => bare(self, Kind::Food, true),
            "animal1" => bare(self, Kind::Animal, false),
            "trade1" => bare(self, Kind::Trade, false),
            "amood" => format!("a {}", self.adjective(Kind::Animal)),
            "athing" => self.phrase("a", Kind::Thing, false).text,
            "afood" => self.phrase("a", Kind::Food, false).text,
            "aanimal" => self.phrase("a", Kind::Animal, false).text,
            "atrade" => self.phrase("a", Kind::Trade, false).text,
            "trade" => self.phrase("the", Kind::Trade, false).text,
            "animal" => self.phrase("the", Kind::Animal, false).text,
            "any" => {
                let kind = Kind::ALL[self.rng.below(3)];
                self.any(kind).text
            }
            other => panic!("the play's templates have no slot [{other}]"),
        }
    }

    /// Four lines of a song, the second rhyming with the fourth.
    fn couplet(&mut self) -> String {
        let endings = scenes::RHYMES[self.rng.below(scenes::RHYMES.len())];
        let first = self.rng.below(endings.len());
        let second = (first + 1 + self.rng.below(endings.len() - 1)) % endings.len();
        let burden = self.of(scenes::BURDENS);
        let [one, two, three] = [(); 3].map(|()| self.of(scenes::SONG_LINES));
        format!(
            "{one},\n{two} {},\n{burden}\n{three} {}.",
            endings[first], endings[second]
        )
    }
}

/// Byte index of the bracket that closes the one at the start of `text`.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    panic!("the play's templates leave a bracket open: {text}");
}

/// The parts of `text` between bars that stand outside inner braces.
fn alternatives(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            '|' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Capitals after the end of a sentence and at the start of a line; `an`
/// before a vowel.
fn tidy(text: &str) -> String {
    let chars: Vec<char> = text.trim().chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for (at, &c) in chars.iter().enumerate() {
        out.push(if start { c.to_ascii_uppercase() } else { c });
        start = match c {
            '.' | '?' | '!' | '\n' => true,
            ' ' => start,
            _ => false,
        };
        let alone = matches!(c, 'a' | 'A') && (at == 0 || matches!(chars[at - 1], ' ' | '\n'));
        let vowel = chars
            .get(at + 2)
            .is_some_and(|next| "aeiouAEIOU".contains(*next));
        if alone && vowel && chars.get(at + 1) == Some(&' ') {
            out.push('n');
        }
    }
    out
}
