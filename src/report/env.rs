//! `env.json`: everything that another machine needs to repeat the run.

use super::files::write_atomic;
use crate::config::Settings;
use crate::data::text::Text;
use crate::error::Error;
use crate::exec::DeviceInfo;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Serialize)]
struct Env<'a> {
    program: &'static str,
    version: &'static str,
    numerics: &'static str,
    os: &'static str,
    arch: &'static str,
    device: &'a DeviceInfo,
    data: Data<'a>,
    config: &'a Settings,
    plans: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Data<'a> {
    name: &'a str,
    sha256: &'a str,
    characters: usize,
    vocab: usize,
}

/// Writes `env.json`. `plans` maps program names to plan hashes.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    dir: &Path,
    device: &DeviceInfo,
    text: &Text,
    config: &Settings,
    plans: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let characters = text.train.len() + text.val.len();
    let env = Env {
        program: "isobit",
        version: env!("CARGO_PKG_VERSION"),
        numerics: config.numerics.name(),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        device,
        data: Data {
            name: &text.name,
            sha256: &text.sha256,
            characters,
            vocab: text.vocab.len(),
        },
        config,
        plans,
    };
    let mut bytes = serde_json::to_vec_pretty(&env).map_err(|e| Error::Internal(e.to_string()))?;
    bytes.push(b'\n');
    write_atomic(&dir.join("env.json"), &bytes)
}
