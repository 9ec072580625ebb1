//! The flags of `train` about checkpoints, and what they ask for before a run starts.

use crate::config::{Scheme, Settings};
use crate::error::{Error, usage};
use crate::report::files::sweep;
use crate::report::ledger::is_ours;
use crate::train::checkpoint::Checkpoint;
use crate::train::checkpoint::convert::{Lost, convert};
use crate::train::checkpoint::keeper::{Schedule, sweep_folder};
use crate::train::checkpoint::locate::{BEST, FOLDER, scheme_folder, steps_in};
use crate::train::checkpoint::resume::Resumed;
use crate::train::run::Data;
use clap::{Args, ValueEnum};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Steps between checkpoints where none are asked for.
const EVERY: i64 = 500;

/// What happens when a file cannot be written during a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum OnWriteError {
    /// Say so, and train on: the next attempt writes everything.
    #[default]
    Continue,
    /// End the run.
    Stop,
}

/// Flags of `train` about checkpoints.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Checkpoints")]
pub struct CheckpointArgs {
    /// Go on with a run, bit for bit: its output folder, one scheme's folder in `checkpoints`, or a file.
    /// Settings come from there.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["preset", "overwrite"])]
    pub resume: Option<PathBuf>,
    /// Go on in another precision scheme; says what the change of types loses.
    #[arg(long, value_name = "SCHEME", requires = "resume")]
    pub resume_as: Option<String>,
    /// Steps between checkpoints; 0: only at the end and when stopped [default: 500].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub checkpoint_every: Option<i64>,
    /// How many of the latest checkpoints stay, besides the best one [default: 2].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub keep: Option<i64>,
    /// When a file cannot be written, for example on a full disk.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnWriteError::Continue)]
    pub on_write_error: OnWriteError,
    /// Write no checkpoints.
    #[arg(long, conflicts_with_all = ["checkpoint_every", "keep", "resume"])]
    pub no_checkpoints: bool,
    /// Start anew where an earlier run left checkpoints, and delete them.
    #[arg(long)]
    pub overwrite: bool,
    /// Stop each scheme after this step, with a checkpoint to go on from.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub stop_after: Option<i64>,
}

impl CheckpointArgs {
    /// When checkpoints are written; none with `--no-checkpoints`.
    ///
    /// # Errors
    /// A number that cannot be used.
    pub fn schedule(&self) -> Result<Option<Schedule>, Error> {
        let count = |flag: &str, value: Option<i64>, default: i64, least: i64| {
            let v = value.unwrap_or(default);
            if (least..=1_000_000_000).contains(&v) {
                return Ok(v as usize);
            }
            usage(format!(
                "--{flag} {v}: must be at least {least} and at most 1000000000"
            ))
        };
        let schedule = Schedule {
            every: count("checkpoint-every", self.checkpoint_every, EVERY, 0)?,
            keep: count("keep", self.keep, 2, 1)?,
            stop_on_error: self.on_write_error == OnWriteError::Stop,
        };
        count("stop-after", self.stop_after, 1, 1)?;
        Ok((!self.no_checkpoints).then_some(schedule))
    }

    /// The run to go on with, where one is named.
    ///
    /// # Errors
    /// Its checkpoints cannot be used.
    pub fn resumed(
        &self,
        tag: Option<&str>,
        schemes: Option<&[Scheme]>,
    ) -> Result<Option<Resumed>, Error> {
        let Some(path) = &self.resume else {
            return Ok(None);
        };
        let Some(name) = &self.resume_as else {
            return Resumed::find(path, tag, schemes).map(Some);
        };
        let to = Scheme::parse(name).map_err(|e| Error::Usage(format!("--resume-as: {e}")))?;
        let mut from = Resumed::find(path, None, schemes)?;
        if from.points.len() != 1 {
            let names: Vec<_> = from.points.iter().map(|p| p.scheme().name()).collect();
            return usage(format!(
                "--resume-as {name}: {} has checkpoints of {}; choose one with --schemes, or name its folder",
                path.display(),
                names.join(", ")
            ));
        }
        let point = &from.points[0];
        if point.meta.step == point.meta.settings.steps as u64 {
            return usage(format!(
                "--resume-as {name}: {} is at the end of its {} steps; take an earlier one (--keep, --stop-after)",
                point.path.display(),
                point.meta.step
            ));
        }
        let (converted, lost) = convert(point, to)?;
        tell_lost(point, to, &lost);
        from.points = vec![converted];
        from.schemes = vec![to];
        Ok(Some(from))
    }
}

fn tell_lost(point: &Checkpoint, to: Scheme, [weights, moments]: &[Lost; 2]) {
    let from = point.scheme().name();
    println!(
        "{from} to {}, from step {}: {} of {} weights and {} of {} moments are rounded, which loses {} significant bits",
        to.name(),
        point.meta.step,
        weights.rounded,
        weights.elements,
        moments.rounded,
        moments.elements,
        weights.bits + moments.bits
    );
}

/// Refuses to write over the checkpoints of another run.
///
/// # Errors
/// A scheme's folder has checkpoints that are not those to go on from.
pub fn refuse_loss(
    s: &Settings,
    outdir: &Path,
    tag: &str,
    points: &[Checkpoint],
    overwrite: bool,
) -> Result<(), Error> {
    for &scheme in &s.schemes {
        let folder = scheme_folder(outdir, scheme.name(), tag);
        let same = |p: &Checkpoint| {
            let parent = p.path.parent().and_then(|d| d.canonicalize().ok());
            p.scheme() == scheme && parent.is_some() && parent == folder.canonicalize().ok()
        };
        if overwrite || points.iter().any(same) {
            continue;
        }
        let last = steps_in(&folder)?.pop().map(|(step, _)| step);
        if last.is_none() && !folder.join(BEST).exists() {
            continue;
        }
        let at = last.map_or(String::new(), |n| format!(", up to step {n}"));
        let advice = if points.is_empty() {
            format!("go on with --resume {}, ", outdir.display())
        } else {
            String::new()
        };
        return usage(format!(
            "{} has checkpoints of an earlier run{at}: {advice}take another --outdir or --tag, or delete them with --overwrite",
            folder.display()
        ));
    }
    Ok(())
}

/// This very run, finished, where a folder holds it: a new one would end with the same bits.
pub fn finished(
    s: &Settings,
    data: &Data,
    init: &str,
    outdir: &Path,
    tag: &str,
) -> Option<Resumed> {
    let old = Resumed::find(outdir, Some(tag), Some(&s.schemes)).ok()?;
    let finished = |p: &Checkpoint| {
        let m = &p.meta;
        let same = m.version == env!("CARGO_PKG_VERSION") && m.data.init == init;
        same && m.lineage.is_empty() && m.step == s.steps as u64
    };
    let whole = old.points.len() == s.schemes.len() && old.points.iter().all(finished);
    let same = old.check_settings(s).is_ok() && old.check_data(data).is_ok();
    (whole && same).then_some(old)
}

/// Held while a run writes checkpoints into an output folder; ends with the process.
pub struct Lock {
    _file: File,
}

/// Makes the output folder's `checkpoints` this run's own: locks it, removes what killed runs left of
/// unfinished writes and, to start anew, the checkpoints of earlier runs.
///
/// # Errors
/// Another process is training there, or the folder cannot be made.
pub fn claim(s: &Settings, outdir: &Path, tag: &str, overwrite: bool) -> Result<Lock, Error> {
    let root = outdir.join(FOLDER);
    std::fs::create_dir_all(&root).map_err(Error::io("create", &root))?;
    let path = root.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(Error::io("write", &path))?;
    // A file system without locks cannot tell; then nobody is refused.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return usage(format!(
            "another isobit is training in {}; wait for it, or take another --outdir",
            outdir.display()
        ));
    }
    sweep(outdir, is_ours);
    for &scheme in &s.schemes {
        let folder = scheme_folder(outdir, scheme.name(), tag);
        sweep_folder(&folder);
        if !overwrite {
            continue;
        }
        let best = folder.join(BEST);
        let old = steps_in(&folder)?.into_iter().map(|(_, p)| p);
        for path in old.chain(best.exists().then_some(best)) {
            std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(Lock { _file: file })
}
