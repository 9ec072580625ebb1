//! From `--backend` and `--adapter` to an executor.

use super::tune::Tune;
use super::{Backend, Global};
use crate::error::{Error, usage};
use crate::exec::cpu::Cpu;
#[cfg(feature = "cuda")]
use crate::exec::cuda::found::Found as Nvidia;
use crate::exec::wgpu::adapter::{Choice, choose};
use crate::exec::wgpu::{Wgpu, adapter};
use crate::exec::{DeviceInfo, Executor};
use crate::numerics::Numerics;
use crate::numerics::passport::{self, Passport};
use crate::numerics::probe::{Target, probe};

/// What was chosen.
enum Chosen {
    /// The CPU, or a GPU through a graphics interface.
    Here(Choice),
    /// An NVIDIA GPU through CUDA.
    #[cfg(feature = "cuda")]
    Cuda { found: Nvidia, why: String },
}

/// A chosen device: makes one executor after the other.
pub struct Device {
    choice: Chosen,
    /// Threads of the CPU executor, or all cores.
    threads: Option<usize>,
    tune: Tune,
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
                let choice = Chosen::Here(Choice::Cpu { why });
                return Ok(Device::new(choice, threads));
            }
            Backend::Cuda => {
                let choice = cuda(g)?;
                return Ok(Device::new(choice, threads));
            }
            Backend::Auto => adapter::Backend::Auto,
            Backend::Vulkan => adapter::Backend::Vulkan,
            Backend::Metal => adapter::Backend::Metal,
            Backend::Dx12 => adapter::Backend::Dx12,
            Backend::Gl => adapter::Backend::Gl,
        };
        let auto = g.backend == Backend::Auto && g.adapter.is_none();
        let choice = match auto.then(nvidia).flatten() {
            Some(Ok(found)) => found,
            absent => {
                let mut choice = choose(backend, g.adapter.as_deref())?;
                if let (Some(Err(no_cuda)), Choice::Cpu { why } | Choice::Gpu { why, .. }) =
                    (absent, &mut choice)
                {
                    why.push_str(&format!("; no CUDA: {no_cuda}"));
                }
                Chosen::Here(choice)
            }
        };
        Ok(Device::new(choice, threads))
    }

    fn new(choice: Chosen, threads: Option<usize>) -> Device {
        let tune = Tune::KEPT;
        Device {
            choice,
            threads,
            tune,
        }
    }

    /// How executors that are opened from now on choose their kernels' variants. They use the choices of
    /// earlier runs if nothing is said.
    pub fn set_tune(&mut self, tune: Tune) {
        self.tune = tune;
    }

    /// The sentence that says what was chosen and why.
    pub fn why(&self) -> &str {
        match &self.choice {
            Chosen::Here(choice) => choice.why(),
            #[cfg(feature = "cuda")]
            Chosen::Cuda { why, .. } => why,
        }
    }

    /// The device, if it is reached through CUDA.
    #[cfg(feature = "cuda")]
    pub fn nvidia(&self) -> Option<&Nvidia> {
        match &self.choice {
            Chosen::Here(_) => None,
            Chosen::Cuda { found, .. } => Some(found),
        }
    }

    /// The device, if it is reached through a graphics interface.
    pub fn graphics(&self) -> Option<&adapter::Found> {
        match &self.choice {
            Chosen::Here(Choice::Gpu { found, .. }) => Some(found),
            _ => None,
        }
    }

    /// What output files say of it.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn info(&self) -> Result<DeviceInfo, Error> {
        match &self.choice {
            Chosen::Here(Choice::Cpu { .. }) => Ok(Cpu::new(self.threads)?.info()),
            Chosen::Here(Choice::Gpu { found, .. }) => Ok(found.info()),
            #[cfg(feature = "cuda")]
            Chosen::Cuda { found, .. } => Ok(found.info()),
        }
    }

    /// Its backend's name.
    pub fn backend(&self) -> &'static str {
        match &self.choice {
            Chosen::Here(Choice::Cpu { .. }) => "cpu",
            Chosen::Here(Choice::Gpu { found, .. }) => found.backend.name(),
            #[cfg(feature = "cuda")]
            Chosen::Cuda { .. } => "cuda",
        }
    }

    /// Its limits; none on the CPU and in CUDA.
    pub fn limits(&self) -> Option<adapter::Limits> {
        self.graphics().map(|found| found.limits)
    }

    /// Whether it is a GPU of its own silicon.
    pub fn is_real_gpu(&self) -> bool {
        match &self.choice {
            Chosen::Here(Choice::Cpu { .. }) => false,
            Chosen::Here(Choice::Gpu { found, .. }) => !found.software,
            #[cfg(feature = "cuda")]
            Chosen::Cuda { .. } => true,
        }
    }

    /// A fresh executor.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(&self, numerics: Numerics) -> Result<Box<dyn Executor>, Error> {
        Ok(match &self.choice {
            Chosen::Here(Choice::Cpu { .. }) => {
                Box::new(Cpu::new(self.threads)?.with_numerics(numerics))
            }
            Chosen::Here(Choice::Gpu { found, .. }) => {
                let gpu = Wgpu::open(found, numerics)?;
                match self.tune.tuner(found.info(), numerics) {
                    Some(tuner) => Box::new(gpu.with_tuner(tuner)),
                    None => Box::new(gpu),
                }
            }
            #[cfg(feature = "cuda")]
            Chosen::Cuda { found, .. } => Box::new(found.open(numerics)?),
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
            Chosen::Here(Choice::Cpu { .. }) => Ok((probe(Target::Cpu(self.threads))?, false)),
            #[cfg(feature = "cuda")]
            Chosen::Cuda { found, .. } => {
                let key = passport::Device::of(&found.info(), None);
                let open = || -> Result<Box<dyn Executor>, _> {
                    Ok(Box::new(found.open(Numerics::Portable)?))
                };
                let kept = passport::kept(&key, fresh, || probe(Target::Other(&open)));
                kept.map_err(Error::from)
            }
            Chosen::Here(Choice::Gpu { found, .. }) => {
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
        let title = match &self.choice {
            Chosen::Here(Choice::Cpu { .. }) => return Ok(None),
            Chosen::Here(Choice::Gpu { found, .. }) => found.title(),
            #[cfg(feature = "cuda")]
            Chosen::Cuda { found, .. } => found.title(),
        };
        if numerics == Numerics::Fast {
            return Ok(None);
        }
        let passport = self.passport(false)?.0;
        match &passport.failed {
            None => Ok(Some(passport)),
            Some(property) => usage(format!(
                "{} does not pass the probe for portable numerics: {property}; see `isobit probe`, or run with --numerics fast, whose bits are this device's own",
                title
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
                if let Some(Ok(choice)) = nvidia() {
                    let threads = g.threads()?;
                    out.push(("cuda".into(), Device::new(choice, threads)));
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
                "--on {entry}: there is no backend {name:?}; name cpu, cpu:THREADS, vulkan, metal, dx12, gl or cuda, each with :NAME-OR-INDEX where there are several, or all"
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

/// An NVIDIA GPU by CUDA, or why there is none; nothing where the build has no CUDA.
#[cfg(feature = "cuda")]
fn nvidia() -> Option<Result<Chosen, String>> {
    Some(Nvidia::find(None).map(|found| {
        let how = "it is the fastest path to an NVIDIA GPU";
        let why = format!("chose {}: {how}", found.title());
        Chosen::Cuda { found, why }
    }))
}

#[cfg(not(feature = "cuda"))]
fn nvidia() -> Option<Result<Chosen, String>> {
    None
}

/// The CUDA device that was asked for.
#[cfg(feature = "cuda")]
fn cuda(g: &Global) -> Result<Chosen, Error> {
    match Nvidia::find(g.adapter.as_deref()) {
        Ok(found) => {
            let why = format!("chose {}: as asked", found.title());
            Ok(Chosen::Cuda { found, why })
        }
        Err(why) => usage(format!(
            "--backend cuda: {why}; use --backend auto, vulkan or cpu"
        )),
    }
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &Global) -> Result<Chosen, Error> {
    usage(
        "--backend cuda is not in this build (build with --features cuda); use --backend vulkan or cpu",
    )
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
