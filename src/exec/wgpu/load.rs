//! Loading a plan: everything is checked first, then everything is allocated, then it is recorded.

use super::super::wgsl::{self, Shader};
use super::super::{ExecError, ProgramId, bytes, cpu::free_memory, same_len};
use super::adapter::Backend;
use super::buffers::{Slab, bytes_for};
use super::health::{Refused, scoped};
use super::limits;
use super::pipelines::{Builder, Facts, Key, Ready, prepare};
use super::submit::{self, Launch};
use super::{Loaded, Place, Wgpu};
use crate::passes::memory::share;
use crate::plan::{BufId, Class, Plan, Step};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// A step on its way to a launch.
pub(super) struct Prepared {
    pub key: Key,
    pub workgroups: u64,
    pub facts: Facts,
    /// The shader file.
    pub file: &'static str,
}

/// How a device's shaders are built.
pub(super) fn builder(
    device: &wgpu::Device,
    belt: bool,
    software: bool,
    backend: Backend,
) -> Builder<'_> {
    Builder {
        device,
        belt,
        storage_parameters: software,
        // GL has one context, whose lock gives up after 6 s.
        parallel: backend != Backend::Gl,
    }
}

/// Shaders that no earlier program has.
type NewShaders = Vec<(Key, Ready)>;

/// Where a plan's buffers other than states lie.
struct SlotMap {
    /// The slot of each buffer; none for a state.
    places: Vec<Option<usize>>,
    /// Labels and words of new slots.
    new: Vec<(String, u64)>,
}

/// What a program lives in.
struct Space {
    places: Vec<Place>,
    /// New slots.
    slots: Vec<Slab>,
    /// New states.
    states: Vec<Slab>,
}

impl Wgpu {
    pub(super) fn load_plan(&mut self, plan: Arc<Plan>) -> Result<ProgramId, ExecError> {
        let loading = format!("while program {} was loaded", plan.name);
        self.health.check().map_err(|t| self.failed(t, &loading))?;
        let title = self.found.title();
        limits::buffers(&plan, &self.found.limits, &title).map_err(ExecError::Device)?;
        self.tune(&plan)?;
        let (steps, new) = self.prepare_steps(&plan)?;
        let slots = self.map_slots(&plan);
        let sizes = self.check_memory(&plan, &steps, &slots)?;
        self.build_pipelines(&plan, &steps, new)?;
        let space = self.allocate(&plan, slots, sizes.total)?;
        // The uniform block is one more.
        self.created.buffers += (space.slots.len() + space.states.len() + 1) as u64;
        self.created.groups += steps.len() as u64;
        let slab = |b: BufId| self.placed(&space, b);
        let each: Vec<(&Prepared, &Step)> = steps.iter().zip(&plan.steps).collect();
        let launches = self.record(&plan, &each, &slab, sizes.uniforms);
        let launches = launches.map_err(|why| {
            ExecError::Device(format!("{title} refused a bind group {loading}: {why}"))
        })?;
        // From here on nothing fails.
        for s in space.states {
            self.names.insert(s.label.clone(), self.states.len());
            self.states.push(s);
        }
        self.slots.extend(space.slots);
        self.memory.allocated += sizes.total;
        self.memory.peak = self.memory.peak.max(self.memory.allocated);
        self.programs.push(Loaded {
            plan,
            places: space.places,
            launches,
        });
        Ok(ProgramId(self.programs.len() - 1))
    }

    /// Generates, parses and checks the shaders; returns those that are new.
    fn prepare_steps(&self, plan: &Plan) -> Result<(Vec<Prepared>, NewShaders), ExecError> {
        let shaders: Vec<(Key, u64, &'static str)> = plan
            .steps
            .iter()
            .map(|s| {
                let v = self.variant(s, plan);
                let shader: Shader = wgsl::assemble(s, plan, self.options, &v);
                (Key::new(&shader, s), v.groups, v.file)
            })
            .collect();
        // One step that stands for each new shader.
        let mut first: HashMap<&Key, usize> = HashMap::new();
        for (n, (key, ..)) in shaders.iter().enumerate() {
            if self.pipelines.get(key).is_none() {
                first.entry(key).or_insert(n);
            }
        }
        let mut order: Vec<usize> = first.into_values().collect();
        order.sort_unstable();
        let ready: Result<NewShaders, ExecError> = order
            .par_iter()
            .map(|&n| {
                let key = &shaders[n].0;
                let ready = prepare(key).map_err(|why| {
                    let at = submit::place(plan, n..n + 1);
                    ExecError::Device(format!("the shader {at} is wrong: {why}"))
                })?;
                Ok((key.clone(), ready))
            })
            .collect();
        let new = ready?;
        let facts: HashMap<&Key, Facts> = new.iter().map(|(k, r)| (k, r.facts)).collect();
        let mut steps = Vec::with_capacity(shaders.len());
        for (n, (key, workgroups, file)) in shaders.into_iter().enumerate() {
            let known = facts.get(&key).copied();
            let known = known.or_else(|| self.pipelines.get(&key).map(|b| b.0.facts));
            let facts = known.expect("every shader is new or built");
            let step = &plan.steps[n];
            limits::step(step, &facts, workgroups, &self.found.limits).map_err(|why| {
                let at = submit::place(plan, n..n + 1);
                let title = self.found.title();
                ExecError::Device(format!("{title} cannot run the kernel {at}: {why}"))
            })?;
            steps.push(Prepared {
                key,
                workgroups,
                facts,
                file,
            });
        }
        drop(facts);
        Ok((steps, new))
    }

    /// Where the plan's own buffers lie: in slots that programs share, since they take turns, or, under
    /// guards, each in one of its own.
    fn map_slots(&self, plan: &Plan) -> SlotMap {
        let first = self.slots.len();
        let mut pool: Vec<usize> = self.slots.iter().map(|s| s.words as usize).collect();
        let of_slots = match self.guards {
            true => vec![],
            false => share(&mut pool, &plan.slots),
        };
        let mut labels: Vec<String> = (first..pool.len()).map(|i| format!("slot {i}")).collect();
        let mut places = vec![None; plan.bufs.len()];
        for (place, b) in places.iter_mut().zip(&plan.bufs) {
            if b.class != Class::State {
                *place = Some(of_slots.get(b.slot).copied().unwrap_or(pool.len()));
            }
            if b.class != Class::State && self.guards {
                labels.push(b.name.clone());
                pool.push(b.words());
            }
        }
        let words = pool[first..].iter().map(|&w| w as u64);
        let new = labels.into_iter().zip(words).collect();
        SlotMap { places, new }
    }

    /// What will be allocated; on a software GPU it must be free.
    fn check_memory(
        &self,
        plan: &Plan,
        steps: &[Prepared],
        slots: &SlotMap,
    ) -> Result<Sizes, ExecError> {
        let states = plan.states().filter(|b| !self.names.contains_key(&b.name));
        let bytes = |words: u64| bytes_for(words, self.guards);
        let slots: u64 = slots.new.iter().map(|s| bytes(s.1)).sum();
        let states: u64 = states.map(|b| bytes(b.words() as u64)).sum();
        let each = steps.iter().zip(&plan.steps);
        let uniforms = each.map(|(p, s)| self.uniform_bytes(s, p.facts)).sum();
        let total = slots + states + uniforms;
        // Real GPUs do not tell what is free; there the allocation itself answers.
        let have = if self.found.software {
            free_memory()
        } else {
            u64::MAX
        };
        if total > have {
            return Err(ExecError::Memory {
                what: format!("the {} program", plan.name),
                device: self.found.title(),
                need: total,
                have,
            });
        }
        Ok(Sizes { total, uniforms })
    }

    /// Bytes of a step's parameters, up to where the next one's may begin.
    pub(super) fn uniform_bytes(&self, step: &Step, facts: Facts) -> u64 {
        let align = self.parameter_alignment();
        limits::uniform_bytes(step, facts.uniform_bytes).next_multiple_of(align)
    }

    /// Where a step's parameters may begin.
    fn parameter_alignment(&self) -> u64 {
        let l = self.device.limits();
        match self.options.software {
            true => l.min_storage_buffer_offset_alignment as u64,
            false => l.min_uniform_buffer_offset_alignment as u64,
        }
    }

    fn build_pipelines(
        &mut self,
        plan: &Plan,
        steps: &[Prepared],
        new: NewShaders,
    ) -> Result<(), ExecError> {
        let builder = builder(
            &self.device,
            self.belt,
            self.options.software,
            self.found.backend,
        );
        let keys: Vec<Key> = new.iter().map(|(k, _)| k.clone()).collect();
        self.created.pipelines += keys.len() as u64;
        self.pipelines.build(&builder, new).map_err(|(i, why)| {
            let n = steps.iter().position(|s| s.key == keys[i]).unwrap_or(0);
            let at = submit::place(plan, n..n + 1);
            let title = self.found.title();
            match self.health.check() {
                Err(t) => self.failed(t, &at),
                Ok(()) => ExecError::Device(format!("{title} refused the shader {at}: {why}")),
            }
        })
    }

    /// Allocates new slots and states.
    fn allocate(&self, plan: &Plan, slots: SlotMap, total: u64) -> Result<Space, ExecError> {
        let mut places = Vec::with_capacity(plan.bufs.len());
        // Names and words.
        let mut states: Vec<(String, u64)> = vec![];
        for (b, slot) in plan.bufs.iter().zip(slots.places) {
            places.push(match (slot, self.names.get(&b.name)) {
                (Some(slot), _) => Place::Slot(slot),
                (None, Some(&i)) => {
                    same_len(&b.name, b.words(), self.states[i].words as usize)?;
                    Place::State(i)
                }
                (None, None) => {
                    states.push((b.name.clone(), b.words() as u64));
                    Place::State(self.states.len() + states.len() - 1)
                }
            });
        }
        let make = |list: Vec<(String, u64)>| -> Vec<Slab> {
            let make = |(label, words)| Slab::new(&self.device, label, words, self.guards);
            list.into_iter().map(make).collect()
        };
        let made = scoped(&self.device, || (make(slots.new), make(states)));
        let (slots, states) = made.map_err(|refused| {
            let why = match refused {
                Refused::Memory => {
                    "has not that much free; take a smaller model, batch or block".to_string()
                }
                Refused::Call(why) => format!("refused: {why}"),
            };
            ExecError::Device(format!(
                "the {} program needs {} of memory, {} {why}",
                plan.name,
                bytes(total),
                self.found.title()
            ))
        })?;
        if self.guards {
            slots.iter().chain(&states).for_each(|s| s.arm(&self.queue));
        }
        Ok(Space {
            places,
            slots,
            states,
        })
    }

    /// The slot or state of a plan that is being loaded.
    fn placed<'a>(&'a self, space: &'a Space, b: BufId) -> &'a Slab {
        match space.places[b.0 as usize] {
            Place::Slot(i) => self
                .slots
                .get(i)
                .unwrap_or_else(|| &space.slots[i - self.slots.len()]),
            Place::State(i) => self
                .states
                .get(i)
                .unwrap_or_else(|| &space.states[i - self.states.len()]),
        }
    }

    /// Makes the uniform blocks, the bind groups and the launches of steps over their buffers.
    pub(super) fn record<'a>(
        &self,
        plan: &Plan,
        steps: &[(&Prepared, &Step)],
        slab: &dyn Fn(BufId) -> &'a Slab,
        uniforms: u64,
    ) -> Result<Vec<Launch>, String> {
        let device = &self.device;
        let align = self.parameter_alignment();
        let mut contents: Vec<u32> = Vec::with_capacity((uniforms / 4) as usize);
        let made = scoped(device, || {
            let block = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: uniforms.max(16),
                usage: match self.options.software {
                    true => wgpu::BufferUsages::STORAGE,
                    false => wgpu::BufferUsages::UNIFORM,
                } | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let mut launches = Vec::with_capacity(steps.len());
            for (p, s) in steps {
                let size = limits::uniform_bytes(s, p.facts.uniform_bytes);
                let offset = 4 * contents.len() as u64;
                contents.extend(&s.params.words);
                contents.resize(((offset + size.next_multiple_of(align)) / 4) as usize, 0);
                let uniform = wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &block,
                    offset,
                    size: wgpu::BufferSize::new(size),
                });
                let storage = s.reads.iter().chain(&s.writes).map(|&b| {
                    let words = plan.buf(b).words() as u64;
                    slab(b).binding(words, self.guards)
                });
                let entries: Vec<wgpu::BindGroupEntry> = std::iter::once(uniform)
                    .chain(storage)
                    .enumerate()
                    .map(|(i, resource)| wgpu::BindGroupEntry {
                        binding: i as u32,
                        resource,
                    })
                    .collect();
                let (built, layout) = self.pipelines.get(&p.key).expect("built before");
                let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout,
                    entries: &entries,
                });
                launches.push(Launch::new(
                    built.pipeline.clone(),
                    group,
                    p.workgroups,
                    self.found.limits.workgroups,
                    submit::work(s, plan),
                    p.file,
                ));
            }
            self.queue
                .write_buffer(&block, 0, bytemuck::cast_slice(&contents));
            launches
        });
        made.map_err(|refused| match refused {
            Refused::Memory => "out of memory".into(),
            Refused::Call(why) => why,
        })
    }
}

/// Bytes of a program.
struct Sizes {
    /// All of it.
    total: u64,
    /// Its uniform blocks.
    uniforms: u64,
}
