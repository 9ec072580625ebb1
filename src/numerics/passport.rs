//! The passport: what the probe found on a device, as a table, as JSON, and kept from run to run.

use crate::cache;
use crate::exec::{DeviceInfo, wgsl};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The version of the JSON.
const FORMAT: &str = "isobit passport 1";
/// No passport is longer.
const LONGEST: u64 = 1 << 20;

/// What a row decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A property that portable kernels rest on.
    Required,
    /// A kernel that training runs, in the device's own variant; required too.
    Production,
    /// Must differ, or the probe is blind.
    Control,
    /// Decides nothing: no kernel rests on it.
    Note,
}

/// The first answer that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Its number.
    pub at: usize,
    /// Operands, where the row has them; all bits in hex.
    pub operands: Vec<String>,
    /// The CPU's bits.
    pub want: String,
    /// The device's.
    pub have: String,
}

/// One row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The property.
    pub name: String,
    /// What it decides.
    pub kind: Kind,
    /// Answers compared.
    pub cases: usize,
    /// Answers that differ, as training runs.
    pub differ: usize,
    /// The same with less protection: how, and answers that differ.
    #[serde(default)]
    pub less: Vec<(String, usize)>,
    /// The first that differs.
    #[serde(default)]
    pub first: Option<Difference>,
}

impl Row {
    /// Whether it is as it must be.
    pub fn holds(&self) -> bool {
        match self.kind {
            Kind::Required | Kind::Production => self.differ == 0,
            Kind::Control => self.differ > 0,
            Kind::Note => true,
        }
    }
}

/// A fact in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FactLine {
    /// What was asked.
    pub name: String,
    /// What was found.
    pub finding: String,
}

/// The device of a passport.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Device {
    /// `cpu`, `vulkan`, …
    pub backend: String,
    /// Its own name.
    pub name: String,
    /// Driver and version, or the instruction set.
    pub driver: String,
    /// `cpu`, `software gpu`, …
    pub kind: String,
    /// Whether the no-contraction belt is on; none on a CPU.
    pub belt: Option<bool>,
}

impl Device {
    /// From what an executor tells.
    pub fn of(info: &DeviceInfo, belt: Option<bool>) -> Device {
        Device {
            backend: info.backend.clone(),
            name: info.name.clone(),
            driver: info.driver.clone(),
            kind: info.kind.clone(),
            belt,
        }
    }
}

/// A passport.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Passport {
    /// Names this format.
    pub format: String,
    /// The program's version.
    pub version: String,
    /// Hash of the program's shaders.
    pub shaders: String,
    /// The device.
    pub device: Device,
    /// Whether portable runs are allowed there.
    pub portable: bool,
    /// The first property that failed.
    pub failed: Option<String>,
    /// One number for all answers that decide: the same on every device that passes.
    pub digest: String,
    /// Time of the probe.
    pub ms: f64,
    /// A row that a test falsified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Facts.
    pub facts: Vec<FactLine>,
}

impl Passport {
    /// Draws the verdict.
    pub fn new(device: Device, rows: Vec<Row>, facts: Vec<FactLine>, digest: String) -> Passport {
        let failed = rows.iter().find(|r| !r.holds()).map(|r| match r.kind {
            Kind::Control => format!("{} is not seen", r.name),
            _ => r.name.clone(),
        });
        Passport {
            format: FORMAT.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            shaders: wgsl::hash(),
            device,
            portable: failed.is_none(),
            failed,
            digest,
            ms: 0.0,
            fault: None,
            rows,
            facts,
        }
    }

    /// The verdict, as the last line of the table.
    pub fn verdict(&self) -> String {
        match &self.failed {
            None => "portable: yes".into(),
            Some(property) => format!("portable: no: {property}"),
        }
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{} ({}, {}), {}\n",
            self.device.name, self.device.backend, self.device.kind, self.device.driver
        );
        let less: Vec<&String> = self.rows[0].less.iter().map(|l| &l.0).collect();
        let _ = write!(
            out,
            "{:<48} {:>6} {:>10}",
            "answers that differ from the CPU's", "of", "as shipped"
        );
        for how in less {
            let _ = write!(out, " {how:>12}");
        }
        out.push('\n');
        for r in &self.rows {
            let _ = write!(out, "{:<48} {:>6} {:>10}", r.name, r.cases, r.differ);
            for (_, n) in &r.less {
                let _ = write!(out, " {n:>12}");
            }
            if !r.holds() {
                out.push_str("  <- fails");
            }
            out.push('\n');
            if let Some(d) = &r.first {
                let _ = writeln!(
                    out,
                    "    the first, number {}: {} for {}{}",
                    d.at,
                    number(&d.have),
                    number(&d.want),
                    match d.operands.join(" ") {
                        s if s.is_empty() => s,
                        s => format!(", operands {s}"),
                    }
                );
            }
        }
        out.push_str("(controls must differ)\n\nwhere nothing holds it, this device does:\n");
        for f in &self.facts {
            let _ = writeln!(out, "  {:<46} {}", f.name, f.finding);
        }
        if let Some(row) = &self.fault {
            let _ = writeln!(out, "a test falsified the row {row:?}");
        }
        let _ = write!(
            out,
            "\ndigest {}, {:.1} s\n{}",
            self.digest,
            self.ms / 1e3,
            self.verdict()
        );
        out
    }
}

/// Bits in hex, and as a number.
fn number(hex: &str) -> String {
    let bits = u32::from_str_radix(hex, 16).unwrap_or(0);
    format!("{hex} ({:e})", f32::from_bits(bits))
}

/// The passport of a device, from an earlier run of this version on this driver if there is one.
/// `probe` makes a new one. Nothing is kept under an injected fault.
///
/// # Errors
/// What `probe` says.
pub fn kept<E>(
    key: &Device,
    fresh: bool,
    probe: impl FnOnce() -> Result<Passport, E>,
) -> Result<(Passport, bool), E> {
    let fault = std::env::var_os(super::probe::FAULT).is_some();
    let file = if fault { None } else { file(key) };
    if let (Some(file), false) = (&file, fresh)
        && let Some(p) = read(file, key)
    {
        return Ok((p, true));
    }
    let p = probe()?;
    if let (Some(file), Ok(bytes)) = (file, serde_json::to_vec_pretty(&p)) {
        cache::keep(&file, &bytes);
    }
    Ok((p, false))
}

/// A kept passport, if it is one, and of this device, driver, version and shaders.
fn read(file: &Path, key: &Device) -> Option<Passport> {
    let p: Passport = serde_json::from_slice(&cache::read(file, LONGEST)?).ok()?;
    let same = p.format == FORMAT
        && p.version == env!("CARGO_PKG_VERSION")
        && p.shaders == wgsl::hash()
        && Device {
            belt: None,
            ..p.device.clone()
        } == *key
        && p.fault.is_none();
    // The verdict is drawn anew, so that an edited file says nothing that its rows do not.
    let again = Passport::new(p.device.clone(), p.rows.clone(), vec![], String::new());
    let whole = !p.rows.is_empty() && again.portable == p.portable && again.failed == p.failed;
    (same && whole).then_some(p)
}

/// Where a device's passport is kept: the user's cache folder.
fn file(key: &Device) -> Option<PathBuf> {
    let shaders = wgsl::hash();
    let parts = [
        env!("CARGO_PKG_VERSION"),
        &shaders,
        &key.backend,
        &key.name,
        &key.driver,
        &key.kind,
    ];
    cache::file("probe", &parts)
}
