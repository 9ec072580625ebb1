//! Where checkpoints lie: `<outdir>/checkpoints/<scheme><tag>/step-00000123.safetensors` and
//! `best.safetensors`.

use super::file::fault;
use crate::error::Error;
use std::path::{Path, PathBuf};

/// The folder of all checkpoints in an output folder.
pub const FOLDER: &str = "checkpoints";
/// File name of the best checkpoint.
pub const BEST: &str = "best.safetensors";

/// Which of a scheme's checkpoints is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The one with the most steps.
    Newest,
    /// The one with the lowest validation loss in fp32.
    Best,
}

/// The file name of the checkpoint after `step` steps.
pub fn file_name(step: u64) -> String {
    format!("step-{step:08}.safetensors")
}

/// The folder of a scheme's checkpoints.
pub fn scheme_folder(outdir: &Path, scheme: &str, tag: &str) -> PathBuf {
    outdir.join(FOLDER).join(format!("{scheme}{tag}"))
}

/// The step of a checkpoint's file name.
fn step_of(path: &Path) -> Option<u64> {
    let digits = path
        .file_name()?
        .to_str()?
        .strip_prefix("step-")?
        .strip_suffix(".safetensors")?;
    let plain = digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// The entries of a folder, sorted; none if it is not there.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = match std::fs::read_dir(dir) {
        Ok(list) => list,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(Error::io("read", dir)(e)),
    };
    let mut out = Vec::new();
    for entry in list {
        out.push(entry.map_err(Error::io("read", dir))?.path());
    }
    out.sort();
    Ok(out)
}

/// The steps of a scheme folder with their files, ascending; none if the folder is not there.
///
/// # Errors
/// The folder cannot be read.
pub fn steps_in(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let mut out: Vec<(u64, PathBuf)> = entries(folder)?
        .into_iter()
        .filter_map(|p| Some((step_of(&p)?, p)))
        .filter(|(_, p)| p.is_file())
        .collect();
    out.sort();
    Ok(out)
}

/// Whether a folder holds checkpoints itself.
fn holds(folder: &Path) -> Result<bool, Error> {
    Ok(folder.join(BEST).is_file() || !steps_in(folder)?.is_empty())
}

/// The scheme folders with checkpoints that a path stands for: itself, or those of a checkpoints folder
/// or an output folder.
///
/// # Errors
/// A folder cannot be read.
pub fn folders(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if holds(path)? {
        return Ok(vec![path.to_path_buf()]);
    }
    let inner = path.join(FOLDER);
    let root = if inner.is_dir() { &inner } else { path };
    let mut out = Vec::new();
    for folder in entries(root)? {
        if folder.is_dir() && holds(&folder)? {
            out.push(folder);
        }
    }
    Ok(out)
}

/// The checkpoint that a path stands for: a file, or the newest or best one of a scheme folder, a
/// checkpoints folder or an output folder.
///
/// # Errors
/// Nothing is there, or several schemes are: the message names them.
pub fn locate(path: &Path, which: Which) -> Result<PathBuf, Error> {
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    if !path.is_dir() {
        std::fs::metadata(path).map_err(Error::io("read", path))?;
        return Err(fault(path, "is neither a file nor a folder"));
    }
    let all = folders(path)?;
    let folder = match all.as_slice() {
        [one] => one,
        [] => {
            return Err(fault(
                path,
                "has no checkpoint; name an output folder, a scheme's folder in its `checkpoints`, or a file",
            ));
        }
        [first, ..] => {
            let names: Vec<_> = all
                .iter()
                .filter_map(|f| Some(f.file_name()?.to_string_lossy()))
                .collect();
            let why = format!(
                "has checkpoints of {}; name one of them, such as {}",
                names.join(", "),
                first.display()
            );
            return Err(fault(path, why));
        }
    };
    let best = folder.join(BEST);
    match which {
        Which::Best if best.is_file() => Ok(best),
        Which::Best => Err(fault(
            folder,
            format!("has no {BEST}: no evaluation was done"),
        )),
        Which::Newest => Ok(steps_in(folder)?.pop().map_or(best, |(_, p)| p)),
    }
}
