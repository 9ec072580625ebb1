//! Every error of texts and offsets, and what a good text gives.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{DataError, MAX_VOCAB, Offsets, Text, read, train_len};

/// A file that is removed when the test ends.
struct Temp(PathBuf);

impl Temp {
    fn new(bytes: &[u8]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("isobit-text-{}-{number}", std::process::id()));
        fs::write(&path, bytes).expect("a temporary file");
        Self(path)
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn text(text: &str) -> Text {
    Text::from_str("sample", text).expect("a good text")
}

#[test]
fn vocabulary_is_sorted_and_the_split_is_nine_tenths() {
    let text = text("hello world, été 🙂\n!");
    assert!(text.vocab.windows(2).all(|pair| pair[0] < pair[1]));
    let len = "hello world, été 🙂\n!".chars().count();
    assert_eq!((text.train.len(), text.val.len()), (18, len - 18));
    let all: Vec<u32> = text.train.iter().chain(&text.val).copied().collect();
    assert_eq!(
        text.decode(&all).expect("known tokens"),
        "hello world, été 🙂\n!"
    );
}

#[test]
fn the_split_is_pythons() {
    // int(0.9 * n) in Python 3.
    for (n, expected) in [
        (0, 0),
        (1, 0),
        (2, 1),
        (10, 9),
        (11, 9),
        (19, 17),
        (40_037, 36_033),
        (1_115_394, 1_003_854),
    ] {
        assert_eq!(train_len(n), expected, "{n}");
    }
}

#[test]
fn sha256_is_of_the_bytes() {
    assert_eq!(
        text("abc").sha256,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn carriage_returns_and_a_byte_order_mark_are_kept() {
    let file = Temp::new("\u{feff}one\r\ntwo\r\n".as_bytes());
    let text = Text::load(&file.0).expect("a good file");
    assert!(text.vocab.contains(&'\r') && text.vocab.contains(&'\u{feff}'));
    assert_eq!(text.train.len() + text.val.len(), 11);
    assert_eq!(text.name, file.0.display().to_string());
}

#[test]
fn unknown_characters_are_named() {
    let message = text("abc")
        .encode("cab é\n")
        .expect_err("unknown")
        .to_string();
    assert!(
        message.contains("'é' (U+00E9)") && message.contains(r"'\n' (U+000A)"),
        "{message}"
    );
    assert!(
        message.contains("sample") && message.contains("3 characters"),
        "{message}"
    );
    let message = text("a")
        .encode("bcdefghijklmn")
        .expect_err("unknown")
        .to_string();
    assert!(message.contains("and 3 more"), "{message}");
}

#[test]
fn unknown_tokens_are_named() {
    let message = text("abc")
        .decode(&[0, 3])
        .expect_err("unknown")
        .to_string();
    assert!(
        message.contains("token 3") && message.contains("below 3"),
        "{message}"
    );
}

#[test]
fn missing_file() {
    let file = Temp::new(b"");
    let path = file.0.with_extension("absent");
    assert!(matches!(Text::load(&path), Err(DataError::Missing { .. })));
    assert!(matches!(
        Offsets::load(&path, 1, 1, 9),
        Err(DataError::Missing { .. })
    ));
}

#[test]
fn directory() {
    let path = std::env::temp_dir();
    assert!(matches!(
        Text::load(&path),
        Err(DataError::Directory { .. })
    ));
    assert!(matches!(
        Offsets::load(&path, 1, 1, 9),
        Err(DataError::Directory { .. })
    ));
}

/// A path through a file is an error of the file system other than `NotFound`.
#[test]
#[cfg(unix)]
fn unreadable_file() {
    let file = Temp::new(b"text");
    let path = file.0.join("below");
    let error = Text::load(&path).expect_err("no file");
    assert!(matches!(error, DataError::Unreadable { .. }), "{error}");
}

#[test]
fn empty_file() {
    let file = Temp::new(b"");
    let error = Text::load(&file.0).expect_err("empty");
    assert!(matches!(error, DataError::Empty { .. }));
    assert!(
        error.to_string().contains(&file.0.display().to_string()),
        "{error}"
    );
}

#[test]
fn not_utf8_names_the_byte() {
    let file = Temp::new(b"caf\xe9 au lait");
    assert!(matches!(
        Text::load(&file.0),
        Err(DataError::NotUtf8 { offset: 3, .. })
    ));
}

#[test]
fn too_large_is_refused() {
    let file = Temp::new(b"12345");
    assert_eq!(read(&file.0, 5).expect("five bytes"), b"12345");
    assert!(matches!(
        read(&file.0, 4),
        Err(DataError::TooLarge { limit: 4, .. })
    ));
}

#[test]
fn too_many_distinct_characters() {
    let chars = |count| {
        (0..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            .take(count)
    };
    let most: String = chars(MAX_VOCAB).collect();
    assert_eq!(text(&most).vocab.len(), MAX_VOCAB);
    let more: String = chars(MAX_VOCAB + 1).collect();
    assert!(matches!(
        Text::from_str("sample", &more),
        Err(DataError::TooManyChars { found: 65_536, .. })
    ));
}

/// The table for two sequences of four characters from a part of ten.
fn offsets(table: &str) -> Result<Offsets, DataError> {
    let file = Temp::new(table.as_bytes());
    Offsets::load(&file.0, 2, 4, 10)
}

#[test]
fn good_offsets() {
    for table in [
        "step,o0,o1\n1,0,5\n2,3,4\n",
        "batch,o0,o1\r\n1, 0, 5\r\n2,3,4",
    ] {
        assert_eq!(offsets(table).expect("a good table").rows, [[0, 5], [3, 4]]);
    }
}

/// The message names the line, what was expected and what was found.
fn assert_refused(table: &str, parts: &[&str]) {
    let error = offsets(table).expect_err("a bad table");
    assert!(matches!(error, DataError::Offsets { .. }), "{error}");
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
}

#[test]
fn wrong_header() {
    let header = r#"the header "step,o0,o1""#;
    assert_refused("step,o0\n1,0\n", &["line 1", header, r#"found "step,o0""#]);
    assert_refused("step,o0,o1,o2\n1,0,0,0\n", &["line 1", header, "batch"]);
    assert_refused("step,o1,o0\n1,0,0\n", &["line 1", header]);
    assert_refused("1,0,5\n", &["line 1", header]);
}

#[test]
fn no_rows() {
    assert_refused("", &["line 1", "step,o0,o1", "end of the file"]);
    assert_refused("step,o0,o1\n", &["line 2", "end of the file"]);
}

#[test]
fn wrong_column_count() {
    assert_refused("step,o0,o1\n1,0,5\n2,3\n", &["line 3", "3 columns", "2 in"]);
}

#[test]
fn gap_in_the_first_column() {
    assert_refused(
        "step,o0,o1\n1,0,5\n3,3,4\n",
        &["line 3", "expected 2", r#"found "3""#],
    );
    assert_refused("step,o0,o1\n0,0,5\n", &["line 2", "expected 1"]);
    assert_refused("step,o0,o1\none,0,5\n", &["line 2", "expected 1", "one"]);
}

#[test]
fn offset_that_is_no_integer() {
    for bad in ["x", "-1", "1.5", "", "99999999999"] {
        let table = format!("step,o0,o1\n1,0,{bad}\n");
        assert_refused(&table, &["line 2", "integer from 0 to 5", "column o1", bad]);
    }
}

#[test]
fn offset_past_the_end() {
    assert_refused(
        "step,o0,o1\n1,6,0\n",
        &["line 2", "at most 5", "column o0", "found 6"],
    );
}

#[test]
fn part_shorter_than_a_sequence() {
    let file = Temp::new(b"step,o0\n1,0\n");
    let message = Offsets::load(&file.0, 1, 4, 4)
        .expect_err("too short")
        .to_string();
    assert!(message.contains("at least 5 characters"), "{message}");
    assert_eq!(
        Offsets::load(&file.0, 1, 4, 5).expect("just fits").rows,
        [[0]]
    );
}

#[test]
fn table_that_is_not_utf8() {
    let file = Temp::new(b"step,o0\n1,\xff\n");
    let message = Offsets::load(&file.0, 1, 4, 10)
        .expect_err("not UTF-8")
        .to_string();
    assert!(
        message.contains("line 2") && message.contains("UTF-8"),
        "{message}"
    );
}
