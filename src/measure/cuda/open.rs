//! Opening a CUDA device for products, and loading the kernels there.

use super::super::size::Room;
use super::{Cuda, GRANULE, WGMMA_SHARED};
use crate::exec::cpu::free_memory;
use crate::exec::cuda::blas::{Blas, WORKSPACE};
use crate::exec::cuda::found::{Found, architecture, quietly, reason};
use crate::exec::cuda::nvrtc;
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaContext, CudaFunction, DriverError};
use cudarc::nvrtc::Ptx;
use std::collections::HashMap;
use std::sync::Arc;

impl Cuda {
    /// Opens a device: the first, or the one whose number or part of whose name `adapter` is.
    ///
    /// # Errors
    /// One line: no driver, no library, no such device, or a device that is too old.
    pub fn open(adapter: Option<&str>) -> Result<Cuda, String> {
        let found = Found::find(adapter)?;
        quietly(|| Cuda::open_found(&found))
    }

    fn open_found(found: &Found) -> Result<Cuda, String> {
        let failed = |what: &str| {
            let what = what.to_string();
            move |e: DriverError| format!("the CUDA driver failed {what}: {}", reason(e))
        };
        let context = found.context()?;
        let (name, capability) = (found.name.clone(), found.capability);
        let stream = context.new_stream().map_err(failed("to make a stream"))?;
        let (free, _) = context
            .mem_get_info()
            .map_err(failed("to tell its memory"))?;
        let blas = Blas::open().map_err(|e| format!("{e} on {name}"))?;
        let workspace = stream
            .alloc_zeros(WORKSPACE)
            .map_err(failed("to allocate"))?;
        let functions = load(&context, capability)?;
        Ok(Cuda {
            blas,
            prepared: None,
            workspace,
            functions,
            stream,
            context,
            capability,
            driver: found.driver.clone(),
            room: Room {
                device: name.clone(),
                buffer: None,
                memory: Some((free as u64).saturating_sub(WORKSPACE as u64)),
                host: free_memory(),
                shared: false,
                rotation: 256 << 20,
                int8_in_f32: false,
                granule: GRANULE,
                halves: false,
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
