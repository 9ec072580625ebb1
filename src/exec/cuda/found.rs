//! Finding a CUDA device and its libraries.

use super::nvrtc;
use super::real::Real;
use super::{Cuda, driver::Facts};
use crate::exec::{DeviceInfo, ExecError, Numerics};
use cudarc::driver::sys::cuDriverGetVersion;
use cudarc::driver::{CudaContext, DriverError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A device that is there and new enough.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// The driver's version and the architecture.
    pub driver: String,
}

impl Found {
    /// The first device, or the one whose number or part of whose name `adapter` is.
    ///
    /// # Errors
    /// One line: no driver, no compiler, no such device, or a device that is too old.
    pub fn find(adapter: Option<&str>) -> Result<Found, String> {
        // SAFETY: opens and closes libraries by the driver's names.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("no CUDA driver was found (libcuda)".into());
        }
        if !nvrtc::present() {
            return Err("there is a CUDA driver, but no NVRTC (libnvrtc): install the CUDA toolkit 12 or put its lib folder into the library path".into());
        }
        quietly(|| Found::find_present(adapter))
    }

    fn find_present(adapter: Option<&str>) -> Result<Found, String> {
        let failed = |what: &str| {
            let what = what.to_string();
            move |e: DriverError| format!("the CUDA driver failed {what}: {}", reason(e))
        };
        let ordinal = choose(adapter)?;
        let context = CudaContext::new(ordinal).map_err(failed("to open the device"))?;
        let name = context.name().map_err(failed("to name the device"))?;
        let capability = context
            .compute_capability()
            .map_err(failed("to describe it"))?;
        if capability < (8, 0) {
            let (major, minor) = capability;
            return Err(format!(
                "{name} has compute capability {major}.{minor}; the kernels need 8.0 (Ampere) or newer"
            ));
        }
        let mut version = 0;
        // SAFETY: `version` is where the number goes.
        let told = unsafe { cuDriverGetVersion(&mut version) }.result();
        told.map_err(failed("to tell its version"))?;
        let (major, minor) = (version / 1000, version % 1000 / 10);
        Ok(Found {
            ordinal,
            name,
            capability,
            driver: format!("cuda {major}.{minor} {}", architecture(capability)),
        })
    }

    /// The device in a few words.
    pub fn title(&self) -> String {
        format!("{} (cuda, {})", self.name, self.driver)
    }

    /// What output files say of it.
    pub fn info(&self) -> DeviceInfo {
        let facts = self.facts();
        DeviceInfo {
            backend: "cuda".into(),
            name: facts.name,
            driver: facts.driver,
            kind: facts.kind,
            threads: None,
        }
    }

    pub(super) fn facts(&self) -> Facts {
        Facts {
            name: self.name.clone(),
            driver: self.driver.clone(),
            kind: "discrete gpu".into(),
        }
    }

    /// A context on it.
    pub(crate) fn context(&self) -> Result<Arc<CudaContext>, String> {
        CudaContext::new(self.ordinal).map_err(|e| {
            format!(
                "the CUDA driver failed to open {}: {}",
                self.name,
                reason(e)
            )
        })
    }

    /// An executor on it.
    ///
    /// # Errors
    /// The driver refuses, or, in fast numerics, there is no cuBLASLt.
    pub fn open(&self, numerics: Numerics) -> Result<Cuda, ExecError> {
        let real = quietly(|| Real::open(self, numerics == Numerics::Fast));
        let real = real.map_err(ExecError::Device)?;
        Ok(Cuda::new(Box::new(real), numerics))
    }
}

/// The architecture that NVRTC compiles for. Hopper's tensor cores need its own.
pub(crate) fn architecture((major, minor): (i32, i32)) -> String {
    let own = if (major, minor) == (9, 0) { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

fn choose(adapter: Option<&str>) -> Result<usize, String> {
    let told = |e| format!("the CUDA driver does not start: {}", reason(e));
    cudarc::driver::result::init().map_err(told)?;
    let count = CudaContext::device_count().map_err(told)?;
    if count <= 0 {
        return Err("there is a CUDA driver, but no device".into());
    }
    let Some(wanted) = adapter.map(|a| a.trim().to_lowercase()) else {
        return Ok(0);
    };
    let mut names = Vec::new();
    for i in 0..count {
        let device = cudarc::driver::result::device::get(i).map_err(told)?;
        let name = cudarc::driver::result::device::get_name(device).map_err(told)?;
        if wanted.parse() == Ok(i) || name.to_lowercase().contains(&wanted) {
            return Ok(i as usize);
        }
        names.push(format!("{i} {name}"));
    }
    Err(format!(
        "--adapter {wanted}: no CUDA device has that name; there is {}",
        names.join(", ")
    ))
}

/// A driver's error in a few words.
pub(crate) fn reason(e: DriverError) -> String {
    match e.error_string() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => format!("{:?}", e.0),
    }
}

/// Runs `work`; a panic in it (the bindings panic where a library lacks a function) becomes its message and
/// is not printed.
pub(crate) fn quietly<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    // What it leaves behind is dropped unseen.
    let result = catch_unwind(AssertUnwindSafe(work));
    std::panic::set_hook(before);
    result.unwrap_or_else(|p| {
        let text = p.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or_else(|| p.downcast_ref::<&str>().copied())
            .unwrap_or("it failed");
        Err(format!(
            "the CUDA libraries do not fit this program (CUDA 12.8): {}",
            text.replace('\n', " ")
        ))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn architectures() {
        assert_eq!(super::architecture((8, 0)), "sm_80");
        assert_eq!(super::architecture((9, 0)), "sm_90a");
        assert_eq!(super::architecture((12, 0)), "sm_120");
    }
}
