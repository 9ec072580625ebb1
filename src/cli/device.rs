//! From `--backend` and `--adapter` to an executor.

use super::{Backend, Global};
use crate::error::{Error, usage};
use crate::exec::Executor;
use crate::exec::cpu::Cpu;
use crate::exec::wgpu::adapter::{Choice, Found, choose};
use crate::exec::wgpu::{Tuning, Wgpu, adapter};

/// A chosen device: makes one executor after the other.
pub enum Device {
    /// The CPU executor on some threads.
    Cpu {
        /// Threads, or all cores.
        threads: Option<usize>,
        /// A sentence that says so, and why.
        why: String,
    },
    /// A GPU.
    Gpu {
        /// Which.
        found: Box<Found>,
        /// A sentence that says so, and why.
        why: String,
    },
}

impl Device {
    /// The device that the global options ask for.
    ///
    /// # Errors
    /// It is not there, or not in this build; the message says what to do.
    pub fn choose(g: &Global) -> Result<Device, Error> {
        let threads = g.threads()?;
        if g.adapter.as_deref().is_some_and(|a| a.trim().is_empty()) {
            return usage("--adapter: is empty; `isobit adapters` lists names and numbers");
        }
        let backend = match g.backend {
            Backend::Cpu => {
                if let Some(name) = &g.adapter {
                    return usage(format!(
                        "--adapter {name}: the CPU executor has no adapters; name a GPU backend with --backend"
                    ));
                }
                return Ok(Device::Cpu {
                    threads,
                    why: "CPU executor, as asked".into(),
                });
            }
            Backend::Cuda => {
                return usage("--backend cuda is not in this build; use --backend vulkan or cpu");
            }
            Backend::Auto => adapter::Backend::Auto,
            Backend::Vulkan => adapter::Backend::Vulkan,
            Backend::Metal => adapter::Backend::Metal,
            Backend::Dx12 => adapter::Backend::Dx12,
            Backend::Gl => adapter::Backend::Gl,
        };
        Ok(match choose(backend, g.adapter.as_deref())? {
            Choice::Cpu { why } => Device::Cpu { threads, why },
            Choice::Gpu { found, why } => Device::Gpu { found, why },
        })
    }

    /// The sentence that says what was chosen and why.
    pub fn why(&self) -> &str {
        match self {
            Device::Cpu { why, .. } | Device::Gpu { why, .. } => why,
        }
    }

    /// Whether it is a GPU of its own silicon.
    pub fn is_real_gpu(&self) -> bool {
        matches!(self, Device::Gpu { found, .. } if !found.software)
    }

    /// A fresh executor.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(&self) -> Result<Box<dyn Executor>, Error> {
        Ok(match self {
            Device::Cpu { threads, .. } => Box::new(Cpu::new(*threads)?),
            Device::Gpu { found, .. } => Box::new(Wgpu::new(found, Tuning::default())?),
        })
    }
}
