//! Files that are whole or absent.

use crate::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a file under a temporary name in the same folder, syncs it, and renames it into place.
///
/// # Errors
/// The file cannot be written; the old one, if any, is as it was.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_with(path, |f| {
        f.write_all(bytes).map_err(Error::io("write", path))
    })
}

/// A CSV file's bytes.
///
/// # Errors
/// A row of another length than the header's, which is a fault of the program itself.
pub fn csv_bytes<H, R>(header: H, rows: impl IntoIterator<Item = R>) -> Result<Vec<u8>, Error>
where
    H: IntoIterator<Item: AsRef<[u8]>>,
    R: IntoIterator<Item: AsRef<[u8]>>,
{
    let internal = |e: csv::Error| Error::Internal(e.to_string());
    let mut w = csv::Writer::from_writer(Vec::new());
    w.write_record(header).map_err(internal)?;
    for row in rows {
        w.write_record(row).map_err(internal)?;
    }
    w.into_inner().map_err(|e| Error::Internal(e.to_string()))
}

/// As [`write_atomic`], with what `fill` writes, and syncs the folder: when this returns, a loss of power
/// does not bring the old file back.
///
/// # Errors
/// As [`write_atomic`], or those of `fill`.
pub fn write_durable(
    path: &Path,
    fill: impl FnOnce(&mut File) -> Result<(), Error>,
) -> Result<(), Error> {
    write_with(path, fill)?;
    sync_folder(path.parent().unwrap_or(Path::new("")));
    Ok(())
}

fn write_with(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), Error>) -> Result<(), Error> {
    let temporary = sibling(path);
    let attempt = || {
        let mut f = File::create(&temporary).map_err(Error::io("write", path))?;
        fill(&mut f)?;
        let end = f.sync_all();
        end.and_then(|()| std::fs::rename(&temporary, path))
            .map_err(Error::io("write", path))
    };
    attempt().inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary); // best effort: the write has failed already
    })
}

/// Makes a rename durable where the system can: the file itself is whole either way.
fn sync_folder(dir: &Path) {
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    if cfg!(unix)
        && let Ok(folder) = File::open(dir)
    {
        let _ = folder.sync_all(); // some file systems refuse; the rename stands
    }
}

/// Removes what a killed run left of unfinished writes: temporary files of the names that `ours` knows.
pub fn sweep(dir: &Path, ours: impl Fn(&str) -> bool) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return; // no folder, nothing left in it
    };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let name = file.to_str().and_then(|n| n.strip_suffix(".tmp"));
        if let Some((name, process)) = name.and_then(|n| n.rsplit_once('.'))
            && process.bytes().all(|b| b.is_ascii_digit())
            && ours(name)
        {
            let _ = std::fs::remove_file(entry.path()); // best effort: it is in nobody's way
        }
    }
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
    File::create(&temporary).map_err(Error::io("write", path))?;
    std::fs::remove_file(&temporary).map_err(Error::io("write", path))
}

/// Whether a tag may be part of a file name.
pub fn plain_tag(tag: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    tag.len() <= 64 && tag.chars().all(plain)
}

fn sibling(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error as Io, ErrorKind};

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("isobit-files-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        dir
    }

    #[test]
    fn a_write_that_fails_half_way_leaves_the_old_file_alone() {
        let dir = folder("half");
        let file = dir.join("a");
        write_atomic(&file, b"old").expect("written");
        let half = |f: &mut File| {
            f.write_all(b"ne").expect("written");
            Err(Error::io("write", &file)(Io::from(ErrorKind::StorageFull)))
        };
        let e = write_with(&file, half).expect_err("no space").to_string();
        assert!(e.contains("cannot write") && e.contains("space"), "{e}");
        assert_eq!(std::fs::read(&file).expect("the old file"), b"old");
        assert_eq!(std::fs::read_dir(&dir).expect("the folder").count(), 1);
        write_atomic(&file, b"new").expect("written");
        assert_eq!(std::fs::read(&file).expect("the new file"), b"new");
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn only_known_leftovers_are_swept() {
        let dir = folder("sweep");
        for name in ["a.csv.12.tmp", "a.csv.x1.tmp", "b.csv.12.tmp", "a.csv"] {
            std::fs::write(dir.join(name), b"x").expect("a file");
        }
        sweep(&dir, |n| n == "a.csv");
        let left = |n: &str| dir.join(n).exists();
        assert!(!left("a.csv.12.tmp"));
        assert!(left("a.csv.x1.tmp") && left("b.csv.12.tmp") && left("a.csv"));
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
