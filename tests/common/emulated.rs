//! CUDA without a GPU: a [`Driver`] whose device is this process. Emitted kernels are compiled by the host's
//! C++ compiler over `host.h` and really run; memory has sentinels behind every allocation; recordings are
//! lists that are run later; products are naive loops with BLAS's meaning of their arguments. An emulation
//! of the execution model, and labelled so: `kind` is `emulated gpu`.
#![allow(dead_code)]

use isobit::dtype::{bf16_to_f32, f16_to_f32};
use isobit::exec::cuda::driver::{
    Address, Done, Driver, Element, Facts, Function, Lay, Mark, Product, Recording, Trouble,
};
use isobit::exec::cuda::emit::{ENTRY, Kernel, PRELUDE};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const HOST: &str = include_str!("host.h");
/// Sentinels behind an allocation.
const GUARD: usize = 64;
const SENTINEL: u32 = 0x7f7f_dead;

/// An allocation, aligned for vectors of four words, with its sentinels.
struct Block(Vec<u128>);

impl Block {
    fn words(&self) -> &[u32] {
        bytemuck::cast_slice(&self.0)
    }

    fn words_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

type Run = unsafe extern "C" fn(*const u8, *const u32, bool) -> bool;

enum Enqueued {
    Launch(Function, [u32; 3], Vec<u8>),
    Multiply(Product, [Address; 3]),
}

/// What a driver was asked to do, in counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub launches: usize,
    pub products: usize,
    pub recordings: usize,
    pub replays: usize,
    pub built: usize,
}

/// The device.
pub struct Emulated {
    facts: Facts,
    memory: BTreeMap<u64, Block>,
    functions: Vec<(Run, u32)>,
    /// What is compiled already: many kernels in one run of the compiler take a fraction of the time.
    known: HashMap<Kernel, Function>,
    libraries: Vec<libloading::Library>,
    recording: Option<Vec<Enqueued>>,
    recordings: Vec<Vec<Enqueued>>,
    marks: [Instant; 2],
    pub calls: std::rc::Rc<std::cell::RefCell<Calls>>,
    /// Threads between barriers run last one first.
    pub last_first: bool,
    /// Bytes that can be had.
    pub room: u64,
    /// Recording is refused.
    pub no_graphs: bool,
}

/// The C++ compiler, where there is one.
pub fn compiler() -> Option<&'static str> {
    ["c++", "g++", "clang++"].into_iter().find(|c| {
        let version = Command::new(c).arg("--version").output();
        version.is_ok_and(|o| o.status.success())
    })
}

/// The emulation, or the reason why it cannot be.
pub fn emulated() -> Result<Emulated, String> {
    if cfg!(not(unix)) {
        return Err("the emulation needs a POSIX system".into());
    }
    compiler().ok_or("there is no C++ compiler (c++, g++, clang++)")?;
    Ok(Emulated {
        facts: Facts {
            name: "emulation on the CPU".into(),
            driver: "no driver".into(),
            kind: "emulated gpu".into(),
        },
        memory: BTreeMap::new(),
        functions: vec![],
        known: HashMap::new(),
        libraries: vec![],
        recording: None,
        recordings: vec![],
        marks: [Instant::now(); 2],
        calls: Default::default(),
        last_first: false,
        room: 8 << 30,
        no_graphs: false,
    })
}

/// The same, or none, with the reason printed.
pub fn device() -> Option<Emulated> {
    match emulated() {
        Ok(d) => Some(d),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

impl Emulated {
    /// The allocation with an address, and the words before it there.
    fn find(&self, at: Address) -> (u64, usize) {
        let (start, block) = (self.memory.range(..=at.0).next_back()).expect("an allocation");
        let offset = (at.0 - start) as usize;
        assert!(offset < 16 * block.0.len(), "an address inside");
        (*start, offset / 4)
    }

    fn words(&self, at: Address) -> &[u32] {
        let (start, offset) = self.find(at);
        let all = self.memory[&start].words();
        &all[offset..all.len() - GUARD]
    }

    fn enqueue(&mut self, e: Enqueued) -> Done {
        match &mut self.recording {
            Some(list) => {
                list.push(e);
                Ok(())
            }
            None => self.execute(&e),
        }
    }

    fn execute(&mut self, e: &Enqueued) -> Done {
        match e {
            Enqueued::Launch(f, grid, argument) => {
                self.calls.borrow_mut().launches += 1;
                // Addresses are this process's own.
                // SAFETY: the library lives in `self`; the argument has the kernel's layout, its addresses
                // are those of allocations that live, which the sentinels behind them are there to check.
                let even = unsafe {
                    (self.functions[f.0].0)(argument.as_ptr(), grid.as_ptr(), self.last_first)
                };
                if !even {
                    return Err(Trouble::Failed(
                        "a barrier was not reached by all threads".into(),
                    ));
                }
            }
            Enqueued::Multiply(p, [a, b, c]) => {
                self.calls.borrow_mut().products += 1;
                let out = multiply(
                    p,
                    self.words(*a),
                    self.halves(*a),
                    self.words(*b),
                    self.halves(*b),
                );
                let (start, offset) = self.find(*c);
                let to = self
                    .memory
                    .get_mut(&start)
                    .expect("an allocation")
                    .words_mut();
                for (i, v) in out {
                    to[offset + i] = v.to_bits();
                }
            }
        }
        self.check()
    }

    /// For products of 16-bit elements, whose addresses may lie between words.
    fn halves(&self, at: Address) -> &[u16] {
        let start = Address(at.0 & !3);
        let all: &[u16] = bytemuck::cast_slice(self.words(start));
        &all[(at.0 % 4 / 2) as usize..]
    }

    fn check(&self) -> Done {
        for words in self.memory.values().map(Block::words) {
            if words[words.len() - GUARD..].iter().any(|w| *w != SENTINEL) {
                return Err(Trouble::Failed(
                    "a kernel wrote past the end of a buffer".into(),
                ));
            }
        }
        Ok(())
    }
}

/// The element of a matrix at a row and a column, column by column.
fn at(lay: &Lay, z: u64, row: u64, col: u64) -> usize {
    let (row, col) = if lay.transposed {
        (col, row)
    } else {
        (row, col)
    };
    (z * lay.stride + col * lay.pitch + row) as usize
}

fn multiply(p: &Product, a: &[u32], ah: &[u16], b: &[u32], bh: &[u16]) -> Vec<(usize, f32)> {
    let value = |words: &[u32], halves: &[u16], i: usize| match p.element {
        Element::F32 => f32::from_bits(words[i]),
        Element::Bf16 => bf16_to_f32(halves[i]),
        Element::F16 => f16_to_f32(halves[i]),
    };
    let mut out = Vec::new();
    let e = &p.extents;
    for z in 0..e.batch {
        for col in 0..e.n {
            for row in 0..e.m {
                let terms = (0..e.k).map(|k| {
                    let left = value(a, ah, at(&e.a, z, row, k));
                    f64::from(left) * f64::from(value(b, bh, at(&e.b, z, k, col)))
                });
                out.push((at(&e.c, z, row, col), terms.sum::<f64>() as f32));
            }
        }
    }
    out
}

/// Where compiled kernels are kept from run to run.
fn cache() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-kernels");
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

/// One text of several kernels.
fn text(kernels: &[Kernel]) -> String {
    let mut out = format!("{HOST}\n{PRELUDE}\n");
    for (i, k) in kernels.iter().enumerate() {
        // Each in a space of its own; the entry by a name that the linker sees.
        let body = k.text.replace("extern \"C\" __global__", "static");
        let _ = write!(
            out,
            "namespace kernel_{i} {{\n{body}\n\
             static void enter(const void* p) {{ {ENTRY}(*(const Arguments*)p); }}\n}}\n\
             extern \"C\" bool run_{i}(const void* argument, const unsigned* grid, bool last_first) {{\n    \
             static_assert(sizeof(kernel_{i}::Arguments) == {size}, \"the argument's layout\");\n    \
             return run_grid(kernel_{i}::enter, argument, grid, {threads}u, {barriers}, last_first);\n}}\n",
            size = k.argument(&vec![(0, 0); k.buffers], &[]).len(),
            threads = k.threads,
            barriers = k.barriers,
        );
    }
    out
}

fn compile(source: &str) -> Result<PathBuf, String> {
    let name: String = (Sha256::digest(source).iter().take(12))
        .map(|b| format!("{b:02x}"))
        .collect();
    let library = cache().join(format!("{name}.so"));
    let own = cache().join(format!("{name}-{}", std::process::id()));
    let (written, made) = (own.with_extension("cpp"), own.with_extension("so"));
    // The text stays beside what was made of it.
    let file = cache().join(format!("{name}.cpp"));
    if !file.exists() {
        std::fs::write(&written, source).map_err(|e| e.to_string())?;
        std::fs::rename(&written, &file).map_err(|e| e.to_string())?;
    }
    if library.exists() {
        return Ok(library);
    }
    let done = Command::new(compiler().unwrap_or("c++"))
        .args([
            "-std=c++17",
            "-O1",
            "-w",
            "-shared",
            "-fPIC",
            "-ffp-contract=off",
        ])
        .args(["-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-o"])
        .args([&made, &file])
        .output()
        .map_err(|e| e.to_string())?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!(
            "{}: {}",
            file.display(),
            said.lines().take(12).collect::<Vec<_>>().join("\n")
        ));
    }
    std::fs::rename(&made, &library).map_err(|e| e.to_string())?;
    Ok(library)
}

impl Driver for Emulated {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn free_bytes(&mut self) -> Done<u64> {
        Ok(self.room)
    }

    fn allocate(&mut self, bytes: u64) -> Done<Address> {
        assert_eq!(bytes % 16, 0);
        if bytes > self.room {
            return Err(Trouble::Memory);
        }
        self.room -= bytes;
        let mut block = Block(vec![0; bytes as usize / 16 + GUARD / 4]);
        block.words_mut()[bytes as usize / 4..].fill(SENTINEL);
        // Memory of this process: its address does not change while it is kept.
        let at = block.0.as_mut_ptr() as u64;
        self.memory.insert(at, block);
        Ok(Address(at))
    }

    fn release(&mut self, at: Address) {
        let gone = self.memory.remove(&at.0).expect("allocated");
        self.room += 4 * (gone.words().len() - GUARD) as u64;
    }

    fn write(&mut self, at: Address, words: &[u32]) -> Done {
        let (start, offset) = self.find(at);
        let to = self.memory.get_mut(&start).expect("an allocation");
        to.words_mut()[offset..][..words.len()].copy_from_slice(words);
        self.check()
    }

    fn read(&mut self, at: Address, words: &mut [u32]) -> Done {
        words.copy_from_slice(&self.words(at)[..words.len()]);
        Ok(())
    }

    fn build(&mut self, kernels: &[Kernel]) -> Result<Vec<Function>, (usize, Trouble)> {
        let mut new: Vec<Kernel> = kernels.to_vec();
        new.retain(|k| !self.known.contains_key(k));
        let parts: Vec<&[Kernel]> = new.chunks(16).collect();
        let compiled: Vec<_> = (parts.par_iter().map(|p| compile(&text(p)))).collect();
        for (part, (some, path)) in parts.iter().zip(compiled).enumerate() {
            let failed = |why: String| (part * 16, Trouble::Failed(why));
            // SAFETY: a library of our own text, without code that runs when it is loaded.
            let library = unsafe { libloading::Library::new(path.map_err(failed)?) };
            let library = library.map_err(|e| failed(e.to_string()))?;
            for (i, k) in some.iter().enumerate() {
                // SAFETY: `text` declares it so.
                let run = unsafe { library.get::<Run>(format!("run_{i}").as_bytes()) };
                let run = *run.map_err(|e| failed(e.to_string()))?;
                self.known.insert(k.clone(), Function(self.functions.len()));
                self.functions.push((run, k.threads));
            }
            self.libraries.push(library);
        }
        self.calls.borrow_mut().built += new.len();
        Ok(kernels.iter().map(|k| self.known[k]).collect())
    }

    fn launch(&mut self, f: Function, grid: [u32; 3], threads: u32, argument: &[u8]) -> Done {
        assert_eq!(threads, self.functions[f.0].1);
        self.enqueue(Enqueued::Launch(f, grid, argument.to_vec()))
    }

    fn prepare(&mut self, _: &Product) -> Done {
        Ok(())
    }

    fn multiply(&mut self, product: &Product, a: Address, b: Address, c: Address) -> Done {
        self.enqueue(Enqueued::Multiply(*product, [a, b, c]))
    }

    fn wait(&mut self) -> Done {
        Ok(())
    }

    fn begin_recording(&mut self) -> Done {
        if self.no_graphs {
            return Err(Trouble::Failed("recording is refused".into()));
        }
        self.recording = Some(vec![]);
        Ok(())
    }

    fn end_recording(&mut self) -> Done<Recording> {
        self.calls.borrow_mut().recordings += 1;
        self.recordings
            .push(self.recording.take().expect("a recording"));
        Ok(Recording(self.recordings.len() - 1))
    }

    fn run_recording(&mut self, r: Recording) -> Done {
        self.calls.borrow_mut().replays += 1;
        let list = std::mem::take(&mut self.recordings[r.0]);
        let done = list.iter().try_for_each(|e| self.execute(e));
        self.recordings[r.0] = list;
        done
    }

    fn mark(&mut self, number: usize) -> Done<Mark> {
        self.marks[number] = Instant::now();
        Ok(Mark(number))
    }

    fn between(&mut self, first: Mark, second: Mark) -> Done<f64> {
        let passed = self.marks[second.0] - self.marks[first.0];
        Ok(passed.as_secs_f64() * 1e3)
    }
}
