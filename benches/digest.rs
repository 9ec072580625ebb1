//! What a digest in each step costs: `cargo bench --bench digest [-- PRESET]`.
//!
//! The training step with and without digests, in turns, on the CPU and on each device; the
//! least of the times by the wall clock, with what the host reads back (loss and norm, and the digests where they are made).

use isobit::config::{Preset, SCHEMES, Scheme, Settings};
use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::{Tuning, Wgpu, adapter};
use isobit::exec::{Executor, ProgramId};
use isobit::graph::Program;
use isobit::models::char_gpt::{DIGEST_STATE, TrainOptions};
use isobit::passes::compile;
use isobit::train::scaler::scaling;
use isobit::train::schedule::hyper_words;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    let small = std::env::args().any(|a| a == "small");
    let s = Settings::preset(if small { Preset::Small } else { Preset::Tiny });
    println!("{} at batch {}, ms a step", s.name, s.batch);
    let cpu: Box<dyn Executor> = Box::new(Cpu::new(None).expect("threads"));
    let mut devices = vec![("cpu".to_string(), cpu, 41)];
    for f in adapter::list() {
        let gpu = Wgpu::new(&f, Tuning::default()).expect("opens");
        devices.push((f.title(), Box::new(gpu), if f.software { 15 } else { 41 }));
    }
    for (label, mut exec, times) in devices {
        for &scheme in SCHEMES {
            let mut load = |digest| {
                let options = TrainOptions {
                    batch: s.batch,
                    clip: 0.0,
                    dump_grads: false,
                    histogram: false,
                    digest,
                    policy: scheme.policy(),
                    accumulate: 1,
                    scaling: scaling(&s, &scheme.policy()).expect("settings of a preset"),
                };
                let program = s.model(65).train_program(&options).expect("differentiable");
                start(&mut *exec, &s, scheme, program)
            };
            let ids = [load(false), load(true)];
            let mut ms = [vec![], vec![]];
            for _ in 0..times {
                for (i, id) in ids.iter().enumerate() {
                    let begin = Instant::now();
                    exec.run(*id).expect("runs");
                    exec.read_output(*id, "loss").expect("loss");
                    exec.read_output(*id, "grad_norm").expect("norm");
                    if i == 1 {
                        exec.read_state(DIGEST_STATE).expect("digests");
                    }
                    ms[i].push(begin.elapsed().as_secs_f64() * 1e3);
                }
            }
            let least = |v: Vec<f64>| v.into_iter().fold(f64::INFINITY, f64::min);
            let [without, with] = ms.map(least);
            let share = 100.0 * (with / without - 1.0);
            println!(
                "{label:<48} {:<6} {without:>8.2} {with:>8.2}  {share:+.1}%",
                scheme.name()
            );
            // A scheme's states have their own types: the next one gets a fresh executor.
            exec = match exec.info().backend.as_str() {
                "cpu" => Box::new(Cpu::new(None).expect("threads")),
                backend => {
                    let mut all = adapter::list().into_iter();
                    let same = all.find(|f| f.title() == label && f.backend.name() == backend);
                    Box::new(Wgpu::new(&same.expect("is there"), Tuning::default()).expect("opens"))
                }
            };
        }
    }
}

fn start(exec: &mut dyn Executor, s: &Settings, scheme: Scheme, program: Program) -> ProgramId {
    let plan = Arc::new(compile("train", program).expect("compiles"));
    let id = exec.load(plan).expect("fits");
    let n = (s.batch * s.block) as u32;
    let ids: Vec<u32> = (0..n).map(|i| i * 7919 % 65).collect();
    for input in ["idx", "target"] {
        exec.write_input(id, input, &ids).expect("ids");
    }
    let hyper = hyper_words(s, &scheme.policy(), 1e-4, 1);
    exec.write_input(id, "hyper", &hyper).expect("hyper");
    for w in s.model(65).weights() {
        let words = exec.read_state(&w.name).expect("a weight").len();
        exec.write_state(&w.name, &vec![0x3c23_3c23; words])
            .expect("written");
    }
    id
}
