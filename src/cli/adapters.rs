//! `isobit adapters`: the devices of this machine.

use super::Global;
use super::device::Device;
use crate::config::Preset;
use crate::error::Error;
use crate::exec::bytes;
use crate::exec::wgpu::adapter::{Found, list};

/// Prints every device and what would be chosen; returns the exit code.
///
/// # Errors
/// The device that the options ask for is not there.
pub fn adapters(global: &Global) -> Result<i32, Error> {
    // What is asked for and not there is one line, not the end of a list.
    let device = Device::choose(global)?;
    let all = list();
    if all.is_empty() {
        println!("no GPU on any backend; the CPU executor is always there");
    }
    all.iter().for_each(print);
    #[cfg(feature = "cuda")]
    match crate::exec::cuda::found::Found::find(None) {
        Ok(found) => println!("cuda: {}", found.title()),
        Err(why) => println!("cuda: {why}"),
    }
    println!("\nchosen: {}", device.why().trim_start_matches("chose "));
    println!("default preset there: {}", default_preset(&device).name());
    Ok(0)
}

/// The preset that runs when none is named: a software GPU gets the CPU's.
pub fn default_preset(device: &Device) -> Preset {
    if device.is_real_gpu() {
        Preset::Seed
    } else {
        Preset::Tiny
    }
}

fn print(f: &Found) {
    let l = &f.limits;
    println!("{}: {} ({}, {})", f.index, f.name, f.backend, f.kind);
    println!(
        "   driver: {}",
        [f.driver.as_str(), f.driver_info.as_str()].join(" ").trim()
    );
    println!(
        "   limits: buffer {}, binding {}, {} storage buffers a kernel, {} invocations and {} a workgroup",
        bytes(l.buffer),
        bytes(l.binding),
        l.storage_buffers,
        l.invocations,
        bytes(l.workgroup_memory)
    );
    println!(
        "   features: {}",
        if f.features.is_empty() {
            "none".into()
        } else {
            f.features.join(", ")
        }
    );
    if let Some(why) = &f.unusable {
        println!("   cannot train: {why}");
    }
}
