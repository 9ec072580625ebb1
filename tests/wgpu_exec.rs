//! The wgpu executor on every device of the machine: the CPU executor's bits, and what it says when
//! things go wrong.

#[path = "common/devices.rs"]
mod devices;

use devices::{devices, found, tuned};
use isobit::dtype::DType;
use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::adapter::{Backend, Choice, choose, list};
use isobit::exec::wgpu::{Tuning, Wgpu};
use isobit::exec::{ExecError, Executor, ProgramId};
use isobit::graph::{Graph, Program, Type};
use isobit::kernels::Params;
use isobit::kernels::optim::HYPER;
use isobit::kernels::rng::{self, Stream};
use isobit::models::char_gpt::{CharGpt, TrainOptions};
use isobit::passes::autocast::FP32;
use isobit::passes::compile;
use isobit::passes::grad::grad;
use isobit::plan::{Buf, BufId, Class, Plan, Step};
use std::sync::Arc;

const MODEL: CharGpt = CharGpt {
    vocab: 11,
    block: 19,
    n_layer: 1,
    n_head: 2,
    n_embd: 24,
};
const BATCH: usize = 3;

fn train() -> Arc<Plan> {
    let o = TrainOptions {
        batch: BATCH,
        clip: 1.0,
        dump_grads: true,
        histogram: false,
        digest: false,
        policy: FP32,
        accumulate: 1,
        scaling: None,
    };
    let p = MODEL.train_program(&o);
    Arc::new(compile("train", p.expect("differentiable")).expect("compiles"))
}

/// `x + y`, n elements.
fn add(n: usize) -> Arc<Plan> {
    let graph = Graph::new();
    let out = {
        let x = graph.input("x", Type::f32(&[n]));
        let y = graph.input("y", Type::f32(&[n]));
        (x + y).id
    };
    let program = Program {
        graph,
        outputs: vec![("out".into(), out)],
        updates: vec![],
    };
    Arc::new(compile("add", program).expect("compiles"))
}

/// A layer and its gradient, without attention: SwiftShader takes long to translate that.
fn layer() -> Arc<Plan> {
    let graph = Graph::new();
    let (new, outputs) = {
        let g = &graph;
        let w = g.state("w", Type::f32(&[24, 31]));
        let x = g.input("x", Type::f32(&[17, 24]));
        let h = g.scope("layer", || x.matmul(w, false, false).gelu());
        let loss = g.scope("loss", || (h * h).sum_all());
        let d = grad(g, loss, &[w]).expect("differentiable")[0];
        let new = w - d * d.constant(0.01);
        (new.id, vec![("loss".to_string(), loss.id)])
    };
    let program = Program {
        graph,
        outputs,
        updates: vec![(0, new)],
    };
    Arc::new(compile("layer", program).expect("compiles"))
}

fn start_layer(e: &mut dyn Executor, plan: &Arc<Plan>) -> Result<ProgramId, ExecError> {
    let id = e.load(plan.clone())?;
    e.write_state("w", &normals(24 * 31, 1))?;
    e.write_input(id, "x", &normals(17 * 24, 2))?;
    Ok(id)
}

/// Some runs of the layer: states and outputs.
fn layers(e: &mut dyn Executor, plan: &Arc<Plan>) -> Result<Vec<Vec<u32>>, ExecError> {
    let id = start_layer(e, plan)?;
    (0..3).try_for_each(|_| e.run(id))?;
    results(e, id, plan)
}

fn normals(n: usize, stream: u32) -> Vec<u32> {
    let mut s = Stream::new(7, stream);
    (0..n).map(|_| (s.normal() as f32).to_bits()).collect()
}

/// Loads the training program and writes its weights and the inputs of one step.
fn start(e: &mut dyn Executor, plan: &Arc<Plan>) -> Result<ProgramId, ExecError> {
    let id = e.load(plan.clone())?;
    for (name, data) in MODEL.initial(3) {
        let words: Vec<u32> = data.iter().map(|x| x.to_bits()).collect();
        e.write_state(&name, &words)?;
    }
    feed(e, id, 0)?;
    Ok(id)
}

fn feed(e: &mut dyn Executor, id: ProgramId, step: u32) -> Result<(), ExecError> {
    let n = BATCH * MODEL.block;
    let mut s = Stream::new(11, step);
    let mut ids = || -> Vec<u32> { (0..n).map(|_| s.below(11) as u32).collect() };
    e.write_input(id, "idx", &ids())?;
    e.write_input(id, "target", &ids())?;
    // Rate, betas, eps, decay and corrections of some step: any numbers in (0, 1) do.
    let hyper: Vec<u32> = (0..HYPER)
        .map(|i| (0.9f32 - 0.1 * i as f32).to_bits())
        .collect();
    e.write_input(id, "hyper", &hyper)
}

type Written = Vec<Vec<(BufId, Vec<u32>)>>;

fn trace(e: &mut dyn Executor, id: ProgramId) -> Written {
    let mut out = vec![];
    e.trace(id, &mut |_, _, wrote| {
        out.push(wrote.to_vec());
        true
    })
    .expect("the device works");
    out
}

/// All states and outputs of a program.
fn results(e: &mut dyn Executor, id: ProgramId, plan: &Plan) -> Result<Vec<Vec<u32>>, ExecError> {
    let mut out = vec![];
    for b in &plan.bufs {
        match b.class {
            Class::State => out.push(e.read_state(&b.name)?),
            Class::Output => out.push(e.read_output(id, &b.name)?),
            _ => {}
        }
    }
    Ok(out)
}

/// The first difference of two traces.
fn difference(plan: &Plan, expected: &Written, got: &Written) -> Option<String> {
    for (n, (e, g)) in expected.iter().zip(got).enumerate() {
        let step = &plan.steps[n];
        for ((b, e), (_, g)) in e.iter().zip(g) {
            let differ = e.iter().zip(g).filter(|(a, b)| a != b).count();
            if e.len() != g.len() || differ > 0 {
                return Some(format!(
                    "step {n} ({}, {}), {}: {differ} of {} words differ",
                    step.kernel.name,
                    step.label,
                    plan.buf(*b).name,
                    e.len()
                ));
            }
        }
    }
    (expected.len() != got.len()).then(|| format!("{} steps", got.len()))
}

#[test]
fn training_has_the_cpus_bits_and_is_launches_alone() {
    let plan = train();
    let run = |e: &mut dyn Executor| -> Result<_, ExecError> {
        let id = start(e, &plan)?;
        let traced = trace(e, id);
        for i in 1..4 {
            feed(e, id, i)?;
            e.run(id)?;
        }
        Ok((traced, results(e, id, &plan)?))
    };
    let (traced, after) = run(&mut Cpu::new(Some(2)).expect("threads")).expect("the CPU");
    for (label, mut gpu) in devices() {
        let (t, a) = run(&mut gpu).unwrap_or_else(|e| panic!("{label}: {e}"));
        if let Some(d) = difference(&plan, &traced, &t) {
            panic!("{label}: {d}");
        }
        assert!(a == after, "{label}: other bits after three more steps");
        assert_eq!(gpu.dispatches(), plan.steps.len() as u64, "{label}");
        let (ms, clock) = gpu.last_run_ms();
        assert!(ms > 0.0, "{label}: a step takes time");
        println!(
            "{label}: a step took {ms:.2} ms ({clock}), {:?}, {:?}",
            gpu.memory(),
            gpu.info()
        );
    }
}

/// No kernel's Rust twin can be reached from the executor: it never names the field that holds it.
#[test]
fn the_executor_knows_no_cpu_kernel() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/exec/wgpu");
    let mut files = 0;
    for file in std::fs::read_dir(dir).expect("the module's folder") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("its text");
            assert!(!text.contains(".cpu"), "{}", path.display());
            files += 1;
        }
    }
    assert!(files > 5);
}

#[test]
fn long_launches_take_two_dimensions() {
    // One element more than 65,535 workgroups of 256 reach.
    let n = 65535 * 256 + 1;
    let plan = add(n);
    let (x, y) = (normals(1000, 1), normals(1000, 2));
    let words = |v: &[u32]| -> Vec<u32> { (0..n).map(|i| v[i % 1000]).collect() };
    let sum = |i: usize| (f32::from_bits(x[i % 1000]) + f32::from_bits(y[i % 1000])).to_bits();
    for (label, mut gpu) in devices() {
        let id = gpu
            .load(plan.clone())
            .unwrap_or_else(|e| panic!("{label}: {e}"));
        gpu.write_input(id, "x", &words(&x)).expect("x");
        gpu.write_input(id, "y", &words(&y)).expect("y");
        gpu.run(id).unwrap_or_else(|e| panic!("{label}: {e}"));
        let out = gpu.read_output(id, "out").expect("out");
        assert!(
            out.len() == n && (0..n).all(|i| out[i] == sum(i)),
            "{label}"
        );
    }
}

#[test]
fn programs_share_states_by_name() {
    let save = |name: &str| {
        let graph = Graph::new();
        let (new, out) = {
            let s = graph.state("s", Type::f32(&[5]));
            let x = graph.input("x", Type::f32(&[5]));
            ((s + x).id, (s * x).id)
        };
        let program = Program {
            graph,
            outputs: vec![("out".into(), out)],
            updates: vec![(0, new)],
        };
        Arc::new(compile(name, program).expect("compiles"))
    };
    let bits = |v: f32| vec![v.to_bits(); 5];
    for (label, mut gpu) in devices() {
        let a = gpu.load(save("a")).expect("a");
        let once = gpu.memory().allocated;
        let b = gpu.load(save("b")).expect("b");
        assert!(
            gpu.memory().allocated < 2 * once,
            "{label}: s is there once"
        );
        assert_eq!(gpu.read_state("s").expect("zeroed"), bits(0.0));
        gpu.write_state("s", &bits(2.0)).expect("s");
        gpu.write_input(a, "x", &bits(3.0)).expect("x");
        gpu.run(a).expect("a runs");
        // Programs take turns on the same slots: inputs are written before each run.
        gpu.write_input(b, "x", &bits(4.0)).expect("x");
        gpu.run(b).expect("b runs");
        assert_eq!(gpu.read_output(b, "out").expect("out"), bits(20.0));
        assert_eq!(gpu.read_state("s").expect("s"), bits(9.0));
        let wrong = |r: Result<(), ExecError>| r.expect_err("refused").to_string();
        assert_eq!(
            wrong(gpu.write_state("s", &[1, 2])),
            "s has 5 words, 2 were given"
        );
        assert_eq!(
            wrong(gpu.write_state("t", &[1])),
            "there is no state named t"
        );
        assert!(wrong(gpu.write_input(a, "z", &[1])).contains("no Input named z"));
    }
}

#[test]
fn a_lost_device_is_one_line_that_names_the_step() {
    let plan = layer();
    let at = plan.steps.len() / 2;
    let step = &plan.steps[at];
    for (label, mut gpu) in devices() {
        let id = start_layer(&mut gpu, &plan).expect("loads");
        gpu.run(id).expect("runs");
        gpu.simulate_loss(at);
        let text = gpu.run(id).expect_err("lost").to_string();
        println!("{label}: {text}");
        let named = format!("step {at} ({}, {})", step.kernel.name, step.label);
        assert!(
            text.contains(&named) && text.contains("lost") && text.contains("program layer"),
            "{label}: {text}"
        );
        assert_eq!(text.lines().count(), 1);
        // And it stays lost, without a panic.
        for e in [
            gpu.run(id),
            gpu.write_input(id, "x", &[0; 17 * 24]),
            gpu.read_output(id, "loss").map(drop),
            gpu.read_state("w").map(drop),
            gpu.load(add(3)).map(drop),
        ] {
            let text = e.expect_err("still lost").to_string();
            assert!(text.contains("lost"), "{label}: {text}");
        }
    }
    for (label, mut gpu) in devices() {
        let id = start_layer(&mut gpu, &plan).expect("loads");
        gpu.simulate_loss(at);
        let text = gpu
            .trace(id, &mut |_, _, _| true)
            .expect_err("lost")
            .to_string();
        assert!(
            text.contains("lost") && text.contains(&format!("step {at} (")),
            "{label}: {text}"
        );
    }
}

#[test]
fn a_device_that_has_gone_is_one_line() {
    for (label, gpu) in devices() {
        let mut found = gpu.found().clone();
        found.simulate_vanish();
        let opened = Wgpu::new(&found, Tuning::default());
        let text = opened.err().expect("gone").to_string();
        println!("{label}: {text}");
        let fits = text.contains(&found.title()) && text.contains("isobit adapters");
        assert!(fits && !text.contains('\n'), "{label}: {text}");
    }
}

#[test]
fn a_plan_past_the_limits_is_refused_before_anything_is_allocated() {
    for (label, mut gpu) in devices() {
        let limit = gpu.found().limits.binding.min(gpu.found().limits.buffer);
        let before = gpu.memory();
        let text = gpu
            .load(add((limit / 4) as usize + 1))
            .expect_err("too large")
            .to_string();
        println!("{label}: {text}");
        assert!(
            text.contains("iB") && text.contains("at most") && text.contains("smaller"),
            "{label}: {text}"
        );
        assert_eq!(text.lines().count(), 1);
        assert_eq!(gpu.memory(), before);
        // The device is none the worse for it.
        gpu.load(add(3)).expect("a small one loads");
    }
}

#[test]
fn overruns_show() {
    let plan = layer();
    let expected = layers(&mut Cpu::new(Some(1)).expect("a thread"), &plan).expect("the CPU");
    for (label, gpu) in devices() {
        let mut gpu = gpu.with_guards();
        let got = layers(&mut gpu, &plan).unwrap_or_else(|e| panic!("{label}: {e}"));
        assert!(got == expected, "{label}: guards change no bit");
        gpu.check_guards().unwrap_or_else(|e| panic!("{e}"));
    }
    // A step that claims 12 words for a buffer of 8.
    let bad = Arc::new(Plan {
        name: "bad".into(),
        bufs: vec![Buf {
            name: "to".into(),
            ty: Type::new(&[8], DType::U32),
            class: Class::Output,
            slot: 0,
        }],
        steps: vec![Step {
            kernel: &rng::RANDOM_BITS,
            params: Params::new(&[12, 1, 2, 3]),
            reads: vec![],
            writes: vec![BufId(0)],
            label: "too far".into(),
            origin: Default::default(),
        }],
        slots: vec![8],
        hash: String::new(),
    });
    for (label, gpu) in devices() {
        let mut gpu = gpu.with_guards();
        let id = gpu.load(bad.clone()).expect("loads");
        gpu.check_guards().expect("nothing has run");
        gpu.run(id).expect("runs");
        let text = gpu
            .check_guards()
            .expect_err(&format!("{label}: an overrun"));
        println!("{label}: {text}");
        assert!(text.contains("word 0 past the end of to") && text.contains("too far"));
    }
}

#[test]
fn measurements_may_switch_belt_and_fence_off() {
    let plan = layer();
    for belt in [false, true] {
        for (label, mut gpu) in tuned(Tuning { belt, fence: false }) {
            let vulkan = gpu.found().backend == Backend::Vulkan;
            assert_eq!(gpu.has_belt(), belt && vulkan, "{label}");
            layers(&mut gpu, &plan).unwrap_or_else(|e| panic!("{label}: {e}"));
        }
    }
}

#[test]
fn choices_say_why() {
    let all = found();
    let real = all.iter().any(|(_, f)| !f.software);
    let auto = choose(Backend::Auto, None).expect("there is always the CPU");
    println!("{}", auto.why());
    match &auto {
        Choice::Gpu { found, .. } => assert!(real && !found.software),
        Choice::Cpu { why } => assert!(!real && why.contains("CPU executor")),
    }
    for (label, f) in &all {
        let by_index = choose(f.backend, Some(&f.index.to_string())).expect("its index");
        let by_name = choose(f.backend, Some(&f.name[..6].to_uppercase())).expect("its name");
        for c in [by_index, by_name] {
            match c {
                Choice::Gpu { found, why } => {
                    assert_eq!(found.name, f.name, "{label}");
                    assert!(why.contains(&f.name) && why.contains("--adapter"), "{why}");
                }
                Choice::Cpu { why } => panic!("{why}"),
            }
        }
        // Named, a software device is taken on `auto` too.
        assert!(matches!(
            choose(Backend::Auto, Some(&f.name)),
            Ok(Choice::Gpu { .. })
        ));
        match choose(f.backend, None).expect("there is one") {
            Choice::Gpu { found, why } => {
                println!("{why}");
                assert_eq!(found.software, !real || found.software && f.software);
            }
            Choice::Cpu { why } => panic!("{why}"),
        }
    }
    if let Some((_, f)) = all.first() {
        let text = choose(f.backend, Some("voodoo 2"))
            .expect_err("unknown")
            .to_string();
        println!("{text}");
        assert!(text.contains("voodoo 2") && text.contains(&f.name) && text.lines().count() == 1);
        let text = choose(f.backend, Some("99")).expect_err("unknown");
        assert!(text.to_string().contains("99"));
    }
    let foreign = if cfg!(target_os = "macos") {
        Backend::Dx12
    } else {
        Backend::Metal
    };
    let text = choose(foreign, None).expect_err("impossible").to_string();
    println!("{text}");
    assert!(text.contains("only") && text.contains("cpu"));
}

#[test]
fn without_any_driver_one_line_says_what_to_install() {
    // The Vulkan loader reads its variables in the process that calls it.
    let out = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--ignored",
            "--exact",
            "child_without_drivers",
            "--nocapture",
        ])
        .env("VK_DRIVER_FILES", "/nonexistent/driver.json")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}");
    if cfg!(target_os = "linux") {
        assert!(text.contains("mesa-vulkan-drivers libvulkan1"), "{text}");
    }
}

#[test]
#[ignore = "run by without_any_driver_one_line_says_what_to_install"]
fn child_without_drivers() {
    if Backend::Vulkan.possible() {
        assert!(list().iter().all(|f| f.backend != Backend::Vulkan));
        let e = choose(Backend::Vulkan, None).expect_err("none").to_string();
        assert!(e.lines().count() == 1 && e.contains("no Vulkan device"));
        println!("{e}");
        let e = choose(Backend::Vulkan, Some("llvmpipe")).expect_err("none");
        assert!(e.to_string().contains("no Vulkan device"), "{e}");
    }
}

#[test]
fn executors_may_move_between_threads() {
    fn send<T: Send>() {}
    send::<Wgpu>();
}
