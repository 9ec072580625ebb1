//! Where the time of a run's training step goes: what `bench` prints, and `train --profile`.

use super::device::Device;
use super::job::{Weights, first_weights};
use super::terminal::interrupted;
use crate::config::{Scheme, Settings};
use crate::error::Error;
use crate::exec::{Choice, Numerics};
use crate::measure::steps::{Ceilings, KernelTime, Profile, ceilings, profile, trace};
use crate::models::char_gpt::CharGpt;
use crate::report::files::{self, csv_bytes};
use crate::train::run::Data;
use crate::train::session::{Programs, Session};
use std::path::{Path, PathBuf};

/// What is profiled.
pub struct Profiling<'a> {
    /// Where.
    pub device: &'a Device,
    /// In which grade.
    pub numerics: Numerics,
    /// The run.
    pub s: &'a Settings,
    /// Its data.
    pub data: &'a Data,
    /// Its model.
    pub model: CharGpt,
    /// Its initial weights.
    pub weights: &'a Weights,
    /// Steps that count.
    pub steps: usize,
}

impl Profiling<'_> {
    /// Profiles each scheme, prints it, and writes it to the file that `file` names, the variants of its
    /// kernels beside it, and all schemes to a trace. Returns whether it came to its end.
    ///
    /// # Errors
    /// The device failed, or a file cannot be written.
    pub fn go(
        &self,
        schemes: &[Scheme],
        file: &dyn Fn(Scheme) -> PathBuf,
        trace_file: Option<&Path>,
    ) -> Result<bool, Error> {
        let ceilings = ceilings(self.device.open(Numerics::Fast)?.as_mut())?;
        println!(
            "ceilings: {:.3} TFLOP/s of multiply-adds, {:.1} GB/s of a copy",
            ceilings.tflops, ceilings.gbytes
        );
        let mut done: Vec<(&str, Profile)> = Vec::new();
        for &scheme in schemes {
            let programs = Programs::compile(&self.model, self.s, scheme, false)?;
            let exec = self.device.open(self.numerics)?;
            let mut session = Session::new(exec, self.model, &programs, self.weights)?;
            let run = (self.s, self.data);
            let plan = programs.train();
            let Some(p) = profile(&mut session, plan, run, self.steps, &interrupted)? else {
                println!("stopped; the schemes done by then are in the files");
                return Ok(false);
            };
            show(scheme.name(), self.s, &p, ceilings);
            let file = file(scheme);
            files::write_atomic(&file, &table(&p, ceilings)?)?;
            let choices = session.exec().choices();
            if !choices.is_empty() {
                show_variants(&choices);
                files::write_atomic(&variants_file(&file), &variants(&choices)?)?;
            }
            done.push((scheme.name(), p));
        }
        if let Some(path) = trace_file {
            let profiles: Vec<(&str, &Profile)> = done.iter().map(|(n, p)| (*n, p)).collect();
            files::write_atomic(path, trace(&profiles).as_bytes())?;
        }
        Ok(true)
    }
}

/// Steps of each scheme that a training run's profile takes the medians of.
const STEPS: usize = 15;

/// Where a training run's profile goes.
pub struct ProfilePlaces<'a> {
    /// The run's folder.
    pub outdir: &'a Path,
    /// The run's tag.
    pub tag: &'a str,
}

impl ProfilePlaces<'_> {
    fn table(&self, scheme: Scheme) -> PathBuf {
        self.outdir
            .join(format!("profile_{}{}.csv", scheme.name(), self.tag))
    }

    fn trace(&self) -> PathBuf {
        self.outdir.join(format!("profile_trace{}.json", self.tag))
    }

    /// Makes sure before a run that the files can be written after it.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self, schemes: &[Scheme]) -> Result<(), Error> {
        let tables = schemes.iter().map(|x| self.table(*x));
        tables
            .chain([self.trace()])
            .try_for_each(|path| files::check_writable(&path))
    }
}

/// Profiles a step of each of a run's schemes, of one batch, from the run's initial weights; returns the
/// exit code.
///
/// # Errors
/// As [`Profiling::go`].
pub fn profile_run(
    device: &Device,
    s: &Settings,
    data: &Data,
    model: CharGpt,
    places: &ProfilePlaces,
) -> Result<i32, Error> {
    let s = &Settings {
        accumulate: 1,
        ..s.clone()
    };
    println!("\nprofile: {STEPS} steps of each scheme, whole and launch by launch in turn");
    let profiling = Profiling {
        device,
        numerics: s.numerics,
        s,
        data,
        model,
        weights: &first_weights(s, &model)?,
        steps: STEPS,
    };
    let whole = profiling.go(&s.schemes, &|x| places.table(x), Some(&places.trace()))?;
    Ok(if whole { 0 } else { 130 })
}

/// The file of the variants beside that of the kernels.
fn variants_file(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!("{stem}_variants.csv"))
}

/// The variants of each kernel and shape, those that run marked with a star.
fn show_variants(choices: &[Choice]) {
    println!(
        "\nvariants, by kernel, parameters and types; * runs, the first would run unmeasured; us a launch"
    );
    for c in choices {
        println!("{}", super::plain(&c.key));
        let each = c.times.iter().map(|(name, us)| {
            let mark = if *name == c.taken { "*" } else { "" };
            format!("{mark}{} {us:.1}", super::plain(name))
        });
        println!("    {}", each.collect::<Vec<_>>().join(", "));
    }
}

fn variants(choices: &[Choice]) -> Result<Vec<u8>, Error> {
    let rows = choices.iter().flat_map(|c| {
        let (kernel, _) = c.key.split_once(' ').unwrap_or((&c.key, ""));
        c.times.iter().map(move |(name, us)| {
            let taken = if *name == c.taken { "yes" } else { "no" };
            [kernel, &c.key, name, &format!("{us:.2}"), taken].map(String::from)
        })
    });
    csv_bytes(["kernel", "shape", "variant", "us", "taken"], rows)
}

/// Fractions of the ceilings that a kernel reaches: of the multiply-adds, of the bandwidth.
fn fractions(k: &KernelTime, c: Ceilings) -> (f64, f64) {
    let second = k.ms * 1e-3;
    (
        k.flops as f64 / second / (c.tflops * 1e12),
        k.bytes as f64 / second / (c.gbytes * 1e9),
    )
}

fn show(scheme: &str, s: &Settings, p: &Profile, c: Ceilings) {
    let sum: f64 = p.kernels.iter().map(|k| k.ms).sum();
    println!(
        "\n{} at batch {}, {scheme}: {:.2} ms a step; {} launches, {:.2} ms by themselves ({})",
        s.name,
        s.batch,
        p.step_ms,
        p.launches.len(),
        sum,
        p.clock.name()
    );
    println!(
        "{:<18} {:>8} {:>10} {:>7} {:>10} {:>9} {:>7} {:>7}",
        "kernel", "launches", "ms", "share", "MB", "MFLOP", "of FLOP", "of GB/s"
    );
    for k in &p.kernels {
        let (flops, bytes) = fractions(k, c);
        println!(
            "{:<18} {:>8} {:>10.3} {:>6.1}% {:>10.2} {:>9.1} {:>6.1}% {:>6.1}%",
            k.kernel,
            k.launches,
            k.ms,
            100.0 * k.ms / sum,
            k.bytes as f64 / 1e6,
            k.flops as f64 / 1e6,
            100.0 * flops,
            100.0 * bytes
        );
    }
}

fn table(p: &Profile, c: Ceilings) -> Result<Vec<u8>, Error> {
    let header = [
        "kernel",
        "launches",
        "ms",
        "bytes",
        "flop",
        "flop_fraction",
        "bandwidth_fraction",
    ];
    let kernels = p.kernels.iter().map(|k| {
        let (flops, bytes) = fractions(k, c);
        [
            k.kernel.to_string(),
            k.launches.to_string(),
            format!("{:.4}", k.ms),
            k.bytes.to_string(),
            k.flops.to_string(),
            format!("{flops:.4}"),
            format!("{bytes:.4}"),
        ]
    });
    let timed = |name: &str, launches: String, ms: f64| {
        let none = String::new;
        let name = name.to_string();
        [
            name,
            launches,
            format!("{ms:.4}"),
            none(),
            none(),
            none(),
            none(),
        ]
    };
    let sum: f64 = p.kernels.iter().map(|k| k.ms).sum();
    let sum = timed("sum of launches", p.launches.len().to_string(), sum);
    let step = timed("whole step", String::new(), p.step_ms);
    csv_bytes(header, kernels.chain([sum, step]))
}
