//! Products by the project's own kernels: a graph of one product, compiled and run as any other.

use super::format::Format;
use super::operands::{Rounded, exact_sums};
use super::size::{Room, element};
use super::{Engine, Timed};
use crate::dtype::DType;
use crate::error::Error;
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
}

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
        })
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

    fn grade(&self, _: Format, _: usize) -> Numerics {
        self.numerics
    }

    fn emulated(&self, format: Format) -> bool {
        format != Format::Fp32
    }

    fn kernels(&self, _: Format) -> usize {
        1
    }

    /// Of the fused multiply-add in f32, whatever the grade of the products.
    fn ceiling(&mut self, _: Format) -> Result<f64, Error> {
        multiply_adds((self.open)(Numerics::Fast)?.as_mut())
    }

    fn prepare(
        &mut self,
        n: usize,
        format: Format,
        _: usize,
        a: &Rounded,
        b: &Rounded,
    ) -> Result<(), Error> {
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
