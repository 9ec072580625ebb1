//! Where a training step's time goes on the CPU executor: `cargo bench --bench step [-- PRESET [mixed] [steps]]`.
//!
//! Medians over repeated steps, by kernel, with the share of the whole.

use isobit::config::{Preset, Settings};
use isobit::exec::cpu::Cpu;
use isobit::exec::{Executor, StepTime};
use isobit::models::char_gpt::TrainOptions;
use isobit::passes::autocast::{FP32, MIXED};
use isobit::passes::compile;
use std::collections::BTreeMap;
use std::sync::Arc;

fn main() {
    let preset = match std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-') && a != "mixed" && a != "steps")
        .as_deref()
    {
        Some("seed4") => Preset::Seed,
        Some("tiny") => Preset::Tiny,
        _ => Preset::Small,
    };
    let mut s = Settings::preset(preset);
    if preset == Preset::Seed {
        s.batch = 4;
    }
    let model = s.model(65);
    let mixed = std::env::args().any(|a| a == "mixed");
    let policy = if mixed { MIXED } else { FP32 };
    let options = TrainOptions {
        batch: s.batch,
        clip: 0.0,
        dump_grads: false,
        histogram: false,
        digest: true,
        policy,
        accumulate: 1,
        scaling: None,
    };
    let program = model.train_program(&options).expect("differentiable");
    let plan = Arc::new(compile("train", program).expect("compiles"));
    let mut cpu = Cpu::new(None).expect("threads");
    let id = cpu.load(plan.clone()).expect("fits");
    for (name, data) in model.initial(1) {
        cpu.write_state(&name, bytemuck::cast_slice(&data))
            .expect("a weight");
    }
    let n = (s.batch * s.block) as u32;
    let ids: Vec<u32> = (0..n).map(|i| i * 7919 % 65).collect();
    for input in ["idx", "target"] {
        cpu.write_input(id, input, &ids).expect("ids");
    }
    let hyper = isobit::train::schedule::hyper(&s, 1e-4, 1);
    cpu.write_input(id, "hyper", bytemuck::cast_slice(&hyper))
        .expect("hyper");
    let ms = |t: Vec<StepTime>| t.iter().map(|t| t.ms).collect();
    let runs: Vec<Vec<f64>> = (0..15)
        .map(|_| ms(cpu.profile(id).expect("runs")))
        .collect();
    let median = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let mut kernels: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    let mut total = 0.0;
    for (i, step) in plan.steps.iter().enumerate() {
        let ms = median(runs.iter().map(|r| r[i]).collect());
        let e = kernels.entry(step.kernel.name).or_default();
        *e = (e.0 + 1, e.1 + ms);
        total += ms;
    }
    if std::env::args().any(|a| a == "steps") {
        for (i, step) in plan.steps.iter().enumerate() {
            let ms = median(runs.iter().map(|r| r[i]).collect());
            println!("{ms:>8.3} ms  {}", isobit::plan::print::step(step));
        }
    }
    let whole = median(runs.iter().map(|r| r.iter().sum()).collect());
    println!(
        "{} at batch {}: {whole:.2} ms a step, {} steps in the plan",
        preset.name(),
        s.batch,
        plan.steps.len()
    );
    let mut rows: Vec<_> = kernels.into_iter().collect();
    rows.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    for (name, (count, ms)) in rows {
        println!(
            "{name:<16} {count:>4} x {ms:>9.3} ms {:>5.1}%",
            100.0 * ms / total
        );
    }
}
