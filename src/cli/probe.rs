//! `isobit probe`.

use super::Global;
use super::device::Device;
use crate::error::Error;
use crate::numerics::passport::Passport;
use crate::report::files;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Flags of `probe`.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Ends with 0 if every device may run in portable mode, 1 if one may not, 2 on an error.\n\
    The result is kept by device, driver and version in the user's cache folder; training asks for it."
)]
pub struct ProbeArgs {
    /// Devices, comma-separated: cpu, cpu:THREADS, vulkan, metal, dx12, gl, each with :NAME-OR-INDEX
    /// where there are several; or all [default: the one that would be used].
    #[arg(long, value_name = "LIST")]
    pub on: Option<String>,
    /// Write the passports as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Probe again, whatever was kept.
    #[arg(long)]
    pub fresh: bool,
}

/// The file of `--json`.
#[derive(Serialize)]
struct File {
    format: &'static str,
    passports: Vec<Passport>,
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// A device that is not there or fails.
pub fn probe(global: &Global, args: &ProbeArgs) -> Result<i32, Error> {
    if let Some(path) = &args.json {
        files::check_writable(path)?;
    }
    let devices = match &args.on {
        Some(list) => Device::several(list, global)?,
        None => vec![(String::new(), Device::choose(global)?)],
    };
    let mut passports = Vec::new();
    for (i, (_, device)) in devices.iter().enumerate() {
        if i > 0 {
            println!();
        }
        let (passport, kept) = device.passport(args.fresh)?;
        println!("{}", passport.table());
        if kept {
            println!("(kept from an earlier probe; --fresh probes again)");
        }
        passports.push(passport);
    }
    let all = passports.iter().all(|p| p.portable);
    if let Some(path) = &args.json {
        let file = File {
            format: "isobit passports 1",
            passports,
        };
        let mut bytes =
            serde_json::to_vec_pretty(&file).map_err(|e| Error::Internal(e.to_string()))?;
        bytes.push(b'\n');
        files::write_atomic(path, &bytes)?;
    }
    Ok(if all { 0 } else { 1 })
}
