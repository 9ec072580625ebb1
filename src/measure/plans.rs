//! Products by the project's own kernels: a graph of one product, compiled and run as any other. Where it was
//! asked for, fp16 also on the device's cooperative matrices, as a kernel of its own.

use super::format::Format;
use super::operands::{Rounded, exact_sums};
use super::size::{Room, element};
use super::{Engine, Timed};
use crate::dtype::DType;
use crate::error::Error;
use crate::exec::wgpu::cooperative::Cooperative;
use crate::exec::{DeviceInfo, Executor, Numerics, ProgramId};
use crate::graph::{Graph, Program, Type};
use crate::kernels::multiply_add::{MULTIPLY_ADD, params};
use crate::passes::compile;
use crate::plan::{Buf, BufId, Class, Plan, Step};
use std::sync::Arc;

/// Opens the device in a grade.
pub type Open<'a> = dyn Fn(Numerics) -> Result<Box<dyn Executor>, Error> + 'a;

/// An executor that multiplies.
pub struct Plans<'a> {
    exec: Box<dyn Executor>,
    open: &'a Open<'a>,
    numerics: Numerics,
    room: Room,
    /// Extent, storage and programs of what is loaded.
    loaded: Vec<(usize, DType, Vec<ProgramId>)>,
    /// Which of `loaded` is prepared.
    ready: usize,
    last: ProgramId,
    cooperative: Option<Cooperative>,
    /// Whether the cooperative matrices are what is prepared.
    on_matrices: bool,
}

/// The path of [`Plans::once`] where cooperative matrices multiplied.
const MATRICES: &str = "cooperative/gemm.wgsl";

impl<'a> Plans<'a> {
    /// Opens an executor.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn new(open: &'a Open<'a>, numerics: Numerics, room: Room) -> Result<Plans<'a>, Error> {
        Ok(Plans {
            exec: open(numerics)?,
            open,
            numerics,
            room,
            loaded: vec![],
            ready: 0,
            last: ProgramId(0),
            cooperative: None,
            on_matrices: false,
        })
    }

    /// Measures fp16 on cooperative matrices too. Extents must be multiples of their granule.
    pub fn with_cooperative(mut self, matrices: Option<Cooperative>) -> Plans<'a> {
        self.cooperative = matrices;
        self
    }

    /// The programs of an extent and a storage, each over operands of its own.
    fn load(&mut self, n: usize, storage: DType) -> Result<usize, Error> {
        let is = |l: &(usize, DType, Vec<ProgramId>)| (l.0, l.1) == (n, storage);
        if let Some(i) = self.loaded.iter().position(is) {
            return Ok(i);
        }
        let copies = 0..self.room.copies(n, element(storage));
        let programs: Result<Vec<_>, Error> = copies
            .map(|i| Ok(self.exec.load(Arc::new(product(n, storage, i)?))?))
            .collect();
        self.loaded.push((n, storage, programs?));
        Ok(self.loaded.len() - 1)
    }
}

/// The name of an operand's copy.
fn name(which: char, n: usize, storage: DType, copy: usize) -> String {
    format!("{which}.{n}.{}.{copy}", storage.name())
}

/// The plan of `y = a * b`, square, over the operands number `copy`.
///
/// # Errors
/// A violated invariant of the program itself.
pub fn product(n: usize, storage: DType, copy: usize) -> Result<Plan, Error> {
    let graph = Graph::new();
    let y = {
        let ty = Type::new(&[n, n], storage);
        let a = graph.state(&name('a', n, storage, copy), ty);
        let b = graph.state(&name('b', n, storage, copy), ty);
        a.matmul(b, false, false).id
    };
    let program = Program {
        graph,
        outputs: vec![("y".into(), y)],
        updates: vec![],
    };
    compile("product", program).map_err(Error::Internal)
}

impl Engine for Plans<'_> {
    fn info(&self) -> DeviceInfo {
        self.exec.info()
    }

    fn room(&self) -> &Room {
        &self.room
    }

    fn grade(&self, _: Format, kernel: usize) -> Numerics {
        match kernel {
            0 => self.numerics,
            _ => Numerics::Fast,
        }
    }

    fn emulated(&self, format: Format, kernel: usize) -> bool {
        format != Format::Fp32 && kernel == 0
    }

    /// The second kernel of fp16 is the one on cooperative matrices.
    fn kernels(&self, format: Format) -> usize {
        1 + usize::from(format == Format::Fp16 && self.cooperative.is_some())
    }

    /// Of the fused multiply-add in f32, whatever the grade of the products, or of matrices in registers.
    fn ceiling(&mut self, _: Format, kernel: usize) -> Result<f64, Error> {
        match &mut self.cooperative {
            Some(matrices) if kernel > 0 => Ok(matrices.ceiling()?),
            _ => multiply_adds((self.open)(Numerics::Fast)?.as_mut()),
        }
    }

    fn same_ceiling(&self, a: (Format, usize), b: (Format, usize)) -> bool {
        a.1 == b.1
    }

    fn prepare(
        &mut self,
        n: usize,
        format: Format,
        kernel: usize,
        a: &Rounded,
        b: &Rounded,
    ) -> Result<(), Error> {
        self.on_matrices = kernel > 0;
        if let Some(matrices) = self.cooperative.as_mut().filter(|_| kernel > 0) {
            let copies = self.room.copies(n, element(DType::F16));
            return Ok(matrices.load(n, &a.values, &b.values, copies)?);
        }
        if format == Format::Int8 {
            exact_sums(n, &a.values, &b.values)?;
        }
        let storage = format.storage();
        self.ready = self.load(n, storage)?;
        for (which, x) in [('a', a), ('b', b)] {
            let packed = storage.packed().then(|| storage.pack(n, &x.values));
            let words = match &packed {
                Some(words) => words.as_slice(),
                None => bytemuck::cast_slice(&x.values),
            };
            for copy in 0..self.loaded[self.ready].2.len() {
                let name = name(which, n, storage, copy);
                self.exec.write_state(&name, words)?;
            }
        }
        Ok(())
    }

    fn once(&mut self, i: usize) -> Result<Timed, Error> {
        if let Some(matrices) = self.cooperative.as_mut().filter(|_| self.on_matrices) {
            let (ms, clock) = matrices.once(i)?;
            let path = MATRICES;
            return Ok(Timed { ms, clock, path });
        }
        let programs = &self.loaded[self.ready].2;
        self.last = programs[i % programs.len()];
        let steps = self.exec.profile(self.last)?;
        let first = steps
            .first()
            .ok_or_else(|| Error::Internal("a plan without steps".into()))?;
        Ok(Timed {
            ms: steps.iter().map(|s| s.ms).sum(),
            clock: first.clock,
            path: first.path,
        })
    }

    fn path(&self, format: Format, _: usize, ran: &str) -> String {
        if let Some(m) = self.cooperative.as_ref().filter(|_| ran == MATRICES) {
            let size = m.shape().size;
            return format!("{ran} on {size} x {size} matrices, f16 in, f32 sums, experimental");
        }
        let kernel = match ran.ends_with(".wgsl") {
            true => ran.to_string(),
            false => format!("gemm {ran}"),
        };
        match format {
            Format::Fp32 => kernel,
            Format::Bf16 => format!("{kernel} on packed bf16"),
            Format::Int8 => format!("{kernel} on whole numbers in f32"),
            _ => format!("{kernel} on f32 rounded to {}", format.name()),
        }
    }

    fn product(&mut self) -> Result<Vec<f32>, Error> {
        if let Some(matrices) = self.cooperative.as_mut().filter(|_| self.on_matrices) {
            return Ok(matrices.product()?);
        }
        let (n, storage, _) = self.loaded[self.ready];
        let words = self.exec.read_output(self.last, "y")?;
        Ok(match storage.packed() {
            true => storage.unpack(n, &words),
            false => bytemuck::allocation::cast_vec(words),
        })
    }
}

/// A plan of one [`MULTIPLY_ADD`] step: input `x0`, output `y`, `n` chains.
pub fn multiply_add(n: usize, rounds: usize) -> Plan {
    let ty = Type::f32(&[n]);
    let buf = |name: &str, class, slot| Buf {
        name: name.into(),
        ty,
        class,
        slot,
    };
    let mut plan = Plan {
        name: "multiply-add".into(),
        bufs: vec![buf("x0", Class::Input, 0), buf("y", Class::Output, 1)],
        slots: vec![n, n],
        steps: vec![Step {
            kernel: &MULTIPLY_ADD,
            params: params(n, rounds),
            reads: vec![BufId(0)],
            writes: vec![BufId(1)],
            label: "ceiling".into(),
            origin: Default::default(),
        }],
        ..Plan::default()
    };
    plan.seal();
    plan
}

/// TFLOP a second of independent f32 multiply-adds in registers, on the whole device: the best of some
/// runs of about 20 ms.
///
/// # Errors
/// The device failed, or did not compute what it should have.
pub fn multiply_adds(exec: &mut dyn Executor) -> Result<f64, Error> {
    let parallel = exec.info().kind.ends_with("gpu") && !exec.info().kind.contains("software");
    // On a GPU enough for every lane of the largest; a processor's cores need few.
    let n: usize = if parallel { 1 << 22 } else { 1 << 17 };
    let x: Vec<f32> = (0..n).map(|i| 1.0 + (i % 1000) as f32 / 1024.0).collect();
    let mut rounds = 128;
    loop {
        let id = exec.load(Arc::new(multiply_add(n, rounds)))?;
        exec.write_input(id, "x0", bytemuck::cast_slice(&x))?;
        let mut best = f64::INFINITY;
        for _ in 0..2 {
            best = best.min(exec.profile(id)?.iter().map(|s| s.ms).sum());
        }
        if best < 20.0 && rounds < 1 << 20 {
            rounds *= if best < 5.0 { 4 } else { 2 };
            continue;
        }
        for _ in 0..8 {
            best = best.min(exec.profile(id)?.iter().map(|s| s.ms).sum());
        }
        let y = exec.read_output(id, "y")?;
        if y != bytemuck::cast_slice::<f32, u32>(&x) {
            let what = "the multiply-add loop gave a wrong result, so its time says nothing";
            return Err(Error::Usage(format!("{}: {what}", exec.info().name)));
        }
        return Ok(2.0 * n as f64 * rounds as f64 / best / 1e9);
    }
}
