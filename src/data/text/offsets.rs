//! Tables of offsets: where each sequence of each batch starts.

use std::io::Read;
use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::{DataError, MAX_BYTES, open};

/// The offsets of given batches, read from a CSV file.
///
/// The header is `step,o0,o1,..` (or `batch,o0,o1,..`) with one column for each
/// sequence of a batch; the first column counts 1, 2, 3 and so on. A sequence
/// of `block` characters at offset `o` has the input `part[o..o + block]` and the
/// target `part[o + 1..o + block + 1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offsets {
    /// For each batch, the offset in characters of each of its sequences.
    pub rows: Vec<Vec<u32>>,
}

/// What the table has to fit: sequences in a batch, characters in a sequence,
/// and characters in the part of the text that it points into.
struct Shape<'a> {
    path: &'a Path,
    batch: usize,
    block: usize,
    part_len: usize,
}

impl Offsets {
    /// Reads and checks a table for `batch` sequences of `block` characters from
    /// a part of `part_len` characters.
    ///
    /// # Errors
    /// `Missing`, `Directory`, `NotRegular`, `Unreadable`, `TooLarge`, and `Offsets` with the line for a
    /// header, a count, a number or an offset that does not fit.
    pub fn load(
        path: impl AsRef<Path>,
        batch: usize,
        block: usize,
        part_len: usize,
    ) -> Result<Self, DataError> {
        let path = path.as_ref();
        let file = open(path)?;
        // `open` takes no device or pipe; a table may still be too long.
        let length = file.metadata().map_or(0, |m| m.len());
        if length > MAX_BYTES {
            return Err(DataError::TooLarge {
                path: path.to_path_buf(),
                limit: MAX_BYTES,
            });
        }
        Self::from_reader(path, file.take(MAX_BYTES), batch, block, part_len)
    }

    /// As `load`, from the text of a table; `path` stands for it in messages.
    ///
    /// # Errors
    /// As `load`.
    pub fn from_reader(
        path: &Path,
        table: impl Read,
        batch: usize,
        block: usize,
        part_len: usize,
    ) -> Result<Self, DataError> {
        let shape = Shape {
            path,
            batch,
            block,
            part_len,
        };
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .from_reader(table);
        let mut rows = Vec::new();
        let mut header = false;
        for record in reader.records() {
            let record = record.map_err(|error| shape.unreadable(error))?;
            if header {
                rows.push(shape.row(&record, rows.len() + 1)?);
            } else {
                shape.check_header(&record)?;
                header = true;
            }
        }
        if rows.is_empty() {
            let (line, expected) = if header {
                (2, "1".to_string())
            } else {
                (1, shape.header())
            };
            let expected = format!("a line that starts with {expected}");
            return Err(shape.error(
                line,
                expected,
                "the end of the file",
                "add a line for each batch",
            ));
        }
        Ok(Self { rows })
    }
}

impl Shape<'_> {
    fn error(&self, line: u64, expected: String, found: &str, advice: &'static str) -> DataError {
        let path = self.path.to_path_buf();
        DataError::Offsets {
            path,
            line,
            expected,
            found: found.to_string(),
            advice,
        }
    }

    /// An error of the CSV reader: of the file system, or text that is no CSV.
    fn unreadable(&self, error: csv::Error) -> DataError {
        let line = error.position().map_or(1, csv::Position::line);
        let found = error.to_string();
        match error.into_kind() {
            csv::ErrorKind::Io(source) => DataError::Unreadable {
                path: self.path.to_path_buf(),
                source,
            },
            _ => self.error(
                line,
                "a line of CSV in UTF-8".to_string(),
                &found,
                "write the table anew",
            ),
        }
    }

    fn header(&self) -> String {
        let columns: Vec<String> = (0..self.batch).map(|column| format!("o{column}")).collect();
        format!("step,{}", columns.join(","))
    }

    fn check_header(&self, record: &StringRecord) -> Result<(), DataError> {
        const ADVICE: &str =
            "make the columns match the configured batch, or the batch the columns";
        let first = matches!(record.get(0), Some("step" | "batch"));
        let rest = record
            .iter()
            .skip(1)
            .enumerate()
            .all(|(at, name)| name == format!("o{at}"));
        if first && rest && record.len() == self.batch + 1 {
            return Ok(());
        }
        let expected = format!("the header {:?} (or \"batch\" first)", self.header());
        let found = format!("{:?}", joined(record));
        Err(self.error(line_of(record), expected, &found, ADVICE))
    }

    /// The offsets of batch `number`, which counts from 1.
    fn row(&self, record: &StringRecord, number: usize) -> Result<Vec<u32>, DataError> {
        let line = line_of(record);
        if record.len() != self.batch + 1 {
            let expected = format!("{} columns, as in the header", self.batch + 1);
            let found = format!("{} in {:?}", record.len(), joined(record));
            return Err(self.error(
                line,
                expected,
                &found,
                "give one offset for each sequence of the batch",
            ));
        }
        let first = record.get(0).unwrap_or_default();
        if first.parse() != Ok(number) {
            let expected = format!("{number} in the first column");
            let found = format!("{first:?}");
            return Err(self.error(
                line,
                expected,
                &found,
                "number the batches 1, 2, 3 and so on, without gaps",
            ));
        }
        record
            .iter()
            .skip(1)
            .enumerate()
            .map(|(column, field)| self.offset(line, column, field))
            .collect()
    }

    /// The offset in a field, if the sequence and its target fit into the part.
    fn offset(&self, line: u64, column: usize, field: &str) -> Result<u32, DataError> {
        let Some(last) = self.part_len.checked_sub(self.block.saturating_add(1)) else {
            let expected = format!(
                "a part of at least {} characters",
                self.block.saturating_add(1)
            );
            let found = format!("one of {}", self.part_len);
            return Err(self.error(
                line,
                expected,
                &found,
                "use a longer text or a smaller block",
            ));
        };
        match field.parse::<u32>() {
            Ok(offset) if offset as usize <= last => Ok(offset),
            Ok(_) => {
                let expected = format!(
                    "at most {last} in column o{column} (offset + block {} + 1 within the part's {} characters)",
                    self.block, self.part_len
                );
                Err(self.error(
                    line,
                    expected,
                    field,
                    "use the text and block that the offsets were made for",
                ))
            }
            Err(_) => {
                let expected = format!("an integer from 0 to {last} in column o{column}");
                let found = format!("{field:?}");
                Err(self.error(line, expected, &found, "write the offset in decimal digits"))
            }
        }
    }
}

fn line_of(record: &StringRecord) -> u64 {
    record.position().map_or(1, csv::Position::line)
}

fn joined(record: &StringRecord) -> String {
    record.iter().collect::<Vec<_>>().join(",")
}
