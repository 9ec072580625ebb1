//! Files that are whole or absent.

use crate::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a file under a temporary name in the same folder, syncs it, and renames it into place.
///
/// # Errors
/// The file cannot be written; the old one, if any, is as it was.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = sibling(path);
    let attempt = || -> std::io::Result<()> {
        let mut f = std::fs::File::create(&temporary)?;
        f.write_all(bytes)?;
        f.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    attempt().map_err(|e| {
        let _ = std::fs::remove_file(&temporary); // best effort: the write has failed already
        Error::io("write", path)(e)
    })
}

/// Makes sure that a file can be made at `path` later on, without making it.
///
/// # Errors
/// Its folder does not exist or cannot be written, or `path` is a folder.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    // A rename would replace a device, a pipe or a link by a plain file.
    if let Ok(there) = std::fs::symlink_metadata(path)
        && !there.is_file()
    {
        return Err(Error::Usage(format!(
            "cannot write {}: it is there and is no regular file",
            path.display()
        )));
    }
    let temporary = sibling(path);
    std::fs::File::create(&temporary).map_err(Error::io("write", path))?;
    std::fs::remove_file(&temporary).map_err(Error::io("write", path))
}

fn sibling(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}
