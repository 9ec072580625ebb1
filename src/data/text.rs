//! Char-level text: a vocabulary, the tokens of the training and validation
//! parts, and the offsets at which batches are cut from them.

mod offsets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use offsets::Offsets;

/// Largest text that is read, in bytes (1 GiB).
pub const MAX_BYTES: u64 = 1 << 30;

/// Largest vocabulary, in distinct characters.
pub const MAX_VOCAB: usize = 65_535;

/// At most this many unknown characters are named in an error.
const NAMED: usize = 10;

/// What can be wrong with a text or a table of offsets. Each message says
/// where, what was expected, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    #[error("{}: no such file; give the path of an existing file", path.display())]
    Missing { path: PathBuf },
    #[error("{}: is a directory, expected a file; give the path of a file in it", path.display())]
    Directory { path: PathBuf },
    #[error("{}: is no regular file but a device or pipe; give the path of a file on disk", path.display())]
    NotRegular { path: PathBuf },
    #[error("{}: cannot be read ({source}); check the file and its permissions", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{}: more than {limit} bytes, expected at most {limit} (1 GiB); split the text or use a part of it",
        path.display()
    )]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{name}: is empty, expected at least one character; give a file with text in it")]
    Empty { name: String },
    #[error(
        "{name}: not UTF-8 at byte {offset} (counted from 0); convert the file to UTF-8, for example with iconv"
    )]
    NotUtf8 { name: String, offset: usize },
    #[error(
        "{name}: {found} distinct characters, expected at most {MAX_VOCAB}; use a text with fewer distinct characters"
    )]
    TooManyChars { name: String, found: usize },
    #[error(
        "not in the vocabulary of {name}: {chars}; use only the {vocab} characters that occur in that text"
    )]
    UnknownChars {
        name: String,
        chars: String,
        vocab: usize,
    },
    #[error(
        "token {token} is not in the vocabulary of {name}, expected a number below {vocab}; decode only tokens of this text"
    )]
    UnknownToken {
        name: String,
        token: u32,
        vocab: usize,
    },
    #[error(
        "cannot download {name} from {url}: {why}; check the network, or give a text of yours with --data FILE, or another address in {mirror}"
    )]
    Download {
        name: &'static str,
        url: String,
        why: String,
        mirror: &'static str,
    },
    #[error("{}, line {line}: expected {expected}, found {found}; {advice}", path.display())]
    Offsets {
        path: PathBuf,
        line: u64,
        expected: String,
        found: String,
        advice: &'static str,
    },
}

/// A text as tokens. A token is the index of its character in `vocab`.
///
/// Every character of the file is data: carriage returns and a byte order mark
/// at the start are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The distinct characters of the whole text, by code point.
    pub vocab: Vec<char>,
    /// Tokens of the first nine tenths, `int(0.9 * len(data))` in Python.
    pub train: Vec<u32>,
    /// Tokens of the rest.
    pub val: Vec<u32>,
    /// SHA-256 of the UTF-8 bytes, in lower-case hexadecimal.
    pub sha256: String,
    /// Where the text came from: a path or a name, for messages.
    pub name: String,
}

impl Text {
    /// Tokens of a text in memory; `name` stands for it in messages.
    ///
    /// # Errors
    /// `Empty` and `TooManyChars`.
    // Not the trait's `from_str`: a text has a name besides its characters.
    #[allow(clippy::should_implement_trait)]
    pub fn from_str(name: &str, text: &str) -> Result<Self, DataError> {
        let vocab: Vec<char> = text.chars().collect::<BTreeSet<_>>().into_iter().collect();
        if vocab.is_empty() {
            return Err(DataError::Empty {
                name: name.to_string(),
            });
        }
        if vocab.len() > MAX_VOCAB {
            return Err(DataError::TooManyChars {
                name: name.to_string(),
                found: vocab.len(),
            });
        }
        let mut out = Self {
            vocab,
            train: Vec::new(),
            val: Vec::new(),
            sha256: hex(&Sha256::digest(text.as_bytes())),
            name: name.to_string(),
        };
        out.train = out.encode(text)?;
        out.val = out.train.split_off(train_len(out.train.len()));
        Ok(out)
    }

    /// Reads a text from a file in UTF-8.
    ///
    /// # Errors
    /// `Missing`, `Directory`, `NotRegular`, `Unreadable`, `TooLarge`, `NotUtf8`, and those of
    /// `from_str`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        Self::from_bytes(&path.display().to_string(), read(path, MAX_BYTES)?)
    }

    /// Tokens of a text in UTF-8; `name` stands for it in messages.
    ///
    /// # Errors
    /// `NotUtf8`, and those of `from_str`.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, DataError> {
        match String::from_utf8(bytes) {
            Ok(text) => Self::from_str(name, &text),
            Err(error) => Err(DataError::NotUtf8 {
                name: name.to_string(),
                offset: error.utf8_error().valid_up_to(),
            }),
        }
    }

    /// Tokens of any text that uses the vocabulary's characters.
    ///
    /// # Errors
    /// `UnknownChars`, with the characters that are not in the vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        encode(&self.vocab, &self.name, text)
    }

    /// The same text in another text's vocabulary; `name` is that text's.
    ///
    /// # Errors
    /// `UnknownChars`, with the characters that are not in the vocabulary.
    pub fn recoded(mut self, vocab: &[char], name: &str) -> Result<Self, DataError> {
        if self.vocab == vocab {
            return Ok(self);
        }
        let all: String = self.vocab.iter().collect();
        let map = encode(vocab, name, &all)?;
        for token in self.train.iter_mut().chain(&mut self.val) {
            *token = map[*token as usize];
        }
        self.vocab = vocab.to_vec();
        Ok(self)
    }

    /// The characters of tokens.
    ///
    /// # Errors
    /// `UnknownToken`, for a token that is not below `vocab.len()`.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, DataError> {
        let char_of = |&token: &u32| {
            let found = usize::try_from(token)
                .ok()
                .and_then(|at| self.vocab.get(at).copied());
            let (name, vocab) = (&self.name, self.vocab.len());
            found.ok_or_else(|| DataError::UnknownToken {
                name: name.clone(),
                token,
                vocab,
            })
        };
        tokens.iter().map(char_of).collect()
    }
}

/// Tokens of any text that uses the characters of a vocabulary, which ascends by code point. `name` is
/// that of the text that the vocabulary comes from.
///
/// # Errors
/// `UnknownChars`, with the characters that are not in the vocabulary.
pub fn encode(vocab: &[char], name: &str, text: &str) -> Result<Vec<u32>, DataError> {
    let mut unknown = BTreeSet::new();
    let tokens = text.chars().filter_map(|c| match vocab.binary_search(&c) {
        // A vocabulary has at most `MAX_VOCAB` entries, so an index fits.
        Ok(token) => Some(token as u32),
        Err(_) => {
            unknown.insert(c);
            None
        }
    });
    let tokens: Vec<u32> = tokens.collect();
    if unknown.is_empty() {
        return Ok(tokens);
    }
    Err(DataError::UnknownChars {
        name: name.to_string(),
        chars: list(&unknown),
        vocab: vocab.len(),
    })
}

/// Length of the training part of `len` characters: the product in f64, cut to
/// an integer, as Python's `int(0.9 * len(data))` does it.
fn train_len(len: usize) -> usize {
    (0.9 * len as f64) as usize
}

/// The first unknown characters with their code points.
fn list(chars: &BTreeSet<char>) -> String {
    let named: Vec<String> = chars
        .iter()
        .take(NAMED)
        .map(|&c| format!("{c:?} (U+{:04X})", u32::from(c)))
        .collect();
    match chars.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Bytes in lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The bytes of a file of at most `limit` bytes; no more than that is read, even
/// if the file grows meanwhile.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, DataError> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|source| DataError::Unreadable {
        path: path.to_path_buf(),
        source,
    })?;
    if bytes.len() as u64 > limit {
        return Err(DataError::TooLarge {
            path: path.to_path_buf(),
            limit,
        });
    }
    Ok(bytes)
}

/// Opens a regular file; a device or pipe may have no end.
fn open(path: &Path) -> Result<File, DataError> {
    let path_buf = || path.to_path_buf();
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => DataError::Missing { path: path_buf() },
        _ => DataError::Unreadable {
            path: path_buf(),
            source,
        },
    };
    let meta = std::fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        return Err(DataError::Directory { path: path_buf() });
    }
    // Before it is opened: to open a pipe waits for a writer.
    if !meta.is_file() {
        return Err(DataError::NotRegular { path: path_buf() });
    }
    File::open(path).map_err(failed)
}
