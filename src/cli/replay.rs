//! `isobit replay`.

use super::Global;
use super::check::{Comparison, about, entries, recorded};
use super::device::Device;
use super::terminal::catch_signals;
use crate::config::{Scheme, Settings};
use crate::error::{Error, usage};
use crate::exec::cpu::free_memory;
use crate::numerics::certificate::Certificate;
use crate::numerics::check::Extent;
use crate::numerics::course::{Course, Snapshot};
use crate::train::checkpoint::Checkpoint;
use crate::train::checkpoint::locate::{file_name, folders};
use crate::train::run::Data;
use crate::train::scaler;
use crate::train::session::check_memory;
use clap::Args;
use std::path::{Path, PathBuf};

/// Flags of `replay`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Ends with 0 if all bits are the certificate's, 1 if not, 2 on an error.\n\n\
    A checkpoint of step K, written by `train --checkpoint-every K`, stands for the K steps before it: the\n\
    window of steps K+1 to K+N is run again and its digests are compared with the certificate's."
)]
pub struct ReplayArgs {
    /// The certificate, from `check --record`.
    #[arg(long, value_name = "FILE")]
    pub against: PathBuf,
    /// Where the run's checkpoints are: its output folder, a scheme's folder, or one file.
    #[arg(long, value_name = "PATH")]
    pub run: PathBuf,
    /// The checkpoint's step.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub from: u32,
    /// Steps to run again.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Devices, comma-separated, as for `check` [default: the one that would be used].
    #[arg(long, value_name = "LIST")]
    pub on: Option<String>,
    /// Precision schemes, comma-separated [default: those of the certificate].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub schemes: Option<Vec<String>>,
    /// The run's text, if it lies elsewhere now.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// A device or file that cannot be used, a checkpoint or certificate of another run.
pub fn replay(global: &Global, args: &ReplayArgs) -> Result<i32, Error> {
    let certificate = Certificate::read(&args.against)?;
    let (from, end) = (args.from as usize, args.from as usize + args.steps as usize);
    if end > certificate.steps {
        return usage(format!(
            "--from {from} --steps {}: the certificate has {} steps",
            args.steps, certificate.steps
        ));
    }
    let schemes = match &args.schemes {
        Some(list) => list
            .iter()
            .map(|n| Scheme::parse(n))
            .collect::<Result<_, _>>()?,
        None => recorded(&certificate)?,
    };
    let points = points(args, &schemes)?;
    let s = settings(global, args, &certificate, &points)?;
    let devices = match &args.on {
        Some(list) => Device::several(list, global)?,
        None => {
            let device = Device::choose(global)?;
            vec![(device.backend().into(), device)]
        }
    };
    let data = Data::load(&s)?;
    let model = s.model(data.text.vocab.len());
    check_memory(&model, s.batch, free_memory())?;
    for (label, device) in &devices {
        let passport = device.admit(s.numerics)?;
        println!("{label}: {}", about(device, passport.as_ref())?);
    }
    let entries = entries(&devices, s.numerics);
    catch_signals()?;
    let mut all = Comparison {
        extent: Extent {
            steps: end,
            every: 1,
            tensors: args.steps as usize,
        },
        certificate: Some(&certificate),
        entries: &entries,
        runs: vec![],
        equal: true,
        stopped: false,
        compared: vec![],
    };
    for (point, &scheme) in points.iter().zip(&schemes) {
        let weights = point.weights();
        let mut course = Course::new(&s, &data, &weights, scheme)?;
        fits(point, &certificate, &mut course, &data)?;
        let states = point
            .states
            .iter()
            .map(|x| (x.name.clone(), x.words.clone()));
        let scaler = point.meta.scaler.as_ref();
        let scaler = scaler.map(|x| scaler::words(x, point.meta.updates));
        let states = states.chain(scaler.into_iter().flatten());
        let start = Snapshot::new(from, states.collect());
        all.scheme(&mut course, Some(&start))?;
        if all.stopped {
            println!("\nstopped");
            return Ok(130);
        }
    }
    println!("\n{}", all.verdict());
    Ok(if all.equal { 0 } else { 1 })
}

/// The checkpoints of the schemes, in their order.
fn points(args: &ReplayArgs, schemes: &[Scheme]) -> Result<Vec<Checkpoint>, Error> {
    let files: Vec<PathBuf> = match args.run.is_file() {
        true => vec![args.run.clone()],
        false => {
            let name = file_name(args.from.into());
            let all = folders(&args.run)?.into_iter().map(|f| f.join(&name));
            all.filter(|f| f.is_file()).collect()
        }
    };
    let mut loaded = Vec::new();
    for f in &files {
        loaded.push(Checkpoint::load(f)?);
    }
    let each = schemes.iter().map(|&scheme| {
        let is = |c: &&Checkpoint| c.scheme() == scheme && c.meta.step == args.from as u64;
        let mut fitting = loaded.iter().filter(is);
        match (fitting.next(), fitting.next()) {
            (Some(c), None) => Ok(c.clone()),
            (Some(_), Some(_)) => usage(format!(
                "{}: has several runs of {}; name the folder of one of them",
                args.run.display(),
                scheme.name()
            )),
            (None, _) => usage(format!(
                "{}: has no checkpoint of step {} for {}; write one with `train --checkpoint-every`, or choose with --schemes",
                args.run.display(),
                args.from,
                scheme.name()
            )),
        }
    });
    each.collect()
}

/// The run's settings: those of the checkpoints, which must be the certificate's.
fn settings(
    global: &Global,
    args: &ReplayArgs,
    certificate: &Certificate,
    points: &[Checkpoint],
) -> Result<Settings, Error> {
    let Some(first) = points.first() else {
        return usage("--schemes: names none");
    };
    let mut s = first.meta.settings.clone();
    if let Some(asked) = global.numerics {
        s.numerics = asked;
    }
    if let Some(path) = &args.data {
        s.text = Some(path.clone());
    }
    for p in points {
        let at = |e: Error| Error::Usage(format!("{}: {e}", p.path.display()));
        certificate.fits(&p.meta.settings).map_err(at)?;
    }
    certificate.fits(&s)?;
    Ok(s)
}

/// Fails unless a checkpoint lies on the certificate's way.
fn fits(
    point: &Checkpoint,
    certificate: &Certificate,
    course: &mut Course,
    data: &Data,
) -> Result<(), Error> {
    let at = |path: &Path| path.display().to_string();
    let m = &point.meta;
    if !m.lineage.is_empty() {
        return usage(format!(
            "{}: has changed its scheme; a certificate's run does not",
            at(&point.path)
        ));
    }
    let batches = course.batches_hash(certificate.steps);
    certificate.same_data(data, &batches)?;
    let Some(want) = certificate.run_of(course)?.digest(m.step as usize) else {
        return Ok(());
    };
    let have = &m.digest;
    if *have != format!("{want:016x}") {
        return usage(format!(
            "{}: its digest is {have}, the certificate's after step {} is {want:016x}: the run went another way before the window; find out where with `isobit check --against`",
            at(&point.path),
            m.step
        ));
    }
    Ok(())
}
