//! The error that reaches a person: one line that says what, where and what to do.

/// Writes a line to standard error. A standard error that is gone or full is no reason to stop.
#[macro_export]
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

use crate::data::text::DataError;
use crate::exec::ExecError;
use std::path::{Path, PathBuf};

/// Why a command stopped. All end the program with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag or a config key has a value that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A data file is unusable.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A device failed or cannot hold the run.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// `read`, `write`, …
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A weights file does not fit the model.
    #[error("{}: {why}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// The run produced a value that is no number.
    #[error("{scheme}, step {step}: {what}; the weights of step {} are the last good ones; try a lower --lr or --warmup", step - 1)]
    NonFinite {
        /// The scheme.
        scheme: String,
        /// The training step, from 1.
        step: usize,
        /// The first operation that went wrong.
        what: String,
    },
    /// A violated invariant of the program itself.
    #[error("internal fault, please report it: {0}")]
    Internal(String),
}

impl Error {
    /// An I/O error with its file.
    pub fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { what, path, source }
    }
}

/// Shorthand for usage errors.
pub fn usage<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Usage(text.into()))
}
