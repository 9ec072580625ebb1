//! Where a command may write: never over what it reads, nor among a run's own files.

use crate::config::Settings;
use crate::error::{Error, usage};
use crate::train::checkpoint::locate::{FOLDER, folders};
use std::path::{Component, Path, PathBuf};

/// The place that a path leads to, whether anything is there yet or not: absolute, links followed as far
/// as there are any, `.` and `..` resolved.
pub fn whole(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut out = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            // A link must be followed before a `..` behind it.
            part => {
                out.push(part);
                out = out.canonicalize().unwrap_or(out);
            }
        }
    }
    out
}

/// Whether a place is one of a run's own: a ledger of its output folder, or among its checkpoints.
/// Both paths are [`whole`].
pub fn of_run(here: &Path, outdir: &Path) -> bool {
    let ending = here.extension().and_then(|e| e.to_str()).unwrap_or("");
    let ledger = ["csv", "json", "html"]
        .iter()
        .any(|e| ending.eq_ignore_ascii_case(e));
    here.starts_with(outdir) && ledger || here.starts_with(outdir.join(FOLDER))
}

/// Whether a [`whole`] place is inside the `checkpoints` folder of any run.
pub fn among_checkpoints(here: &Path) -> bool {
    let named = |d: &&Path| d.file_name().is_some_and(|n| n == FOLDER);
    let of_a_run = |d: &Path| d.join("lock").is_file() || folders(d).is_ok_and(|f| !f.is_empty());
    here.ancestors().skip(1).filter(named).any(of_a_run)
}

/// The files that a command reads, and those that it will write so far.
pub struct Outputs {
    inputs: Vec<PathBuf>,
    seen: Vec<PathBuf>,
}

impl Outputs {
    /// Of a command that reads the files of these settings, and others.
    pub fn new<'a>(s: &Settings, others: impl IntoIterator<Item = &'a PathBuf>) -> Outputs {
        let own = [&s.init, &s.text, &s.train_offsets, &s.val_offsets];
        let own = own.into_iter().flatten().map(|p| whole(p));
        let program = std::env::current_exe().ok().map(|p| whole(&p));
        let others = others.into_iter().map(|p| whole(p));
        Outputs {
            inputs: own.chain(others).chain(program).collect(),
            seen: vec![],
        }
    }

    /// Takes a path to write to.
    ///
    /// # Errors
    /// A file that is read is there, or one that is to be written.
    pub fn claim(&mut self, path: &Path) -> Result<(), Error> {
        let here = whole(path);
        let why = if self.inputs.contains(&here) {
            "this run reads it"
        } else if self.seen.contains(&here) {
            "two files would have this name"
        } else {
            self.seen.push(here);
            return Ok(());
        };
        usage(format!("cannot write {}: {why}", path.display()))
    }
}
