//! Finding and choosing devices.
//!
//! Policy: `auto` takes a real GPU or none at all. A software GPU is slower than the CPU executor, so
//! it is taken only where it was asked for, by its backend or by its name.

use super::super::ExecError;
use std::fmt;

/// Which graphics interface to use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Backend {
    /// A real GPU through whatever reaches it, otherwise the CPU executor.
    #[default]
    Auto,
    /// Vulkan (Linux, Windows, Android).
    Vulkan,
    /// Metal (macOS).
    Metal,
    /// Direct3D 12 (Windows).
    Dx12,
    /// OpenGL or OpenGL ES, the fallback for old drivers.
    Gl,
}

/// The concrete backends, the best first: Vulkan is the one with the no-contraction belt.
const ALL: [Backend; 4] = [Backend::Vulkan, Backend::Metal, Backend::Dx12, Backend::Gl];

impl Backend {
    /// The backend's name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Vulkan => "vulkan",
            Backend::Metal => "metal",
            Backend::Dx12 => "dx12",
            Backend::Gl => "gl",
        }
    }

    fn flags(self) -> wgpu::Backends {
        match self {
            Backend::Auto => wgpu::Backends::all(),
            Backend::Vulkan => wgpu::Backends::VULKAN,
            Backend::Metal => wgpu::Backends::METAL,
            Backend::Dx12 => wgpu::Backends::DX12,
            Backend::Gl => wgpu::Backends::GL,
        }
    }

    /// Whether this system can have the backend at all.
    pub fn possible(self) -> bool {
        self == Backend::Auto || wgpu::Instance::enabled_backend_features().contains(self.flags())
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A device that is there. Executors opened from one listing may share a context on GL, whose lock gives
/// up after 6 s: for use in several threads there, list anew.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its place in [`list`]; `--adapter` accepts it.
    pub index: usize,
    /// How it is reached.
    pub backend: Backend,
    /// The device's own name.
    pub name: String,
    /// The driver's name; empty where the backend does not tell.
    pub driver: String,
    /// The driver's version.
    pub driver_info: String,
    /// `discrete gpu`, `integrated gpu`, `virtual gpu`, `software gpu` or `gpu`.
    pub kind: &'static str,
    /// Whether the host's processor does its work.
    pub software: bool,
    /// Limits that matter to a trainer.
    pub limits: Limits,
    /// Features that matter to a trainer, by name.
    pub features: Vec<&'static str>,
    /// Why plans cannot run there; `None` where they can.
    pub unusable: Option<String>,
    pub(super) adapter: wgpu::Adapter,
    /// For tests: it cannot be opened any more.
    pub(super) gone: bool,
}

/// The limits of a device that matter to a trainer. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest part of a buffer that a kernel can see.
    pub binding: u64,
    /// Largest buffer.
    pub buffer: u64,
    /// Largest uniform block.
    pub uniform: u64,
    /// Buffers per kernel.
    pub storage_buffers: u32,
    /// Invocations in a workgroup.
    pub invocations: u32,
    /// Extents of a workgroup.
    pub workgroup: [u32; 3],
    /// Memory shared by a workgroup.
    pub workgroup_memory: u64,
    /// Workgroups per dimension of a launch.
    pub workgroups: u32,
}

impl Limits {
    fn of(l: &wgpu::Limits) -> Limits {
        Limits {
            binding: l.max_storage_buffer_binding_size,
            buffer: l.max_buffer_size,
            uniform: l.max_uniform_buffer_binding_size,
            storage_buffers: l.max_storage_buffers_per_shader_stage,
            invocations: l.max_compute_invocations_per_workgroup,
            workgroup: [
                l.max_compute_workgroup_size_x,
                l.max_compute_workgroup_size_y,
                l.max_compute_workgroup_size_z,
            ],
            workgroup_memory: l.max_compute_workgroup_storage_size.into(),
            workgroups: l.max_compute_workgroups_per_dimension,
        }
    }
}

/// What a run will use, and why.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The CPU executor.
    Cpu {
        /// A sentence that says so, and why.
        why: String,
    },
    /// A device.
    Gpu {
        /// Which.
        found: Box<Found>,
        /// A sentence that says so, and why.
        why: String,
    },
}

impl Choice {
    /// The sentence that says what was chosen and why.
    pub fn why(&self) -> &str {
        match self {
            Choice::Cpu { why } | Choice::Gpu { why, .. } => why,
        }
    }
}

/// All devices on all backends of this system. A real GPU shows up once for each interface that
/// reaches it.
pub fn list() -> Vec<Found> {
    list_until(|_| false)
}

/// The devices of one backend after the other, until the list is `enough`. (Starting an interface
/// costs tens of milliseconds, and a broken driver of one should not stop another.)
fn list_until(enough: impl Fn(&[Found]) -> bool) -> Vec<Found> {
    let mut found = Vec::new();
    for backend in ALL.into_iter().filter(|b| b.possible()) {
        if enough(&found) {
            break;
        }
        // An instance for each backend: on GL two devices of one instance would share one context.
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: backend.flags(),
            // Not the defaults, which ask for validation layers in debug builds and patch indirect
            // launches, of which there are none here. WGPU_VALIDATION=1 and the like still work.
            flags: wgpu::InstanceFlags::empty().with_env(),
            // No display handle: EGL then takes its surfaceless platform, so that a machine without
            // a display needs no variable.
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        for adapter in pollster::block_on(instance.enumerate_adapters(backend.flags())) {
            found.push(describe(found.len(), backend, adapter));
        }
    }
    found
}

fn describe(index: usize, backend: Backend, adapter: wgpu::Adapter) -> Found {
    let info = adapter.get_info();
    let limits = Limits::of(&adapter.limits());
    let software = software(&info.name, info.device_type);
    let kind = match info.device_type {
        _ if software => "software gpu",
        wgpu::DeviceType::DiscreteGpu => "discrete gpu",
        wgpu::DeviceType::IntegratedGpu => "integrated gpu",
        wgpu::DeviceType::VirtualGpu => "virtual gpu",
        _ => "gpu",
    };
    let has = adapter.features();
    let features = FEATURES
        .iter()
        .filter(|(f, _)| has.contains(*f))
        .map(|&(_, name)| name)
        .collect();
    let compute = adapter
        .get_downlevel_capabilities()
        .flags
        .contains(wgpu::DownlevelFlags::COMPUTE_SHADERS);
    let unusable = match limits.storage_buffers {
        _ if !compute => Some("it has no compute shaders".to_string()),
        n if n < 8 => Some(format!("a kernel can bind {n} buffers there, 8 are needed")),
        _ => None,
    };
    Found {
        index,
        backend,
        name: info.name,
        driver: info.driver,
        driver_info: info.driver_info,
        kind,
        software,
        limits,
        features,
        unusable,
        adapter,
        gone: false,
    }
}

const FEATURES: &[(wgpu::Features, &str)] = &[
    (wgpu::Features::TIMESTAMP_QUERY, "timestamps"),
    (wgpu::Features::PASSTHROUGH_SHADERS, "passthrough shaders"),
    (wgpu::Features::SUBGROUP, "subgroups"),
    (wgpu::Features::SHADER_F16, "f16"),
    (wgpu::Features::SHADER_INT64, "int64"),
    (
        wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX,
        "cooperative matrix",
    ),
];

/// Device types alone are not enough: a layer or a remote driver may report a renderer of these names
/// as something else.
fn software(name: &str, kind: wgpu::DeviceType) -> bool {
    let name = name.to_lowercase();
    let known = [
        "llvmpipe",
        "lavapipe",
        "swiftshader",
        "softpipe",
        "microsoft basic render",
    ];
    kind == wgpu::DeviceType::Cpu || known.iter().any(|k| name.contains(k))
}

impl Found {
    /// Smaller is better: real before software, discrete before integrated, Vulkan before GL.
    fn rank(&self) -> (usize, usize, usize) {
        let kinds = ["discrete gpu", "integrated gpu", "virtual gpu", "gpu"];
        let kind = kinds.iter().position(|k| *k == self.kind);
        let backend = ALL.iter().position(|b| *b == self.backend);
        // Of two software devices the faster one.
        let slow = self.name.to_lowercase().contains("swiftshader") as usize;
        (
            kind.unwrap_or(kinds.len()),
            backend.unwrap_or(ALL.len()),
            slow,
        )
    }

    /// For tests: the device goes away between the listing and the opening, so that the driver refuses.
    pub fn simulate_vanish(&mut self) {
        self.gone = true;
    }

    /// The device in a few words.
    pub fn title(&self) -> String {
        format!("{} ({}, {})", self.name, self.backend, self.kind)
    }
}

/// Chooses a device. `adapter` is a part of its name, in any case, or its index in [`list`].
///
/// # Errors
/// A backend that this system cannot have, no device, or no such device; each in one line that says
/// what to do.
pub fn choose(backend: Backend, adapter: Option<&str>) -> Result<Choice, ExecError> {
    if !backend.possible() {
        return Err(ExecError::Device(impossible(backend)));
    }
    // Backends are listed in order, so that a list cut short gives the same indices.
    let real = |f: &Found| f.unusable.is_none() && !f.software;
    let number = adapter.is_some_and(|a| a.trim().parse::<usize>().is_ok());
    let all = match backend {
        Backend::Auto if adapter.is_none() => list_until(|l| l.iter().any(real)),
        Backend::Auto => list(),
        _ if number => list(),
        _ => list_until(|l| l.iter().any(|f| f.backend == backend)),
    };
    choose_from(all, backend, adapter)
}

fn choose_from(
    all: Vec<Found>,
    backend: Backend,
    adapter: Option<&str>,
) -> Result<Choice, ExecError> {
    let (mut here, mut broken) = (vec![], vec![]);
    for f in all {
        if backend == Backend::Auto || f.backend == backend {
            let side = if f.unusable.is_none() {
                &mut here
            } else {
                &mut broken
            };
            side.push(f);
        }
    }
    here.sort_by_key(|f| (f.rank(), f.index));
    if let Some(wanted) = adapter {
        return named(here, &broken, backend, wanted);
    }
    let software = here.iter().filter(|f| f.software).count();
    let real = here.len() - software;
    match here.into_iter().next() {
        Some(f) if !f.software => {
            let why = match (backend, real) {
                (Backend::Auto, 1) => {
                    format!("chose {}: it is the only real GPU here", f.title())
                }
                (Backend::Auto, _) => format!("chose {}: it is the best real GPU here", f.title()),
                _ => format!(
                    "chose {}: it is the best {backend} device here, as asked",
                    f.title()
                ),
            };
            let found = Box::new(f);
            Ok(Choice::Gpu { found, why })
        }
        Some(f) if backend != Backend::Auto => {
            let why = format!(
                "chose {}: {backend} was asked for, and there is no real GPU; `--backend cpu` is faster",
                f.title()
            );
            let found = Box::new(f);
            Ok(Choice::Gpu { found, why })
        }
        Some(_) => Ok(Choice::Cpu {
            why:
                "chose the CPU executor: there is no real GPU, and it is faster than a software GPU"
                    .into(),
        }),
        None if backend == Backend::Auto => Ok(Choice::Cpu {
            why: match broken.first() {
                Some(f) => format!(
                    "chose the CPU executor: {} cannot be used, {}",
                    f.title(),
                    f.unusable.as_deref().unwrap_or_default()
                ),
                None => "chose the CPU executor: there is no GPU".into(),
            },
        }),
        None => Err(ExecError::Device(match broken.first() {
            Some(f) => format!(
                "{} cannot be used: {}",
                f.title(),
                f.unusable.as_deref().unwrap_or_default()
            ),
            None => absent(backend),
        })),
    }
}

/// The device that was named, a software device too.
fn named(
    here: Vec<Found>,
    broken: &[Found],
    backend: Backend,
    wanted: &str,
) -> Result<Choice, ExecError> {
    let index: Option<usize> = wanted.trim().parse().ok();
    let lower = wanted.trim().to_lowercase();
    let is = |f: &Found| match index {
        Some(i) => f.index == i,
        None => f.name.to_lowercase().contains(&lower),
    };
    match broken.iter().find(|f| is(f)) {
        Some(f) if !here.iter().any(is) => {
            let reason = f.unusable.as_deref().unwrap_or_default();
            let text = format!("{} cannot be used: {reason}", f.title());
            return Err(ExecError::Device(text));
        }
        _ => {}
    }
    if here.is_empty() {
        return Err(ExecError::Device(absent(backend)));
    }
    let names: Vec<String> = here
        .iter()
        .map(|f| format!("{} {}", f.index, f.title()))
        .collect();
    match here.into_iter().find(is) {
        Some(f) => {
            let why = format!("chose {}: `--adapter {wanted}` names it", f.title());
            let found = Box::new(f);
            Ok(Choice::Gpu { found, why })
        }
        None => Err(ExecError::Device(format!(
            "no {} is named or numbered {wanted:?}; there are: {}",
            match backend {
                Backend::Auto => "device".to_string(),
                b => format!("{b} device"),
            },
            names.join(", ")
        ))),
    }
}

fn impossible(backend: Backend) -> String {
    let home = match backend {
        Backend::Metal => "macOS",
        Backend::Dx12 => "Windows",
        _ => "Linux and Windows",
    };
    let here: Vec<&str> = ALL
        .into_iter()
        .filter(|b| b.possible())
        .map(Backend::name)
        .collect();
    format!(
        "{backend} exists on {home} only; here there are auto, cpu, {}",
        here.join(", ")
    )
}

/// What to say where a backend has no device.
fn absent(backend: Backend) -> String {
    let what = match backend {
        Backend::Auto => return "no GPU: `--backend cpu` needs none".into(),
        Backend::Vulkan if cfg!(target_os = "linux") => {
            "install a driver, on Debian/Ubuntu `apt install mesa-vulkan-drivers libvulkan1`, for NVIDIA its own driver"
        }
        Backend::Gl if cfg!(target_os = "linux") => {
            "install a driver, on Debian/Ubuntu `apt install libegl1 libgl1-mesa-dri`, for NVIDIA its own driver"
        }
        _ => "install the GPU vendor's driver",
    };
    let name = match backend {
        Backend::Vulkan => "Vulkan",
        Backend::Metal => "Metal",
        Backend::Dx12 => "Direct3D 12",
        _ => "OpenGL",
    };
    format!("no {name} device: {what}, or use `--backend cpu`")
}

#[cfg(test)]
mod tests;
