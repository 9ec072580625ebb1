//! The built-in training text: a play, generated from a grammar.
//!
//! `dialogue` is used when no file is given. It is the same on every platform:
//! the choices come from integer arithmetic alone.

mod clauses;
mod lexicon;
mod scenes;
mod words;
mod writer;

use words::PEOPLE;
use writer::Writer;

/// The play ends with the first scene that reaches this many bytes.
const TARGET_BYTES: usize = 1_040_000;

/// Start of the random numbers.
const SEED: u64 = 0x1505_b175_70c4_a12e;

/// Longest line in bytes, unless one sentence alone is longer.
const LINE: usize = 76;

/// Random integers: splitmix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014).
pub(crate) struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An even choice of `0..n`, to within 2^-32; `n` is at least 1.
    fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }

    /// A choice of `0..n` that falls linearly, the first three times as likely
    /// as the last.
    fn skewed(&mut self, n: usize) -> usize {
        let (one, other) = (self.below(n), self.below(n));
        if self.chance(1, 2) {
            one.min(other)
        } else {
            one
        }
    }

    /// True in `part` of `all` cases.
    fn chance(&mut self, part: usize, all: usize) -> bool {
        self.below(all) < part
    }
}

/// A play in English-like dialogue, of about one million bytes of ASCII; the
/// same text at every call.
#[must_use]
pub fn dialogue() -> String {
    let mut play = Play {
        writer: Writer::new(Rng(SEED)),
        text: String::new(),
        act: 0,
        scene: 0,
        scenes: 0,
    };
    while play.text.len() < TARGET_BYTES {
        play.write_scene();
    }
    play.text.truncate(play.text.trim_end().len());
    play.text.push('\n');
    play.text
}

struct Play {
    writer: Writer,
    text: String,
    act: usize,
    /// Number of the scene in its act, and how many the act has.
    scene: usize,
    scenes: usize,
}

impl Play {
    fn write_scene(&mut self) {
        if self.scene == self.scenes {
            self.act += 1;
            self.scene = 0;
            self.scenes = 6 + self.writer.rng.below(9);
        }
        self.scene += 1;
        self.writer.begin_scene();
        let cast = self.choose_cast();
        self.write_heading(&cast);
        let mut speaker = cast[0];
        for _ in 0..6 + self.writer.rng.below(6) {
            speaker = self.write_exchange(&cast, speaker);
        }
        let leaves = format!(
            "{} {{goes out|leaves|hurries away|goes home}}{{, {{with|without|forgetting}} [athing]|, followed by [aanimal]|}}.",
            PEOPLE[speaker].name
        );
        let leaves = self.writer.write(&leaves);
        self.text.push_str(&leaves);
        self.text.push_str("\n\n");
    }

    /// Three or four of the company, none twice.
    fn choose_cast(&mut self) -> Vec<usize> {
        let size = 3 + self.writer.rng.below(2);
        let mut cast = Vec::new();
        while cast.len() < size {
            let who = self.writer.rng.below(PEOPLE.len());
            if !cast.contains(&who) {
                cast.push(who);
            }
        }
        cast
    }

    fn write_heading(&mut self, cast: &[usize]) {
        let [first, second] = [cast[0], cast[1]].map(|who| &PEOPLE[who]);
        let place = self.writer.write("[place]");
        let time = scenes::HEADINGS[self.writer.rng.below(scenes::HEADINGS.len())];
        let time = self.writer.write(&format!("x, {time}."));
        let enter = format!(
            "{{enter|here come}} {}, {}, and {}, {}{}. {} {{is already there|is waiting|follows|sits apart}}, [mood] and [mood].",
            first.name,
            first.trade,
            second.name,
            second.trade,
            scenes::COMPANY,
            PEOPLE[cast[2]].name
        );
        let enter = self.writer.write(&enter);
        let enter = fold(&[enter]);
        self.text.push_str(&format!(
            "ACT {}, SCENE {}. {place}{}\n\n{enter}\n\n",
            self.act,
            self.scene,
            &time[1..]
        ));
    }

    /// Speeches of two people in turn, the first of them `speaker`; returns
    /// who was asked to speak next.
    fn write_exchange(&mut self, cast: &[usize], speaker: usize) -> usize {
        let others: Vec<usize> = cast.iter().copied().filter(|&who| who != speaker).collect();
        let at = self.writer.rng.below(others.len());
        let hearer = others[at];
        let third = others[(at + 1) % others.len()];
        (self.writer.speaker, self.writer.hearer, self.writer.third) = (speaker, hearer, third);
        self.writer.begin_exchange();
        let exchange = &scenes::EXCHANGES[self.writer.rng.below(scenes::EXCHANGES.len())];
        self.speak(exchange.open, true, false);
        self.turn();
        self.speak(exchange.reply, false, false);
        self.turn();
        let closes = self.writer.rng.chance(3, 4);
        let hands_over = self.writer.rng.chance(1, 2);
        if closes {
            self.speak(exchange.close, false, hands_over);
        }
        match (closes, hands_over) {
            (true, true) => third,
            (true, false) => hearer,
            (false, _) => speaker,
        }
    }

    fn turn(&mut self) {
        std::mem::swap(&mut self.writer.speaker, &mut self.writer.hearer);
    }

    /// One speech from the templates, sometimes with a remark, and with a turn
    /// to the third person when asked for.
    fn speak(&mut self, templates: &[&str], opens: bool, hand_over: bool) {
        let mut sentences = Vec::new();
        if opens && self.writer.rng.chance(2, 5) {
            sentences.push(self.writer.write_one(scenes::REMARKS));
        }
        sentences.push(self.writer.write_one(templates));
        let song = sentences.iter().any(|sentence| sentence.contains('\n'));
        if !song && self.writer.rng.chance(1, 4) {
            sentences.push(self.writer.write_one(scenes::REMARKS));
        }
        if hand_over {
            sentences.push(self.writer.write_one(scenes::HANDOVERS));
        }
        let name = PEOPLE[self.writer.speaker].name.to_ascii_uppercase();
        self.text
            .push_str(&format!("{name}:\n{}\n\n", fold(&sentences)));
    }
}

/// Joins sentences with spaces, or with line ends where a line would exceed
/// `LINE`.
fn fold(sentences: &[String]) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in sentences.iter().flat_map(|sentence| sentence.split(' ')) {
        if width > 0 && width + word.len() >= LINE {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width = match word.rfind('\n') {
            Some(at) => word.len() - at - 1,
            None => width + word.len(),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use super::dialogue;

    /// Of the whole text; any change to words, templates or seed changes it.
    const FINGERPRINT: u64 = 0x3479_4e99_2a8d_13ed;

    /// Mean loss in nats per character, on the last tenth, of the model that
    /// knows the `order` characters before; `alpha` is added to every count.
    fn ngram_loss(text: &str, order: usize, alpha: f64) -> f64 {
        let bytes = text.as_bytes();
        let split = bytes.len() / 10 * 9;
        let symbols = bytes.iter().collect::<BTreeSet<_>>().len() as f64;
        let mut counts = std::collections::HashMap::<&[u8], u32>::new();
        for end in order..split {
            *counts.entry(&bytes[end - order..end]).or_default() += 1;
            *counts.entry(&bytes[end - order..=end]).or_default() += 1;
        }
        let count = |part: &[u8]| f64::from(counts.get(part).copied().unwrap_or(0));
        let losses = (split + order..bytes.len()).map(|end| {
            let both = count(&bytes[end - order..=end]) + alpha;
            -(both / (count(&bytes[end - order..end]) + alpha * symbols)).ln()
        });
        losses.sum::<f64>() / (bytes.len() - split - order) as f64
    }

    /// The bigram model with the smoothing that suits it best.
    fn bigram_loss(text: &str) -> f64 {
        let alphas = [0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 4.0];
        alphas
            .map(|alpha| ngram_loss(text, 1, alpha))
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }

    /// 64-bit FNV-1a.
    fn fingerprint(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn the_play_is_the_same_everywhere() {
        assert_eq!(
            fingerprint(&dialogue()),
            FINGERPRINT,
            "the built-in text has changed"
        );
    }

    #[test]
    fn size_and_characters_are_as_promised() {
        let text = dialogue();
        assert!(
            (1_000_000..=1_100_000).contains(&text.len()),
            "{} bytes",
            text.len()
        );
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte))
        );
        let distinct = text.bytes().collect::<BTreeSet<_>>().len();
        assert!(
            (55..=65).contains(&distinct),
            "{distinct} distinct characters"
        );
        assert!(text.ends_with(".\n") || text.ends_with("!\n") || text.ends_with("?\n"));
    }

    #[test]
    fn no_template_shows_and_sentences_are_tidy() {
        let text = dialogue();
        for wrong in [
            "[", "]", "{", "}", "|", "  ", " \n", "\n\n\n", " ,", " .", "..", ",,", "!.", "?.",
            " a a", " a e",
        ] {
            let found = text
                .find(wrong)
                .map(|at| &text[at.saturating_sub(60)..at + 2]);
            assert_eq!(found, None, "{wrong:?} in the text");
        }
        for paragraph in text.trim_end().split("\n\n") {
            assert!(
                paragraph.ends_with(['.', '!', '?']),
                "no end of sentence: {paragraph}"
            );
            assert!(
                paragraph.starts_with(|c: char| c.is_ascii_uppercase()),
                "no capital: {paragraph}"
            );
        }
    }

    #[test]
    fn no_passage_is_repeated() {
        let text = dialogue();
        let windows = text.as_bytes().windows(200);
        let all = windows.len();
        let distinct = windows.collect::<HashSet<_>>().len();
        assert_eq!(all, distinct);
    }

    #[test]
    fn context_helps_far_more_than_a_bigram() {
        let text = dialogue();
        let bigram = bigram_loss(&text);
        assert!((2.2..2.5).contains(&bigram), "bigram {bigram}");
        let longer = ngram_loss(&text, 4, 0.01);
        assert!(
            longer < bigram - 1.0,
            "bigram {bigram}, four characters before {longer}"
        );
        assert!(longer > 0.9, "trivially repetitive: {longer}");
    }
}
