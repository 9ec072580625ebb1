//! The WGSL kernels as CUDA: every one has a text, the texts compile for NVIDIA's chips where NVRTC is
//! there, and, compiled for this machine's CPU under an emulation of CUDA's execution model, they give the
//! CPU executor's bits. No GPU takes part.

mod common;
#[path = "common/emulated.rs"]
mod emulated;
mod plans;

use isobit::exec::cpu::Cpu;
use isobit::exec::cuda::driver::Driver;
use isobit::exec::cuda::emit::Kernel;
use isobit::exec::cuda::{Cuda, kernel, options};
use isobit::exec::{Executor, Numerics, wgsl};
use isobit::kernels;
use isobit::plan::Plan;
use plans::{differing, trace};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The distinct kernels of plans, each with its name.
fn kernels_of(plans: &[(String, Plan)], options: wgsl::Options) -> Vec<(String, Kernel)> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for (name, plan) in plans {
        for step in &plan.steps {
            let name = format!("{} of {name}", step.kernel.name);
            let k = kernel(step, plan, options).unwrap_or_else(|e| panic!("{name}: {e}"));
            if seen.insert(k.clone()) {
                out.push((name, k));
            }
        }
    }
    out
}

#[test]
fn every_kernel_has_a_text() {
    let all = plans::all();
    let probe = isobit::numerics::probe::plans();
    let probe: Vec<_> = probe
        .into_iter()
        .map(|p| ("the probe".to_string(), p))
        .collect();
    for numerics in [Numerics::Portable, Numerics::Fast] {
        let made = kernels_of(&all, options(numerics));
        let names: HashSet<&str> = made
            .iter()
            .map(|k| k.0.split(' ').next().unwrap_or(""))
            .collect();
        for k in kernels::ALL
            .iter()
            .filter(|k| !k.name.starts_with("probe_"))
        {
            assert!(names.contains(k.name), "{}", k.name);
        }
        println!(
            "{}: {} texts, and {} of the probe",
            numerics,
            made.len(),
            kernels_of(&probe, options(numerics)).len()
        );
        // What keeps bits: no operator of C++ touches a float, and nothing is fused that was not.
        for (name, k) in &made {
            let fused = k.text.contains("fused(");
            assert!(!fused || numerics == Numerics::Fast, "{name}");
            assert!(!k.text.contains(" * ") && !k.text.contains(" + "), "{name}");
        }
    }
}

fn refuse(wgsl_text: &str) -> String {
    let shader = wgsl::Shader {
        source: wgsl_text.into(),
        constants: vec![],
        workgroup_size: [1, 1, 1],
        uniform_words: 1,
    };
    let (module, info) = wgsl::parse(&shader).unwrap_or_else(|e| panic!("{e}"));
    isobit::exec::cuda::emit::emit(&module, &info, false).expect_err("refused")
}

#[test]
fn what_no_shader_uses_is_refused_by_name() {
    let head = "struct Params { zero: u32 } @group(0) @binding(0) var<uniform> P: Params;
        @group(0) @binding(1) var<storage, read_write> b: array<u32>;\n";
    let main = |body: &str| format!("{head}@compute @workgroup_size(1) fn main() {{ {body} }}");
    for (text, says) in [
        (
            main("b[0] = bitcast<u32>(sin(bitcast<f32>(P.zero)));"),
            "Sin",
        ),
        (
            main("var m = mat2x2<f32>(); b[0] = bitcast<u32>(m[P.zero].x);"),
            "Matrix",
        ),
        (
            format!(
                "{head}@compute @workgroup_size(1) fn main(@builtin(local_invocation_id) i: vec3<u32>) {{ b[i.x] = 0u; }}"
            ),
            "LocalInvocationId",
        ),
        (
            "@compute @workgroup_size(1) fn main() {}".into(),
            "no parameters at binding 0",
        ),
    ] {
        let why = refuse(&text);
        assert!(why.contains(says) && why.lines().count() == 1, "{why}");
    }
}

/// Texts of each kernel that are compiled for NVIDIA's chips; `ISOBIT_ALL_TEXTS=1` takes all, for minutes.
#[cfg(feature = "cuda")]
const TEXTS: usize = 4;

/// A text with its plan's name, its kernel's, and the numerics that it is for.
#[cfg(feature = "cuda")]
struct Text {
    name: String,
    kernel: String,
    numerics: Numerics,
    text: Kernel,
}

/// Every kernel in several of its texts, spread over all plans; those whose sums are fused too.
#[cfg(feature = "cuda")]
fn chosen() -> Vec<Text> {
    let all = std::env::var_os("ISOBIT_ALL_TEXTS").is_some();
    let probe = isobit::numerics::probe::plans();
    let probe = probe.into_iter().map(|p| ("the probe".to_string(), p));
    let mut plans = plans::all();
    plans.extend(probe);
    let mut seen = HashSet::new();
    let mut each: BTreeMap<String, Vec<Text>> = BTreeMap::new();
    for numerics in [Numerics::Portable, Numerics::Fast] {
        for (name, text) in kernels_of(&plans, options(numerics)) {
            if seen.insert(text.clone()) {
                let kernel = name.split(' ').next().unwrap_or("").to_string();
                let kind = format!("{kernel} {numerics}");
                each.entry(kind).or_default().push(Text {
                    name,
                    kernel,
                    numerics,
                    text,
                });
            }
        }
    }
    let spread = |list: Vec<Text>| {
        let every = if all { 1 } else { list.len().div_ceil(TEXTS) };
        list.into_iter().step_by(every)
    };
    each.into_values().flat_map(spread).collect()
}

/// Each for both chips. In the compiler's PTX of a portable text nothing is fused, flushed or approximated:
/// every sum, product, quotient and root of floats rounds once, to nearest.
#[cfg(feature = "cuda")]
#[test]
fn kernels_compile_for_ampere_and_hopper() {
    use isobit::exec::cuda::nvrtc;
    use rayon::prelude::*;
    if !common::nvrtc() {
        return;
    }
    let texts = chosen();
    let start = std::time::Instant::now();
    let fused: Vec<String> = (texts.par_iter())
        .filter_map(|t| {
            let mut fused = false;
            for arch in ["sm_80", "sm_90a"] {
                let made = nvrtc::compile_emitted(&t.text.source(), arch);
                let made = made.unwrap_or_else(|e| panic!("{} for {arch}: {e}", t.name));
                assert!(made.image.starts_with(b"\x7fELF"), "{} for {arch}", t.name);
                let bad = inexact(&made.listing);
                fused |= bad.iter().any(|l| l.contains("fma."));
                // The probe's facts are what a device's own functions give, and none of them is relied on.
                let facts = t.kernel == "probe_facts";
                if t.numerics == Numerics::Portable && !facts {
                    assert!(bad.is_empty(), "{} for {arch}: {bad:?}", t.name);
                }
            }
            fused.then(|| t.kernel.clone())
        })
        .collect();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} texts, each for sm_80 and sm_90a, in {seconds:.1} s",
        texts.len()
    );
    assert!(texts.len() > kernels::ALL.len());
    // What is looked for is there where it should be.
    assert!(fused.iter().any(|k| k == "gemm"), "{fused:?}");
}

/// Lines of PTX that compute floats otherwise than by one rounding to nearest.
#[cfg(feature = "cuda")]
fn inexact(ptx: &str) -> Vec<&str> {
    let bad = |line: &&str| {
        let word = line.split_whitespace().find(|w| !w.starts_with('@'));
        let word = word.unwrap_or("").trim_end_matches(';');
        let float = word.ends_with(".f32");
        let rounds = ["add.", "sub.", "mul.", "div.", "sqrt.", "rcp."];
        let sloppy = rounds.iter().any(|o| word.starts_with(o)) && !word.contains(".rn.");
        float && (word.starts_with("fma.") || word.starts_with("mad.") || sloppy)
            || word.contains(".ftz")
            || word.contains(".approx")
    };
    ptx.lines().filter(bad).collect()
}

/// A plan with its name and the words of its inputs.
type Row = (String, Arc<Plan>, Vec<Vec<u32>>);

/// Every row of the kernel table, with smooth operands and with rough ones.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (n, case) in plans::cases().iter().enumerate() {
        let plan = Arc::new(plans::of_case(case));
        for rough in [false, true] {
            let inputs = plans::operands(case, n as u64, rough);
            rows.push((plans::title(case), plan.clone(), inputs));
        }
    }
    let random = Arc::new(plans::random_bits(1001));
    rows.push(("random bits".into(), random, vec![]));
    rows
}

/// Runs all rows; none may differ from the CPU executor in a word.
fn holds(rows: &[Row], exec: &mut Cuda) {
    let mut cpu = Cpu::new(Some(2)).expect("two threads");
    let start = std::time::Instant::now();
    let mut table: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (name, plan, inputs) in rows {
        let want = trace(&mut cpu, plan, inputs);
        let have = trace(exec, plan, inputs);
        for ((kernel, want), (_, have)) in want.iter().zip(&have) {
            let bad = differing(want, have);
            let entry = table.entry(kernel).or_insert((0, 0));
            *entry = (entry.0 + bad.len(), entry.1 + want.len());
            if let Some(&i) = bad.first() {
                println!(
                    "{kernel} in {name}: {} of {} differ, first at {i}: {:08x} for {:08x}",
                    bad.len(),
                    want.len(),
                    have[i],
                    want[i]
                );
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{}: {} rows in {seconds:.1} s",
        exec.info().kind,
        rows.len()
    );
    for (kernel, (bad, all)) in &table {
        println!("{kernel}: {bad} of {all} words differ");
    }
    assert!(table.len() > 15 && table.values().all(|v| v.0 == 0));
}

#[test]
fn emulated_kernels_give_the_twins_bits() {
    let Some(mut d) = emulated::device() else {
        return;
    };
    let rows = rows();
    // Many texts in one run of the compiler.
    let named: Vec<(String, Plan)> = (rows.iter())
        .map(|r| (r.0.clone(), (*r.1).clone()))
        .collect();
    let all: Vec<Kernel> = kernels_of(&named, options(Numerics::Portable))
        .into_iter()
        .map(|k| k.1)
        .collect();
    let start = std::time::Instant::now();
    d.build(&all)
        .unwrap_or_else(|(i, e)| panic!("{e}\n{}", all[i].text));
    let seconds = start.elapsed().as_secs_f64();
    println!("{} kernels compiled in {seconds:.1} s", all.len());
    holds(&rows, &mut Cuda::new(Box::new(d), Numerics::Portable));
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_gives_the_twins_bits() {
    match isobit::exec::cuda::found::Found::find(None) {
        Ok(found) => {
            let exec = found.open(Numerics::Portable);
            holds(&rows(), &mut exec.unwrap_or_else(|e| panic!("{e}")));
        }
        Err(why) => println!("skipped: {why}"),
    }
}
