//! From `--backend` and `--adapter` to an executor.

use super::{Backend, Global};
use crate::error::{Error, usage};
use crate::exec::cpu::Cpu;
use crate::exec::wgpu::adapter::{Choice, choose};
use crate::exec::wgpu::{Wgpu, adapter};
use crate::exec::{DeviceInfo, Executor};
use crate::numerics::Numerics;
use crate::numerics::passport::{self, Passport};
use crate::numerics::probe::{Target, probe};

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
                return usage(if cfg!(feature = "cuda") {
                    "--backend cuda: only `isobit gemm` runs on CUDA; use --backend vulkan or cpu"
                } else {
                    "--backend cuda is not in this build (build with --features cuda, for `isobit gemm`); use --backend vulkan or cpu"
                });
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

    /// What output files say of it.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn info(&self) -> Result<DeviceInfo, Error> {
        match &self.choice {
            Choice::Cpu { .. } => Ok(Cpu::new(self.threads)?.info()),
            Choice::Gpu { found, .. } => Ok(found.info()),
        }
    }

    /// Its backend's name.
    pub fn backend(&self) -> &'static str {
        match &self.choice {
            Choice::Cpu { .. } => "cpu",
            Choice::Gpu { found, .. } => found.backend.name(),
        }
    }

    /// Its limits; none on the CPU.
    pub fn limits(&self) -> Option<adapter::Limits> {
        match &self.choice {
            Choice::Cpu { .. } => None,
            Choice::Gpu { found, .. } => Some(found.limits),
        }
    }

    /// Whether it is a GPU of its own silicon.
    pub fn is_real_gpu(&self) -> bool {
        matches!(&self.choice, Choice::Gpu { found, .. } if !found.software)
    }

    /// A fresh executor.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(&self, numerics: Numerics) -> Result<Box<dyn Executor>, Error> {
        Ok(match &self.choice {
            Choice::Cpu { .. } => Box::new(Cpu::new(self.threads)?.with_numerics(numerics)),
            Choice::Gpu { found, .. } => Box::new(Wgpu::open(found, numerics)?),
        })
    }

    /// A fresh executor in the grade that the global options ask for, if the device is admitted to it.
    ///
    /// # Errors
    /// The property of the probe that it fails, or it cannot be opened.
    pub fn admitted(&self, g: &Global) -> Result<Box<dyn Executor>, Error> {
        let numerics = g.numerics.unwrap_or_default();
        self.admit(numerics)?;
        self.open(numerics)
    }

    /// What the probe says of it: of an earlier run, unless `fresh` is asked for. Whether it was kept
    /// comes along.
    ///
    /// # Errors
    /// The device failed.
    pub fn passport(&self, fresh: bool) -> Result<(Passport, bool), Error> {
        match &self.choice {
            Choice::Cpu { .. } => Ok((probe(Target::Cpu(self.threads))?, false)),
            Choice::Gpu { found, .. } => {
                let key = passport::Device::of(&found.info(), None);
                let kept = passport::kept(&key, fresh, || probe(Target::Gpu(found)));
                kept.map_err(Error::from)
            }
        }
    }

    /// Refuses a portable run on a device that fails the probe. The CPU executor is the definition and
    /// needs none.
    ///
    /// # Errors
    /// The property that failed, or the device did.
    pub fn admit(&self, numerics: Numerics) -> Result<Option<Passport>, Error> {
        let Choice::Gpu { found, .. } = &self.choice else {
            return Ok(None);
        };
        if numerics == Numerics::Fast {
            return Ok(None);
        }
        let passport = self.passport(false)?.0;
        match &passport.failed {
            None => Ok(Some(passport)),
            Some(property) => usage(format!(
                "{} does not pass the probe for portable numerics: {property}; see `isobit probe`, or run with --numerics fast, whose bits are this device's own",
                found.title()
            )),
        }
    }

    /// The devices of a list: `cpu`, `cpu:THREADS`, `BACKEND`, `BACKEND:NAME-OR-INDEX`, comma-separated,
    /// or `all`. With their labels.
    ///
    /// # Errors
    /// An entry that names nothing.
    pub fn several(list: &str, g: &Global) -> Result<Vec<(String, Device)>, Error> {
        let mut out: Vec<(String, Device)> = Vec::new();
        for entry in list.split(',').map(str::trim) {
            if entry == "all" {
                out.push(("cpu".into(), Device::named("cpu", g)?));
                for f in adapter::list().into_iter().filter(|f| f.unusable.is_none()) {
                    let place = format!("{}:{}", f.backend, f.index);
                    out.push((label(&f), Device::named(&place, g)?));
                }
                continue;
            }
            out.push((entry.to_string(), Device::named(entry, g)?));
        }
        for i in 0..out.len() {
            if let Some(twin) = out[..i].iter().position(|o| o.0 == out[i].0) {
                return usage(format!("--on {list}: {} is named twice", out[twin].0));
            }
        }
        Ok(out)
    }

    fn named(entry: &str, g: &Global) -> Result<Device, Error> {
        let (name, which) = entry
            .split_once(':')
            .map_or((entry, None), |(n, w)| (n, Some(w)));
        let Ok(backend) = <Backend as clap::ValueEnum>::from_str(name, true) else {
            return usage(format!(
                "--on {entry}: there is no backend {name:?}; name cpu, cpu:THREADS, vulkan, metal, dx12 or gl, each with :NAME-OR-INDEX where there are several, or all"
            ));
        };
        if backend == Backend::Cpu {
            let threads = match which.map(str::parse) {
                None => g.threads,
                Some(Ok(n)) if (1..=1024).contains(&n) => Some(n),
                _ => {
                    return usage(format!(
                        "--on {entry}: after cpu: comes a number of threads from 1 to 1024"
                    ));
                }
            };
            let g = Global {
                backend,
                adapter: None,
                threads,
                ..g.clone()
            };
            return Device::choose(&g);
        }
        let g = Global {
            backend,
            adapter: which.map(String::from),
            ..g.clone()
        };
        Device::choose(&g)
    }
}

/// A device in a word or two.
fn label(f: &adapter::Found) -> String {
    let name = f
        .name
        .split([' ', '('])
        .next()
        .unwrap_or("device")
        .to_lowercase();
    format!("{}:{name}", f.backend)
}
