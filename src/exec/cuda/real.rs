//! The [`Driver`] of an NVIDIA GPU, over cudarc. Nothing here decides anything: each call is the driver's.

use super::blas::{Blas, Kind, WORKSPACE};
use super::driver::{Address, Done, Driver, Facts, Function, Mark, Product, Recording, Trouble};
use super::emit::{ENTRY, Kernel};
use super::found::{Found, architecture, reason};
use super::nvrtc;
use cudarc::driver::result;
use cudarc::driver::sys::{
    CUevent_flags, CUgraphInstantiate_flags, CUmemPool_attribute, CUresult, CUstreamCaptureMode,
};
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaGraph, CudaStream, DriverError};
use cudarc::nvrtc::Ptx;
use rayon::prelude::*;
use std::sync::Arc;

/// cuBLASLt with its workspace.
struct Library {
    blas: Blas,
    workspace: Address,
}

/// A device with one stream.
pub struct Real {
    // Before the stream and the context, which they need when they are dropped.
    graphs: Vec<CudaGraph>,
    functions: Vec<CudaFunction>,
    library: Option<Library>,
    marks: Vec<Option<CudaEvent>>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    arch: String,
    facts: Facts,
}

fn trouble(e: DriverError) -> Trouble {
    match e.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Trouble::Memory,
        _ => Trouble::Failed(reason(e)),
    }
}

impl Real {
    /// Opens a device, with cuBLASLt if it is to multiply.
    ///
    /// # Errors
    /// The driver refuses, or there is no cuBLASLt; in one line.
    pub(super) fn open(found: &Found, library: bool) -> Result<Real, String> {
        let failed = |e: Trouble| format!("{} cannot be opened: {e}", found.title());
        let context = found.context()?;
        let stream = context.new_stream().map_err(|e| failed(trouble(e)))?;
        let mut real = Real {
            graphs: vec![],
            functions: vec![],
            library: None,
            marks: vec![],
            stream,
            context,
            arch: architecture(found.capability),
            facts: found.facts(),
        };
        real.keep_memory().map_err(failed)?;
        if library {
            let blas = Blas::open()?;
            let workspace = real.allocate(WORKSPACE as u64).map_err(failed)?;
            real.library = Some(Library { blas, workspace });
        }
        Ok(real)
    }

    /// What is given back to the pool stays in it: programs come and go with the same sizes.
    fn keep_memory(&self) -> Done {
        if !self.context.has_async_alloc() {
            return Ok(());
        }
        let all = u64::MAX;
        let what = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the device is the context's; the attribute takes 64 bits.
        let done = unsafe {
            result::device::get_default_mem_pool(self.context.cu_device()).and_then(|pool| {
                result::mem_pool::set_attribute(pool, what, (&raw const all).cast_mut().cast())
            })
        };
        done.map_err(trouble)
    }

    fn bind(&self) -> Done {
        self.context.bind_to_thread().map_err(trouble)
    }
}

impl Driver for Real {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn free_bytes(&mut self) -> Done<u64> {
        let (free, _) = self.context.mem_get_info().map_err(trouble)?;
        Ok(free as u64)
    }

    fn allocate(&mut self, bytes: u64) -> Done<Address> {
        self.bind()?;
        let (stream, bytes) = (self.stream.cu_stream(), bytes as usize);
        // SAFETY: the stream lives; the memory is set before anything can read it.
        let made = unsafe {
            let made = match self.context.has_async_alloc() {
                true => result::malloc_async(stream, bytes),
                false => result::malloc_sync(bytes),
            };
            made.and_then(|at| result::memset_d8_async(at, 0, bytes, stream).map(|()| at))
        };
        made.map(Address).map_err(trouble)
    }

    fn release(&mut self, at: Address) {
        // SAFETY: an address that `allocate` gave, used by nothing that is enqueued later.
        let _ = unsafe {
            match self.context.has_async_alloc() {
                true => result::free_async(at.0, self.stream.cu_stream()),
                false => result::free_sync(at.0),
            }
        };
    }

    fn write(&mut self, at: Address, words: &[u32]) -> Done {
        self.bind()?;
        // SAFETY: the caller's allocation holds so many words. Pageable memory is copied out of before the
        // call returns, so `words` need not outlive it.
        let done = unsafe { result::memcpy_htod_async(at.0, words, self.stream.cu_stream()) };
        done.map_err(trouble)
    }

    fn read(&mut self, at: Address, words: &mut [u32]) -> Done {
        self.bind()?;
        // SAFETY: the caller's allocation holds so many words, and `words` is borrowed until the stream is
        // done with it.
        let enqueued = unsafe { result::memcpy_dtoh_async(words, at.0, self.stream.cu_stream()) };
        let done = self.stream.synchronize();
        enqueued.and(done).map_err(trouble)
    }

    fn build(&mut self, kernels: &[Kernel]) -> Result<Vec<Function>, (usize, Trouble)> {
        let arch = &self.arch;
        let images: Result<Vec<Vec<u8>>, (usize, Trouble)> = (kernels.par_iter().enumerate())
            .map(|(i, k)| {
                let made = nvrtc::compile_emitted(&k.source(), arch);
                made.map(|c| c.image).map_err(|e| (i, Trouble::Failed(e)))
            })
            .collect();
        let mut out = Vec::with_capacity(kernels.len());
        for (i, image) in images?.into_iter().enumerate() {
            let module = self.context.load_module(Ptx::from_binary(image));
            let function = module.and_then(|m| m.load_function(ENTRY));
            self.functions.push(function.map_err(|e| (i, trouble(e)))?);
            out.push(Function(self.functions.len() - 1));
        }
        Ok(out)
    }

    fn launch(&mut self, f: Function, grid: [u32; 3], threads: u32, argument: &[u8]) -> Done {
        self.bind()?;
        // Aligned as the struct that it is.
        let words: Vec<u64> = argument
            .chunks(8)
            .map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()))
            .collect();
        let [x, y, z] = grid;
        // SAFETY: the kernel takes one struct of this size (its length is `Kernel::argument`'s), which is
        // copied before the call returns; the addresses in it are allocations of the words it says.
        let done = unsafe {
            let at = words.as_ptr().cast_mut().cast();
            result::launch_kernel(
                self.functions[f.0].cu_function(),
                (x, y, z),
                (threads, 1, 1),
                0,
                self.stream.cu_stream(),
                &mut [at],
            )
        };
        done.map_err(trouble)
    }

    fn prepare(&mut self, product: &Product) -> Done {
        self.bind()?;
        let library = self.library.as_mut().ok_or_else(none)?;
        let found = library
            .blas
            .prepare(Kind::of(product.element), product.extents);
        found
            .map(|_| ())
            .map_err(|e| Trouble::Failed(format!("cuBLASLt has no such product: {e}")))
    }

    fn multiply(&mut self, product: &Product, a: Address, b: Address, c: Address) -> Done {
        self.bind()?;
        let library = self.library.as_ref().ok_or_else(none)?;
        let places = (a.0, b.0, c.0, library.workspace.0);
        let stream = self.stream.cu_stream().cast();
        // SAFETY: the caller's allocations hold what the extents say; the workspace has its bytes; all
        // live until the stream is done. One stream, so the workspace has one user at a time.
        let done = unsafe {
            (library.blas).multiply(Kind::of(product.element), product.extents, places, stream)
        };
        done.map_err(|e| Trouble::Failed(format!("cuBLASLt: {e}")))
    }

    fn wait(&mut self) -> Done {
        self.stream.synchronize().map_err(trouble)
    }

    fn begin_recording(&mut self) -> Done {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(trouble)
    }

    fn end_recording(&mut self) -> Done<Recording> {
        let ended = self.stream.end_capture(CUgraphInstantiate_flags(0));
        let nothing = || Trouble::Failed("the recording is empty".into());
        self.graphs
            .push(ended.map_err(trouble)?.ok_or_else(nothing)?);
        Ok(Recording(self.graphs.len() - 1))
    }

    fn run_recording(&mut self, r: Recording) -> Done {
        self.graphs[r.0].launch().map_err(trouble)
    }

    fn mark(&mut self, number: usize) -> Done<Mark> {
        while self.marks.len() <= number {
            self.marks.push(None);
        }
        if self.marks[number].is_none() {
            let event = self
                .context
                .new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            self.marks[number] = Some(event.map_err(trouble)?);
        }
        if let Some(event) = &self.marks[number] {
            event.record(&self.stream).map_err(trouble)?;
        }
        Ok(Mark(number))
    }

    fn between(&mut self, first: Mark, second: Mark) -> Done<f64> {
        let at = |m: Mark| self.marks.get(m.0).and_then(|e| e.as_ref());
        match (at(first), at(second)) {
            (Some(a), Some(b)) => a.elapsed_ms(b).map(f64::from).map_err(trouble),
            _ => Err(Trouble::Failed("there is no such mark".into())),
        }
    }
}

fn none() -> Trouble {
    Trouble::Failed("cuBLASLt was not opened".into())
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
        if let Some(library) = self.library.take() {
            self.release(library.workspace);
        }
    }
}
