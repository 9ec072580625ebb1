//! The full ledger in a checkpoint: its tables, and since when each weight has had its value.

use super::file::{Content, Entry};
use super::meta::{FullMeta, Meta};
use crate::report::sheets::{SHEETS, Sheet, Sheets};
use crate::train::full::Frozen;
use safetensors::{Dtype, SafeTensors};

/// Tensors of [`Frozen`]: the value at the last look, and the look at which it was first seen.
const SEEN: &str = "ledger.seen";
const SINCE: &str = "ledger.since";

/// What a checkpoint holds of the full ledger.
#[derive(Clone, PartialEq, Debug)]
pub struct Full {
    /// Since when each weight has had its value.
    pub frozen: Frozen,
    /// The rows so far.
    pub sheets: Sheets,
}

fn table(sheet: Sheet) -> String {
    format!("ledger.{}", sheet.name())
}

/// The names of its tensors.
pub(super) fn names() -> impl Iterator<Item = String> {
    let fixed = [SEEN, SINCE].map(String::from).into_iter();
    fixed.chain(SHEETS.into_iter().map(table))
}

/// What the metadata say of it.
pub(super) fn meta(frozen: &Frozen, sheets: &Sheets) -> FullMeta {
    let bytes = |s: Sheet| (s.name().to_string(), sheets.rows(s).len() as u64);
    FullMeta {
        start: frozen.start,
        bytes: SHEETS.into_iter().map(bytes).collect(),
    }
}

/// Its tensors: F32 and U32, an element a weight in the model's order; the tables' text as U8.
pub(super) fn entries(frozen: &Frozen, sheets: &Sheets) -> Vec<Entry> {
    let entry = |name: String, dtype, n, data| Entry {
        name,
        dtype,
        dims: vec![n],
        content: Content::Bytes(data),
    };
    let n = frozen.seen.len();
    let seen = frozen.seen.iter().flat_map(|x| x.to_le_bytes()).collect();
    let since = frozen.since.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut out = vec![
        entry(SEEN.into(), Dtype::F32, n, seen),
        entry(SINCE.into(), Dtype::U32, n, since),
    ];
    out.extend(SHEETS.into_iter().map(|s| {
        let text = sheets.rows(s).as_bytes().to_vec();
        entry(table(s), Dtype::U8, text.len(), text)
    }));
    out
}

/// Bytes of its tensors, by what the metadata say; none where they have no full ledger.
pub(super) fn extent(m: &Meta, parameters: u128) -> u128 {
    m.ledger.full.as_ref().map_or(0, |f| {
        8 * parameters + f.bytes.values().map(|&n| u128::from(n)).sum::<u128>()
    })
}

/// Takes it from a file whose extents have been checked.
pub(super) fn read(
    m: &Meta,
    parameters: u128,
    tensors: &SafeTensors,
) -> Result<Option<Full>, String> {
    let Some(f) = &m.ledger.full else {
        return Ok(None);
    };
    let n = parameters as usize;
    let words = |name, dtype| {
        let bytes = super::check::data(tensors, name, dtype, &[n])?;
        let each = bytes.chunks_exact(4);
        let word = |c: &[u8]| u32::from_le_bytes([c[0], c[1], c[2], c[3]]);
        Ok::<Vec<u32>, String>(each.map(word).collect())
    };
    let seen = words(SEEN, Dtype::F32)?.into_iter().map(f32::from_bits);
    let since = words(SINCE, Dtype::U32)?;
    let fits = |s: &u32| (f.start..=m.step).contains(&u64::from(*s));
    if !since.iter().all(fits) {
        return Err("is damaged: its weights stand still since steps that are none".into());
    }
    let mut sheets = Sheets::default();
    for sheet in SHEETS {
        let name = table(sheet);
        let len = f.bytes.get(sheet.name()).copied().unwrap_or(0) as usize;
        let bytes = super::check::data(tensors, &name, Dtype::U8, &[len])?;
        let torn = |_| format!("is damaged: {name} is no text");
        let text = std::str::from_utf8(bytes).map_err(torn)?;
        sheets
            .restore(sheet, text, (m.ledger.first, m.step))
            .map_err(|why| format!("is damaged: it {why}"))?;
    }
    let frozen = Frozen {
        start: f.start,
        seen: seen.collect(),
        since,
    };
    Ok(Some(Full { frozen, sheets }))
}
