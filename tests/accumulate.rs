//! Gradient accumulation: several batches a step, one update. The numbers are those of public bug reports,
//! named by project and number.

mod common;
#[path = "common/runs.rs"]
mod runs;

use common::{Csv, fresh, isobit, stderr, stdout};
use isobit::dtype::DType;
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::graph::{Graph, Program, Type};
use isobit::ops::{AdamPart, Op};
use isobit::passes::autocast::Rounding;
use isobit::passes::compile;
use isobit::passes::scaling::{
    ACCUMULATED_LOSS, CORRECTIONS, SCALE, SCALER_COUNTS, ScaledGrads, ScaledLoss, Scaling,
    accumulated,
};
use runs::{CONFIG, digest_of, write_config};
use std::path::Path;
use std::sync::Arc;

fn done(dir: &Path, args: &[&str]) -> String {
    let o = isobit(dir, args);
    assert!(o.status.success(), "{args:?}: {}{}", stderr(&o), stdout(&o));
    stdout(&o)
}

const ALL: &str = "fp32,mixed,bf16,bf16-sr,bf16-kahan,fp16";

/// Case 14 (transformers 24725): the loss of a step is the mean over all its tokens. Three batches of 2 are
/// the sequences of one batch of 6, in another order of the sums.
#[test]
fn small_batches_together_are_a_large_one() {
    let dir = fresh("accumulate-large");
    write_config(&dir);
    let run = |out: &str, batch: &str, n: &str| {
        let more = ["--outdir", out, "--schemes", ALL, "--batch", batch];
        done(&dir, &[&CONFIG[..], &more, &["--accumulate", n]].concat())
    };
    run("one", "6", "1");
    run("three", "2", "3");
    for scheme in ALL.split(',') {
        let read = |d: &str| Csv::read(&dir.join(format!("{d}/steps_{scheme}.csv")));
        let (one, three) = (read("one"), read("three"));
        let limit = if scheme == "fp32" { 2e-6 } else { 5e-3 };
        for i in 0..one.rows.len() {
            let d = (one.number(i, "loss") - three.number(i, "loss")).abs();
            assert!(d <= limit, "{scheme} step {}: {d}", i + 1);
        }
        assert_ne!(one.text(9, "digest"), three.text(9, "digest"));
    }
}

/// Thread counts and breaks change no bit here either.
#[test]
fn accumulated_runs_go_on_bit_for_bit() {
    let dir = fresh("accumulate-resume");
    write_config(&dir);
    let all = ["--schemes", ALL, "--accumulate", "3"];
    let whole = [&CONFIG[..], &all, &["--outdir", "a", "--threads", "2"]].concat();
    let whole = done(&dir, &whole);
    let half = ["--outdir", "b", "--threads", "1", "--stop-after", "4"];
    done(&dir, &[&CONFIG[..], &all, &half].concat());
    let rest = done(&dir, &["train", "--resume", "b"]);
    for scheme in ALL.split(',') {
        assert_eq!(
            digest_of(&whole, scheme),
            digest_of(&rest, scheme),
            "{scheme}"
        );
        for kind in ["steps", "curve"] {
            let read = |d: &str| {
                std::fs::read(dir.join(format!("{d}/{kind}_{scheme}.csv"))).expect("a file")
            };
            assert!(read("a") == read("b"), "{kind} of {scheme}");
        }
    }
}

/// A weight under micro-batches whose gradient is an input, its two programs loaded.
struct Tiny {
    cpu: Cpu,
    micro: isobit::exec::ProgramId,
    update: isobit::exec::ProgramId,
}

impl Tiny {
    fn new(dtype: DType, scaling: Option<Scaling>) -> Tiny {
        let ty = Type::new(&[2], dtype);
        let mut cpu = Cpu::new(Some(1)).expect("a thread");
        let graph = Graph::new();
        let updates = {
            let g = &graph;
            let (w, c) = (g.state("w", ty), g.input("c", ty));
            let scaled = ScaledLoss::new(g, (w * c).f32().sum_all(), scaling);
            let scaled = scaled.backward(g, &[w]).expect("differentiable");
            scaled.accumulate(g, &["w".to_string()])
        };
        let program = Program {
            graph,
            outputs: vec![],
            updates,
        };
        let plan = compile("micro", program).expect("compiles");
        let micro = cpu.load(Arc::new(plan)).expect("fits");
        let graph = Graph::new();
        let (outputs, updates) = {
            let g = &graph;
            let w = g.state("w", ty);
            let (m, v) = (g.state("m", ty), g.state("v", ty));
            let sums = ScaledGrads::accumulated(g, &[("w", ty)], scaling);
            let ready = sums
                .unscale(g)
                .clip(g, 0.0)
                .step_or_skip(g, Rounding::Nearest);
            let rest = [m, v, ready.grads[0], ready.hyper, ready.factor, ready.norm];
            let mut updates = ready.updates.clone();
            for (part, state) in [(AdamPart::W, w), (AdamPart::M, m), (AdamPart::V, v)] {
                let Op::State(index) = state.node().op else {
                    panic!("a state")
                };
                updates.push((index, w.op(Op::AdamW(part), &rest).id));
            }
            (vec![("norm".to_string(), ready.norm.id)], updates)
        };
        let program = Program {
            graph,
            outputs,
            updates,
        };
        let plan = compile("update", program).expect("compiles");
        let update = cpu.load(Arc::new(plan)).expect("fits");
        cpu.write_state("w", &dtype.pack(2, &[1.0, 1.0]))
            .expect("written");
        if scaling.is_some() {
            let table = [0.1f32, 4.472136].map(f32::to_bits);
            cpu.write_state(CORRECTIONS, &table).expect("written");
            cpu.write_state(SCALE, &[1024f32.to_bits()])
                .expect("written");
        }
        Tiny { cpu, micro, update }
    }

    fn step(&mut self, dtype: DType, gradients: &[[f32; 2]]) -> f32 {
        for (i, g) in gradients.iter().enumerate() {
            let goes_on = [f32::from(u8::from(i > 0)).to_bits()];
            let mut write = |n: &str, w: &[u32]| self.cpu.write_input(self.micro, n, w);
            write("c", &dtype.pack(2, g)).expect("written");
            write("goes_on", &goes_on).expect("written");
            self.cpu.run(self.micro).expect("runs");
        }
        let hyper = [1.0, 1e-3, 1.0, 0.9, 0.1, 0.95, 0.05, 1e-8].map(f32::to_bits);
        self.cpu
            .write_input(self.update, "hyper", &hyper)
            .expect("written");
        self.cpu.run(self.update).expect("runs");
        let words = self.cpu.read_output(self.update, "norm").expect("read");
        f32::from_bits(words[0])
    }

    fn state(&mut self, name: &str) -> Vec<u32> {
        self.cpu.read_state(name).expect("a state")
    }
}

/// Case 12 (Swin 311): infinity in the second micro-batch of four: one skip, one halving; the step after it
/// starts anew.
#[test]
fn one_bad_micro_batch_is_one_skip() {
    let scaling = Scaling {
        interval: 2000,
        cap: 65536.0,
        corrections: 1,
    };
    let mut t = Tiny::new(DType::F32, Some(scaling));
    let good = [0.25, -0.5];
    let norm = t.step(DType::F32, &[good, [f32::INFINITY, 0.0], good, good]);
    assert!(norm.is_nan());
    assert_eq!(t.state(SCALE), [512f32.to_bits()]);
    assert_eq!(t.state(SCALER_COUNTS)[..3], [0, 1, 0]);
    assert_eq!(t.state("w"), [1f32.to_bits(); 2]);
    let norm = t.step(DType::F32, &[good; 4]);
    assert_eq!(norm, 5f32.sqrt()); // (1, -2): unscaled once
    assert_eq!(t.state(SCALER_COUNTS)[..3], [1, 1, 1]);
}

/// Case 15 (DeepSpeed 1800): 1000 gradients of 0.01 are 10, not the 4 at which a bf16 sum sticks.
#[test]
fn sums_of_gradients_are_f32() {
    let mut t = Tiny::new(DType::Bf16, None);
    t.step(DType::Bf16, &[[0.01, 0.0]; 1000]);
    let sum = f32::from_bits(t.state(&accumulated("w"))[0]);
    let each = DType::Bf16.round(0.01);
    assert!(
        (sum - 1000.0 * each).abs() < 1e-2 && (sum - 10.0).abs() < 0.02,
        "{sum}"
    );
    let loss = f32::from_bits(t.state(ACCUMULATED_LOSS)[0]);
    assert!((loss - sum).abs() < 0.02, "{loss}");
}

/// A batch that overflows fp16 is named, and the scale falls once a step.
#[test]
fn a_skip_names_a_gradient() {
    let dir = fresh("accumulate-skip");
    write_config(&dir);
    let config = std::fs::read_to_string(dir.join("train.toml")).expect("the config");
    let high = "[fp16]\ninit_scale = 1048576.0\n";
    std::fs::write(dir.join("train.toml"), config + high).expect("written");
    let more = ["--outdir", "r", "--schemes", "fp16", "--accumulate", "2"];
    done(&dir, &[&CONFIG[..], &more].concat());
    let rows = Csv::read(&dir.join("r/scaler_fp16.csv"));
    assert_eq!(rows.text(0, "skipped"), "1");
    assert!(
        rows.text(0, "first_nonfinite")
            .starts_with("sum of gradients (backward) in ")
    );
    assert_eq!(rows.number(1, "loss_scale"), 524_288.0);
}
