//! The CUDA executor without a GPU: whole training steps over an emulation of CUDA's execution model (see
//! `common/emulated.rs`) give the CPU executor's digests; recordings, memory, fast products and errors are
//! what the executor says they are. No GPU takes part, and none of this says anything of speed.

mod common;
#[path = "common/emulated.rs"]
mod emulated;
mod plans;

use common::repo;
use emulated::{Calls, Emulated, device, emulated};
use isobit::config::{Preset, Scheme, Settings};
use isobit::dtype::DType;
use isobit::exec::cpu::Cpu;
use isobit::exec::cuda::Cuda;
use isobit::exec::cuda::driver::{Driver, Element};
use isobit::exec::cuda::products::{products, split};
use isobit::exec::{Clock, ExecError, Executor, Numerics};
use isobit::models::char_gpt::CharGpt;
use isobit::numerics::course::{Course, Runner, whole};
use isobit::numerics::probe::{Target, probe};
use isobit::ops::{Case, Op};
use isobit::train::run::Data;
use isobit::train::weights;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// An executor over a device, with what it asks of it.
fn over(d: Emulated, numerics: Numerics) -> (Cuda, Rc<RefCell<Calls>>) {
    let calls = d.calls.clone();
    (Cuda::new(Box::new(d), numerics), calls)
}

struct Run {
    settings: Settings,
    data: Data,
    weights: Vec<(String, Vec<f32>)>,
}

/// The recorded two-layer run.
fn two_layers() -> Run {
    let mut settings = Settings::preset(Preset::Tiny);
    settings
        .apply_file(&repo("tests/data/two-layer/config.toml"))
        .expect("a config");
    let data = Data::load(&settings).expect("its text");
    let model: CharGpt = settings.model(data.text.vocab.len());
    let path = settings.init.clone().expect("initial weights");
    let weights = weights::load(&path, &model).expect("initial weights");
    Run {
        settings,
        data,
        weights,
    }
}

/// Digests of the whole after each step, and the last loss.
fn train(run: &Run, scheme: Scheme, steps: usize, exec: Box<dyn Executor>) -> (Vec<u64>, f32) {
    let course = Course::new(&run.settings, &run.data, &run.weights, scheme);
    let mut course = course.unwrap_or_else(|e| panic!("{e}"));
    let mut runner = Runner::start(exec, &course).unwrap_or_else(|e| panic!("{e}"));
    let mut digests = vec![];
    for _ in 0..steps {
        runner.step(&mut course).unwrap_or_else(|e| panic!("{e}"));
        digests.push(whole(&runner.digests(&course).expect("digests")));
    }
    (digests, runner.loss)
}

#[test]
fn emulated_training_gives_the_cpus_digests() {
    let run = two_layers();
    for (scheme, steps) in [
        (Scheme::Fp32, 3),
        (Scheme::Mixed, 3),
        (Scheme::Fp16, 3),
        (Scheme::Bf16, 2),
    ] {
        let Some(mut d) = device() else { return };
        // In the other order of threads, where a race would show.
        d.last_first = scheme == Scheme::Mixed;
        let cpu = Cpu::new(Some(2)).expect("two threads");
        let (want, loss) = train(&run, scheme, steps, Box::new(cpu));
        let (exec, calls) = over(d, Numerics::Portable);
        let start = std::time::Instant::now();
        let (have, other) = train(&run, scheme, steps, Box::new(exec));
        println!(
            "{scheme:?}: {have:016x?}, loss {other}, {:?}, {:.1} s",
            calls.borrow(),
            start.elapsed().as_secs_f64()
        );
        assert_eq!(have, want, "{scheme:?}");
        assert_eq!(other.to_bits(), loss.to_bits());
        let calls = calls.borrow();
        assert_eq!((calls.recordings, calls.replays), (1, steps));
        assert_eq!(calls.products, 0, "portable products are kernels");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_trains_to_the_cpus_digests() {
    let found = match isobit::exec::cuda::found::Found::find(None) {
        Ok(found) => found,
        Err(why) => return println!("skipped: {why}"),
    };
    let run = two_layers();
    for scheme in [Scheme::Fp32, Scheme::Mixed, Scheme::Fp16, Scheme::Bf16] {
        let cpu = Cpu::new(Some(2)).expect("two threads");
        let (want, _) = train(&run, scheme, 20, Box::new(cpu));
        let open = |n| found.open(n).unwrap_or_else(|e| panic!("{e}"));
        let (have, loss) = train(&run, scheme, 20, Box::new(open(Numerics::Portable)));
        assert_eq!(have, want, "{scheme:?}");
        let (_, fast) = train(&run, scheme, 20, Box::new(open(Numerics::Fast)));
        println!("{scheme:?}: digests equal; loss {loss}, fast {fast}");
        assert!((fast - loss).abs() < 1e-2, "{scheme:?}: {fast} for {loss}");
    }
}

/// Fast products are the library's, and say what the plan's say, but for the order of their sums.
#[test]
fn fast_training_is_close_and_multiplies_by_the_library() {
    let run = two_layers();
    for scheme in [Scheme::Fp32, Scheme::Mixed, Scheme::Fp16] {
        let Some(d) = device() else { return };
        let cpu = Cpu::new(Some(2)).expect("two threads");
        let (_, want) = train(&run, scheme, 3, Box::new(cpu));
        let (exec, calls) = over(d, Numerics::Fast);
        let (_, have) = train(&run, scheme, 3, Box::new(exec));
        println!("{scheme:?}: {have} for {want}, {:?}", calls.borrow());
        assert!((have - want).abs() < 2e-3, "{scheme:?}: {have} for {want}");
        // Three in each of two layers and one at the end, and as many twice over in the gradient.
        assert!(calls.borrow().products >= 3 * 3 * 7);
    }
}

/// Every product of the operation table: transposed or not, in batches, in chunks, with odd rows.
#[test]
fn the_librarys_products_lie_as_the_kernels_do() {
    let Some(d) = device() else { return };
    let (mut fast, calls) = over(d, Numerics::Fast);
    let mut cpu = Cpu::new(Some(2)).expect("two threads");
    let mut taken = 0;
    for (n, case) in plans::cases().iter().enumerate() {
        if !matches!(case.op, Op::MatMul { .. }) {
            continue;
        }
        let plan = Arc::new(plans::of_case(case));
        let inputs = plans::operands(case, n as u64, false);
        let output = |exec: &mut dyn Executor| -> Vec<f32> {
            let id = exec.load(plan.clone()).unwrap_or_else(|e| panic!("{e}"));
            for (i, words) in inputs.iter().enumerate() {
                exec.write_input(id, &format!("x{i}"), words)
                    .expect("written");
            }
            exec.run(id).unwrap_or_else(|e| panic!("{e}"));
            let b = plan.bufs.iter().find(|b| b.name == "y").expect("an output");
            let words = exec.read_output(id, "y").expect("an output");
            match b.ty.dtype {
                DType::F32 => bytemuck::cast_vec(words),
                packed => packed.unpack(b.ty.shape.row(), &words),
            }
        };
        let before = calls.borrow().products;
        let (want, have) = (output(&mut cpu), output(&mut fast));
        taken += usize::from(calls.borrow().products > before);
        // The library has no floors: what counts as 0 in a portable kernel is a tiny number here.
        let scale = want.iter().fold(1e-9f32, |a, w| a.max(w.abs()));
        // A packed result may round to the neighbour.
        let off = want.iter().zip(&have).map(|(a, b)| (a - b).abs() / scale);
        let off = off.fold(0f32, f32::max);
        assert!(off < 1e-2, "{}: {off}", plans::title(case));
    }
    println!("{taken} plans multiplied by the library");
    assert!(taken > 20);
}

/// A hosting product is the library's product and a step of its own; what the library cannot take stays.
#[test]
fn products_are_split_and_others_stay() {
    let case = Case::new(
        Op::MatMul {
            ta: true,
            tb: false,
        },
        &[&[7171, 19], &[7171, 21]],
    );
    let plan = plans::of_case(&case);
    let gemm = plan
        .steps
        .iter()
        .find(|s| s.kernel.name == "gemm")
        .expect("a product");
    let list = products(gemm, &plan).expect("the library's").0;
    let extents: Vec<_> = list
        .iter()
        .map(|p| (p.0.extents.batch, p.0.extents.k))
        .collect();
    assert_eq!(
        extents,
        [(7, 1024), (1, 3)],
        "chunks of k, and a shorter one"
    );
    assert_eq!(list[1].1, [7168 * 21, 7168 * 19, 7 * 19 * 21]);
    assert_eq!(
        (list[0].0.element, list[1].0.extents.alignment),
        (Element::F32, 4)
    );
    let model = CharGpt {
        vocab: 11,
        block: 37,
        n_layer: 1,
        n_head: 2,
        n_embd: 24,
    };
    for plan in plans::model(&model, 3) {
        let out = split(&plan);
        out.check().unwrap_or_else(|e| panic!("{e}"));
        let hosts = |s: &isobit::plan::Step| s.kernel.name == "gemm" && s.params.expr.is_some();
        let hosted = plan.steps.iter().filter(|s| hosts(s)).count();
        assert_eq!(out.steps.len(), plan.steps.len() + hosted, "{}", plan.name);
        assert!(!out.steps.iter().any(hosts));
    }
}

fn add(n: usize) -> Arc<isobit::plan::Plan> {
    use isobit::graph::{Graph, Program, Type};
    let graph = Graph::new();
    let out = {
        let (x, y) = (
            graph.input("x", Type::f32(&[n])),
            graph.input("y", Type::f32(&[n])),
        );
        (x + y).id
    };
    let program = Program {
        graph,
        outputs: vec![("out".into(), out)],
        updates: vec![],
    };
    Arc::new(isobit::passes::compile("add", program).expect("compiles"))
}

/// Runs `add` and returns its output.
fn run_add(exec: &mut Cuda, id: isobit::exec::ProgramId, n: usize) -> Vec<f32> {
    let ones: Vec<u32> = (0..n).map(|i| (i as f32).to_bits()).collect();
    exec.write_input(id, "x", &ones).expect("written");
    exec.write_input(id, "y", &ones).expect("written");
    exec.run(id).unwrap_or_else(|e| panic!("{e}"));
    bytemuck::cast_vec(exec.read_output(id, "out").expect("an output"))
}

#[test]
fn a_program_is_one_graph_or_says_why_not() {
    let want: Vec<f32> = (0..300).map(|i| 2.0 * i as f32).collect();
    for no_graphs in [false, true] {
        let Some(mut d) = device() else { return };
        d.no_graphs = no_graphs;
        let (mut exec, calls) = over(d, Numerics::Portable);
        let id = exec.load(add(300)).expect("loads");
        assert_eq!(exec.way(id), None);
        assert_eq!(run_add(&mut exec, id, 300), want);
        assert_eq!(run_add(&mut exec, id, 300), want);
        let way = exec.way(id).expect("it has run");
        match no_graphs {
            false => assert_eq!(way, "graph"),
            true => assert_eq!(way, "launch by launch: recording is refused"),
        }
        assert_eq!(calls.borrow().replays, if no_graphs { 0 } else { 2 });
        // Step by step, outside of the graph.
        let times = exec.profile(id).expect("runs");
        assert_eq!(
            (times.len(), times[0].path, times[0].clock),
            (1, "pointwise.wgsl", Clock::Device)
        );
        let mut seen = 0;
        exec.trace(id, &mut |_, _, wrote| {
            seen += wrote[0].1.len();
            true
        })
        .expect("runs");
        assert_eq!(seen, 300);
    }
}

#[test]
fn memory_is_counted_shared_and_given_back() {
    let Some(mut d) = device() else { return };
    d.room = 10_000;
    let (mut exec, calls) = over(d, Numerics::Portable);
    let first = exec.load(add(300)).expect("loads");
    // Three slots of 300 words.
    assert_eq!((exec.memory().allocated, exec.memory().peak), (3600, 3600));
    // A program of the same kernel in the same slots needs neither.
    let second = exec.load(add(299)).expect("loads");
    assert_eq!(exec.memory().allocated, 3600);
    assert_eq!(run_add(&mut exec, second, 299).len(), 299);
    assert_eq!(run_add(&mut exec, first, 300).len(), 300);
    assert_eq!(calls.borrow().built, 1);
    let refused = exec.load(add(100_000)).expect_err("it does not fit");
    let ExecError::Memory { need, have, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!((*need, *have), (1_200_000, 6400));
    assert!(
        refused.to_string().contains("emulation on the CPU (cuda)"),
        "{refused}"
    );
    // What was there still runs.
    assert_eq!(run_add(&mut exec, first, 300).len(), 300);
}

#[test]
fn errors_say_where() {
    let Some(d) = device() else { return };
    let (mut exec, _) = over(d, Numerics::Portable);
    let id = exec.load(add(30)).expect("loads");
    for e in [
        exec.write_input(id, "z", &[]).expect_err("no such input"),
        exec.write_input(id, "x", &[0; 29]).expect_err("too short"),
        exec.read_output(id, "x").expect_err("no output"),
        exec.read_state("w").map(|_| ()).expect_err("no such state"),
    ] {
        assert_eq!(e.to_string().lines().count(), 1, "{e}");
    }
    // A kernel whose index comes from data is held inside its buffer, whatever the data.
    let Some(d) = device() else { return };
    let (mut exec, _) = over(d, Numerics::Portable);
    let case = Case::new(Op::Gather, &[&[7, 5], &[3]]).ids(1, 7);
    let plan = Arc::new(plans::of_case(&case));
    let id = exec.load(plan).expect("loads");
    exec.write_input(id, "x0", &[0; 35]).expect("written");
    exec.write_input(id, "x1", &[u32::MAX, 7, 1 << 30])
        .expect("written");
    exec.run(id).unwrap_or_else(|e| panic!("{e}"));
}

/// The probe admits it: the emulation has IEEE arithmetic, and the emitted texts keep to it.
#[test]
fn the_probe_passes_over_the_emulation() {
    if device().is_none() {
        return;
    }
    let open = || -> Result<Box<dyn Executor>, ExecError> {
        let d = emulated().map_err(ExecError::Device)?;
        Ok(Box::new(Cuda::new(Box::new(d), Numerics::Portable)))
    };
    let passport = probe(Target::Other(&open)).unwrap_or_else(|e| panic!("{e}"));
    assert!(passport.portable, "{}", passport.table());
    assert_eq!(passport.device.kind, "emulated gpu");
    let cpu = probe(Target::Cpu(Some(2))).expect("the CPU");
    assert_eq!(passport.digest, cpu.digest);
}

#[test]
fn an_emulated_device_never_claims_to_be_one() {
    let Some(d) = device() else { return };
    assert!(d.facts().name.contains("emulation") && d.facts().driver == "no driver");
}
