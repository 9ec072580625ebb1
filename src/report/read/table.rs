//! One CSV file, read strictly: what it does not say clearly is an error of one line.

use crate::error::{Error, usage};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Largest CSV file that is read. A million steps are some 60 MiB.
const LARGEST: u64 = 256 << 20;
/// Longest field.
const LONGEST: usize = 4096;

/// A CSV file with a header: every row has as many fields as it.
pub struct Table {
    path: PathBuf,
    header: Vec<String>,
    rows: Vec<csv::StringRecord>,
}

/// A field's place, for its error.
#[derive(Clone, Copy)]
pub struct Place(usize, usize);

impl Table {
    /// Reads a file that must have these columns; others may be there too. `None` where there is no
    /// such file.
    ///
    /// # Errors
    /// No regular file, one that is too large, no UTF-8, torn or of other columns.
    pub fn read(path: &Path, columns: &[&str]) -> Result<Option<Table>, Error> {
        let Some(text) = text(path, LARGEST)? else {
            return Ok(None);
        };
        Table::parse(path, &text, columns).map(Some)
    }

    fn parse(path: &Path, text: &str, columns: &[&str]) -> Result<Table, Error> {
        let fail = |why: String| usage(format!("{}: {why}", path.display()));
        let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
        let header = match reader.headers() {
            Ok(h) => h.iter().map(String::from).collect::<Vec<_>>(),
            Err(e) => return fail(one_line(&e)),
        };
        for (i, want) in columns.iter().enumerate() {
            if !header.iter().any(|h| h == want) {
                return fail(format!(
                    "has no column `{want}`; wanted are {}",
                    columns.join(", ")
                ));
            }
            debug_assert!(!columns[..i].contains(want), "a column named twice");
        }
        // A file that ends inside a row may end inside a number.
        if !text.ends_with('\n') {
            return fail("ends inside a row: the file is torn".into());
        }
        let mut rows = Vec::new();
        for row in reader.records() {
            match row {
                Ok(r) if r.iter().any(|f| f.len() > LONGEST) => {
                    return fail(format!("row {}: a field is too long", rows.len() + 1));
                }
                Ok(r) => rows.push(r),
                Err(e) => return fail(one_line(&e)),
            }
        }
        let path = path.to_path_buf();
        Ok(Table { path, header, rows })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether it has a column.
    pub fn has(&self, column: &str) -> bool {
        self.header.iter().any(|h| h == column)
    }

    fn place(&self, row: usize, column: &str) -> Place {
        let c = self.header.iter().position(|h| h == column);
        Place(row, c.unwrap_or(usize::MAX))
    }

    /// A field's text; empty where the column is not there.
    pub fn text(&self, row: usize, column: &str) -> &str {
        let Place(r, c) = self.place(row, column);
        self.rows[r].get(c).unwrap_or("")
    }

    fn refuse<T>(&self, row: usize, column: &str, why: &str) -> Result<T, Error> {
        usage(format!(
            "{}: row {}, column {column}: {why}",
            self.path.display(),
            row + 1
        ))
    }

    fn value<T: FromStr>(&self, row: usize, column: &str, kind: &str) -> Result<T, Error> {
        let text = self.text(row, column);
        match text.trim().parse() {
            Ok(v) => Ok(v),
            Err(_) => {
                let shown: String = text.chars().take(40).collect();
                self.refuse(row, column, &format!("`{shown}` is not {kind}"))
            }
        }
    }

    /// A finite number within bounds.
    ///
    /// # Errors
    /// Anything else.
    pub fn number(&self, row: usize, column: &str, low: f64, high: f64) -> Result<f64, Error> {
        let v: f64 = self.value(row, column, "a number")?;
        if v.is_finite() && (low..=high).contains(&v) {
            return Ok(v);
        }
        self.refuse(
            row,
            column,
            &format!("{v} is not a finite number from {low} to {high}"),
        )
    }

    /// As [`Table::number`], or none where the field is empty.
    ///
    /// # Errors
    /// As [`Table::number`].
    pub fn maybe(
        &self,
        row: usize,
        column: &str,
        low: f64,
        high: f64,
    ) -> Result<Option<f64>, Error> {
        self.unless(&[""], (row, column), low, high)
    }

    /// A number within bounds, or none where the field says that there is none: a run that has gone astray
    /// writes `NaN` and `inf`.
    ///
    /// # Errors
    /// As [`Table::number`].
    pub fn astray(
        &self,
        row: usize,
        column: &str,
        low: f64,
        high: f64,
    ) -> Result<Option<f64>, Error> {
        self.unless(&["NaN", "inf", "-inf"], (row, column), low, high)
    }

    fn unless(
        &self,
        absent: &[&str],
        (row, column): (usize, &str),
        low: f64,
        high: f64,
    ) -> Result<Option<f64>, Error> {
        match absent.contains(&self.text(row, column).trim()) {
            true => Ok(None),
            false => self.number(row, column, low, high).map(Some),
        }
    }

    /// A count.
    ///
    /// # Errors
    /// Anything else.
    pub fn count(&self, row: usize, column: &str) -> Result<u64, Error> {
        self.value(row, column, "a whole number")
    }

    /// A step, from 1, above the step before.
    ///
    /// # Errors
    /// Anything else.
    pub fn step(&self, row: usize, before: Option<u64>) -> Result<u64, Error> {
        let step = self.count(row, "step")?;
        if step == 0 || step > 1 << 40 || before.is_some_and(|b| step <= b) {
            return self.refuse(row, "step", "steps must start at 1 or later and ascend");
        }
        Ok(step)
    }

    /// Yes or no: `1`, `0`, `true`, `false`.
    ///
    /// # Errors
    /// Anything else.
    pub fn flag(&self, row: usize, column: &str) -> Result<bool, Error> {
        match self.text(row, column).trim() {
            "1" | "true" | "yes" => Ok(true),
            "0" | "false" | "no" => Ok(false),
            _ => self.refuse(row, column, "is neither 0 nor 1"),
        }
    }
}

/// The text of a regular file of at most `largest` bytes; none where there is no file.
///
/// # Errors
/// Not such a file, or no UTF-8.
pub fn text(path: &Path, largest: u64) -> Result<Option<String>, Error> {
    let meta = match std::fs::metadata(path) {
        Ok(m) => m,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path)(e)),
    };
    if !meta.is_file() {
        return usage(format!("{}: is no regular file", path.display()));
    }
    let file = File::open(path).map_err(Error::io("read", path))?;
    let mut bytes = Vec::new();
    // The file may grow after its length was asked for.
    let read = file.take(largest + 1).read_to_end(&mut bytes);
    read.map_err(Error::io("read", path))?;
    if bytes.len() as u64 > largest {
        return usage(format!(
            "{}: is larger than {} MiB",
            path.display(),
            largest >> 20
        ));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => usage(format!("{}: is not UTF-8 text", path.display())),
    }
}

fn one_line(e: &csv::Error) -> String {
    match e.kind() {
        csv::ErrorKind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => {
            let line = pos.as_ref().map_or(0, |p| p.line());
            format!(
                "line {line}: has {len} fields where the header has {expected_len}; is the file torn?"
            )
        }
        _ => e.to_string().replace('\n', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Table, Error> {
        Table::parse(Path::new("a.csv"), text, &["step", "x"])
    }

    fn refusal(text: &str, read: impl Fn(&Table) -> Result<(), Error>) -> String {
        let e = parse(text).and_then(|t| read(&t)).expect_err("refused");
        e.to_string()
    }

    #[test]
    fn a_good_table_is_read_whatever_else_it_holds() {
        let t = parse("x,more,step\n0.5,\"a, b\",1\n,c,7\n").expect("a table");
        assert_eq!((t.len(), t.text(0, "more")), (2, "a, b"));
        assert_eq!(t.number(0, "x", 0.0, 1.0).expect("a number"), 0.5);
        assert_eq!(t.maybe(1, "x", 0.0, 1.0).expect("empty"), None);
        assert_eq!(t.step(1, Some(1)).expect("a step"), 7);
    }

    #[test]
    fn torn_and_hostile_tables_are_refused_in_one_line() {
        let nothing = |_: &Table| Ok(());
        assert!(refusal("", nothing).contains("has no column `step`"));
        assert!(refusal("step,y\n1,2\n", nothing).contains("has no column `x`"));
        assert!(refusal("step,x\n1,2\n3,0.1", nothing).contains("torn"));
        assert!(refusal("step,x\n1,2\n3\n", nothing).contains("line 3: has 1 fields"));
        let astray = parse("step,x\n1,NaN\n2,3\n").expect("a table");
        let at = |r| astray.astray(r, "x", 0.0, 9.0).expect("a field");
        assert_eq!((at(0), at(1)), (None, Some(3.0)));
        let number = |t: &Table| t.number(0, "x", 0.0, 1e9).map(|_| ());
        for bad in ["nan", "inf", "-1", "1e400", "", "<script>", "1e10"] {
            let e = refusal(&format!("step,x\n1,{bad}\n"), number);
            assert!(e.starts_with("a.csv: row 1, column x: "), "{e}");
            assert!(!e.contains('\n'), "{e}");
        }
        let steps = |t: &Table| {
            let first = t.step(0, None)?;
            t.step(1, Some(first)).map(|_| ())
        };
        for bad in [
            "0,1\n2,1\n",
            "5,1\n5,1\n",
            "-1,0\n2,1\n",
            "1,1\n99999999999999,0\n",
        ] {
            let e = refusal(&format!("step,x\n{bad}"), steps);
            assert!(e.contains("step"), "{e}");
        }
        let long = format!("step,x\n1,{}\n", "9".repeat(5000));
        assert!(refusal(&long, nothing).contains("too long"));
    }
}
