//! Tuning chooses among variants of a kernel, and never changes a bit: devices that choose differently have
//! the same digests, choices are kept and found again, and a lie in the cache does no harm.

mod common;
#[path = "common/devices.rs"]
mod devices;

use common::{fresh, repo};
use isobit::config::{Preset, Scheme, Settings};
use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::tune::{Book, Measures, Tuner, key};
use isobit::exec::wgpu::{Tuning, Wgpu};
use isobit::exec::{Choice, Executor, wgsl};
use isobit::graph::{Graph, Program, Type};
use isobit::numerics::course::{Course, Runner, whole};
use isobit::passes::compile;
use isobit::plan::{Plan, Step};
use isobit::train::run::Data;
use isobit::train::weights;
use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Digests after each of some steps of `two-layer`, on the executors that `open` gives, one after the other;
/// and for each of them what `names` says of the plan's steps.
fn steps<T>(
    scheme: Scheme,
    open: Vec<Box<dyn Executor>>,
    names: impl Fn(&Plan) -> Vec<T>,
) -> (Vec<Vec<u64>>, Vec<T>) {
    const STEPS: usize = 4;
    let mut s = Settings::preset(Preset::Tiny);
    let config = repo("tests/data/two-layer/config.toml");
    s.apply_file(&config).expect("the config");
    let data = Data::load(&s).expect("the data");
    let model = s.model(data.text.vocab.len());
    let init = weights::load(s.init.as_deref().expect("weights"), &model).expect("weights");
    let mut course = Course::new(&s, &data, &init, scheme).expect("compiles");
    let each = open.into_iter().map(|exec| {
        let mut runner = Runner::start(exec, &course).expect("loads");
        let digests = (0..STEPS).map(|_| {
            runner.step(&mut course).expect("steps");
            whole(&runner.digests(&course).expect("digests"))
        });
        digests.collect()
    });
    let digests = each.collect();
    let names = names(&course.plan);
    (digests, names)
}

/// The choices are forced, so that they do differ: on lavapipe each of the variants in turn, on SwiftShader
/// another.
#[test]
fn devices_that_choose_differently_have_the_same_digests() {
    for scheme in [Scheme::Fp32, Scheme::Mixed, Scheme::Bf16] {
        let mut execs: Vec<Box<dyn Executor>> = vec![Box::new(Cpu::new(Some(2)).expect("threads"))];
        let mut numbers = vec![];
        for (label, found) in devices::found() {
            let variants: &[usize] = match label.as_str() {
                "lavapipe" if scheme == Scheme::Fp32 => &[1, 2, 3],
                "lavapipe" => &[2],
                "swiftshader" => &[4],
                _ => continue,
            };
            for &n in variants {
                let gpu = Wgpu::new(&found, Tuning::default()).expect("opens");
                execs.push(Box::new(gpu.with_variant(n)));
                numbers.push((label.clone(), n));
            }
        }
        let chosen = |plan: &Plan| -> Vec<BTreeSet<String>> {
            let of = |n: usize| {
                let name = |s: &Step| {
                    let all = wgsl::variants(s, plan, OPTIONS);
                    format!("{} {}", s.kernel.name, all[n % all.len()].name)
                };
                plan.steps.iter().map(name).collect()
            };
            numbers.iter().map(|(_, n)| of(*n)).collect()
        };
        let (digests, chosen) = steps(scheme, execs, chosen);
        for (i, (label, n)) in numbers.iter().enumerate() {
            let name = scheme.name();
            assert_eq!(digests[i + 1], digests[0], "{label}, variant {n}, {name}");
            assert!(!chosen[..i].contains(&chosen[i]), "the choices differ");
            println!("{label}, variant {n}, {name}: the CPU's digests");
        }
    }
}

/// As software devices have them.
const OPTIONS: wgsl::Options = wgsl::Options {
    fence: true,
    fused: false,
    software: true,
};

/// A product, and a norm of its result.
fn plan() -> Arc<Plan> {
    let graph = Graph::new();
    let y = {
        let a = graph.state("a", Type::f32(&[96, 64]));
        let b = graph.state("b", Type::f32(&[64, 80]));
        let c = a.matmul(b, false, false);
        (c * c).sum_all().id
    };
    let program = Program {
        graph,
        outputs: vec![("y".into(), y)],
        updates: vec![],
    };
    Arc::new(compile("product", program).expect("compiles"))
}

/// A book in memory, which tells what it was told.
struct Notes {
    kept: Vec<Choice>,
    told: Sender<String>,
    go_on: bool,
}

impl Book for Notes {
    fn kept(&self, key: &str) -> Option<Choice> {
        self.kept.iter().find(|c| c.key == key).cloned()
    }
    fn measuring(&mut self, _: usize, _: usize) -> bool {
        self.go_on
    }
    fn add(&mut self, choice: &Choice) {
        let _ = self.told.send(format!("chose {}", choice.key));
    }
    fn differs(&mut self, kernel: &str, variant: &str) {
        let _ = self.told.send(format!("{variant} of {kernel} differs"));
    }
    fn close(&mut self, _: Duration) {
        let _ = self.told.send("closed".into());
    }
}

/// Loads and runs the plan under a tuner; returns the result, the choices and what the book was told.
fn tuned(
    gpu: Wgpu,
    kept: Vec<Choice>,
    measures: Measures,
    go_on: bool,
) -> (Vec<u32>, Vec<Choice>, Vec<String>) {
    let (told, notes) = channel();
    let tuner = Tuner {
        book: Box::new(Notes { kept, told, go_on }),
        measures,
        kept: true,
        left: Duration::from_secs(60),
    };
    let mut gpu = gpu.with_tuner(tuner);
    let plan = plan();
    let hash = plan.hash.clone();
    let id = gpu.load(plan.clone()).expect("loads");
    let numbers = |n: usize| -> Vec<u32> { (0..n).map(|i| (i as f32).sin().to_bits()).collect() };
    gpu.write_state("a", &numbers(96 * 64)).expect("written");
    gpu.write_state("b", &numbers(64 * 80)).expect("written");
    gpu.run(id).expect("runs");
    assert_eq!(plan.hash, hash);
    let y = gpu.read_output(id, "y").expect("a result");
    let choices = gpu.choices();
    drop(gpu); // and the sender with it
    (y, choices, notes.iter().collect())
}

#[test]
fn measured_choices_are_kept_and_found_and_change_no_bit() {
    for (label, found) in devices::found() {
        let open =
            || Wgpu::new(&found.again().expect("is there"), Tuning::default()).expect("opens");
        let plan = plan();
        let tunable = |s: &&Step| wgsl::is_tunable(s.kernel.name);
        let keys: BTreeSet<String> = (plan.steps.iter().filter(tunable))
            .map(|s| key(s, &plan))
            .collect();
        assert!(keys.len() > 1, "a product and a sum: {keys:?}");
        let (usual, none, told) = tuned(open(), vec![], Measures::Never, true);
        assert!(none.is_empty() && told.is_empty(), "{label}: {told:?}");
        let (y, choices, told) = tuned(open(), vec![], Measures::Always, true);
        assert_eq!(y, usual, "{label}");
        let found: BTreeSet<String> = choices.iter().map(|c| c.key.clone()).collect();
        assert_eq!(found, keys, "{label}: {told:?}");
        assert!(
            told.iter().all(|t| !t.contains("differs")),
            "{label}: {told:?}"
        );
        assert_eq!(told.len(), keys.len() + 1, "{label}: {told:?}");
        for c in &choices {
            assert!(
                c.times.len() > 1 && c.times.iter().all(|t| t.1 > 0.0),
                "{c:?}"
            );
            println!("{label}: {c:?}");
        }
        // Found again, nothing is measured.
        let (y, again, told) = tuned(open(), choices.clone(), Measures::Always, true);
        assert_eq!((y, again), (usual.clone(), choices.clone()), "{label}");
        assert!(told.is_empty(), "{label}: {told:?}");
        // A run of a few milliseconds is not worth it, and whoever says stop is heard.
        let (_, none, told) = tuned(open(), vec![], Measures::Runs(3), true);
        assert!(none.is_empty() && told.is_empty(), "{label}: {told:?}");
        let (_, none, _) = tuned(open(), vec![], Measures::Always, false);
        assert!(none.is_empty(), "{label}");
        // A variant that does not exist, or of another kernel.
        for name in ["nonsense", "narrow", ""] {
            let mut lies = choices.clone();
            lies.iter_mut().for_each(|c| c.taken = name.into());
            let (y, ..) = tuned(open(), lies, Measures::Never, true);
            assert_eq!(y, usual, "{label}: {name:?}");
        }
        // Each variant as the book says.
        for c in &choices {
            for (name, _) in &c.times {
                let mut other = c.clone();
                other.taken = name.clone();
                let (y, ..) = tuned(open(), vec![other], Measures::Never, true);
                assert_eq!(y, usual, "{label}: {} in {name}", c.key);
            }
        }
    }
}

fn isobit(dir: &std::path::Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(args)
        .current_dir(dir)
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .output()
        .expect("the program starts")
}

#[test]
fn choices_are_kept_for_later_runs_and_bench_tells_how_the_variants_did() {
    let Some((_, lavapipe)) = devices::found().into_iter().find(|d| d.0 == "lavapipe") else {
        return; // said so
    };
    let dir = fresh("tune-cli");
    let index = lavapipe.index.to_string();
    let run = |flags: &[&str]| {
        let device = ["--backend", "vulkan", "--adapter", &index];
        let o = isobit(&dir, &[&device[..], flags].concat());
        assert!(o.status.success(), "{}", common::stderr(&o));
        (common::stdout(&o), common::stderr(&o))
    };
    let product = |more: &[&str]| {
        let flags = ["gemm", "--n", "64", "--dtypes", "fp32", "--steps", "1"];
        let (out, err) = run(&[&flags[..], &["--warmup", "0", "--out", "g.csv"], more].concat());
        assert!(out.contains(".wgsl"), "it tells which one ran: {out}");
        err
    };
    let kept = || -> Vec<_> {
        let entries = std::fs::read_dir(dir.join("cache/isobit")).expect("the cache");
        let paths = entries.map(|e| e.expect("an entry").path());
        paths
            .filter(|p| p.to_string_lossy().contains("variants-"))
            .collect()
    };
    let none = product(&["--no-tune"]);
    assert!(!none.contains("tuned: ") && kept().is_empty(), "{none}");
    // Two seconds, the usual bound, may be too short on a busy machine.
    let err = product(&["--retune"]);
    assert!(err.contains("tuned: 1 kernels"), "{err}");
    let err = product(&[]);
    assert!(!err.contains("tuned: "), "it is kept: {err}");
    // Damaged, it is told and made anew.
    let file = kept().pop().expect("a file of choices");
    std::fs::write(&file, b"{}").expect("written");
    let err = product(&["--retune"]);
    assert!(
        err.contains("warning: ") && err.contains("tuned: 1"),
        "{err}"
    );
    let err = product(&[]);
    assert!(
        !err.contains("warning: ") && !err.contains("tuned: "),
        "{err}"
    );
    let flags = [
        "bench",
        "--preset",
        "tiny",
        "--schemes",
        "fp32",
        "--steps",
        "1",
    ];
    let (out, err) = run(&[&flags[..], &["--outdir", "out", "--retune"]].concat());
    assert!(
        out.contains("variants, by kernel") && err.contains("tuned: "),
        "{out}\n{err}"
    );
    let csv = common::Csv::read(&dir.join("out/bench_tiny_fp32_variants.csv"));
    let taken = csv.rows.iter().filter(|r| r[4] == "yes").count();
    let shapes: BTreeSet<&String> = csv.rows.iter().map(|r| &r[1]).collect();
    assert!(
        csv.rows.len() > shapes.len() && taken == shapes.len(),
        "{:?}",
        csv.rows
    );
    let o = isobit(&dir, &["bench", "--no-tune", "--retune"]);
    assert_eq!(o.status.code(), Some(2));
}
