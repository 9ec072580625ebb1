//! `isobit gemm`: the errors are what theory says, on the CPU and on every device; the command's files and
//! refusals; and the times of a plan's steps.

mod common;
#[path = "common/devices.rs"]
mod devices;
mod plans;

use common::{Csv, fresh, isobit, stderr, stdout};
use isobit::error::Error;
use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::Wgpu;
use isobit::exec::wgpu::adapter::Found;
use isobit::exec::wgpu::cooperative::{Cooperative, Shape};
use isobit::exec::{Clock, Executor, Numerics};
use isobit::measure::format::Format;
use isobit::measure::operands::{Operands, Rounded};
use isobit::measure::plans::{Plans, multiply_adds, product};
use isobit::measure::size::Room;
use isobit::measure::{Engine, Order, Row, Watch, measure};
use isobit::ops::{Case, Op};
use std::path::Path;
use std::sync::Arc;

fn room() -> Room {
    Room {
        device: "a test".into(),
        buffer: None,
        memory: None,
        host: u64::MAX,
        shared: true,
        rotation: 1 << 20,
        int8_in_f32: true,
        granule: 1,
        halves: false,
    }
}

type Opened = Result<Box<dyn Executor>, Error>;

fn cpu(numerics: Numerics) -> Opened {
    Ok(Box::new(Cpu::new(Some(2))?.with_numerics(numerics)))
}

/// The CPU and every device, by name.
fn everywhere() -> Vec<(String, Option<Found>)> {
    let found = devices::found().into_iter().map(|(l, f)| (l, Some(f)));
    std::iter::once(("cpu".to_string(), None))
        .chain(found)
        .collect()
}

fn open(found: &Option<Found>, numerics: Numerics) -> Opened {
    match found {
        None => cpu(numerics),
        Some(f) => Ok(Box::new(Wgpu::open(f, numerics)?)),
    }
}

/// Keeps the rows; stops after some products.
struct Quiet(Option<usize>, usize);

impl Watch for Quiet {
    fn doing(&mut self, _: &str) {}
    fn products(&mut self, _: Format, done: usize, _: usize) {
        self.1 = done;
    }
    fn row(&mut self, _: &Row) {}
    fn stopped(&self) -> bool {
        self.0.is_some_and(|n| self.1 >= n)
    }
}

fn rows(found: &Option<Found>, numerics: Numerics, n: usize) -> Vec<Row> {
    let open = |g: Numerics| open(found, g);
    let mut engine = Plans::new(&open, numerics, room()).expect("opens");
    let order = Order {
        n,
        formats: Format::ALL.to_vec(),
        warmup: 1,
        steps: 3,
    };
    measure(&mut engine, &order, &mut Quiet(None, 0)).expect("runs")
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|v| v * v).sum::<f64>().sqrt()
}

/// What rounding both operands does to a product of independent random matrices: their relative errors
/// add as squares. A product that is rounded itself adds one more.
fn expected(format: Format, o: &Operands) -> f64 {
    let relative = |x: &[f32]| {
        let r = Rounded::new(format, x);
        let apart = r.values.iter().zip(x);
        let scale = f64::from(r.scale);
        norm(apart.map(|(r, x)| f64::from(*r) * scale - f64::from(*x)))
            / norm(x.iter().map(|v| f64::from(*v)))
    };
    let (a, b) = (relative(&o.a), relative(&o.b));
    let result = if format == Format::Bf16 { a } else { 0.0 };
    (a * a + b * b + a * a * b * b + result * result).sqrt()
}

/// Where a type's error lies for normal operands, whatever their extent.
fn usual(format: Format) -> std::ops::Range<f64> {
    match format {
        Format::Fp32 => 1e-8..1e-6,
        Format::Tf32 | Format::Fp16 => 2.5e-4..3.5e-4,
        Format::Bf16 => 2e-3..5e-3,
        Format::Int8 => 1e-2..2.5e-2,
        Format::E4m3 => 3e-2..4.5e-2,
        Format::E5m2 => 6e-2..9e-2,
    }
}

#[test]
fn errors_are_what_theory_says() {
    for (label, found) in everywhere() {
        for (numerics, n) in [(Numerics::Portable, 257), (Numerics::Fast, 320)] {
            let o = Operands::draw(n);
            for r in rows(&found, numerics, n) {
                let title = format!("{label}, {numerics}, {}", r.format.name());
                println!("{title}: {:.3e} in {:.3} ms", r.error, r.ms);
                assert!(usual(r.format).contains(&r.error), "{title}: {}", r.error);
                let theory = match r.format {
                    // A sum's rounding errors: a random walk of n steps of half a unit each.
                    Format::Fp32 => 2f64.powi(-24) * (n as f64).sqrt(),
                    f => expected(f, &o),
                };
                let ratio = r.error / theory;
                let near = if r.format == Format::Fp32 {
                    0.1..1.0
                } else {
                    0.9..1.1
                };
                assert!(near.contains(&ratio), "{title}: {} for {theory}", r.error);
                assert_eq!(r.emulated, r.format != Format::Fp32);
                assert_eq!((r.grade, r.n), (numerics, n));
                assert!(r.ms > 0.0 && r.tflops > 0.0 && r.ceiling_fraction > 0.0);
            }
        }
    }
}

#[test]
fn fp32_errors_grow_as_the_root_of_the_extent() {
    let at = |n: usize| {
        let open = |g: Numerics| cpu(g);
        let mut engine = Plans::new(&open, Numerics::Portable, room()).expect("opens");
        let order = Order {
            n,
            formats: vec![Format::Fp32],
            warmup: 0,
            steps: 1,
        };
        let rows = measure(&mut engine, &order, &mut Quiet(None, 0)).expect("runs");
        rows[0].error / (n as f64).sqrt()
    };
    let (small, large) = (at(256), at(1024));
    assert!((0.7..1.4).contains(&(large / small)), "{small} {large}");
    assert!((0.5e-8..5e-8).contains(&large), "{large}");
}

/// The emulated int8 product is the int32 one, element by element.
#[test]
fn int8_sums_are_exact() {
    let n = 130;
    let o = Operands::draw(n);
    let (a, b) = (
        Rounded::new(Format::Int8, &o.a),
        Rounded::new(Format::Int8, &o.b),
    );
    let whole = |r: &Rounded| -> Vec<i32> { r.values.iter().map(|v| *v as i32).collect() };
    let (x, y) = (whole(&a), whole(&b));
    assert!(x.iter().any(|v| v.abs() == 127) && x.iter().all(|v| v.abs() <= 127));
    for (label, found) in everywhere() {
        for numerics in [Numerics::Portable, Numerics::Fast] {
            let open = |g: Numerics| open(&found, g);
            let mut engine = Plans::new(&open, numerics, room()).expect("opens");
            engine.prepare(n, Format::Int8, 0, &a, &b).expect("fits");
            engine.once(0).expect("runs");
            let c = engine.product().expect("read");
            for (i, c) in c.iter().enumerate() {
                let sum: i32 = (0..n).map(|k| x[i / n * n + k] * y[k * n + i % n]).sum();
                assert_eq!(*c as f64, f64::from(sum), "{label}: element {i}");
            }
        }
    }
}

#[test]
fn a_stopped_measurement_keeps_what_it_has() {
    let open = |g: Numerics| cpu(g);
    let mut engine = Plans::new(&open, Numerics::Portable, room()).expect("opens");
    let order = Order {
        n: 16,
        formats: Format::ALL.to_vec(),
        warmup: 1,
        steps: 3,
    };
    let rows = measure(&mut engine, &order, &mut Quiet(Some(9), 0)).expect("runs");
    assert_eq!(rows.len(), 2);
}

/// Where a device has cooperative matrices, they multiply: a native row of fp16 with the format's error.
/// Where it has none, opening them is refused with the reason, by the command too.
#[test]
fn cooperative_matrices_multiply_or_are_refused_with_the_reason() {
    for (label, found) in devices::found() {
        let shape = match Shape::of(&found) {
            Ok(shape) => shape,
            Err(why) => {
                println!("{label}: {why}");
                let refused = Cooperative::open(&found).err().expect("refused");
                assert_eq!(refused.to_string(), why);
                refused_by_the_command(&found, &why);
                continue;
            }
        };
        let open = |g: Numerics| -> Opened { Ok(Box::new(Wgpu::open(&found, g)?)) };
        let matrices = Cooperative::open(&found).unwrap_or_else(|e| panic!("{e}"));
        let mut engine = Plans::new(&open, Numerics::Fast, room()).expect("opens");
        engine = engine.with_cooperative(Some(matrices));
        // Five tiles: rows, columns and steps that are told apart.
        let n = 5 * shape.granule();
        let order = Order {
            n,
            formats: vec![Format::Fp16],
            warmup: 1,
            steps: 3,
        };
        let rows = measure(&mut engine, &order, &mut Quiet(None, 0)).expect("runs");
        let (emulated, native) = (&rows[0], &rows[1]);
        println!(
            "{label}: {shape:?}, n = {n}: {}, {:.4} TFLOP a second, {:.3} of the ceiling, error {:.4e}; emulated {:.4e}",
            native.path, native.tflops, native.ceiling_fraction, native.error, emulated.error
        );
        assert!(emulated.emulated && !native.emulated);
        assert!(native.path.contains("cooperative/gemm.wgsl"));
        assert_eq!((rows.len(), native.grade), (2, Numerics::Fast));
        assert!(usual(Format::Fp16).contains(&native.error));
        // The operands are the same; only the order of the sums may differ.
        let apart = (native.error - emulated.error).abs();
        assert!(apart < 1e-6, "{} {}", native.error, emulated.error);
        whole_numbers(&found, shape);
    }
}

/// Small whole numbers have exact sums in any order: every element is the right one.
fn whole_numbers(found: &Found, shape: Shape) {
    let n = 3 * shape.granule();
    let x: Vec<f32> = (0..n * n).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
    let y: Vec<f32> = (0..n * n).map(|i| (i * 11 % 17) as f32 - 8.0).collect();
    let mut matrices = Cooperative::open(found).unwrap_or_else(|e| panic!("{e}"));
    matrices.load(n, &x, &y, 2).expect("fits");
    for i in 0..2 {
        matrices.once(i).expect("runs");
        let c = matrices.product().expect("read");
        for (i, c) in c.iter().enumerate() {
            let sum: f32 = (0..n).map(|k| x[i / n * n + k] * y[k * n + i % n]).sum();
            assert_eq!(*c, sum, "element {i} of {n} x {n}");
        }
    }
}

fn refused_by_the_command(found: &Found, why: &str) {
    let dir = fresh("gemm-cooperative");
    let args = ["gemm", "--cooperative", "--numerics", "fast", "--n", "64"];
    let device = ["--backend", found.backend.name(), "--adapter", &found.name];
    let o = isobit(&dir, &[&args[..], &device].concat());
    let text = stderr(&o);
    assert_eq!(o.status.code(), Some(2), "{text}");
    assert_eq!(text, format!("error: --cooperative: {why}\n"));
    assert_eq!(listing(&dir), 0);
}

/// The ceiling is one: no product of the same run is faster than the loop that it is measured by.
#[test]
fn no_product_of_f32_beats_the_ceiling() {
    let found = everywhere();
    for (label, found) in &found {
        let mut fast = open(found, Numerics::Fast).expect("opens");
        let ceiling = multiply_adds(fast.as_mut()).expect("runs");
        let rows = rows(found, Numerics::Fast, 256);
        println!(
            "{label}: {ceiling:.4} TFLOP a second, fp32 {:.4}",
            rows[0].tflops
        );
        assert!(rows[0].tflops < 1.25 * ceiling, "{label}");
    }
}

/// A profiled run is a run: the same outputs, a time for each step, and states are updated once.
#[test]
fn profiles_time_every_step_and_change_nothing() {
    let mm = Op::MatMul {
        ta: true,
        tb: false,
    };
    let case = Case::new(mm, &[&[2050, 9], &[2050, 11]]);
    let plan = Arc::new(plans::of_case(&case));
    assert!(plan.steps.len() > 1, "chunks, then a tree");
    for (label, found) in everywhere() {
        let mut exec = open(&found, Numerics::Portable).expect("opens");
        let id = exec.load(plan.clone()).expect("loads");
        for (i, words) in plans::operands(&case, 1, false).iter().enumerate() {
            exec.write_input(id, &format!("x{i}"), words)
                .expect("written");
        }
        exec.run(id).expect("runs");
        let want = exec.read_output(id, "y").expect("read");
        let times = exec.profile(id).expect("runs");
        assert_eq!(exec.read_output(id, "y").expect("read"), want, "{label}");
        assert_eq!(times.len(), plan.steps.len());
        for (t, step) in times.iter().zip(&plan.steps) {
            println!(
                "{label}: {} {} {:.4} ms, {}",
                step.kernel.name,
                t.path,
                t.ms,
                t.clock.name()
            );
            assert!(t.ms >= 0.0 && t.ms < 10e3, "{label}: {}", t.ms);
            assert_eq!(t.path.ends_with(".wgsl"), found.is_some(), "{label}");
            assert!(found.is_some() || t.clock == Clock::Host);
        }
        assert!(times.iter().any(|t| t.ms > 0.0), "{label}");
    }
}

#[test]
fn a_state_is_updated_once_by_a_profile() {
    use isobit::graph::{Graph, Program, Type};
    let graph = Graph::new();
    let next = {
        let x = graph.state("x", Type::f32(&[8]));
        (x + x.constant(1.0)).id
    };
    let program = Program {
        graph,
        outputs: vec![],
        updates: vec![(0, next)],
    };
    let plan = Arc::new(isobit::passes::compile("count", program).expect("compiles"));
    for (label, found) in everywhere() {
        let mut exec = open(&found, Numerics::Portable).expect("opens");
        let id = exec.load(plan.clone()).expect("loads");
        exec.profile(id).expect("runs");
        exec.profile(id).expect("runs");
        let x = exec.read_state("x").expect("read");
        assert_eq!(x, vec![2f32.to_bits(); 8], "{label}");
    }
}

#[test]
fn the_plan_is_one_product() {
    let plan = product(64, isobit::dtype::DType::F32, 0).expect("compiles");
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.steps[0].kernel.name, "gemm");
}

fn listing(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("a folder").count()
}

#[test]
fn the_command_leaves_a_table_and_a_plot() {
    let dir = fresh("gemm-files");
    let args = [
        "gemm",
        "--backend",
        "cpu",
        "--n",
        "96",
        "--warmup",
        "1",
        "--steps",
        "3",
    ];
    let o = isobit(&dir, &args);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(
        stdout(&o).contains("portable emulated gemm"),
        "{}",
        stdout(&o)
    );
    let path = dir.join("results/gemm.csv");
    let text = std::fs::read_to_string(&path).expect("the table");
    let head = "dtype,ms,tflops,device,backend,path,grade,emulation,ceiling_fraction,error\n";
    assert!(text.starts_with(head), "{text}");
    let csv = Csv::read(&path);
    let names: Vec<&str> = (0..csv.rows.len()).map(|i| csv.text(i, "dtype")).collect();
    assert_eq!(
        names,
        [
            "fp32", "tf32", "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2"
        ]
    );
    for (i, name) in names.iter().enumerate() {
        let native = if *name == "fp32" {
            "native"
        } else {
            "emulated"
        };
        assert_eq!(csv.text(i, "emulation"), native);
        assert_eq!(
            (csv.text(i, "backend"), csv.text(i, "grade")),
            ("cpu", "portable")
        );
        for column in ["ms", "tflops", "ceiling_fraction", "error"] {
            assert!(csv.number(i, column) > 0.0, "{column} of {name}");
        }
    }
    let svg = std::fs::read_to_string(dir.join("results/gemm.svg")).expect("the plot");
    assert!(svg.starts_with("<svg") && svg.contains("fp8_e5m2"));
    // Chosen types and places, and fast numerics.
    let more = [
        "--dtypes",
        "bf16,fp32",
        "--out",
        "t.csv",
        "--numerics",
        "fast",
    ];
    let o = isobit(&dir, &[&args[..], &more].concat());
    assert!(o.status.success(), "{}", stderr(&o));
    let csv = Csv::read(&dir.join("t.csv"));
    assert_eq!(
        (csv.text(0, "dtype"), csv.text(1, "grade")),
        ("bf16", "fast")
    );
    assert!(dir.join("t.svg").exists() && csv.rows.len() == 2);
}

#[test]
fn what_cannot_be_is_one_line_and_no_file() {
    let dir = fresh("gemm-refused");
    std::fs::create_dir(dir.join("folder")).expect("a folder");
    let refused = |args: &[&str], says: &[&str]| {
        let o = isobit(&dir, &[&["gemm", "--backend", "cpu"], args].concat());
        let text = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
        for s in says {
            assert!(text.contains(s), "{args:?}: {text}");
        }
        assert_eq!(listing(&dir), 1, "{args:?}");
    };
    refused(&["--n", "0"], &["--n 0", "auto"]);
    refused(&["--n", "-5"], &["--n -5"]);
    refused(&["--n", "x"], &["--n x"]);
    refused(
        &["--n", "70000", "--dtypes", "fp32"],
        &["70000", "largest that fits is --n"],
    );
    refused(&["--n", "99999999999999999999"], &["--n"]);
    refused(&["--n", "20000"], &["int8", "largest that fits is --n"]);
    refused(&["--dtypes", "fp4"], &["fp4", "bf16"]);
    refused(&["--dtypes", ""], &["--dtypes"]);
    refused(&["--steps", "0"], &["--steps 0"]);
    refused(&["--warmup", "-1"], &["--warmup -1"]);
    refused(&["--out", "a.svg"], &[".svg"]);
    refused(&["--out", "folder"], &["folder"]);
    refused(&["--out", ""], &["--out"]);
    refused(&["--cooperative"], &["--cooperative", "--numerics fast"]);
    let fast = ["--cooperative", "--numerics", "fast"];
    refused(&fast, &["CPU executor", "--backend vulkan"]);
    let without = [&fast[..], &["--dtypes", "fp32"]].concat();
    refused(&without, &["fp16", "--dtypes"]);
}

/// A size that a device's limits forbid is refused before anything is allocated, with the largest that
/// they allow.
#[test]
fn device_limits_bound_the_size() {
    let dir = fresh("gemm-limits");
    for (label, f) in devices::found() {
        if label != "gl" {
            continue;
        }
        let n = ((f.limits.binding.min(f.limits.buffer) / 4) as f64).sqrt() as usize;
        let args = ["gemm", "--backend", "gl", "--dtypes", "fp32", "--n"];
        let o = isobit(&dir, &[&args[..], &[&(n + 1).to_string()]].concat());
        assert_eq!(o.status.code(), Some(2));
        let text = stderr(&o);
        assert!(text.contains(&format!("--n {n}")), "{n}: {text}");
        assert_eq!(listing(&dir), 0);
    }
}

#[test]
#[cfg(unix)]
fn an_interrupt_ends_it_cleanly() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let dir = fresh("gemm-interrupt");
    let mut child = Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args([
            "gemm",
            "--backend",
            "cpu",
            "--n",
            "256",
            "--steps",
            "100000",
            "--warmup",
            "0",
        ])
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // Its head comes when the measurement begins, behind the handler of the signal.
    let mut out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let begun = out.any(|l| l.is_ok_and(|l| l.starts_with("product:")));
    assert!(begun, "it says what it multiplies");
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.expect("kill").success());
    let o = child.wait_with_output().expect("ends");
    assert_eq!(o.status.code(), Some(130), "{}", stderr(&o));
    assert!(stderr(&o).contains("stopped"), "{}", stderr(&o));
    // No row was done, so there is no table, and no half of one.
    let results = dir.join("results");
    assert!(!results.exists() || listing(&results) == 0);
}
