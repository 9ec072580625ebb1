//! From WGSL to pipelines: each distinct shader is parsed once, checked against its step, and built
//! once, whatever the number of steps and programs that use it.

use super::super::wgsl::{self, Shader};
use super::belt;
use super::health::{Refused, scoped};
use crate::plan::Step;
use naga::valid::ModuleInfo;
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The entry point of every shader.
const ENTRY: &str = "main";

/// What tells two pipelines apart.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    source: String,
    constants: Vec<(String, u64)>,
    reads: usize,
    writes: usize,
    bounds: bool,
}

impl Key {
    /// The key of a step's shader.
    pub fn new(shader: &Shader, step: &Step) -> Key {
        Key {
            source: shader.source.clone(),
            constants: shader
                .constants
                .iter()
                .map(|(n, v)| (n.clone(), v.to_bits()))
                .collect(),
            reads: step.reads.len(),
            writes: step.writes.len(),
            bounds: wgsl::data_dependent(step.kernel),
        }
    }
}

/// A shader whose constants are known.
pub(super) struct Ready {
    /// The module without overrides.
    pub module: naga::Module,
    /// What naga's validator knows of it.
    pub info: ModuleInfo,
    /// What it asks of a device.
    pub facts: Facts,
}

/// What a shader asks of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// Extents of its workgroup.
    pub workgroup: [u32; 3],
    /// Bytes that a workgroup shares.
    pub workgroup_bytes: u64,
    /// Bytes of its uniform block.
    pub uniform_bytes: u64,
}

/// Parses and checks a shader.
///
/// # Errors
/// It is no WGSL, lacks a constant, or does not bind what its step binds.
pub(super) fn prepare(key: &Key) -> Result<Ready, String> {
    let constants = key.constants.iter();
    let constants = constants.map(|(n, bits)| (n.as_str(), f64::from_bits(*bits)));
    let (module, info) = wgsl::parse_text(&key.source, constants)?;
    let stage = naga::ShaderStage::Compute;
    let entry = module
        .entry_points
        .iter()
        .find(|e| e.stage == stage && e.name == ENTRY)
        .ok_or("it has no entry point `main`")?;
    let workgroup = entry.workgroup_size;
    let mut layouter = naga::proc::Layouter::default();
    layouter
        .update(module.to_ctx())
        .map_err(|e| e.to_string())?;
    let (mut workgroup_bytes, mut uniform_bytes) = (0, 0);
    for (_, v) in module.global_variables.iter() {
        let size: u64 = layouter[v.ty].size.into();
        let slot = v.binding.as_ref().map(|b| b.binding);
        match v.space {
            naga::AddressSpace::Storage { .. } if slot == Some(0) => {
                uniform_bytes = size.next_multiple_of(16);
            }
            naga::AddressSpace::WorkGroup => workgroup_bytes += size.next_multiple_of(16),
            naga::AddressSpace::Uniform => uniform_bytes = size.next_multiple_of(16),
            _ => {}
        }
        interface(key, v)?;
    }
    Ok(Ready {
        module,
        info,
        facts: Facts {
            workgroup,
            workgroup_bytes,
            uniform_bytes,
        },
    })
}

/// Checks one variable against the bind group that steps use. wgpu does not look into SPIR-V that is
/// passed through, so this is what makes the layouts fit.
fn interface(key: &Key, v: &naga::GlobalVariable) -> Result<(), String> {
    let Some(at) = &v.binding else {
        return Ok(());
    };
    let name = v.name.as_deref().unwrap_or("a variable");
    let slot = at.binding as usize;
    let fits = at.group == 0
        && match v.space {
            naga::AddressSpace::Uniform => slot == 0,
            naga::AddressSpace::Storage { access } => {
                let stores = access.contains(naga::StorageAccess::STORE);
                if slot == 0 && !stores {
                    return Ok(()); // the parameters, on software devices
                }
                let (first, count) = if stores {
                    (key.reads, key.writes)
                } else {
                    (0, key.reads)
                };
                (first + 1..first + 1 + count).contains(&slot)
            }
            _ => false,
        };
    fits.then_some(()).ok_or_else(|| {
        format!(
            "its variable {name} at group {}, binding {slot} does not fit the step's {} reads and {} writes",
            at.group, key.reads, key.writes
        )
    })
}

/// How shaders are built on a device.
pub(super) struct Builder<'a> {
    /// The device.
    pub device: &'a wgpu::Device,
    /// Whether naga's SPIR-V goes in with the belt on.
    pub belt: bool,
    /// Whether several threads may build at once.
    pub parallel: bool,
    /// Whether the parameters are bound as storage, not as uniforms.
    pub storage_parameters: bool,
}

/// A built shader.
pub(super) struct Built {
    /// The pipeline.
    pub pipeline: wgpu::ComputePipeline,
    /// What it asks of a device.
    pub facts: Facts,
}

/// All pipelines of an executor.
#[derive(Default)]
pub(super) struct Pipelines {
    layouts: HashMap<(usize, usize), (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    built: HashMap<Key, Built>,
}

impl Pipelines {
    /// A shader that has been built.
    pub fn get(&self, key: &Key) -> Option<(&Built, &wgpu::BindGroupLayout)> {
        let layout = self.layouts.get(&(key.reads, key.writes))?;
        Some((self.built.get(key)?, &layout.0))
    }

    /// Drops a shader that no program uses.
    pub fn forget(&mut self, key: &Key) {
        self.built.remove(key);
    }

    /// Builds shaders.
    ///
    /// # Errors
    /// What the device says, with the place of the shader in `new`.
    pub fn build(
        &mut self,
        builder: &Builder,
        new: Vec<(Key, Ready)>,
    ) -> Result<(), (usize, String)> {
        for (i, (key, _)) in new.iter().enumerate() {
            let shape = (key.reads, key.writes);
            if let Entry::Vacant(entry) = self.layouts.entry(shape) {
                entry.insert(layout(builder, shape).map_err(|e| (i, e))?);
            }
        }
        let one = |(i, (key, ready)): (usize, &(Key, Ready))| {
            let layout = &self.layouts[&(key.reads, key.writes)].1;
            build(builder, key, ready, layout).map_err(|e| (i, e))
        };
        let built: Result<Vec<_>, _> = if builder.parallel {
            new.par_iter().enumerate().map(one).collect()
        } else {
            new.iter().enumerate().map(one).collect()
        };
        for ((key, ready), pipeline) in new.into_iter().zip(built?) {
            let facts = ready.facts;
            self.built.insert(key, Built { pipeline, facts });
        }
        Ok(())
    }
}

fn text(refused: Refused) -> String {
    match refused {
        Refused::Memory => "out of memory".into(),
        Refused::Call(why) => why,
    }
}

/// The layout of a bind group: the uniform block, then storage buffers.
fn layout(
    builder: &Builder,
    (reads, writes): (usize, usize),
) -> Result<(wgpu::BindGroupLayout, wgpu::PipelineLayout), String> {
    let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..1 + reads + writes)
        .map(|i| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match i {
                    0 if !builder.storage_parameters => wgpu::BufferBindingType::Uniform,
                    _ => wgpu::BufferBindingType::Storage {
                        read_only: i <= reads,
                    },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let device = builder.device;
    scoped(device, || {
        let group = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let pipeline = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group)],
            ..Default::default()
        });
        (group, pipeline)
    })
    .map_err(text)
}

fn build(
    builder: &Builder,
    key: &Key,
    ready: &Ready,
    layout: &wgpu::PipelineLayout,
) -> Result<wgpu::ComputePipeline, String> {
    let device = builder.device;
    let constants: Vec<(&str, f64)> = key
        .constants
        .iter()
        .map(|(n, v)| (n.as_str(), f64::from_bits(*v)))
        .collect();
    let spirv = if builder.belt {
        Some(belt::spirv(&ready.module, &ready.info, ENTRY, key.bounds)?)
    } else {
        None
    };
    scoped(device, || {
        let (module, constants) = match &spirv {
            Some(words) => {
                let [x, y, z] = ready.facts.workgroup;
                let entry = wgpu::PassthroughShaderEntryPoint {
                    name: ENTRY.into(),
                    workgroup_size: (x, y, z),
                };
                let desc = wgpu::ShaderModuleDescriptorPassthrough {
                    label: None,
                    entry_points: vec![entry].into(),
                    spirv: Some(words.into()),
                    ..Default::default()
                };
                // SAFETY: the words are what naga wrote for a module that its validator accepted,
                // with decorations added that are legal on the instructions they name; `interface`
                // has matched its variables with the layout; indices are in range by checks or by
                // the proof at `wgsl::data_dependent`; loops run over finite extents.
                let module = unsafe { device.create_shader_module_passthrough(desc) };
                // Constants have been applied.
                (module, &[][..])
            }
            None => {
                let desc = wgpu::ShaderModuleDescriptor {
                    label: None,
                    source: wgpu::ShaderSource::Wgsl(key.source.as_str().into()),
                };
                let checks = wgpu::ShaderRuntimeChecks {
                    bounds_checks: key.bounds,
                    force_loop_bounding: false,
                    ..wgpu::ShaderRuntimeChecks::checked()
                };
                // SAFETY: where checks of bounds are off, the proof at `wgsl::data_dependent` holds; every
                // loop of ours runs over a constant or an extent of the uniform block, so it ends.
                let module = unsafe { device.create_shader_module_trusted(desc, checks) };
                (module, &constants[..])
            }
        };
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(layout),
            module: &module,
            entry_point: Some(ENTRY),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants,
                // Our shaders write what they read of a workgroup's memory.
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        })
    })
    .map_err(text)
}

#[cfg(test)]
mod tests;
