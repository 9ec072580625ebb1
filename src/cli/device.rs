//! From `--backend` and `--adapter` to an executor.

use super::{Backend, Global};
use crate::error::{Error, usage};
use crate::exec::Executor;
use crate::exec::cpu::Cpu;
use crate::exec::wgpu::adapter::{Choice, choose};
use crate::exec::wgpu::{Tuning, Wgpu, adapter};

/// A chosen device: makes one executor after the other.
pub struct Device {
    choice: Choice,
    /// Threads of the CPU executor, or all cores.
    threads: Option<usize>,
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
                let why = "CPU executor, as asked".into();
                let choice = Choice::Cpu { why };
                return Ok(Device { choice, threads });
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
        let choice = choose(backend, g.adapter.as_deref())?;
        Ok(Device { choice, threads })
    }

    /// The sentence that says what was chosen and why.
    pub fn why(&self) -> &str {
        self.choice.why()
    }

    /// Whether it is a GPU of its own silicon.
    pub fn is_real_gpu(&self) -> bool {
        matches!(&self.choice, Choice::Gpu { found, .. } if !found.software)
    }

    /// A fresh executor.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(&self) -> Result<Box<dyn Executor>, Error> {
        Ok(match &self.choice {
            Choice::Cpu { .. } => Box::new(Cpu::new(self.threads)?),
            Choice::Gpu { found, .. } => Box::new(Wgpu::new(found, Tuning::default())?),
        })
    }
}
