//! `isobit train`.

use super::Global;
use super::adapters::default_preset;
use super::checkpoints::{CheckpointArgs, claim, finished, refuse_loss};
use super::device::Device;
use super::job::{Job, Weights, first_weights};
use super::lint::{Level, lint};
use super::places::{prepare_outputs, refuse_collisions, refuse_points, refuse_stop};
use super::planned::write_plans;
use super::profile::{ProfilePlaces, profile_run};
use super::seeds::train_seeds;
use super::terminal::{
    catch_signals, introduce, introduce_device, introduce_numerics, tell_points,
};
use super::tune::TuneArgs;
use crate::config::{Preset, SCHEMES, Scheme, Settings};
use crate::error::{Error, usage};
use crate::exec::DeviceInfo;
use crate::exec::cpu::free_memory;
use crate::models::char_gpt::CharGpt;
use crate::report::env;
use crate::train::checkpoint::keeper::weights_sha256;
use crate::train::checkpoint::plain_tag;
use crate::train::checkpoint::resume::Resumed;
use crate::train::run::{Data, Extras};
use crate::train::session::{Programs, check_memory};
use crate::train::weights;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is measured beside the training.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Measured {
    /// Swallowed updates and gradient magnitudes, in a mixed run.
    Seed,
    /// The full ledger, in every run.
    Full,
}

/// Flags of `train`.
#[derive(Args, Debug, Clone, Default)]
pub struct TrainArgs {
    /// Model and schedule [default: tiny, or seed on a real GPU].
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// TOML file with the run's settings; flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// UTF-8 text to train on, or `tinyshakespeare`, which is downloaded once into the user's cache and
    /// checked [default: a dialogue that the program makes itself].
    #[arg(long, value_name = "FILE-OR-NAME")]
    pub data: Option<PathBuf>,
    /// Initial weights (safetensors, PyTorch's names) [default: drawn from the seed].
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Precision schemes to run, comma-separated: fp32, mixed, bf16, bf16-sr, bf16-kahan, fp16
    /// [default: fp32,mixed,bf16].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub schemes: Option<Vec<String>>,
    /// Where the files go [default: results/<preset>-<device>].
    #[arg(long, value_name = "DIR")]
    pub outdir: Option<PathBuf>,
    /// Training steps.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<i64>,
    /// Steps of linear warm-up.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub warmup: Option<i64>,
    /// Highest learning rate.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// Learning rate at the end of the cosine.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub min_lr: Option<f64>,
    /// Sequences a step.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub batch: Option<i64>,
    /// Run the last K steps in fp32, under schemes that keep their weights in f32 (mixed, fp16).
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub final_fp32: Option<i64>,
    /// Batches a step: their gradients are summed in f32 and divided by all tokens, then unscaled, clipped
    /// and applied (or skipped) once.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub accumulate: Option<i64>,
    /// Seed of initial weights and batches.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<i64>,
    /// Run everything from N seeds, from --seed on, and write mean and spread of the last validation losses
    /// to seeds.csv; the files of later seeds bear `_seed<n>`.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seeds: Option<i64>,
    /// How much is measured beside the training: `full` looks at every tensor's updates, at what other
    /// ways of storing would have made of them, and at every operation's values. It costs time and
    /// changes no bit [default: seed].
    #[arg(long, value_enum, value_name = "WHAT")]
    pub ledger: Option<Measured>,
    /// Steps between two looks of the full ledger [default: as often as swallowed updates are counted].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub ledger_every: Option<i64>,
    /// Appended to the names of the CSV files.
    #[arg(long)]
    pub tag: Option<String>,
    /// Write the weights after the last step.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Write the gradients of one step, by weight.
    #[arg(long, num_args = 2, value_names = ["STEP", "FILE"], allow_negative_numbers = true)]
    pub dump_grads: Option<Vec<String>>,
    /// Plain lines on a terminal too, instead of the live view.
    #[arg(long, short)]
    pub quiet: bool,
    /// After the training, time a step of each scheme launch by launch, as `isobit bench` does: time,
    /// bytes, operations and share of the device's ceilings of each kernel, in profile_<scheme>.csv, and
    /// profile_trace.json for Perfetto. The run's bits and times are without it.
    #[arg(long)]
    pub profile: bool,
    /// Check everything and say what would run, without running or writing.
    #[arg(long)]
    pub dry_run: bool,
    /// Checkpoints.
    #[command(flatten)]
    pub checkpoints: CheckpointArgs,
    /// Tuning.
    #[command(flatten)]
    pub tune: TuneArgs,
}

impl TrainArgs {
    /// The settings that preset (`default` where none is named), config file and flags give together.
    ///
    /// # Errors
    /// A file, key or value that cannot be used.
    pub fn settings(&self, default: Preset) -> Result<Settings, Error> {
        self.settings_over(Settings::preset(self.preset.unwrap_or(default)))
    }

    /// The settings that config file and flags give over others.
    ///
    /// # Errors
    /// As [`TrainArgs::settings`].
    pub fn settings_over(&self, mut s: Settings) -> Result<Settings, Error> {
        if let Some(path) = &self.config {
            s.apply_file(path)?;
        }
        let count = |flag: &str, to: &mut usize, v: Option<i64>| match v {
            None => Ok(()),
            Some(v) => match usize::try_from(v) {
                Ok(v) => {
                    *to = v;
                    Ok(())
                }
                Err(_) => usage(format!("--{flag} {v}: must not be negative")),
            },
        };
        count("steps", &mut s.steps, self.steps)?;
        count("warmup", &mut s.warmup, self.warmup)?;
        count("final-fp32", &mut s.final_fp32, self.final_fp32)?;
        count("batch", &mut s.batch, self.batch)?;
        count("accumulate", &mut s.accumulate, self.accumulate)?;
        if let Some(v) = self.seed {
            s.seed =
                u64::try_from(v).or_else(|_| usage(format!("--seed {v}: must not be negative")))?;
        }
        self.measured(&mut s)?;
        s.lr = self.lr.unwrap_or(s.lr);
        // A lower --lr alone must not end below the preset's final rate.
        s.min_lr = self.min_lr.unwrap_or(if self.lr.is_some() {
            s.min_lr.min(s.lr)
        } else {
            s.min_lr
        });
        if let Some(p) = &self.data {
            s.text = Some(p.clone());
        }
        if let Some(p) = &self.init {
            s.init = Some(p.clone());
        }
        if let Some(list) = self.chosen()? {
            s.schemes = list;
        }
        s.validate()?;
        Ok(s)
    }

    fn measured(&self, s: &mut Settings) -> Result<(), Error> {
        let l = &mut s.ledger;
        match self.ledger {
            Some(Measured::Seed) => l.full_interval = 0,
            Some(Measured::Full) if l.full_interval == 0 => l.full_interval = l.swallow_interval,
            _ => {}
        }
        match self.ledger_every {
            Some(n) if n < 1 => usage(format!("--ledger-every {n}: must be at least 1")),
            Some(_) if l.full_interval == 0 => {
                usage("--ledger-every: is of the full ledger; add --ledger full")
            }
            Some(n) => {
                l.full_interval = n as u64;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The schemes of `--schemes`, in the order in which they run.
    fn chosen(&self) -> Result<Option<Vec<Scheme>>, Error> {
        let Some(list) = &self.schemes else {
            return Ok(None);
        };
        let mut out = list
            .iter()
            .map(|n| Scheme::parse(n))
            .collect::<Result<Vec<_>, _>>()?;
        out.sort_by_key(|x| SCHEMES.iter().position(|y| x == y));
        out.dedup();
        Ok(Some(out))
    }

    /// The settings of a run to go on with. Flags and a config file may name its files anew.
    fn settings_of(&self, r: &Resumed) -> Result<Settings, Error> {
        let mut s = self.settings_over(r.settings())?;
        (s.name, s.schemes) = (r.meta().settings.name.clone(), r.schemes.clone());
        r.check_settings(&s)?;
        if let (Some(tag), false) = (&self.tag, self.checkpoints.resume_as.is_some())
            && *tag != r.meta().tag
        {
            return usage(format!(
                "--tag {tag:?}: the run to go on with has the tag {:?}",
                r.meta().tag
            ));
        }
        Ok(s)
    }

    fn extras(&self, s: &Settings) -> Result<Extras, Error> {
        let dump_grads = match self.dump_grads.as_deref() {
            Some([step, file]) => match step.parse::<usize>() {
                Ok(n) if (1..=s.steps).contains(&n) => Some((n, PathBuf::from(file))),
                _ => {
                    return usage(format!(
                        "--dump-grads {step}: the step must be from 1 to {}",
                        s.steps
                    ));
                }
            },
            _ => None,
        };
        if let Some(tag) = self.tag.as_ref().filter(|t| !plain_tag(t)) {
            return usage(format!(
                "--tag {tag:?}: is part of file names: at most 64 letters, digits, `.`, `_` and `-`"
            ));
        }
        // The files of `bf16` with the tag `-sr` would be those of `bf16-sr`.
        let tag = self.tag.as_deref().unwrap_or_default();
        let other = |a: &Scheme, b: &Scheme| {
            b.name().len() > a.name().len() && format!("{}{tag}", a.name()).starts_with(b.name())
        };
        if let Some(b) = SCHEMES.iter().find(|b| SCHEMES.iter().any(|a| other(a, b))) {
            return usage(format!(
                "--tag {tag:?}: the files of another scheme would look like those of {}; begin it with `_`",
                b.name()
            ));
        }
        Ok(Extras {
            save: self.save.clone(),
            dump_grads,
        })
    }
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Whatever stops it, as one line.
pub fn train(global: &Global, args: &TrainArgs) -> Result<i32, Error> {
    match args.seeds {
        Some(n) => train_seeds(global, args, n),
        None => one(global, args).map(|done| done.code),
    }
}

/// How the command ended for one seed.
pub struct Done {
    /// Exit code.
    pub code: i32,
    /// Where the files are.
    pub outdir: PathBuf,
}

/// Runs one seed.
///
/// # Errors
/// Whatever stops it, as one line.
pub fn one(global: &Global, args: &TrainArgs) -> Result<Done, Error> {
    let flags = &args.checkpoints;
    let schedule = flags.schedule()?;
    // Without a device there is no default preset; with one, the settings are still checked first.
    let asked = args
        .preset
        .or(args.config.is_some().then_some(Preset::Tiny));
    if let (Some(preset), None) = (asked, &flags.resume) {
        args.settings(preset)?;
    }
    let resumed = flags.resumed(args.tag.as_deref(), args.chosen()?.as_deref())?;
    let mut device = Device::choose(global)?;
    let mut s = match &resumed {
        Some(r) => args.settings_of(r)?,
        None => args.settings(default_preset(&device))?,
    };
    if let Some(asked) = global.numerics {
        if resumed.is_some() && asked != s.numerics {
            return usage(format!(
                "--numerics {asked}: the run to go on with is {}",
                s.numerics
            ));
        }
        s.numerics = asked;
    }
    let extras = args.extras(&s)?;
    let before = resumed.as_ref().map(|r| r.meta().tag.clone());
    let tag = args.tag.clone().or(before).unwrap_or_default();
    device.set_tune(args.tune.of_run(s.steps * s.accumulate));
    let first = device.open(s.numerics)?;
    let data = Data::load(&s)?;
    if let Some(r) = &resumed {
        r.check_data(&data)?;
    }
    let model = s.model(data.text.vocab.len());
    check_memory(&model, s.batch, free_memory())?;
    let (weights, init) = initial(&s, &model, resumed.as_ref())?;
    if let (Some(r), Some(path)) = (&resumed, &args.init)
        && weights_sha256(&weights::load(path, &model)?) != r.meta().data.init
    {
        return usage(format!(
            "--init {}: the run to go on with began from other weights; leave it out",
            path.display()
        ));
    }
    let dump = extras.dump_grads.is_some();
    let compile = |scheme: &Scheme| Programs::compile(&model, &s, *scheme, dump);
    let programs = s
        .schemes
        .iter()
        .map(compile)
        .collect::<Result<Vec<_>, _>>()?;
    let info = first.info();
    let outdir = outdir(args, &s, resumed.as_ref(), &info)?;
    let passport = device.admit(s.numerics)?;
    introduce_device(&device, &info);
    introduce_numerics(s.numerics, &info, passport.as_ref());
    introduce(&s, &data, &model, &programs, &outdir);
    for found in lint(&s, model.vocab, &weights) {
        if found.level == Level::Warning {
            println!("warning: {}", found.text);
        }
    }
    let files: Vec<Extras> = s
        .schemes
        .iter()
        .map(|&x| extras.of(x, s.schemes.len()))
        .collect();
    let resumed = match resumed {
        None if !flags.overwrite => {
            let there = finished(&s, &data, &init, &outdir, &tag);
            if there.is_some() {
                println!(
                    "this run is there already, finished; --overwrite makes it anew, with the same bits"
                );
            }
            there
        }
        resumed => resumed,
    };
    let points = resumed.as_ref().map_or(&[][..], |r| &r.points);
    refuse_points(&extras, points, &s, &data)?;
    refuse_stop(flags.stop_after, points, &s)?;
    refuse_loss(&s, &outdir, &tag, points, flags.overwrite)?;
    refuse_collisions(&s, args, points, &outdir, &files)?;
    tell_points(&s, points, &programs, dump);
    if args.dry_run {
        println!("dry run: all is in order; nothing was run or written");
        return Ok(Done { code: 0, outdir });
    }
    let stop_after = flags.stop_after.map(|n| n as usize);
    let job = Job {
        s: &s,
        tag: &tag,
        outdir: &outdir,
        device: &device,
        data: &data,
        model,
        programs: &programs,
        weights,
        files: &files,
        schedule,
        stop_after,
        quiet: args.quiet,
        init,
        points: resumed.map_or(vec![], |r| r.points),
    };
    // What the device cannot hold is refused before anything is written.
    let ready = job.first_session(first)?;
    prepare_outputs(&outdir, &files)?;
    let places = ProfilePlaces {
        outdir: &outdir,
        tag: &tag,
    };
    if args.profile {
        places.check(&s.schemes)?;
    }
    let _lock = match schedule {
        Some(_) => Some(claim(&s, &outdir, &tag, flags.overwrite)?),
        None => None,
    };
    catch_signals()?;
    env::write(&outdir, &info, &data.text, &s, &hashes(&programs))?;
    if job.points.is_empty() {
        // A mean over other runs says nothing of this one.
        let _ = std::fs::remove_file(outdir.join(format!("seeds{tag}.csv")));
    }
    write_plans(&s, &tag, &outdir, &programs, !job.points.is_empty())?;
    let mut code = job.run(ready)?;
    if args.profile && code == 0 {
        code = profile_run(&device, &s, &data, model, &places)?;
    }
    Ok(Done { code, outdir })
}

/// The initial weights and their digest. Where every scheme goes on from a checkpoint none are needed.
fn initial(
    s: &Settings,
    model: &CharGpt,
    resumed: Option<&Resumed>,
) -> Result<(Weights, String), Error> {
    let starts =
        |scheme: &Scheme| resumed.is_none_or(|r| r.points.iter().all(|p| p.scheme() != *scheme));
    if let (Some(r), false) = (resumed, s.schemes.iter().any(starts)) {
        return Ok((vec![], r.meta().data.init.clone()));
    }
    let weights = first_weights(s, model)?;
    let digest = weights_sha256(&weights);
    match resumed.map(|r| &r.meta().data.init) {
        Some(was) if *was != digest => usage(
            "the schemes that are yet to start need the run's initial weights, and these are others; \
             give the run's own with --init, or choose with --schemes",
        ),
        _ => Ok((weights, digest)),
    }
}

/// Where the files go.
fn outdir(
    args: &TrainArgs,
    s: &Settings,
    resumed: Option<&Resumed>,
    info: &DeviceInfo,
) -> Result<PathBuf, Error> {
    let default = || PathBuf::from("results").join(format!("{}-{}", s.name, info.backend));
    match (&args.outdir, resumed) {
        (Some(dir), _) => Ok(dir.clone()),
        (None, None) => Ok(default()),
        (None, Some(r)) => r.outdir.clone().ok_or_else(|| {
            Error::Usage(format!(
                "{}: does not lie in a run's output folder; say with --outdir where the files go",
                r.points[0].path.display()
            ))
        }),
    }
}

fn hashes(programs: &[Programs]) -> BTreeMap<String, String> {
    programs.iter().flat_map(|p| p.hashes()).collect()
}
