//! The devices that tests run on: every software GPU and real GPU of the machine, in one process.
//!
//! An absent software device is skipped with a printed reason. Where `ISOBIT_REQUIRE_DEVICES` is set,
//! as in CI, its absence is a failure instead.
#![allow(dead_code)] // not every test file uses all of it

use isobit::exec::wgpu::adapter::{Backend, Found, list};
use isobit::exec::wgpu::{Tuning, Wgpu};
use std::path::Path;
use std::sync::Once;

/// Where browsers bring SwiftShader's Vulkan driver along.
const SWIFTSHADER: &[&str] = &[
    "/usr/lib/chromium/vk_swiftshader_icd.json",
    "/usr/lib/chromium-browser/vk_swiftshader_icd.json",
    "/usr/lib64/chromium-browser/vk_swiftshader_icd.json",
    "/opt/google/chrome/vk_swiftshader_icd.json",
];

/// The software devices: label, backend, part of the name, what to do where it is absent.
const SOFTWARE: &[(&str, Backend, &str, &str)] = &[
    (
        "lavapipe",
        Backend::Vulkan,
        "llvmpipe",
        "apt install mesa-vulkan-drivers libvulkan1",
    ),
    (
        "swiftshader",
        Backend::Vulkan,
        "swiftshader",
        "install chromium, or set VK_DRIVER_FILES",
    ),
    (
        "gl",
        Backend::Gl,
        "llvmpipe",
        "apt install libegl1 libgl1-mesa-dri",
    ),
];

/// Lets the Vulkan loader find SwiftShader beside the system's drivers. Every test that looks for
/// devices comes through here before its first Vulkan call.
fn reveal_swiftshader() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: as below.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
        let chosen = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"];
        if chosen.iter().any(|v| std::env::var_os(v).is_some()) {
            return;
        }
        if let Some(file) = SWIFTSHADER.iter().find(|f| Path::new(f).exists()) {
            // SAFETY: a write is unsound only while another thread reads the environment outside of
            // Rust's lock. Here such readers are the Vulkan and EGL libraries alone, and tests reach
            // those only through this module, whose first act in any thread is this `Once`.
            unsafe { std::env::set_var("VK_ADD_DRIVER_FILES", file) };
        }
    });
}

/// All devices that are found, software and real.
pub fn found() -> Vec<(String, Found)> {
    reveal_swiftshader();
    // Listed anew each time: on GL, devices of one listing share a context.
    let all = list();
    let mut out = Vec::new();
    for (label, backend, name, advice) in SOFTWARE {
        let is = |f: &&Found| f.backend == *backend && f.name.to_lowercase().contains(name);
        match all.iter().find(is) {
            Some(f) => out.push((label.to_string(), f.clone())),
            None if std::env::var_os("ISOBIT_REQUIRE_DEVICES").is_some() => {
                panic!("no {label} ({advice})")
            }
            None => println!("skipped: no {label} ({advice})"),
        }
    }
    for f in all {
        if !f.software && f.unusable.is_none() {
            out.push((f.title(), f));
        }
    }
    out
}

/// An executor for each device, with belt and fence as given.
pub fn tuned(tuning: Tuning) -> Vec<(String, Wgpu)> {
    found()
        .into_iter()
        .map(|(label, f)| {
            let w = Wgpu::new(&f, tuning).unwrap_or_else(|e| panic!("{label}: {e}"));
            (label, w)
        })
        .collect()
}

/// An executor for each device.
pub fn devices() -> Vec<(String, Wgpu)> {
    tuned(Tuning::default())
}
