//! Random changes of files, each a function of its number.

use isobit::kernels::rng::Stream;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Numbers that break things.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "255",
    "256",
    "65535",
    "65536",
    "65537",
    "1048576",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-0.0",
    "1e-320",
    "0.1",
    "nan",
    "inf",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
];

/// Words of the formats.
const WORDS: &[&str] = &[
    "[model]\n",
    "n_layer = 3\n",
    "\"dtype\":\"BF16\"",
    "\"shape\":[]",
    "\"data_offsets\":[0,0]",
    "__metadata__",
    "isobit",
    "fp32",
    "bf16",
    "mixed",
    "step,o0\n",
    "\n",
    "\r\n",
    "\"",
    "\\",
    ",",
    "\u{0}",
    "\u{feff}",
    "é",
    "😀",
    "[[a]]\n",
    "a.b.c = 1\n",
    "'''",
    "\\ud800",
    "[",
    "{",
    "]",
    "}",
];

/// Makes one input.
pub struct Mutator(Stream);

impl Mutator {
    pub fn new(stream: u32, number: u64) -> Mutator {
        Mutator(Stream::new(number, 0x4655_0000 + stream))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.below(n.max(1) as u64) as usize
    }

    /// One of the seeds with a few changes.
    pub fn change(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut out = seeds[self.below(seeds.len())].clone();
        for _ in 0..1 + self.below(4) {
            self.once(&mut out, seeds);
        }
        out
    }

    fn once(&mut self, x: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        // Headers come first in files, so half of the changes are near the start.
        let near = if self.below(2) == 0 {
            x.len()
        } else {
            x.len().min(64)
        };
        let at = self.below(near + 1).min(x.len());
        let span = self.below(16).min(x.len() - at);
        match self.below(11) {
            0 if at < x.len() => x[at] ^= 1 << self.below(8),
            1 if at < x.len() => x[at] = self.below(256) as u8,
            2 => drop(x.drain(at..at + span)),
            3 => {
                let copy = x[at..at + span].to_vec();
                x.splice(at..at, copy);
            }
            4 => x.truncate(at),
            5 => {
                let word = WORDS[self.below(WORDS.len())];
                x.splice(at..at, word.bytes());
            }
            6 | 7 => self.number(x),
            8 => {
                // The tail of another seed.
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1).min(other.len());
                x.truncate(at);
                x.extend(&other[from..]);
            }
            9 if x.len() >= 8 => {
                // What a safetensors header claims.
                let claims = [
                    0,
                    1,
                    7,
                    8,
                    x.len() as u64 - 8,
                    x.len() as u64,
                    1 << 26,
                    1 << 40,
                    u64::MAX,
                ];
                let claim = claims[self.below(claims.len())];
                x[..8].copy_from_slice(&claim.to_le_bytes());
            }
            _ => {
                let filler = self.below(256) as u8;
                let n = self.below(64);
                x.splice(at..at, std::iter::repeat_n(filler, n));
            }
        }
    }

    /// Replaces a run of digits by a number that breaks things.
    fn number(&mut self, x: &mut Vec<u8>) {
        let from = self.below(x.len() + 1).min(x.len());
        let Some(start) = x[from..]
            .iter()
            .position(u8::is_ascii_digit)
            .map(|i| i + from)
        else {
            return;
        };
        let end = x[start..]
            .iter()
            .position(|b| !b.is_ascii_digit())
            .map_or(x.len(), |i| i + start);
        let number = NUMBERS[self.below(NUMBERS.len())];
        x.splice(start..end, number.bytes());
    }
}

/// A seed checkpoint with changed metadata, or with a changed tensor, under a valid seal: what the seal
/// would stop gets past it. The seal is computed here from the documented rule, not by the program.
pub fn reseal(m: &mut Mutator, seeds: &[Vec<u8>]) -> Option<Vec<u8>> {
    let seed = &seeds[m.below(seeds.len())];
    let (_, head) = safetensors::SafeTensors::read_metadata(seed).ok()?;
    let file = safetensors::SafeTensors::deserialize(seed).ok()?;
    let text = head.metadata().as_ref()?.get("isobit")?.clone();
    let at = text
        .find("\"sha256\":\"")
        .map(|_| text.rfind("\"sha256\":\""))??
        + 10;
    let zeros = "0".repeat(64);
    let mut text = text[..at].to_string() + &zeros + &text[at + 64..];
    let mut tensors: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(n, t)| (n, t.dtype(), t.shape().to_vec(), t.data().to_vec()))
        .collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    if m.below(4) == 0 {
        let i = m.below(tensors.len());
        let bytes = &mut tensors[i].3;
        let j = m.below(bytes.len());
        if let Some(b) = bytes.get_mut(j) {
            *b ^= 1 << m.below(8);
        }
    } else {
        let mut bytes = text.into_bytes();
        for _ in 0..1 + m.below(2) {
            match m.below(3) {
                0 => m.once(&mut bytes, seeds),
                _ => m.number(&mut bytes),
            }
        }
        text = String::from_utf8(bytes).ok()?;
    }
    let mut hash = Sha256::new();
    hash.update(&text);
    for (name, dtype, dims, data) in &tensors {
        hash.update(format!("\n{name} {dtype:?} {dims:?}\n"));
        hash.update(data);
    }
    let seal: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    let at = text.rfind(&zeros)?;
    text.replace_range(at..at + 64, &seal);
    let views: Option<Vec<_>> = tensors
        .iter()
        .map(|(n, d, s, b)| {
            let view = safetensors::tensor::TensorView::new(*d, s.clone(), b).ok()?;
            Some((n.as_str(), view))
        })
        .collect();
    safetensors::serialize(views?, Some(HashMap::from([("isobit".to_string(), text)]))).ok()
}
