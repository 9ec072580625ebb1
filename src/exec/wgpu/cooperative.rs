//! Products on cooperative matrices: tensor cores through a graphics interface, f16 operands and f32
//! sums. Fast numerics alone, and only where it is asked for: wgpu calls them experimental.
//!
//! **Seen to run on one software device (Mesa 26.2's lavapipe, 8 x 8) and on no hardware so far.** Times
//! there say nothing of tensor cores.

use super::super::{Clock, ExecError, bytes};
use super::adapter::{Backend, Found};
use super::buffers::{Link, Slab, Staging};
use super::health::{Health, Refused, Trouble, scoped};
use super::timer::Timer;
use crate::dtype::DType;
use std::time::Instant;
use wgpu::{CooperativeScalarType as Scalar, util::DeviceExt};

/// The files that a [`text`] is made from.
pub const FILES: [(&str, &str); 2] = [
    (
        "gemm.wgsl",
        include_str!("../../../shaders/cooperative/gemm.wgsl"),
    ),
    (
        "ceiling.wgsl",
        include_str!("../../../shaders/cooperative/ceiling.wgsl"),
    ),
];
/// What stands before each of them.
const BINDINGS: &str = include_str!("../../../shaders/cooperative/bindings.wgsl");
/// Independent sums of a subgroup in `ceiling.wgsl`.
const CHAINS: u32 = 8;
/// Rounds of it: sums stay whole numbers that f32 holds.
const ROUNDS: u32 = 4096;

/// The matrices that a device multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Rows and columns of each of them: 8 or 16.
    pub size: u32,
    /// Invocations of the largest subgroup.
    pub lanes: u32,
}

impl Shape {
    /// What a device offers with f16 operands and f32 sums, the largest.
    ///
    /// # Errors
    /// It offers none; the reason, after the device's name.
    pub fn of(found: &Found) -> Result<Shape, String> {
        let has = found.adapter.features();
        let no = |why: &str| Err(format!("{}: {why}", found.title()));
        if found.backend == Backend::Gl {
            return no("OpenGL has no cooperative matrices; Vulkan and Metal may");
        }
        if !has.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
            return no(match found.backend {
                Backend::Metal => "it has no cooperative matrices (an Apple7 GPU or later has)",
                Backend::Dx12 => "wgpu offers no cooperative matrices through Direct3D 12",
                _ => "its driver has no cooperative matrices (VK_KHR_cooperative_matrix)",
            });
        }
        if !has.contains(wgpu::Features::SHADER_F16) {
            return no("it has cooperative matrices, but no f16 in shaders");
        }
        let all = found.adapter.cooperative_matrix_properties();
        let cube = |p: &&wgpu::CooperativeMatrixProperties| {
            let mixed = p.ab_type == Scalar::F16 && p.cr_type == Scalar::F32;
            mixed && p.m_size == p.n_size && p.m_size == p.k_size && [8, 16].contains(&p.m_size)
        };
        match all.iter().filter(cube).map(|p| p.m_size).max() {
            Some(size) => Ok(Shape {
                size,
                lanes: found.adapter.get_info().subgroup_max_size.max(1),
            }),
            None => {
                let list: Vec<String> = all.iter().map(title).collect();
                no(&format!(
                    "it has cooperative matrices, but none of 8 x 8 or 16 x 16 with f16 operands and f32 sums, only: {}",
                    list.join(", ")
                ))
            }
        }
    }

    /// What extents of products are multiples of.
    pub fn granule(self) -> usize {
        4 * self.size as usize
    }
}

fn title(p: &wgpu::CooperativeMatrixProperties) -> String {
    format!(
        "{} x {} x {} {:?} to {:?}",
        p.m_size, p.n_size, p.k_size, p.ab_type, p.cr_type
    )
}

/// The text of one of [`FILES`] for a shape.
///
/// # Panics
/// If there is no such file.
pub fn text(file: &str, shape: Shape) -> String {
    let body = FILES.iter().find(|f| f.0 == file);
    let Shape { size, lanes } = shape;
    format!(
        "enable f16;\nenable wgpu_cooperative_matrix;\n\
         alias Left = coop_mat{size}x{size}<f16, A>;\n\
         alias Right = coop_mat{size}x{size}<f16, B>;\n\
         alias Sum = coop_mat{size}x{size}<f32, C>;\n\
         const SIZE = {size}u;\nconst LANES = {lanes}u;\n{BINDINGS}{}",
        body.expect("a file of this folder").1
    )
}

/// Operands and product on the device.
struct Loaded {
    n: usize,
    groups: Vec<wgpu::BindGroup>,
    product: Slab,
}

/// A device that multiplies on cooperative matrices.
pub struct Cooperative {
    device: wgpu::Device,
    queue: wgpu::Queue,
    health: Health,
    found: Found,
    shape: Shape,
    layout: wgpu::BindGroupLayout,
    product: wgpu::ComputePipeline,
    ceiling: wgpu::ComputePipeline,
    staging: Staging,
    timer: Option<Timer>,
    loaded: Option<Loaded>,
}

impl Cooperative {
    /// Opens a device and builds the kernels.
    ///
    /// # Errors
    /// It has no cooperative matrices of a shape that the kernels know, or the driver refuses.
    pub fn open(found: &Found) -> Result<Cooperative, ExecError> {
        let shape = Shape::of(found).map_err(ExecError::Device)?;
        let features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
            | wgpu::Features::SHADER_F16
            | (found.adapter.features() & wgpu::Features::TIMESTAMP_QUERY);
        // SAFETY: experimental features may have faults that safe calls meet. Whoever asks for cooperative
        // matrices is told that they are experimental; nothing else opens a device in this way.
        let experimental = unsafe { wgpu::ExperimentalFeatures::enabled() };
        let (device, queue) = super::request(found, features, experimental)?;
        let health = Health::watch(&device);
        let layout = layout(&device);
        let build = |file: &str| {
            let made = scoped(&device, || pipeline(&device, &layout, file, shape));
            made.map_err(|e| {
                let why = said(e);
                ExecError::Device(format!("{}: cooperative/{file}: {why}", found.title()))
            })
        };
        let (product, ceiling) = (build("gemm.wgsl")?, build("ceiling.wgsl")?);
        Ok(Cooperative {
            timer: Timer::new(&device, &queue),
            device,
            queue,
            health,
            found: found.clone(),
            shape,
            layout,
            product,
            ceiling,
            staging: Staging::default(),
            loaded: None,
        })
    }

    /// The matrices that it multiplies.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    fn failed(&self, trouble: Trouble) -> ExecError {
        let title = self.found.title();
        ExecError::Device(format!("{title}: {trouble} in a cooperative product"))
    }

    fn link(&self) -> Link<'_> {
        Link {
            device: &self.device,
            queue: &self.queue,
            health: &self.health,
        }
    }

    /// The buffers of a launch: parameters, copies of both operands, the result of `words` words.
    fn bind(
        &mut self,
        parameter: u32,
        (a, b): (&[u32], &[u32]),
        copies: usize,
        words: usize,
    ) -> Result<(Vec<wgpu::BindGroup>, Slab), ExecError> {
        let device = &self.device;
        let made = scoped(device, || {
            let slab = |words: usize| Slab::new(device, String::new(), words as u64, false);
            let params = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: None,
                contents: bytemuck::cast_slice(&[parameter, 0, 0, 0]),
                usage: wgpu::BufferUsages::UNIFORM,
            });
            let product = slab(words);
            let operands: Vec<(Slab, Slab)> = (0..copies)
                .map(|_| (slab(a.len()), slab(b.len())))
                .collect();
            let group = |(a, b): &(Slab, Slab)| {
                let buffers = [&params, &a.buffer, &b.buffer, &product.buffer];
                let entries: Vec<wgpu::BindGroupEntry> = (0u32..)
                    .zip(buffers)
                    .map(|(binding, buffer)| wgpu::BindGroupEntry {
                        binding,
                        resource: buffer.as_entire_binding(),
                    })
                    .collect();
                device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout: &self.layout,
                    entries: &entries,
                })
            };
            let groups = operands.iter().map(group).collect();
            (operands, product, groups)
        });
        let (operands, product, groups) = made.map_err(|e| {
            let need = bytes(4 * (words + copies * (a.len() + b.len())) as u64);
            let why = said(e);
            ExecError::Device(format!(
                "{}: {need} for a product: {why}; take a smaller --n",
                self.found.title()
            ))
        })?;
        let link = Link {
            device: &self.device,
            queue: &self.queue,
            health: &self.health,
        };
        for (x, y) in &operands {
            let written = self.staging.write(link, &x.buffer, a);
            let written = written.and_then(|()| self.staging.write(link, &y.buffer, b));
            written.map_err(|t| self.failed(t))?;
        }
        Ok((groups, product))
    }

    /// Takes square operands of extent `n`, row-major, whose elements f16 holds, in so many copies.
    ///
    /// # Errors
    /// They do not fit, or the device failed.
    ///
    /// # Panics
    /// If `n` is no multiple of [`Shape::granule`].
    pub fn load(&mut self, n: usize, a: &[f32], b: &[f32], copies: usize) -> Result<(), ExecError> {
        assert!(n > 0 && n.is_multiple_of(self.shape.granule()));
        // The memory of the one before is free first.
        self.loaded = None;
        let [a, b] = [a, b].map(|x| DType::F16.pack(n, x));
        let (groups, product) = self.bind(n as u32, (&a, &b), copies.max(1), n * n)?;
        self.loaded = Some(Loaded { n, groups, product });
        Ok(())
    }

    /// Multiplies what was loaded; `i` counts the products. Its milliseconds, and whose.
    ///
    /// # Errors
    /// The device failed.
    pub fn once(&mut self, i: usize) -> Result<(f64, Clock), ExecError> {
        let Some(l) = &self.loaded else {
            return Err(ExecError::Device("nothing to multiply is loaded".into()));
        };
        let side = (l.n / self.shape.granule()) as u32;
        let group = l.groups[i % l.groups.len()].clone();
        let pipeline = self.product.clone();
        self.launch(&pipeline, &group, [side, side])
    }

    fn launch(
        &mut self,
        pipeline: &wgpu::ComputePipeline,
        group: &wgpu::BindGroup,
        [x, y]: [u32; 2],
    ) -> Result<(f64, Clock), ExecError> {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: self.timer.as_ref().and_then(|t| t.writes(0)),
        });
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, group, &[]);
        pass.dispatch_workgroups(x, y, 1);
        drop(pass);
        if let Some(timer) = &mut self.timer {
            timer.finish(&mut encoder, 1);
        }
        let commands = encoder.finish();
        let start = Instant::now();
        let index = self.queue.submit([commands]);
        let waited = self.health.wait(&self.device, Some(index));
        waited.map_err(|t| self.failed(t))?;
        let wall = start.elapsed().as_secs_f64() * 1e3;
        self.staging.settled();
        Ok(match self.timer.as_ref().and_then(|t| t.ms(self.link())) {
            Some(ms) => (ms, Clock::Device),
            None => (wall, Clock::Host),
        })
    }

    /// The last product, row-major.
    ///
    /// # Errors
    /// The device failed.
    pub fn product(&mut self) -> Result<Vec<f32>, ExecError> {
        let Some(l) = &self.loaded else {
            return Err(ExecError::Device("nothing was multiplied".into()));
        };
        let (buffer, words) = (l.product.buffer.clone(), (l.n * l.n) as u64);
        self.read(&buffer, words)
    }

    fn read(&mut self, buffer: &wgpu::Buffer, words: u64) -> Result<Vec<f32>, ExecError> {
        let link = Link {
            device: &self.device,
            queue: &self.queue,
            health: &self.health,
        };
        let read = self.staging.read(link, None, &[(buffer, words)]);
        let words = read.map_err(|t| self.failed(t))?.remove(0);
        Ok(bytemuck::allocation::cast_vec(words))
    }

    /// TFLOP a second of multiply-adds of matrices in registers: the best of some runs.
    ///
    /// # Errors
    /// The device failed, or did not compute what it should have.
    pub fn ceiling(&mut self) -> Result<f64, ExecError> {
        let Shape { size, .. } = self.shape;
        let each = (size * size) as usize;
        let ones = DType::F16.pack(size as usize, &vec![1.0; each]);
        let operations = 2.0 * f64::from(size).powi(3) * f64::from(CHAINS * ROUNDS);
        let pipeline = self.ceiling.clone();
        // A processor's cores need few subgroups; a GPU gets more until the clock can tell.
        let mut groups = 16u32;
        loop {
            let words = groups as usize * CHAINS as usize * each;
            let (bound, out) = self.bind(ROUNDS, (&ones, &ones), 1, words)?;
            let mut best = f64::INFINITY;
            for _ in 0..4 {
                best = best.min(self.launch(&pipeline, &bound[0], [groups, 1])?.0);
            }
            let sums = self.read(&out.buffer, words as u64)?;
            if sums.iter().any(|s| *s != (size * ROUNDS) as f32) {
                return Err(ExecError::Device(format!(
                    "{}: cooperative/ceiling.wgsl gave a wrong result, so its time says nothing",
                    self.found.title()
                )));
            }
            if best >= 5.0 || groups >= 32768 {
                return Ok(f64::from(groups) * operations / best / 1e9);
            }
            groups *= if best < 1.0 { 8 } else { 2 };
        }
    }
}

fn said(refused: Refused) -> String {
    match refused {
        Refused::Memory => "it is out of memory".into(),
        Refused::Call(why) => why,
    }
}

/// A uniform block, two operands, the result.
fn layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    let entry = |i: u32| wgpu::BindGroupLayoutEntry {
        binding: i,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: match i {
                0 => wgpu::BufferBindingType::Uniform,
                _ => wgpu::BufferBindingType::Storage { read_only: i < 3 },
            },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &[0, 1, 2, 3].map(entry),
    })
}

fn pipeline(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    file: &str,
    shape: Shape,
) -> wgpu::ComputePipeline {
    let desc = wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text(file, shape).into()),
    };
    let checks = wgpu::ShaderRuntimeChecks::unchecked();
    // SAFETY: `load` has seen that the extent is a multiple of a workgroup's tile and that operands and
    // product have its square of elements, and as many workgroups are launched as there are tiles; the
    // ceiling's loop reads one matrix and writes eight a workgroup into a buffer of that size. Loops run over
    // the uniform block's number.
    let module = unsafe { device.create_shader_module_trusted(desc, checks) };
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(layout)],
        ..Default::default()
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    })
}
