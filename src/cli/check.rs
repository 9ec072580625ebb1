//! `isobit check`.

use super::device::Device;
use super::job::materials;
use super::outputs::{Outputs, among_checkpoints, whole};
use super::terminal::{catch_signals, clear, interrupted, say};
use super::train::TrainArgs;
use super::tune::TuneArgs;
use super::{Backend, Global};
use crate::config::{Preset, Settings};
use crate::error::{Error, usage};
use crate::exec::Numerics;
use crate::exec::cpu::Cpu;
use crate::numerics::certificate::{Certificate, SchemeRun};
use crate::numerics::check::{self, Divergence, Entry, Extent, TensorDigests, Watcher};
use crate::numerics::course::{Course, Snapshot};
use crate::numerics::diverge::Finding;
use crate::numerics::passport::Passport;
use crate::report::files;
use clap::Args;
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Steps where none are asked for.
const STEPS: usize = 20;
/// Rows of a table, about.
const ROWS: usize = 20;

/// Flags of `check`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Ends with 0 if all bits are equal, 1 if not, 2 on an error.\n\n\
    On a difference, the first one is found by bisection over the steps and then over the operations of\n\
    the step: operation, kernel, tensor, element, both values and how far they are apart.\n\n\
    A certificate carries a run to another machine: --record writes its digests, settings and hashes, and\n\
    --against compares a run of this machine with them. The steps are the first ones of the run that\n\
    `train` would do with the same settings, and so are the digests."
)]
pub struct CheckArgs {
    /// Devices, comma-separated: cpu, cpu:THREADS, vulkan, metal, dx12, gl, each with :NAME-OR-INDEX
    /// where there are several; or all [default: all; with --against the one that would be used].
    #[arg(long, value_name = "LIST")]
    pub on: Option<String>,
    /// Model and schedule [default: tiny, or the certificate's].
    #[arg(long, value_enum)]
    pub preset: Option<Preset>,
    /// TOML file with the run's settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// UTF-8 text to train on [default: a dialogue that the program makes itself].
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Initial weights (safetensors, PyTorch's names) [default: drawn from the seed].
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Precision schemes, comma-separated [default: all of this version].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub schemes: Option<Vec<String>>,
    /// Steps to compare, from the first one of the run [default: 20, or the certificate's].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<i64>,
    /// Sequences a step.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub batch: Option<i64>,
    /// Seed of initial weights and batches.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<i64>,
    /// Steps between comparisons.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
    /// Write a certificate of the run.
    #[arg(long, value_name = "FILE", conflicts_with = "against")]
    pub record: Option<PathBuf>,
    /// Steps between digests tensor by tensor in the certificate.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub tensors_every: u32,
    /// Compare with a certificate.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Tuning.
    #[command(flatten)]
    pub tune: TuneArgs,
}

impl CheckArgs {
    fn settings(
        &self,
        global: &Global,
        certificate: Option<&Certificate>,
    ) -> Result<Settings, Error> {
        let flags = TrainArgs {
            preset: self.preset,
            config: self.config.clone(),
            data: self.data.clone(),
            init: self.init.clone(),
            schemes: self.schemes.clone(),
            batch: self.batch,
            seed: self.seed,
            ..TrainArgs::default()
        };
        let mut s = match certificate {
            Some(c) if self.preset.is_none() && self.config.is_none() => {
                flags.settings_over(Settings {
                    schemes: recorded(c)?,
                    ..c.config.clone()
                })?
            }
            _ => flags.settings(Preset::Tiny)?,
        };
        s.numerics = global.numerics.unwrap_or(s.numerics);
        if let Some(c) = certificate {
            if self.schemes.is_none() {
                s.schemes = recorded(c)?;
            }
            c.fits(&s)?;
        }
        Ok(s)
    }

    fn steps(&self, s: &Settings, certificate: Option<&Certificate>) -> Result<usize, Error> {
        let most = certificate.map_or(s.steps, |c| c.steps);
        let wanted = match self.steps {
            Some(n) => usize::try_from(n).unwrap_or(0),
            None => certificate.map_or(STEPS.min(s.steps), |c| c.steps),
        };
        if (1..=most).contains(&wanted) {
            return Ok(wanted);
        }
        let whose = if certificate.is_some() {
            "the certificate"
        } else {
            "the run"
        };
        usage(format!(
            "--steps {}: {whose} has {most} steps; take 1 to {most}",
            self.steps.unwrap_or_default()
        ))
    }
}

/// The schemes of a certificate.
pub(super) fn recorded(c: &Certificate) -> Result<Vec<crate::config::Scheme>, Error> {
    c.runs
        .iter()
        .map(|r| crate::config::Scheme::parse(&r.scheme))
        .collect()
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// A device, file or setting that cannot be used, or a certificate of another run.
pub fn check(global: &Global, args: &CheckArgs) -> Result<i32, Error> {
    let certificate = args.against.as_deref().map(Certificate::read).transpose()?;
    let s = args.settings(global, certificate.as_ref())?;
    let steps = args.steps(&s, certificate.as_ref())?;
    if let Some(path) = &args.record {
        Outputs::new(&s, &args.config).claim(path)?;
        if among_checkpoints(&whole(path)) {
            return usage(format!(
                "cannot write {}: a run's own files are there; take a place outside its `checkpoints`",
                path.display()
            ));
        }
        files::check_writable(path)?;
    }
    if global.backend != Backend::Auto && (args.on.is_some() || certificate.is_none()) {
        return usage(
            "check compares devices that --on names: give --on cpu,vulkan, say, instead of --backend",
        );
    }
    let mut devices = match (&args.on, &certificate) {
        (Some(list), _) => Device::several(list, global)?,
        (None, None) => Device::several("all", global)?,
        (None, Some(_)) => {
            let device = Device::choose(global)?;
            vec![(device.backend().into(), device)]
        }
    };
    let tune = args.tune.of_run(steps);
    devices.iter_mut().for_each(|d| d.1.set_tune(tune));
    let (data, _, weights) = materials(&s)?;
    let mut passports = Vec::new();
    for (label, device) in &devices {
        let passport = device.admit(s.numerics)?;
        println!("{label}: {}", about(device, passport.as_ref())?);
        if args.record.is_some() {
            passports.push(match passport {
                Some(p) => p,
                None => device.passport(false)?.0,
            });
        }
    }
    if s.numerics == Numerics::Fast {
        println!(
            "fast: equal bits are promised from run to run on one device, driver and build only"
        );
    }
    let entries = entries(&devices, s.numerics);
    catch_signals()?;
    let mut all = Comparison {
        extent: Extent {
            steps,
            every: args.every as usize,
            tensors: args.tensors_every as usize,
        },
        certificate: certificate.as_ref(),
        entries: &entries,
        runs: vec![],
        equal: true,
        stopped: false,
        compared: vec![],
    };
    let mut batches = String::new();
    for &scheme in &s.schemes {
        let mut course = Course::new(&s, &data, &weights, scheme)?;
        if batches.is_empty() {
            // A certificate's hash is of all its steps.
            let covered = certificate.as_ref().map_or(steps, |c| c.steps);
            batches = course.batches_hash(covered);
            if let Some(c) = &certificate {
                c.same_inputs(&data, &weights, &batches)?;
            }
        }
        all.scheme(&mut course, None)?;
        if all.stopped {
            println!("\nstopped; nothing was written");
            return Ok(130);
        }
    }
    println!("\n{}", all.verdict());
    let (equal, runs) = (all.equal, all.runs);
    if let (Some(path), true) = (&args.record, equal) {
        let c = Certificate::new(&s, &data, &weights, batches, steps, passports, runs);
        let mut bytes =
            serde_json::to_vec_pretty(&c).map_err(|e| Error::Internal(e.to_string()))?;
        bytes.push(b'\n');
        files::write_atomic(path, &bytes)?;
        println!("certificate: {}", path.display());
    } else if args.record.is_some() {
        println!("no certificate: the devices differ");
    }
    Ok(if equal { 0 } else { 1 })
}

pub(super) fn entries<'a>(devices: &'a [(String, Device)], numerics: Numerics) -> Vec<Entry<'a>> {
    let each = devices.iter().map(|(label, device)| Entry {
        label: label.clone(),
        open: Box::new(move || device.open(numerics)),
    });
    each.collect()
}

/// A device in a line.
pub(super) fn about(device: &Device, passport: Option<&Passport>) -> Result<String, Error> {
    let info = device.info()?;
    let threads = info
        .threads
        .map_or(String::new(), |t| format!(", {t} threads"));
    let probe = passport.map_or(String::new(), |p| format!("; probe {}", p.digest));
    Ok(format!("{} ({}{threads}){probe}", info.name, info.driver))
}

/// A comparison, scheme by scheme.
pub(super) struct Comparison<'a> {
    /// How far and how often.
    pub extent: Extent,
    /// What the first device is held against.
    pub certificate: Option<&'a Certificate>,
    /// The devices.
    pub entries: &'a [Entry<'a>],
    /// What a certificate would hold.
    pub runs: Vec<SchemeRun>,
    /// Whether all was equal so far.
    pub equal: bool,
    /// Whether a person stopped it.
    pub stopped: bool,
    /// Each scheme, and the steps after which it was compared.
    pub compared: Vec<(&'static str, Vec<usize>)>,
}

/// Steps in words.
fn in_words(steps: &[usize]) -> String {
    match steps {
        [] => "no step".into(),
        [one] => format!("step {one}"),
        [first, .., last] if last - first + 1 == steps.len() => format!("steps {first} to {last}"),
        [first, .., last] => format!("{} steps from {first} to {last}", steps.len()),
    }
}

impl Comparison<'_> {
    /// What came out, and after which steps it was looked at.
    pub fn verdict(&self) -> String {
        if !self.equal {
            return "different".into();
        }
        let each = self.compared.iter().map(|(_, steps)| in_words(steps));
        let mut at: Vec<String> = each.collect();
        at.dedup();
        if at.len() > 1 {
            let each = self.compared.iter();
            at = each
                .map(|(scheme, steps)| format!("{} of {scheme}", in_words(steps)))
                .collect();
        }
        format!("equal: every bit, after {}", at.join(", "))
    }

    /// Compares one scheme's steps, from a snapshot on or from the first, and tells of a difference.
    ///
    /// # Errors
    /// A device failed, or the certificate is of another plan.
    pub fn scheme(&mut self, course: &mut Course, start: Option<&Snapshot>) -> Result<(), Error> {
        let recorded = self.certificate.map(|c| c.run_of(course)).transpose()?;
        let labels: Vec<&str> = self.entries.iter().map(|e| e.label.as_str()).collect();
        let first = start.map_or(1, |s| s.at + 1);
        let mut view = Table::new(course.scheme.name(), &labels, first, self.extent.steps);
        let expected = |step: usize| recorded.and_then(|r| r.digest(step));
        let (entries, mut extent) = (self.entries, self.extent);
        if let Some(r) = recorded {
            if r.recorded_within(first, extent.steps).is_empty() {
                return usage(format!(
                    "the certificate has no digest of {} from step {first} to {}: take more --steps",
                    r.scheme, extent.steps
                ));
            }
            extent.tensors = r.recorded_from(1).unwrap_or(extent.steps);
        }
        let outcome = check::check(course, entries, extent, start, &expected, &mut view);
        view.finish();
        let outcome = outcome?;
        self.stopped = outcome.stopped;
        if let Some(d) = &outcome.divergence {
            self.equal = false;
            self.tell(d);
        } else if let (Some(found), Some(r)) = (outcome.unexpected, recorded) {
            self.equal = false;
            self.narrow(course, r, start, found)?;
        } else if let Some(r) = recorded {
            self.equal &= outcome.tensors.iter().all(|t| same_tensors(r, t));
        }
        let compared = match recorded {
            Some(r) => r.recorded_within(first, outcome.steps),
            None => outcome.digests.iter().map(|d| d.0).collect(),
        };
        self.compared.push((course.scheme.name(), compared));
        if self.certificate.is_none() {
            self.runs.push(SchemeRun::new(course, &outcome));
        }
        Ok(())
    }

    fn tell(&self, d: &Divergence) {
        let [a, b] = d.devices.map(|i| self.entries[i].label.as_str());
        println!("{a} and {b} differ. The first difference:");
        tell(&d.finding);
    }

    /// What a certificate's digests tell of a difference, and what the CPU executor of this machine
    /// does, if it agrees with the certificate.
    fn narrow(
        &self,
        course: &mut Course,
        r: &SchemeRun,
        start: Option<&Snapshot>,
        (step, have, want): (usize, u64, u64),
    ) -> Result<(), Error> {
        let entry = &self.entries[0];
        println!(
            "{} differs from the certificate at step {step}: {have:016x} for {want:016x}",
            entry.label
        );
        if let Some(at) = r.recorded_from(step) {
            let digests = check::digests_at(course, entry, start, at)?;
            let names = r.differing(at, &digests).unwrap_or_default();
            println!(
                "at step {at}, {} of {} tensors differ; the first: {}",
                names.len(),
                r.tensors.len(),
                names.first().unwrap_or(&"none")
            );
        }
        let cpu = Entry {
            label: "cpu".into(),
            open: Box::new(|| Ok(Box::new(Cpu::new(None)?))),
        };
        let here = crate::numerics::course::whole(&check::digests_at(course, &cpu, start, step)?);
        if here == want && here != have {
            println!("the CPU executor here agrees with it; against that, the first difference:");
            tell(&check::search(course, [&cpu, entry], start, step)?);
        }
        Ok(())
    }
}

/// Whether the digests tensor by tensor are the certificate's, where it has them; tells of a difference.
fn same_tensors(r: &SchemeRun, (step, digests): &TensorDigests) -> bool {
    let names = r.differing(*step, digests).unwrap_or_default();
    if let Some(first) = names.first() {
        println!(
            "at step {step}, the digest of the whole is the certificate's, but those of {} of {} tensors differ; the first: {first}",
            names.len(),
            r.tensors.len()
        );
    }
    names.is_empty()
}

fn tell(finding: &Finding) {
    match finding {
        Finding::Element(e) => println!("{e}"),
        Finding::Gone { step } => println!(
            "  step     {step}\n  it did not come again when the step was repeated: one of the devices does not repeat itself"
        ),
    }
}

/// The table of digests as it grows.
struct Table {
    scheme: &'static str,
    first: usize,
    steps: usize,
    width: usize,
    bar: Option<ProgressBar>,
}

impl Table {
    fn new(scheme: &'static str, labels: &[&str], first: usize, steps: usize) -> Table {
        let width = labels.iter().map(|l| l.len()).max().unwrap_or(0).max(16);
        let mut head = format!("\n{scheme:<10} {:>6}", "step");
        for l in labels {
            head.push_str(&format!("  {l:<width$}"));
        }
        println!("{}", head.trim_end());
        let bar = std::io::stderr()
            .is_terminal()
            .then(|| ProgressBar::new(steps as u64));
        Table {
            scheme,
            first,
            steps,
            width,
            bar,
        }
    }

    fn line(&self, text: &str) {
        say(self.bar.as_ref(), text);
    }

    fn finish(&self) {
        clear(self.bar.as_ref());
    }
}

impl Watcher for Table {
    fn working(&mut self, step: usize, label: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(step as u64 - 1);
            bar.set_message(label.to_string());
        }
    }

    fn compared(&mut self, step: usize, digests: &[u64], equal: bool) {
        let every = (self.steps + 1 - self.first).div_ceil(ROWS);
        if equal && step != self.first && step != self.steps && !step.is_multiple_of(every) {
            return;
        }
        let mut row = format!("{:<10} {step:>6}", self.scheme);
        for d in digests {
            row.push_str(&format!("  {:<1$}", format!("{d:016x}"), self.width));
        }
        row.truncate(row.trim_end().len());
        self.line(&row);
    }

    fn searching(&mut self, step: usize, labels: [&str; 2]) {
        let [a, b] = labels;
        self.line(&format!(
            "looking for what makes {a} and {b} differ by step {step}"
        ));
    }

    fn stopped(&self) -> bool {
        interrupted()
    }
}
