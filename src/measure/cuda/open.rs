//! Finding a CUDA device and its libraries, and loading the kernels there.

use super::super::size::Room;
use super::blas::{Blas, WORKSPACE};
use super::{Cuda, GRANULE, WGMMA_SHARED, nvrtc, reason};
use crate::exec::cpu::free_memory;
use cudarc::driver::sys::{CUfunction_attribute, cuDriverGetVersion};
use cudarc::driver::{CudaContext, CudaFunction, DriverError};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Cuda {
    /// Opens a device: the first, or the one whose number or part of whose name `adapter` is.
    ///
    /// # Errors
    /// One line: no driver, no library, no such device, or a device that is too old.
    pub fn open(adapter: Option<&str>) -> Result<Cuda, String> {
        // SAFETY: opens and closes libraries by the driver's names.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("no CUDA driver was found (libcuda)".into());
        }
        if !nvrtc::present() {
            return Err("there is a CUDA driver, but no NVRTC (libnvrtc): install the CUDA toolkit 12 or put its lib folder into the library path".into());
        }
        if !Blas::present() {
            return Err("there is a CUDA driver, but no cuBLASLt (libcublasLt): install the CUDA toolkit 12 or put its lib folder into the library path".into());
        }
        quietly(|| Cuda::open_present(adapter))
    }

    fn open_present(adapter: Option<&str>) -> Result<Cuda, String> {
        let failed = |what: &str| {
            let what = what.to_string();
            move |e: DriverError| format!("the CUDA driver failed {what}: {}", reason(e))
        };
        let device = choose(adapter)?;
        let context = CudaContext::new(device).map_err(failed("to open the device"))?;
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
        let stream = context.new_stream().map_err(failed("to make a stream"))?;
        let (free, _) = context
            .mem_get_info()
            .map_err(failed("to tell its memory"))?;
        let blas = Blas::new().map_err(|e| format!("cuBLASLt cannot be used on {name}: {e}"))?;
        let workspace = stream
            .alloc_zeros(WORKSPACE)
            .map_err(failed("to allocate"))?;
        let functions = load(&context, capability)?;
        let mut version = 0;
        // SAFETY: `version` is where the number goes.
        let told = unsafe { cuDriverGetVersion(&mut version) }.result();
        told.map_err(failed("to tell its version"))?;
        Ok(Cuda {
            blas,
            prepared: None,
            workspace,
            functions,
            stream,
            context,
            capability,
            driver: format!(
                "cuda {}.{} {}",
                version / 1000,
                version % 1000 / 10,
                architecture(capability)
            ),
            room: Room {
                device: name.clone(),
                buffer: None,
                memory: Some((free as u64).saturating_sub(WORKSPACE as u64)),
                host: free_memory(),
                shared: false,
                rotation: 256 << 20,
                int8_in_f32: false,
                granule: GRANULE,
            },
            name,
            algorithm: 0,
        })
    }
}

/// Compiles and loads the kernels that a device can run.
fn load(
    context: &Arc<CudaContext>,
    capability: (i32, i32),
) -> Result<HashMap<&'static str, CudaFunction>, String> {
    let arch = architecture(capability);
    let mut out = HashMap::new();
    let failed = |name: &str, e| format!("{name} cannot be loaded: {}", reason(e));
    let mut take = |file: &str, names: &[&'static str]| -> Result<(), String> {
        let image = nvrtc::compile(file, &arch)?;
        let module = context
            .load_module(Ptx::from_binary(image))
            .map_err(|e| failed(file, e))?;
        for name in names {
            let f = module.load_function(name).map_err(|e| failed(name, e))?;
            out.insert(*name, f);
        }
        Ok(())
    };
    take(
        "ceiling.cu",
        &["fma_f32", "mma_tf32", "mma_bf16", "mma_f16", "mma_s8"],
    )?;
    if capability >= (8, 9) {
        take("ceiling.cu", &["mma_e4m3"])?;
    }
    take("gemm_mma.cu", &["gemm_mma"])?;
    if capability == (9, 0) {
        take("gemm_wgmma.cu", &["gemm_wgmma"])?;
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let f = &out["gemm_wgmma"];
        f.set_attribute(most, WGMMA_SHARED as i32)
            .map_err(|e| failed("gemm_wgmma", e))?;
    }
    Ok(out)
}

/// The architecture that NVRTC compiles for. Hopper's tensor cores need its own.
pub(super) fn architecture((major, minor): (i32, i32)) -> String {
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

/// Runs `work`; a panic in it (the bindings panic where a library lacks a function) becomes its message and
/// is not printed.
fn quietly<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
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
