//! Products on NVIDIA GPUs through CUDA: cuBLASLt in every format, and the project's own bf16 kernels on
//! tensor cores ([`crate::exec::cuda::nvrtc::SOURCES`]). All of it is grade `fast`.
//!
//! **Nothing in this folder that needs a GPU has been run by us so far**: no NVIDIA GPU was at hand. What
//! was seen: it compiles, every `.cu` file compiles for sm_80 and sm_90a with NVRTC 12.9, and a machine
//! without a driver is told so in one line.
//!
//! Formats: fp32 is cuBLASLt's pedantic arithmetic, tf32 its fast TF32 on unrounded operands, bf16 gives a
//! bf16 product, fp16 and fp8 an f32 one, int8 an int32 one. E5M2 times E5M2 is not offered by cuBLASLt and
//! runs as fp16, which holds its values exactly; so does E4M3 before compute capability 8.9. Both are
//! labelled emulated.

mod open;
mod words;

use super::format::Format;
use super::operands::Rounded;
use super::size::Room;
use super::{Engine, Timed};
use crate::error::Error;
use crate::exec::cuda::blas::{Blas, Kind};
use crate::exec::cuda::driver::{Extents, Lay};
use crate::exec::cuda::found::reason;
use crate::exec::{Clock, DeviceInfo, ExecError, Numerics};
use cudarc::cublaslt::sys::{cublasComputeType_t as Compute, cudaDataType as Data};
use cudarc::driver::sys::{CUdevice_attribute, CUevent_flags};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, LaunchConfig,
    PushKernelArg,
};
use std::collections::HashMap;
use std::sync::Arc;
use words::{Store, bytes_of, numbers, ones, sum};

/// Extents that the kernels take are multiples of this.
pub const GRANULE: usize = 128;
/// Threads of a block, in all kernels.
const THREADS: usize = 256;
/// Rounds of a ceiling's loop: sums stay small enough for every unit's accumulators.
const ROUNDS: u32 = 256;
/// Accumulators of a thread or warp in a ceiling's loop.
const CHAINS: f64 = 8.0;
/// Dynamic shared memory of `gemm_wgmma.cu`: four slices of both operands, and room to align them.
const WGMMA_SHARED: u32 = 4 * 2 * 128 * 64 * 2 + 1024;

/// A kernel of a format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    Blas,
    Mma,
    Wgmma,
}

/// What [`Engine::once`] multiplies.
struct Prepared {
    n: usize,
    kernel: Kernel,
    kind: Kind,
    extents: Extents,
    /// Copies of both operands.
    operands: Vec<(CudaSlice<u8>, CudaSlice<u8>)>,
    product: CudaSlice<u8>,
}

/// An NVIDIA GPU that multiplies.
pub struct Cuda {
    // Before the context, which it needs when it is dropped.
    blas: Blas,
    prepared: Option<Prepared>,
    workspace: CudaSlice<u8>,
    functions: HashMap<&'static str, CudaFunction>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    capability: (i32, i32),
    name: String,
    driver: String,
    room: Room,
    /// Number of cuBLASLt's algorithm, by kind and extent.
    algorithm: i32,
}

impl Cuda {
    /// The sentence that says what was chosen.
    pub fn title(&self) -> String {
        format!("{} (cuda, {})", self.name, self.driver)
    }

    fn failed(&self, what: &str, e: DriverError) -> Error {
        let hint = match e.0 {
            cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => "; take a smaller --n",
            _ => "",
        };
        Error::Exec(ExecError::Device(format!(
            "{}: {what}: {}{hint}",
            self.name,
            reason(e)
        )))
    }

    fn list(&self, format: Format) -> &'static [Kernel] {
        match format {
            Format::Bf16 if self.functions.contains_key("gemm_wgmma") => {
                &[Kernel::Blas, Kernel::Wgmma, Kernel::Mma]
            }
            Format::Bf16 => &[Kernel::Blas, Kernel::Mma],
            _ => &[Kernel::Blas],
        }
    }

    fn store(&self, format: Format) -> Store {
        match format {
            Format::Fp32 | Format::Tf32 => Store::F32,
            Format::Bf16 => Store::Bf16,
            Format::Int8 => Store::I8,
            Format::E4m3 if self.capability >= (8, 9) => Store::E4m3,
            Format::Fp16 | Format::E4m3 | Format::E5m2 => Store::F16,
        }
    }

    fn kind(&self, format: Format) -> Kind {
        let store = self.store(format);
        let whole = store == Store::I8;
        Kind {
            operands: match store {
                Store::F32 => Data::CUDA_R_32F,
                Store::Bf16 => Data::CUDA_R_16BF,
                Store::F16 => Data::CUDA_R_16F,
                Store::I8 => Data::CUDA_R_8I,
                Store::E4m3 => Data::CUDA_R_8F_E4M3,
            },
            product: match store {
                Store::Bf16 => Data::CUDA_R_16BF,
                Store::I8 => Data::CUDA_R_32I,
                _ => Data::CUDA_R_32F,
            },
            compute: match format {
                Format::Fp32 => Compute::CUBLAS_COMPUTE_32F_PEDANTIC,
                Format::Tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
                Format::Int8 => Compute::CUBLAS_COMPUTE_32I,
                _ => Compute::CUBLAS_COMPUTE_32F,
            },
            scale: if whole {
                Data::CUDA_R_32I
            } else {
                Data::CUDA_R_32F
            },
        }
    }

    /// 8-bit products take the right operand transposed.
    fn transposed(&self, format: Format) -> bool {
        matches!(self.store(format), Store::I8 | Store::E4m3)
    }

    /// The loop that measures a format's units, and the operations of a warp and round of it.
    fn unit(&self, format: Format) -> (&'static str, f64) {
        let product = |k: f64| 2.0 * 16.0 * 8.0 * k * CHAINS;
        match (format, self.store(format)) {
            (Format::Fp32, _) => ("fma_f32", 32.0 * 2.0 * CHAINS),
            (Format::Tf32, _) => ("mma_tf32", product(8.0)),
            (_, Store::Bf16) => ("mma_bf16", product(16.0)),
            (_, Store::I8) => ("mma_s8", product(32.0)),
            (_, Store::E4m3) => ("mma_e4m3", product(32.0)),
            _ => ("mma_f16", product(16.0)),
        }
    }

    /// The best time of a ceiling's loop over so many blocks, which must have given the right sums.
    fn loop_ms(&self, name: &str, blocks: u32) -> Result<f64, Error> {
        let allocated = self.stream.alloc_zeros(blocks as usize * THREADS);
        let allocated = allocated.map_err(|e| self.failed("it has no memory for the loop", e));
        let out: CudaSlice<u32> = allocated?;
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let (one, ones) = (1.0f32, ones(name));
        let run = || {
            let mut launch = self.stream.launch_builder(&self.functions[name]);
            launch.arg(&out).arg(&ROUNDS);
            match name {
                "fma_f32" => launch.arg(&one).arg(&one),
                _ => launch.arg(&ones),
            };
            // SAFETY: the kernel takes a word for each of its threads, and the numbers named.
            let done = unsafe { launch.launch(config) };
            done.map(|_| ())
                .map_err(|e| self.failed("a launch failed", e))
        };
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            best = best.min(self.timed(run)?);
        }
        let read = self.stream.clone_dtoh(&out);
        let got = read.map_err(|e| self.failed("the loop's result is lost", e))?;
        if got.iter().all(|w| *w == sum(name)) {
            return Ok(best);
        }
        let what = "the ceiling's loop gave a wrong result, so its time says nothing";
        let what = format!("{}: {name}: {what}", self.name);
        Err(Error::Exec(ExecError::Device(what)))
    }

    /// Runs `work` between two events.
    fn timed(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let flag = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let clock = |e| self.failed("its clock failed", e);
        let start = self.stream.record_event(flag).map_err(clock)?;
        work()?;
        let end = self.stream.record_event(flag).map_err(clock)?;
        let ms = start
            .elapsed_ms(&end)
            .map_err(|e| self.failed("the kernel failed", e))?;
        Ok(f64::from(ms))
    }

    fn launch(&self, p: &Prepared, i: usize) -> Result<(), Error> {
        let (a, b) = &p.operands[i % p.operands.len()];
        if p.kernel == Kernel::Blas {
            let (a, _a) = a.device_ptr(&self.stream);
            let (b, _b) = b.device_ptr(&self.stream);
            let (c, _c) = p.product.device_ptr(&self.stream);
            let (w, _w) = self.workspace.device_ptr(&self.stream);
            // A row-major product is the column-major one of the transposes, in the other order.
            // SAFETY: the buffers have n * n elements of the kind's types and the workspace its bytes; all
            // live in `self`, which waits for the stream before it lets go of them.
            let done = unsafe {
                let stream = self.stream.cu_stream().cast();
                self.blas.multiply(p.kind, p.extents, (b, a, c, w), stream)
            };
            return done.map_err(|e| {
                Error::Exec(ExecError::Device(format!("{}: cuBLASLt: {e}", self.name)))
            });
        }
        let (name, shared) = match p.kernel {
            Kernel::Wgmma => ("gemm_wgmma", WGMMA_SHARED),
            _ => ("gemm_mma", 0),
        };
        let tiles = (p.n / GRANULE) as u32;
        let config = LaunchConfig {
            grid_dim: (tiles, tiles, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: shared,
        };
        let n = p.n as u32;
        let mut launch = self.stream.launch_builder(&self.functions[name]);
        launch.arg(a).arg(b).arg(&p.product).arg(&n);
        // SAFETY: the kernel takes two operands of n * n bf16, a product of as many, and n, a multiple of
        // its tile; `prepare` has seen to all of that. One stream, so nothing else writes the product.
        let done = unsafe { launch.launch(config) };
        done.map(|_| ())
            .map_err(|e| self.failed("a launch failed", e))
    }
}

impl Engine for Cuda {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            backend: "cuda".into(),
            name: self.name.clone(),
            driver: self.driver.clone(),
            kind: "discrete gpu".into(),
            threads: None,
        }
    }

    fn room(&self) -> &Room {
        &self.room
    }

    fn grade(&self, _: Format, _: usize) -> Numerics {
        Numerics::Fast
    }

    fn emulated(&self, format: Format, _: usize) -> bool {
        format.is_fp8() && self.store(format) == Store::F16
    }

    fn kernels(&self, format: Format) -> usize {
        self.list(format).len()
    }

    /// The tensor cores round f32 operands to TF32 themselves.
    fn given(&self, format: Format) -> Format {
        match format {
            Format::Tf32 => Format::Fp32,
            other => other,
        }
    }

    fn same_ceiling(&self, a: (Format, usize), b: (Format, usize)) -> bool {
        self.unit(a.0).0 == self.unit(b.0).0
    }

    /// Of f32 units for fp32, else of tensor cores by `mma.sync`. On Hopper that is less than `wgmma`
    /// reaches, so a fraction may exceed 1 there.
    fn ceiling(&mut self, format: Format, _: usize) -> Result<f64, Error> {
        let (name, each) = self.unit(format);
        let count = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let units = self.context.attribute(count);
        let units = units.map_err(|e| self.failed("it does not tell its size", e))?;
        let mut blocks = units as u32 * 32;
        loop {
            let ms = self.loop_ms(name, blocks)?;
            if ms >= 2.0 || blocks >= 1 << 22 {
                let warps = f64::from(blocks) * THREADS as f64 / 32.0;
                return Ok(warps * each * f64::from(ROUNDS) / ms / 1e9);
            }
            blocks *= 4;
        }
    }

    fn prepare(
        &mut self,
        n: usize,
        format: Format,
        kernel: usize,
        a: &Rounded,
        b: &Rounded,
    ) -> Result<(), Error> {
        // The memory of the one before is free first.
        self.prepared = None;
        let (kernel, store, kind) = (
            self.list(format)[kernel],
            self.store(format),
            self.kind(format),
        );
        let extents = square(n, self.transposed(format));
        if kernel == Kernel::Blas {
            self.algorithm = self.blas.prepare(kind, extents).map_err(|e| {
                let what = format!(
                    "{}: cuBLASLt has no product for {}: {e}",
                    self.name,
                    format.name()
                );
                Error::Exec(ExecError::Device(what))
            })?;
        }
        let turned = match kernel {
            Kernel::Blas => self.transposed(format),
            Kernel::Wgmma => true,
            Kernel::Mma => false,
        };
        let (a, b) = (bytes_of(store, a, n, false), bytes_of(store, b, n, turned));
        let lost = |e| self.failed("operands do not go there", e);
        let copies = self.room.copies(n, a.len() / (n * n));
        let mut operands = Vec::with_capacity(copies);
        for _ in 0..copies {
            let left = self.stream.clone_htod(&a).map_err(lost)?;
            operands.push((left, self.stream.clone_htod(&b).map_err(lost)?));
        }
        let size = match kind.product {
            Data::CUDA_R_16BF => 2,
            _ => 4,
        };
        let product = self.stream.alloc_zeros(n * n * size).map_err(lost)?;
        self.stream.synchronize().map_err(lost)?;
        self.prepared = Some(Prepared {
            n,
            kernel,
            kind,
            extents,
            operands,
            product,
        });
        Ok(())
    }

    fn once(&mut self, i: usize) -> Result<Timed, Error> {
        let nothing = || Error::Internal("nothing is prepared".into());
        let p = self.prepared.as_ref().ok_or_else(nothing)?;
        let ms = self.timed(|| self.launch(p, i))?;
        Ok(Timed {
            ms,
            clock: Clock::Device,
            path: match p.kernel {
                Kernel::Blas => "cublaslt",
                Kernel::Mma => "gemm_mma.cu",
                Kernel::Wgmma => "gemm_wgmma.cu",
            },
        })
    }

    fn path(&self, format: Format, kernel: usize, ran: &str) -> String {
        let name = match ran {
            "cublaslt" => format!("cublaslt algorithm {}", self.algorithm),
            own => own.to_string(),
        };
        match self.emulated(format, kernel) {
            true => format!("{name} on {} values in fp16", format.name()),
            false => name,
        }
    }

    fn product(&mut self) -> Result<Vec<f32>, Error> {
        let nothing = || Error::Internal("nothing is prepared".into());
        let p = self.prepared.as_ref().ok_or_else(nothing)?;
        let read = self.stream.clone_dtoh(&p.product);
        let bytes = read.map_err(|e| self.failed("the product is lost", e))?;
        Ok(numbers(p.kind.product, &bytes))
    }
}

/// A square product; the right operand, which is the left one column by column, may be stored transposed.
fn square(n: usize, transposed: bool) -> Extents {
    let n = n as u64;
    let lay = |transposed| Lay {
        transposed,
        pitch: n,
        stride: n * n,
    };
    Extents {
        m: n,
        n,
        k: n,
        batch: 1,
        a: lay(transposed),
        b: lay(false),
        c: lay(false),
        alignment: 256,
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Buffers are freed in the stream's order; cuBLASLt's may still be in use.
        let _ = self.stream.synchronize();
    }
}

#[cfg(test)]
mod tests;
