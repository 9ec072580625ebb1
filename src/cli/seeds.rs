//! `isobit train --seeds N`: the same run from several seeds, and what they have in common. One run is one
//! draw: a difference between schemes counts only where it is larger than their spread.

use super::Global;
use super::terminal::interrupted;
use super::train::{Done, TrainArgs, one};
use crate::config::{Preset, SCHEMES};
use crate::error::{Error, usage};
use crate::report::files::plain_tag;
use crate::report::ledger::{SeedsRow, other_rows, write_seeds};
use crate::tell;
use std::path::PathBuf;

/// Most seeds of one command.
const MOST: i64 = 100;

/// Runs every seed; returns the exit code.
///
/// # Errors
/// Whatever stops one of the runs.
pub fn train_seeds(global: &Global, args: &TrainArgs, n: i64) -> Result<i32, Error> {
    if !(1..=MOST).contains(&n) {
        return usage(format!(
            "--seeds {n}: must be at least 1 and at most {MOST}"
        ));
    }
    let flags = &args.checkpoints;
    if flags.resume.is_some() || flags.stop_after.is_some() {
        return usage(
            "--seeds runs whole runs: --resume and --stop-after are for one; asked again, it leaves the finished seeds as they are",
        );
    }
    if args.save.is_some() || args.dump_grads.is_some() {
        return usage(
            "--seeds has no one file for --save or --dump-grads: take them with one seed",
        );
    }
    let s = args.settings(Preset::Tiny)?;
    if s.init.is_some() && s.train_offsets.is_some() {
        return usage(
            "--seeds: this run has its initial weights and its batches from files, so that every seed gives the same one; leave out one of them",
        );
    }
    let tag = args.tag.clone().unwrap_or_default();
    let mut values: Vec<(String, Vec<f64>)> = Vec::new();
    let mut outdir = PathBuf::new();
    let mut runs = Vec::new();
    for i in 0..n as u64 {
        let Some(seed) = s.seed.checked_add(i).filter(|s| i64::try_from(*s).is_ok()) else {
            return usage(format!(
                "--seeds {n}: there are not so many seeds after {}",
                s.seed
            ));
        };
        let of_seed = match i {
            0 => tag.clone(),
            _ => format!("{tag}_seed{seed}"),
        };
        if i > 0 && !plain_tag(&of_seed) {
            return usage(format!(
                "--tag {tag:?}: with `_seed{seed}` after it, as --seeds names files, it is too long; take a shorter one"
            ));
        }
        runs.push((i, seed, of_seed));
    }
    for (i, seed, of_seed) in runs {
        println!(
            "{}seed {seed}, {} of {n}",
            if i == 0 { "" } else { "\n" },
            i + 1
        );
        let more = TrainArgs {
            seed: Some(seed as i64),
            tag: Some(of_seed.clone()),
            ..args.clone()
        };
        let Done { code, outdir: dir } = one(global, &more)?;
        outdir = dir;
        if code != 0 || interrupted() {
            tell!(
                "stopped at seed {seed}, {} of {n}: there is no mean; finish that seed with --resume and --tag \"{of_seed}\", then give the same command again",
                i + 1
            );
            return Ok(if code == 0 { 130 } else { code });
        }
        if args.dry_run {
            return Ok(code);
        }
        for row in other_rows(&outdir, &of_seed, &[]) {
            let Ok(loss) = row[3].parse::<f64>() else {
                continue;
            };
            match values.iter_mut().find(|v| v.0 == row[0]) {
                Some(v) => v.1.push(loss),
                None => values.push((row[0].clone(), vec![loss])),
            }
        }
    }
    values.retain(|v| v.1.len() == n as usize);
    values.sort_by_key(|v| SCHEMES.iter().position(|s| s.name() == v.0));
    let rows: Vec<SeedsRow> = values
        .iter()
        .map(|(name, x)| SeedsRow::of(name, x))
        .collect();
    write_seeds(&outdir, &tag, &rows)?;
    show(&rows, s.seed);
    println!("\nwritten to {}", outdir.display());
    super::report::after_training(&outdir);
    Ok(0)
}

fn show(rows: &[SeedsRow], first: u64) {
    println!(
        "\nvalidation loss after the last step, over the seeds from {first} on\n{:<11} {:>5} {:>9} {:>9} {:>9} {:>9}",
        "scheme", "seeds", "mean", "std", "lowest", "highest"
    );
    for r in rows {
        let std = r.std.map_or("-".into(), |s| format!("{s:.4}"));
        println!(
            "{:<11} {:>5} {:>9.4} {std:>9} {:>9.4} {:>9.4}",
            r.scheme, r.seeds, r.mean, r.min, r.max
        );
    }
}
