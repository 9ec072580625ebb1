//! Noun phrases, clauses and questions of the generated play.

use super::lexicon::{Agree, Kind, Noun, Tense, Verb, VerbKind, auxiliary, be, conjugate};
use super::scenes;
use super::words::{self, PEOPLE};
use super::writer::{Phrase, Question, Writer, verb_kind};

impl Writer {
    pub(super) fn verb(&mut self, kind: VerbKind) -> &Verb {
        let verbs = self.lexicon.verbs(kind);
        &verbs[self.rng.skewed(verbs.len())]
    }

    /// A noun: half the time one of those that the scene returns to.
    pub(super) fn noun(&mut self, kind: Kind) -> usize {
        let props = &self.props[kind as usize];
        if !props.is_empty() && self.rng.chance(1, 4) {
            return props[self.rng.below(props.len())];
        }
        self.rng.skewed(self.lexicon.nouns(kind).len())
    }

    pub(super) fn noun_text(&self, kind: Kind, noun: usize, plural: bool) -> String {
        let Noun { one, many } = &self.lexicon.nouns(kind)[noun];
        if plural {
            many.clone()
        } else {
            (*one).to_string()
        }
    }

    pub(super) fn adjective(&mut self, kind: Kind) -> &'static str {
        let words = &self.adjectives[kind as usize];
        words[self.rng.skewed(words.len())]
    }

    /// A noun with adjectives, and sometimes what it did or where it is.
    pub(super) fn phrase(&mut self, determiner: &str, kind: Kind, plural: bool) -> Phrase {
        let mut text = determiner.to_string();
        if self.rng.chance(1, 2) {
            text = format!("{text} {}", self.adjective(kind));
            if self.rng.chance(1, 5) {
                text = format!("{text}, {}", self.adjective(kind));
            }
        }
        let noun = self.noun(kind);
        text = format!("{text} {}", self.noun_text(kind, noun, plural));
        if !self.nested && self.rng.chance(1, 9) {
            self.nested = true;
            let tail = self.relative(kind, plural);
            self.nested = false;
            text = format!("{text} {tail}");
        }
        Phrase {
            text: text.trim().to_string(),
            kind,
            noun,
            plural,
        }
    }

    pub(super) fn relative(&mut self, kind: Kind, plural: bool) -> String {
        let agree = if plural { Agree::Many } else { Agree::One };
        let who = if kind == Kind::Trade { "who" } else { "that" };
        match (self.rng.below(3), kind) {
            (0, _) => self.place(),
            (_, Kind::Animal | Kind::Trade) => {
                format!("{who} {}", self.predicate(kind, Tense::Past, agree))
            }
            (1, _) => {
                let name = self.name();
                format!("that {name} {}", self.verb(verb_kind(kind)).past)
            }
            _ => {
                let trade = self.noun(Kind::Trade);
                let trade = self.noun_text(Kind::Trade, trade, false);
                format!("that the {trade} {}", self.verb(verb_kind(kind)).past)
            }
        }
    }

    /// `the kettle`, `those goats`, `Ilse's lamp`: without `my` and `your`,
    /// so that both speakers can say it.
    pub(super) fn definite(&mut self, kind: Kind) -> Phrase {
        let plural = self.rng.chance(1, 4);
        let determiner = match (self.rng.below(6), plural) {
            (0, false) => "that".to_string(),
            (0, true) => "those".to_string(),
            (1, _) if kind != Kind::Trade && self.rng.chance(1, 2) => format!("{}'s", self.name()),
            (1, _) if kind != Kind::Trade => format!("{}'s", self.notable()),
            (2, _) if kind != Kind::Trade => {
                let trade = self.noun(Kind::Trade);
                format!("the {}'s", self.noun_text(Kind::Trade, trade, false))
            }
            _ => "the".to_string(),
        };
        self.phrase(&determiner, kind, plural)
    }

    pub(super) fn indefinite(&mut self, kind: Kind) -> Phrase {
        let plural = self.rng.chance(1, 4);
        let determiner = if plural {
            self.of(&["some", "[small]", "[small]", "a few", "many"])
        } else {
            self.of(&["a", "a", "a", "another"])
        };
        self.phrase(&determiner, kind, plural)
    }

    pub(super) fn any(&mut self, kind: Kind) -> Phrase {
        match self.rng.below(6) {
            0 | 1 => self.indefinite(kind),
            2 => {
                let plural = self.rng.chance(1, 4);
                let determiner = ["my", "my", "your", "our"][self.rng.below(4)];
                self.phrase(determiner, kind, plural)
            }
            _ => self.definite(kind),
        }
    }

    /// Somebody other than the two who talk: an index into `PEOPLE`.
    pub(super) fn other(&mut self) -> usize {
        loop {
            let who = self.rng.below(PEOPLE.len());
            if who != self.speaker && who != self.hearer {
                return who;
            }
        }
    }

    pub(super) fn name(&mut self) -> &'static str {
        PEOPLE[self.other()].name
    }

    /// A village or family of two or three syllables.
    fn made_up_name(&mut self) -> String {
        let parts = [words::NAME_STARTS, words::NAME_MIDDLES, words::NAME_ENDS].map(|part| {
            let parts: Vec<&str> = part.split_whitespace().collect();
            parts[self.rng.below(parts.len())].trim_matches('-')
        });
        parts.concat()
    }

    /// `old Doctor Thornwick`.
    fn notable(&mut self) -> String {
        let title = self.of(&[
            "Mr",
            "Mrs",
            "Miss",
            "Captain",
            "Doctor",
            "Lady",
            "Lord",
            "old Mr",
            "old Mrs",
            "young Master",
        ]);
        format!("{title} {}", self.made_up_name())
    }

    /// `on the bridge`, `near the bridge`.
    pub(super) fn place(&mut self) -> String {
        let place = words::PLACES[self.rng.skewed(words::PLACES.len())];
        let site = place.split_once(" the ").map(|(_, site)| site);
        match site {
            _ if self.rng.chance(1, 4) => {
                let road = self.of(&[
                    "in",
                    "near",
                    "on the road to",
                    "between here and",
                    "at the fair of",
                    "far from",
                ]);
                format!("{road} {}", self.made_up_name())
            }
            Some(site) if self.rng.chance(1, 2) => {
                let near = self.of(&[
                    "near",
                    "beside",
                    "behind",
                    "outside",
                    "not far from",
                    "opposite",
                ]);
                let quality = self.of(&[
                    "", "", "", " old", " new", " empty", " other", " haunted", " little",
                ]);
                format!("{near} the{quality} {site}")
            }
            _ => place.to_string(),
        }
    }

    /// A verb with object, manner, place or time, agreeing with its subject.
    pub(super) fn predicate(&mut self, subject: Kind, tense: Tense, agree: Agree) -> String {
        self.predicate_of(subject, tense, agree, false)
    }

    fn predicate_of(
        &mut self,
        subject: Kind,
        tense: Tense,
        agree: Agree,
        negative: bool,
    ) -> String {
        let alive = matches!(subject, Kind::Animal | Kind::Trade);
        let (kind, object) = match self.rng.below(if alive { 8 } else { 4 }) {
            0 => return self.description(subject, tense, agree),
            1..=3 if alive => (VerbKind::Alone, None),
            1..=3 => (VerbKind::Object, None),
            4 | 5 => (VerbKind::OfThing, Some(Kind::Thing)),
            6 => (VerbKind::OfFood, Some(Kind::Food)),
            _ => (
                VerbKind::OfLiving,
                Some(if self.rng.chance(1, 2) {
                    Kind::Animal
                } else {
                    Kind::Trade
                }),
            ),
        };
        let mut text = conjugate(self.verb(kind), tense, agree, negative);
        if let Some(kind) = object {
            text = format!("{text} {}", self.any(kind).text);
        }
        match self.rng.below(9) {
            0 | 1 => format!("{text} {}", self.word(words::ADVERBS)),
            2 | 3 => format!("{text} {}", self.place()),
            4 if matches!(tense, Tense::Past | Tense::PastProgressive) => {
                format!("{text} {}", self.of(scenes::PAST_TIMES))
            }
            4 if tense == Tense::Future => format!("{text} {}", self.of(scenes::SOON)),
            4 if tense == Tense::Present => format!(
                "{text} {}",
                self.of(&["every {day|night|week|summer}", "on {Mondays|Sundays}"])
            ),
            _ => text,
        }
    }

    /// `was hungry`, `will be empty and cracked`.
    pub(super) fn description(&mut self, subject: Kind, tense: Tense, agree: Agree) -> String {
        let adjective = self.adjective(subject);
        let verb = match tense {
            Tense::Bare => "be",
            Tense::Future => "will be",
            Tense::Perfect if agree == Agree::One => "has been",
            Tense::Perfect => "have been",
            Tense::PastPerfect => "had been",
            Tense::Past | Tense::PastProgressive => be(true, agree),
            Tense::Present | Tense::Progressive => be(false, agree),
        };
        let degree = ["", "", "", " very", " too", " quite", " rather", " as"][self.rng.below(8)];
        match degree {
            " as" => format!("{verb} as {adjective} as {}", self.indefinite(subject).text),
            "" if self.rng.chance(1, 4) => {
                format!("{verb} {adjective} and {}", self.adjective(subject))
            }
            _ => format!("{verb}{degree} {adjective}"),
        }
    }

    /// A whole clause. `you` is whoever is spoken to.
    pub(super) fn clause(&mut self, tense: Tense) -> String {
        let (subject, kind, agree) = match self.rng.below(24) {
            0..=3 => ("I".to_string(), Kind::Trade, Agree::I),
            4 => ("we".to_string(), Kind::Trade, Agree::Many),
            5 => ("you".to_string(), Kind::Trade, Agree::Many),
            6 => (
                self.of(&["nobody", "somebody", "everybody", "no one else"]),
                Kind::Trade,
                Agree::One,
            ),
            7..=9 => (self.name().to_string(), Kind::Trade, Agree::One),
            10 => return self.nature(tense),
            20..=23 => (self.notable(), Kind::Trade, Agree::One),
            other => {
                let kind = match other {
                    11..=13 => Kind::Trade,
                    14..=16 => Kind::Animal,
                    17 | 18 => Kind::Thing,
                    _ => Kind::Food,
                };
                let phrase = self.any(kind);
                let agree = phrase.agree();
                (phrase.text, kind, agree)
            }
        };
        let negative = self.rng.chance(1, 10);
        format!(
            "{subject} {}",
            self.predicate_of(kind, tense, agree, negative)
        )
    }

    pub(super) fn nature(&mut self, tense: Tense) -> String {
        let subject = self.word(words::NATURE);
        let verb = conjugate(self.verb(VerbKind::Nature), tense, Agree::One, false);
        format!(
            "the {subject} {verb}{}",
            self.of(&[
                "",
                "",
                " early",
                " late",
                " again",
                " over the {hills|roofs|fields|water}"
            ])
        )
    }

    pub(super) fn past_tense(&mut self) -> Tense {
        [
            Tense::Past,
            Tense::Past,
            Tense::Past,
            Tense::Past,
            Tense::PastProgressive,
            Tense::PastPerfect,
        ][self.rng.below(6)]
    }

    pub(super) fn present_tense(&mut self) -> Tense {
        [
            Tense::Present,
            Tense::Present,
            Tense::Progressive,
            Tense::Perfect,
        ][self.rng.below(4)]
    }

    /// A question about somebody's doing, with the answer's pronouns.
    pub(super) fn ask(&mut self) -> Question {
        let tense = [Tense::Past, Tense::Past, Tense::Future, Tense::Perfect][self.rng.below(4)];
        let (who, subject) = match self.rng.below(5) {
            0 => ("you".to_string(), "I"),
            1 | 2 => (PEOPLE[self.absent].name.to_string(), self.absent_pronoun()),
            3 => {
                let animal = self.definite(Kind::Animal);
                (animal.text.clone(), animal.subject())
            }
            _ => (self.topic_owner(), "he"),
        };
        let asked_as = if matches!(subject, "I" | "they") {
            Agree::Many
        } else {
            Agree::One
        };
        let kind = self.topic.kind;
        let verb = &self.lexicon.verbs(verb_kind(kind))[self.topic_verb];
        let form = if tense == Tense::Perfect {
            &verb.participle
        } else {
            &verb.base
        };
        let asked = format!(
            "{} {who} {form} {}",
            auxiliary(tense, asked_as),
            self.topic.text
        );
        let answer = format!(
            "{subject} {} {}",
            conjugate(verb, tense, asked_as, false),
            self.topic.object()
        );
        Question {
            asked,
            subject,
            aux: auxiliary(tense, asked_as),
            answer,
        }
    }

    pub(super) fn topic_owner(&mut self) -> String {
        let trade = self.noun(Kind::Trade);
        format!("the {}", self.noun_text(Kind::Trade, trade, false))
    }

    pub(super) fn absent_pronoun(&self) -> &'static str {
        if PEOPLE[self.absent].woman {
            "she"
        } else {
            "he"
        }
    }
}
