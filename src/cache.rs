//! The user's cache folder: what this program keeps from one run to the next, and can make again.
//!
//! A file there may be missing, cut short or written by someone else: whoever reads one checks it, and
//! does without it where it is not what it should be.

use crate::report::files::write_atomic;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The user's cache folder by each system's custom, given how to look up environment variables.
pub fn folder(var: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(p) = absolute("XDG_CACHE_HOME") {
        return Some(p);
    }
    if cfg!(windows) {
        return absolute("LOCALAPPDATA");
    }
    let home = absolute("HOME")?;
    Some(if cfg!(target_os = "macos") {
        home.join("Library/Caches")
    } else {
        home.join(".cache")
    })
}

/// This program's own folder in it; none where the system names no place.
pub fn own() -> Option<PathBuf> {
    Some(folder(&|name| std::env::var_os(name))?.join("isobit"))
}

/// The file `kind-<hash>.json` of what the parts name together.
pub fn file(kind: &str, parts: &[&str]) -> Option<PathBuf> {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    }
    let bytes = sha.finalize();
    let hash: String = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
    Some(own()?.join(format!("{kind}-{hash}.json")))
}

/// The bytes of a regular file of at most `most` bytes; none if it is another thing, longer or not there.
pub fn read(file: &Path, most: u64) -> Option<Vec<u8>> {
    // Asked by name first: opening a pipe would wait for its writer.
    let fits = |m: std::fs::Metadata| m.is_file() && m.len() <= most;
    if !fits(std::fs::metadata(file).ok()?) {
        return None;
    }
    let f = std::fs::File::open(file).ok()?;
    let mut bytes = Vec::new();
    f.take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

/// Keeps a file, whole or not at all. A machine that keeps nothing does the work again: slower, no less
/// right; so a failure is no error.
pub fn keep(file: &Path, bytes: &[u8]) {
    let made = file.parent().map(std::fs::create_dir_all);
    if matches!(made, Some(Ok(()))) {
        let _ = write_atomic(file, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_system_has_it() {
        let vars = |list: &'static [(&str, &str)]| {
            move |name: &str| {
                list.iter()
                    .find(|v| v.0 == name)
                    .map(|v| OsString::from(v.1))
            }
        };
        if cfg!(all(unix, not(target_os = "macos"))) {
            let home = vars(&[("HOME", "/home/x"), ("XDG_CACHE_HOME", "relative")]);
            assert_eq!(folder(&home), Some("/home/x/.cache".into()));
            let both = vars(&[("HOME", "/home/x"), ("XDG_CACHE_HOME", "/cache")]);
            assert_eq!(folder(&both), Some("/cache".into()));
            assert_eq!(folder(&vars(&[])), None);
        }
    }

    #[test]
    fn only_regular_files_of_a_size_are_read() {
        let dir = std::env::temp_dir().join(format!("isobit-cache-{}", std::process::id()));
        let file = dir.join("a.json");
        keep(&file, b"12345");
        assert_eq!(read(&file, 5), Some(b"12345".to_vec()));
        assert_eq!(read(&file, 4), None);
        assert_eq!(read(&dir, 5), None);
        assert_eq!(read(&dir.join("b"), 5), None);
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
