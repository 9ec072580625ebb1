//! A safetensors file, read with bounds and sealed against a changed byte.

use super::meta::{KEY, Meta};
use crate::error::Error;
use crate::exec::bytes as human;
use crate::exec::cpu::free_memory;
use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensors, View};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
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
    pub content: Content,
}

/// Where an entry's bytes come from.
pub(crate) enum Content {
    /// They are here.
    Bytes(Vec<u8>),
    /// Those of the state with this number, fetched when they are wanted: all of them at once would be
    /// a second copy of the run's weights and moments.
    State(usize),
}

/// Gives the little-endian bytes of the state with a number.
pub(crate) type Fetch<'a> = dyn FnMut(usize) -> Result<Vec<u8>, Error> + 'a;

impl Entry {
    fn len(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.bitsize() / 8
    }

    fn bytes(&self, fetch: &mut Fetch) -> Result<Cow<'_, [u8]>, Error> {
        let bytes = match &self.content {
            Content::Bytes(bytes) => Cow::Borrowed(&bytes[..]),
            Content::State(i) => Cow::Owned(fetch(*i)?),
        };
        match bytes.len() == self.len() {
            true => Ok(bytes),
            false => Err(internal(&format!(
                "{} has {} bytes",
                self.name,
                bytes.len()
            ))),
        }
    }
}

/// An entry as the header describes it.
struct Described<'a>(&'a Entry);

impl View for Described<'_> {
    fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.0.dims
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&[])
    }

    fn data_len(&self) -> usize {
        self.0.len()
    }
}

fn internal(e: &dyn std::fmt::Display) -> Error {
    Error::Internal(format!("checkpoint: {e}"))
}

/// Digest of a text with zeros in its digest's place, and of tensors in the order of their names.
struct Seal(Sha256);

impl Seal {
    fn new(text: &str) -> Seal {
        let mut hash = Sha256::new();
        hash.update(text);
        Seal(hash)
    }

    fn tensor(&mut self, name: &str, dtype: Dtype, dims: &[usize], data: &[u8]) {
        self.0.update(format!("\n{name} {dtype:?} {dims:?}\n"));
        self.0.update(data);
    }

    fn end(self) -> String {
        hex(&self.0.finalize())
    }
}

/// Gives `put` the parts of a checkpoint's file in their order: the metadata with its seal, and the
/// tensors. Each state is fetched twice, for the seal and for the file.
///
/// # Errors
/// A violated invariant of the program itself, or what `fetch` and `put` return.
pub(crate) fn serialize(
    meta: &Meta,
    entries: &[Entry],
    fetch: &mut Fetch,
    put: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut meta = meta.clone();
    meta.sha256 = ZEROS.into();
    let blank = serde_json::to_string(&meta).map_err(|e| internal(&e))?;
    let mut named: Vec<&Entry> = entries.iter().collect();
    named.sort_by_key(|e| &e.name);
    let mut seal = Seal::new(&blank);
    for e in &named {
        seal.tensor(&e.name, e.dtype, &e.dims, &e.bytes(fetch)?);
    }
    meta.sha256 = seal.end();
    let text = serde_json::to_string(&meta).map_err(|e| internal(&e))?;
    let head = HashMap::from([(KEY.to_string(), text)]);
    let described = entries.iter().map(|e| (e.name.as_str(), Described(e)));
    let head = safetensors::serialize(described, Some(head)).map_err(|e| internal(&e))?;
    let length = head.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
    if length > MAX_HEADER {
        // Hundreds of thousands of evaluations.
        return Err(Error::Usage(format!(
            "the ledger has too many evaluations for a checkpoint: {length} bytes, at most {MAX_HEADER}; raise eval_interval"
        )));
    }
    put(&head)?;
    // The library alone knows the order in which it laid them out.
    let order: Metadata = serde_json::from_slice(&head[8..]).map_err(|e| internal(&e))?;
    for name in order.offset_keys() {
        let i = named.binary_search_by(|e| e.name.as_str().cmp(&name));
        let i = i.map_err(|_| internal(&format!("{name} is not among the entries")))?;
        put(&named[i].bytes(fetch)?)?;
    }
    Ok(())
}

/// Whether the seal in `meta`, which was read from `text`, is that of the text and the tensors.
pub(crate) fn sealed(text: &str, meta: &Meta, tensors: &SafeTensors) -> bool {
    let seal = meta.sha256.as_str();
    if seal.len() != ZEROS.len() || text.matches(seal).count() != 1 {
        return false;
    }
    let mut all = tensors.tensors();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let mut found = Seal::new(&text.replace(seal, ZEROS));
    for (name, t) in &all {
        found.tensor(name, t.dtype(), t.shape(), t.data());
    }
    found.end() == seal
}
