//! What a run plans of memory and of types, written for the report before it begins.

use super::explain::policy_rows;
use crate::config::Settings;
use crate::error::Error;
use crate::passes::memory::session_bytes;
use crate::passes::rules::Rule;
use crate::plan::account::{held, held_of_parts};
use crate::report::ledger;
use crate::train::session::Programs;
use std::path::Path;

/// Writes `memory{tag}.csv` and `policy{tag}.csv`; with `keep` the rows of other schemes stay.
///
/// # Errors
/// A file cannot be written.
pub fn write_plans(
    s: &Settings,
    tag: &str,
    outdir: &Path,
    programs: &[Programs],
    keep: bool,
) -> Result<(), Error> {
    let (mut memory, mut policy) = (vec![], vec![]);
    for (scheme, programs) in s.schemes.iter().zip(programs) {
        memory.extend(memory_rows(scheme.name(), programs));
        let kept = s.policy_of(*scheme)?;
        let of = |r: &Rule| {
            let dtype = r.dtype.name();
            let what = if r.class { "operation" } else { "part" };
            [
                r.pattern.clone(),
                format!("override: {what}"),
                dtype.into(),
                dtype.into(),
            ]
        };
        let rows = kept.rules.all().iter().map(of).chain(policy_rows(&kept));
        let own = |[op, class, operands, result]: [String; 4]| {
            [scheme.name().to_string(), op, class, operands, result]
        };
        policy.extend(rows.map(own));
    }
    let own: Vec<&str> = s.schemes.iter().map(|x| x.name()).collect();
    ledger::write_plans(outdir, tag, (memory, policy), &own, keep)
}

/// Planned bytes of a scheme, by class: those of the training step at its peak, and what the other
/// programs add.
fn memory_rows(scheme: &str, programs: &Programs) -> Vec<ledger::MemoryRow> {
    let h = match programs.micro() {
        Some(micro) => held_of_parts(programs.train(), micro),
        None => held(programs.train()),
    };
    // The measured peak is taken without what only measures.
    let other = session_bytes(&programs.own_plans()).saturating_sub(h.total());
    [
        ("parameters", h.parameters),
        ("moments", h.moments),
        ("copies", h.copies.peak),
        ("gradients", h.gradients.peak),
        ("activations", h.activations.peak),
        ("workspace", h.workspace),
        ("other", other),
    ]
    .map(|(class, bytes)| [scheme.to_string(), class.to_string(), bytes.to_string()])
    .to_vec()
}
