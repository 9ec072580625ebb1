//! Data sets that go by a name: downloaded once into the user's cache, checked, and used from there.

use super::text::{DataError, Text, hex};
use crate::cache;
use crate::report::files::write_atomic;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

/// A data set with a name.
struct Named {
    /// What `--data` and `[data] text` call it.
    name: &'static str,
    /// Where it comes from.
    url: &'static str,
    /// Environment variable with another address: a mirror, or a test's server.
    mirror: &'static str,
    /// Its size in bytes.
    bytes: u64,
    /// Its SHA-256, in lower-case hexadecimal.
    sha256: &'static str,
}

const TINYSHAKESPEARE: Named = Named {
    name: "tinyshakespeare",
    url: "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    mirror: "ISOBIT_TINYSHAKESPEARE_URL",
    bytes: 1_115_394,
    sha256: "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
};

/// Whether a path is the name of a data set (a file of that name is `./tinyshakespeare`).
pub fn is_named(path: &Path) -> bool {
    path.as_os_str() == TINYSHAKESPEARE.name
}

/// Loads a text: the data set of that name, else a file.
///
/// # Errors
/// A file that cannot be used; a data set that cannot be downloaded, or is not what it should be.
pub fn load(path: &Path) -> Result<Text, DataError> {
    if !is_named(path) {
        return Text::load(path);
    }
    let set = &TINYSHAKESPEARE;
    let folder = cache::own().ok_or_else(|| {
        let why = "there is no folder for it; set XDG_CACHE_HOME or HOME".to_string();
        set.failed(set.url, why)
    })?;
    let file = folder.join(format!("{}.txt", set.name));
    if !set.is_there(&file) {
        set.fetch(&file)?;
    }
    let mut text = Text::load(&file)?;
    text.name = set.name.into();
    Ok(text)
}

impl Named {
    /// Whether the file holds the data set, whole.
    fn is_there(&self, file: &Path) -> bool {
        let size = |f: &std::fs::File| f.metadata().map(|m| m.is_file() && m.len() == self.bytes);
        let read = || -> std::io::Result<bool> {
            let f = std::fs::File::open(file)?;
            if !size(&f)? {
                return Ok(false);
            }
            let mut bytes = Vec::new();
            f.take(self.bytes + 1).read_to_end(&mut bytes)?;
            Ok(self.fault(&bytes).is_none())
        };
        read().unwrap_or(false)
    }

    /// What is wrong with these bytes, if anything.
    fn fault(&self, bytes: &[u8]) -> Option<String> {
        if bytes.len() as u64 != self.bytes {
            let n = bytes.len() as u64;
            let more = if n > self.bytes { "or more " } else { "" };
            return Some(format!(
                "it has {n} {more}bytes, {} has {}",
                self.name, self.bytes
            ));
        }
        let have = hex(&Sha256::digest(bytes));
        (have != self.sha256).then(|| format!("its SHA-256 is {have}, expected {}", self.sha256))
    }

    fn failed(&self, url: &str, why: String) -> DataError {
        DataError::Download {
            name: self.name,
            url: url.into(),
            why,
            mirror: self.mirror,
        }
    }

    /// Downloads the data set into a file, which appears whole or not at all.
    fn fetch(&self, file: &Path) -> Result<(), DataError> {
        let url = std::env::var(self.mirror).unwrap_or_else(|_| self.url.into());
        let fail = |why: String| self.failed(&url, why);
        let folder = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)
            .map_err(|e| fail(format!("cannot create {}: {e}", folder.display())))?;
        let bytes = self.download(&url).map_err(|e| fail(e.to_string()))?;
        if let Some(fault) = self.fault(&bytes) {
            return Err(fail(format!("{fault}; it was not kept")));
        }
        write_atomic(file, &bytes).map_err(|e| fail(e.to_string()))?;
        crate::tell!("kept in {}", file.display());
        Ok(())
    }

    /// The bytes at an address, at most one more than the data set has.
    fn download(&self, url: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let seconds = |n| Some(Duration::from_secs(n));
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_resolve(seconds(5))
            .timeout_connect(seconds(5))
            .timeout_recv_response(seconds(15))
            .timeout_global(seconds(300))
            .max_redirects(5)
            .user_agent(concat!("isobit/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let bar = self.progress(url);
        let body = agent.get(url).call()?.into_body().into_reader();
        let mut bytes = Vec::new();
        bar.wrap_read(body.take(self.bytes + 1))
            .read_to_end(&mut bytes)?;
        bar.finish_and_clear();
        Ok(bytes)
    }

    /// A bar on a terminal, one line elsewhere.
    fn progress(&self, url: &str) -> ProgressBar {
        if !std::io::stderr().is_terminal() {
            crate::tell!(
                "downloading {} ({} bytes) from {url}",
                self.name,
                self.bytes
            );
            return ProgressBar::hidden();
        }
        let style = "downloading {prefix} {wide_bar} {bytes} of {total_bytes}";
        let bar = ProgressBar::new(self.bytes).with_prefix(self.name);
        bar.set_style(
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_a_path() {
        assert!(is_named(Path::new("tinyshakespeare")));
        for p in [
            "./tinyshakespeare",
            "tinyshakespeare.txt",
            "Tinyshakespeare",
            "",
        ] {
            assert!(!is_named(Path::new(p)), "{p}");
        }
    }
}
