//! What a run is refused for before it writes anything, and the places that it writes to.

use super::outputs::{Outputs, among_checkpoints, of_run, whole};
use super::train::TrainArgs;
use crate::config::Settings;
use crate::error::{Error, usage};
use crate::report::files;
use crate::train::checkpoint::Checkpoint;
use crate::train::progress::Progress;
use crate::train::run::{Data, Extras};
use std::path::Path;

/// Refuses checkpoints that are past a step whose gradients are wanted, or out of place in the data.
///
/// # Errors
/// The first of them.
pub fn refuse_points(
    extras: &Extras,
    points: &[Checkpoint],
    s: &Settings,
    data: &Data,
) -> Result<(), Error> {
    for p in points {
        Progress::at(p, s, data)?;
        if let Some((n, _)) = &extras.dump_grads
            && p.meta.step >= *n as u64
        {
            return usage(format!(
                "--dump-grads {n}: {} is past that step",
                p.path.display()
            ));
        }
    }
    Ok(())
}

/// A run cannot stop after a step that is behind it.
///
/// # Errors
/// Such a step.
pub fn refuse_stop(after: Option<i64>, points: &[Checkpoint], s: &Settings) -> Result<(), Error> {
    let behind = |p: &&Checkpoint| {
        let step = p.meta.step;
        step < s.steps as u64 && after.is_some_and(|n| (n as u64) < step)
    };
    match (after, points.iter().find(behind)) {
        (Some(n), Some(p)) => usage(format!(
            "--stop-after {n}: {} is at step {} already",
            p.path.display(),
            p.meta.step
        )),
        _ => Ok(()),
    }
}

/// Weights and gradients must not replace a file that the run reads, or one another, or stand under a
/// name that the ledger writes.
///
/// # Errors
/// Such a file.
pub fn refuse_collisions(
    s: &Settings,
    args: &TrainArgs,
    points: &[Checkpoint],
    outdir: &Path,
    files: &[Extras],
) -> Result<(), Error> {
    let named = [&args.config, &args.checkpoints.resume];
    let points = points.iter().map(|p| &p.path);
    let mut outputs = Outputs::new(s, named.into_iter().flatten().chain(points));
    let outdir = whole(outdir);
    for path in files.iter().flat_map(Extras::paths) {
        outputs.claim(path)?;
        let here = whole(path);
        if here == outdir || of_run(&here, &outdir) || among_checkpoints(&here) {
            return usage(format!(
                "cannot write {}: a run's own files are there; take a name that ends in .safetensors, outside `checkpoints`",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Makes the output folder, once everything else is known to be writable.
///
/// # Errors
/// A place that cannot be written to.
pub fn prepare_outputs(outdir: &Path, files: &[Extras]) -> Result<(), Error> {
    if outdir.join("w1.csv").exists() {
        return usage(format!(
            "--outdir {}: holds a run of `isobit showers`; name another folder",
            outdir.display()
        ));
    }
    // Files inside the output folder wait for the folder; others are checked before anything is made.
    let wanted = files.iter().flat_map(Extras::paths);
    let there = whole(outdir);
    let (inside, outside): (Vec<_>, Vec<_>) = wanted.partition(|p| whole(p).starts_with(&there));
    outside
        .into_iter()
        .try_for_each(|p| files::check_writable(p))?;
    std::fs::create_dir_all(outdir).map_err(Error::io("create", outdir))?;
    inside
        .into_iter()
        .try_for_each(|p| files::check_writable(p))?;
    files::check_writable(&outdir.join("env.json"))
}
