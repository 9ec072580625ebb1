//! A safetensors file, read with bounds and sealed against a changed byte.

use super::meta::{KEY, Meta};
use crate::error::Error;
use crate::exec::bytes as human;
use crate::exec::cpu::free_memory;
use safetensors::tensor::{Metadata, TensorView};
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest header that is read: names of a thousand blocks, a full vocabulary and a long run's sparse
/// columns are far below.
pub const MAX_HEADER: u64 = 32 << 20;
/// Copies of the data that reading needs at most: the file, and its tensors as words or f32.
const COPIES: u64 = 4;
/// Stands in the place of a digest while the digest is taken.
const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A fault of a file, as one line.
pub(crate) fn fault(path: &Path, why: impl Into<String>) -> Error {
    Error::Weights {
        path: path.to_path_buf(),
        why: why.into(),
    }
}

/// The bytes of a safetensors file. The header's claim is held against the file's length before anything
/// of that size is allocated, and the file's length against the memory at hand.
///
/// # Errors
/// No regular file, no safetensors file, or larger than memory allows.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let io = || Error::io("read", path);
    let meta = std::fs::metadata(path).map_err(io())?;
    if !meta.is_file() {
        return Err(fault(path, "is not a file"));
    }
    let mut file = File::open(path).map_err(io())?;
    let mut first = [0u8; 8];
    if meta.len() < 8 {
        return Err(fault(
            path,
            format!("is no safetensors file: it has {} bytes", meta.len()),
        ));
    }
    file.read_exact(&mut first).map_err(io())?;
    let header = u64::from_le_bytes(first);
    if header > MAX_HEADER || header + 8 > meta.len() {
        return Err(fault(
            path,
            format!(
                "is no whole safetensors file: it claims a header of {header} bytes and has {}",
                meta.len()
            ),
        ));
    }
    let free = free_memory();
    if meta.len().saturating_mul(COPIES) > free {
        let need = human(meta.len().saturating_mul(COPIES));
        let why = format!(
            "reading it needs {need} of memory, {} are free",
            human(free)
        );
        return Err(fault(path, why));
    }
    let mut out = Vec::with_capacity(meta.len() as usize);
    out.extend(first);
    // A file that grows meanwhile is read no further.
    file.take(meta.len() - 8)
        .read_to_end(&mut out)
        .map_err(io())?;
    Ok(out)
}

/// The tensors and the metadata of a file's bytes.
///
/// # Errors
/// The bytes are no whole safetensors file.
pub fn parse<'a>(
    path: &Path,
    bytes: &'a [u8],
) -> Result<(SafeTensors<'a>, HashMap<String, String>), Error> {
    let whole = |e| {
        fault(
            path,
            format!("is damaged or no whole safetensors file ({e})"),
        )
    };
    let (_, head): (usize, Metadata) = SafeTensors::read_metadata(bytes).map_err(whole)?;
    let tensors = SafeTensors::deserialize(bytes).map_err(whole)?;
    Ok((tensors, head.metadata().clone().unwrap_or_default()))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}"); // writing to a string cannot fail
        out
    })
}

/// A tensor on its way into a file.
pub(crate) struct Entry {
    pub name: String,
    pub dtype: Dtype,
    pub dims: Vec<usize>,
    pub data: Vec<u8>,
}

/// Digest of a text with zeros in its digest's place, and of tensors in the order of their names.
fn seal_of<'a>(
    text: &str,
    tensors: impl Iterator<Item = (&'a str, Dtype, &'a [usize], &'a [u8])>,
) -> String {
    let mut all: Vec<_> = tensors.collect();
    all.sort_by_key(|t| t.0);
    let mut hash = Sha256::new();
    hash.update(text);
    for (name, dtype, dims, data) in all {
        hash.update(format!("\n{name} {dtype:?} {dims:?}\n"));
        hash.update(data);
    }
    hex(&hash.finalize())
}

/// The bytes of a checkpoint: the metadata with its seal, and the tensors.
///
/// # Errors
/// A violated invariant of the program itself.
pub(crate) fn serialize(meta: &Meta, entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let internal = |e: &dyn std::fmt::Display| Error::Internal(format!("checkpoint: {e}"));
    let mut meta = meta.clone();
    meta.sha256 = ZEROS.into();
    let blank = serde_json::to_string(&meta).map_err(|e| internal(&e))?;
    meta.sha256 = seal_of(
        &blank,
        entries
            .iter()
            .map(|e| (e.name.as_str(), e.dtype, &e.dims[..], &e.data[..])),
    );
    let text = serde_json::to_string(&meta).map_err(|e| internal(&e))?;
    let mut views = Vec::with_capacity(entries.len());
    for e in entries {
        let view = TensorView::new(e.dtype, e.dims.clone(), &e.data).map_err(|e| internal(&e))?;
        views.push((e.name.as_str(), view));
    }
    let head = HashMap::from([(KEY.to_string(), text)]);
    let out = safetensors::serialize(views, Some(head)).map_err(|e| internal(&e))?;
    let header = out.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
    if header > MAX_HEADER {
        // Hundreds of thousands of evaluations.
        return Err(Error::Usage(format!(
            "the ledger has too many evaluations for a checkpoint: {header} bytes, at most {MAX_HEADER}; raise eval_interval"
        )));
    }
    Ok(out)
}

/// Whether the seal in `meta`, which was read from `text`, is that of the text and the tensors.
pub(crate) fn sealed(text: &str, meta: &Meta, tensors: &SafeTensors) -> bool {
    let seal = meta.sha256.as_str();
    if seal.len() != ZEROS.len() || text.matches(seal).count() != 1 {
        return false;
    }
    let all = tensors.tensors();
    let parts = all
        .iter()
        .map(|(n, t)| (n.as_str(), t.dtype(), t.shape(), t.data()));
    seal_of(&text.replace(seal, ZEROS), parts) == seal
}
