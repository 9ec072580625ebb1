//! The choices among variants that were made on a device, kept in the user's cache folder from run to run:
//! one file for each device, driver, grade and version of program and shaders.

use crate::cache;
use crate::exec::wgpu::tune::Book;
use crate::exec::{Choice, DeviceInfo, Numerics, wgsl};
use crate::tell;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the file.
const FORMAT: &str = "isobit choices 1";
/// No file is longer.
const LONGEST: u64 = 4 << 20;
/// No file holds more choices, and no choice has more variants or a longer name.
const MOST: usize = 4096;
const VARIANTS: usize = 16;
const NAME: usize = 1000;

/// The file.
#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    version: String,
    shaders: String,
    grade: Numerics,
    device: DeviceInfo,
    choices: Vec<Choice>,
}

/// A device's choices.
pub struct Kept {
    file: Option<PathBuf>,
    grade: Numerics,
    device: DeviceInfo,
    choices: BTreeMap<String, Choice>,
    /// Those of this run.
    new: BTreeMap<String, Choice>,
    bar: Option<ProgressBar>,
    stopped: fn() -> bool,
}

impl Kept {
    /// What earlier runs kept for a device; a file that is not what it should be is told of and not used.
    /// `stopped` ends the measurements.
    pub fn open(device: DeviceInfo, grade: Numerics, stopped: fn() -> bool) -> Kept {
        let file = place(&device, grade);
        Kept::at(file, device, grade, stopped)
    }

    /// As [`Kept::open`], in a file of one's own.
    pub fn at(
        file: Option<PathBuf>,
        device: DeviceInfo,
        grade: Numerics,
        stopped: fn() -> bool,
    ) -> Kept {
        let choices = match &file {
            Some(file) if file.exists() => read(file, &device, grade).unwrap_or_else(|| {
                tell!(
                    "warning: {} is damaged or of another device: not used, the next measurement makes it anew",
                    file.display()
                );
                BTreeMap::new()
            }),
            _ => BTreeMap::new(),
        };
        Kept {
            file,
            grade,
            device,
            choices,
            new: BTreeMap::new(),
            bar: None,
            stopped,
        }
    }

    /// Writes all choices; those that another process has added meanwhile stay.
    fn save(&mut self) {
        let Some(file) = &self.file else { return };
        let there = read(file, &self.device, self.grade).unwrap_or_default();
        for (key, choice) in there {
            self.choices.entry(key).or_insert(choice);
        }
        self.choices.extend(self.new.clone());
        let newest = self.new.values();
        let older = self.choices.values();
        let others = older.filter(|c| !self.new.contains_key(&c.key));
        let kept = File {
            format: FORMAT.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            shaders: wgsl::hash(),
            grade: self.grade,
            device: self.device.clone(),
            choices: newest.chain(others).take(MOST).cloned().collect(),
        };
        if let Ok(bytes) = serde_json::to_vec_pretty(&kept) {
            cache::keep(file, &bytes);
        }
    }
}

/// Where a device's choices are kept.
pub fn place(device: &DeviceInfo, grade: Numerics) -> Option<PathBuf> {
    let shaders = wgsl::hash();
    let parts = [
        env!("CARGO_PKG_VERSION"),
        &shaders,
        grade.name(),
        &device.backend,
        &device.name,
        &device.driver,
        &device.kind,
    ];
    cache::file("variants", &parts)
}

/// The choices of a file, if it is one of this device, driver, version and shaders, and sound.
fn read(file: &Path, device: &DeviceInfo, grade: Numerics) -> Option<BTreeMap<String, Choice>> {
    let f: File = serde_json::from_slice(&cache::read(file, LONGEST)?).ok()?;
    let same = f.format == FORMAT
        && f.version == env!("CARGO_PKG_VERSION")
        && f.shaders == wgsl::hash()
        && f.grade == grade
        && f.device == *device;
    let sound = f.choices.len() <= MOST && f.choices.iter().all(is_sound);
    let by_key = |c: Choice| (c.key.clone(), c);
    (same && sound).then(|| f.choices.into_iter().map(by_key).collect())
}

fn is_sound(c: &Choice) -> bool {
    let plain = |s: &str| s.len() <= NAME && !s.chars().any(char::is_control);
    let timed = |t: &(String, f64)| plain(&t.0) && t.1.is_finite() && t.1 >= 0.0;
    plain(&c.key)
        && (1..=VARIANTS).contains(&c.times.len())
        && c.times.iter().all(timed)
        && c.times.iter().any(|t| t.0 == c.taken)
}

impl Book for Kept {
    fn kept(&self, key: &str) -> Option<Choice> {
        self.choices.get(key).cloned()
    }

    fn measuring(&mut self, done: usize, of: usize) -> bool {
        if self.bar.is_none() && std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("tuning {wide_bar} {pos}/{len} kernels");
            let bar = ProgressBar::new(of as u64);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            bar.tick();
        }
        !(self.stopped)()
    }

    fn add(&mut self, choice: &Choice) {
        self.new.insert(choice.key.clone(), choice.clone());
    }

    fn differs(&mut self, kernel: &str, variant: &str) {
        tell!(
            "warning: {}: the variant {variant} of {kernel} leaves other bits than the usual one; it is not taken. \
             `isobit probe --fresh` says more of the device",
            self.device.name
        );
    }

    fn close(&mut self, took: Duration) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if self.new.is_empty() {
            tell!(
                "tuning: the first kernel was not done within {:.1} s; all take their usual variants (--retune takes longer)",
                took.as_secs_f64()
            );
            return;
        }
        let others = self.new.values().filter(|c| c.taken != c.times[0].0);
        tell!(
            "tuned: {} kernels in {:.1} s, {} of them take another variant than the usual one; kept for later runs",
            self.new.len(),
            took.as_secs_f64(),
            others.count()
        );
        self.save();
    }
}

#[cfg(test)]
mod tests;
