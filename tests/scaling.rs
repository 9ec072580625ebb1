//! Loss scaling: the order of its stages, its schedule, and what a skipped step leaves alone. The numbers
//! are those of public bug reports, named by project and number.

mod common;

use common::{Csv, fresh, isobit, repo, stderr, stdout, tensors};
use isobit::config::{Preset, Scheme, Settings};
use isobit::dtype::DType;
use isobit::exec::cpu::Cpu;
use isobit::exec::{Executor, ProgramId};
use isobit::graph::{Graph, Program, Type};
use isobit::kernels::{Params, View, ViewMut, scaling as kernels};
use isobit::models::char_gpt::CharGpt;
use isobit::ops::{AdamPart, Op};
use isobit::passes::autocast::Rounding;
use isobit::passes::compile;
use isobit::passes::scaling::{CORRECTIONS, SCALE, SCALER_COUNTS, ScaledLoss, Scaling};
use isobit::train::session::{Programs, Session};
use std::path::Path;
use std::sync::Arc;

/// loss = sum(w * c), so that the gradient of `w` is `c`, stepped by AdamW under loss scaling.
struct Tiny {
    cpu: Cpu,
    id: ProgramId,
}

const HYPER: [f32; 8] = [1.0, 1e-3, 1.0, 0.9, 0.1, 0.95, 0.05, 1e-8];

impl Tiny {
    fn new(clip: f32, interval: u32, scale: f32) -> Tiny {
        let scaling = Scaling {
            interval,
            cap: 16_777_216.0,
            corrections: 4,
        };
        let graph = Graph::new();
        let (outputs, updates) = {
            let g = &graph;
            let ty = Type::f32(&[2]);
            let (w, c) = (g.state("w", ty), g.input("c", ty));
            let (m, v) = (g.state("m", ty), g.state("v", ty));
            let loss = (w * c).sum_all();
            let scaled = ScaledLoss::new(g, loss, Some(scaling));
            let scaled = scaled.backward(g, &[w]).expect("differentiable");
            let ready = scaled
                .unscale(g)
                .clip(g, clip)
                .step_or_skip(g, Rounding::Nearest);
            let mut updates = ready.updates.clone();
            let rest = [m, v, ready.grads[0], ready.hyper, ready.factor, ready.norm];
            for (part, state) in [(AdamPart::W, w), (AdamPart::M, m), (AdamPart::V, v)] {
                let Op::State(index) = state.node().op else {
                    panic!("a state")
                };
                updates.push((index, w.op(Op::AdamW(part), &rest).id));
            }
            let clipped = ready.grads[0] * ready.factor;
            let outputs = [("norm", ready.norm), ("clipped", clipped)];
            (
                outputs.map(|(n, x)| (n.to_string(), x.id)).to_vec(),
                updates,
            )
        };
        let program = Program {
            graph,
            outputs,
            updates,
        };
        let mut cpu = Cpu::new(Some(1)).expect("a thread");
        let plan = compile("tiny", program).expect("compiles");
        let id = cpu.load(Arc::new(plan)).expect("fits");
        let table =
            (1..=4).flat_map(|t| [1.0 - 0.9f32.powi(t), 1.0 / (1.0 - 0.95f32.powi(t)).sqrt()]);
        let table: Vec<u32> = table.map(f32::to_bits).collect();
        let mut write = |name: &str, words: &[u32]| cpu.write_state(name, words).expect("written");
        write(SCALE, &[scale.to_bits()]);
        write(CORRECTIONS, &table);
        write("w", &[1f32.to_bits(), 1f32.to_bits()]);
        Tiny { cpu, id }
    }

    /// One step with a gradient; returns its norm.
    fn step(&mut self, gradient: [f32; 2]) -> f32 {
        let words = gradient.map(f32::to_bits);
        self.cpu.write_input(self.id, "c", &words).expect("written");
        let hyper = HYPER.map(f32::to_bits);
        self.cpu
            .write_input(self.id, "hyper", &hyper)
            .expect("written");
        self.cpu.run(self.id).expect("runs");
        self.output("norm")[0]
    }

    fn output(&mut self, name: &str) -> Vec<f32> {
        let words = self.cpu.read_output(self.id, name).expect("an output");
        words.into_iter().map(f32::from_bits).collect()
    }

    fn state(&mut self, name: &str) -> Vec<f32> {
        let words = self.cpu.read_state(name).expect("a state");
        words.into_iter().map(f32::from_bits).collect()
    }

    /// Good steps, skipped steps, applied updates.
    fn counts(&mut self) -> [u32; 3] {
        let words = self.cpu.read_state(SCALER_COUNTS).expect("a state");
        [words[0], words[1], words[2]]
    }
}

/// Case 9 (Lightning 9599): clipping comes after unscaling.
#[test]
fn a_gradient_is_clipped_after_it_is_unscaled() {
    let mut t = Tiny::new(1.0, 2000, 65536.0);
    assert_eq!(t.step([3.0, 4.0]), 5.0);
    for (have, want) in t.output("clipped").iter().zip([0.6, 0.8]) {
        assert!((have - want).abs() < 1e-6, "{have} for {want}");
    }
}

/// Case 10 (DeepSpeed 8588): the scale that grows after a step is not the one it is unscaled by.
#[test]
fn a_gradient_is_unscaled_by_the_scale_that_was_used() {
    let mut t = Tiny::new(0.0, 1, 4.0);
    for scale in [4.0, 8.0, 16.0] {
        assert_eq!(t.state(SCALE), [scale]);
        assert_eq!(t.step([1.0, 0.0]), 1.0);
        assert_eq!(t.output("clipped"), [1.0, 0.0]);
    }
}

/// Case 11 (pytorch 44511, 67590): a skipped step changes nothing but the scale; the step after it is the
/// first update, with the first update's bias correction.
#[test]
fn a_skipped_step_leaves_weights_moments_and_the_counter_alone() {
    let mut t = Tiny::new(0.0, 2000, 1024.0);
    for bad in [f32::INFINITY, f32::NAN, 3e38] {
        assert!(t.step([bad, 1.0]).is_nan());
        assert_eq!((t.state("w"), t.state("m")), (vec![1.0; 2], vec![0.0; 2]));
        assert_eq!(t.state("v"), [0.0; 2]);
    }
    assert_eq!((t.counts(), t.state(SCALE)), ([0, 3, 0], vec![128.0]));
    let mut fresh = Tiny::new(0.0, 2000, 128.0);
    t.step([0.5, -2.0]);
    fresh.step([0.5, -2.0]);
    assert_eq!(t.state("w"), fresh.state("w"));
    assert_eq!((t.counts(), fresh.counts()), ([1, 3, 1], [1, 0, 1]));
    // AdamW's first step moves by the learning rate.
    assert!((t.state("w")[0] - 0.999).abs() < 1e-6, "{:?}", t.state("w"));
}

/// The scaler's kernel alone.
struct Schedule {
    scale: u32,
    counts: [u32; 4],
    params: Params,
}

impl Schedule {
    fn new(scale: f32, interval: u32, cap: f32) -> Schedule {
        Schedule {
            scale: scale.to_bits(),
            counts: [0; 4],
            params: Params::new(&[interval, cap.to_bits()]),
        }
    }

    fn step(&mut self, norm: f32) -> f32 {
        let view = |dtype, words| View {
            dtype,
            row: 1,
            words,
        };
        let (norm, scale, counts) = ([norm.to_bits()], [self.scale], self.counts);
        let reads = [
            view(DType::F32, &norm),
            view(DType::F32, &scale),
            view(DType::U32, &counts),
        ];
        let (mut next, mut new) = ([0u32], [0u32; 4]);
        let mut writes = [
            ViewMut {
                dtype: DType::F32,
                row: 1,
                words: &mut next,
            },
            ViewMut {
                dtype: DType::U32,
                row: 4,
                words: &mut new,
            },
        ];
        (kernels::LOSS_SCALE.cpu)(&self.params, &reads, &mut writes);
        (self.scale, self.counts) = (next[0], new);
        f32::from_bits(self.scale)
    }
}

/// Case 7 (pytorch 98828, flax 2547): a scale that doubles for ever stops at its cap.
#[test]
fn the_scale_is_capped() {
    let mut s = Schedule::new(65536.0, 1, 16_777_216.0);
    for _ in 0..200 {
        assert!(s.step(1.0) <= 16_777_216.0);
    }
    assert_eq!(s.scale, 16_777_216f32.to_bits());
    // A scale that is no power of two stays below it too.
    let mut s = Schedule::new(1000.0, 1, 16_777_216.0);
    for _ in 0..50 {
        s.step(1.0);
    }
    assert_eq!(f32::from_bits(s.scale), 1000.0 * 16384.0);
}

/// Case 8 (apex 715): a scale that halves for ever stops at 1.
#[test]
fn the_scale_is_floored() {
    let mut s = Schedule::new(65536.0, 2000, 16_777_216.0);
    for _ in 0..1000 {
        s.step(f32::NAN);
    }
    assert_eq!(f32::from_bits(s.scale), 1.0);
    assert_eq!(s.counts, [0, 1000, 0, 1f32.to_bits()]);
}

/// PyTorch's growth tracker: it counts good steps in a row, and a skip starts it anew.
#[test]
fn the_scale_doubles_after_an_interval_of_good_steps_in_a_row() {
    let mut s = Schedule::new(8.0, 3, 1024.0);
    let norms = [1.0, 1.0, f32::INFINITY, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
    let scales: Vec<f32> = norms.iter().map(|&n| s.step(n)).collect();
    assert_eq!(scales, [8.0, 8.0, 4.0, 4.0, 4.0, 8.0, 8.0, 8.0, 16.0]);
    assert_eq!(s.counts[..3], [0, 1, 8]);
}

/// A folder with the two-layer run's config, changed, and its weights, one of them scaled.
fn folder(name: &str, change: &[(&str, &str)], weight: Option<(&str, f32)>) -> std::path::PathBuf {
    let (dir, from) = (fresh(name), repo("tests/data/two-layer"));
    for file in ["text.txt", "train_offsets.csv", "val_offsets.csv"] {
        std::fs::copy(from.join(file), dir.join(file)).expect("copied");
    }
    let mut text = std::fs::read_to_string(from.join("config.toml")).expect("the config");
    for (old, new) in change {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    std::fs::write(dir.join("config.toml"), text).expect("written");
    let mut all = tensors(&from.join("init.safetensors"));
    if let Some((name, by)) = weight {
        let data = all.get_mut(name).expect("a weight");
        data.iter_mut().for_each(|x| *x *= by);
    }
    let shapes = model(&dir).weights();
    let data = shapes.into_iter().map(|w| {
        let data = all[&w.name].clone();
        (w.name, w.dims, data)
    });
    isobit::train::weights::save(&dir.join("init.safetensors"), &data.collect()).expect("written");
    dir
}

fn settings(dir: &Path) -> Settings {
    let mut s = Settings::preset(Preset::Tiny);
    s.apply_file(&dir.join("config.toml")).expect("the config");
    s
}

fn model(dir: &Path) -> CharGpt {
    settings(dir).model(59)
}

const TRAIN: [&str; 7] = [
    "train",
    "--config",
    "config.toml",
    "--schemes",
    "fp16",
    "--outdir",
    "run",
];

/// Case 8 again, in a run: logits past 65504 at every step. The scale falls to 1, then the run stops and
/// says where the first value is that is no number; the ledger has every skip.
#[test]
fn a_run_that_always_overflows_stops_at_the_floor_and_names_the_place() {
    let change = [("init_scale = 65536.0", "init_scale = 4.0")];
    let dir = folder("scaling-floor", &change, Some(("tok.weight", 1e7)));
    let done = isobit(&dir, &TRAIN);
    let text = stderr(&done);
    assert!(!done.status.success(), "{}", stdout(&done));
    assert!(
        text.contains("floor 1") && text.contains("head") && text.contains("step 3"),
        "{text}"
    );
    let rows = Csv::read(&dir.join("run/scaler_fp16.csv"));
    let scales: Vec<f64> = (0..rows.rows.len())
        .map(|i| rows.number(i, "loss_scale"))
        .collect();
    assert_eq!(scales, [4.0, 2.0, 1.0]);
    for i in 0..3 {
        assert_eq!(rows.text(i, "skipped"), "1");
        assert_eq!(rows.text(i, "applied_steps"), "0");
        assert!(rows.text(i, "first_nonfinite").contains("head"));
    }
}

/// Case 13 (accelerate 4289): scale and tracker go through a checkpoint as they are.
#[test]
fn a_scaler_goes_through_a_checkpoint() {
    let change = [("init_scale = 65536.0", "init_scale = 1024.0")];
    let dir = folder("scaling-checkpoint", &change, None);
    let done = isobit(&dir, &[&TRAIN[..], &["--stop-after", "31"]].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    let file = dir.join("run/checkpoints/fp16/step-00000031.safetensors");
    let c = isobit::train::checkpoint::Checkpoint::load(&file).expect("a checkpoint");
    let saved = c.meta.scaler.clone().expect("a scaler");
    assert_eq!(
        (saved.scale, saved.good_steps, saved.skipped),
        (2048.0, 11, 0)
    );
    assert_eq!(c.meta.updates, 31);
    let (s, m) = (settings(&dir), model(&dir));
    let programs = Programs::compile(&m, &s, Scheme::Fp16, false).expect("compiles");
    let cpu = Box::new(Cpu::new(Some(1)).expect("a thread"));
    let mut session = Session::new(cpu, m, &programs, &c.weights()).expect("loads");
    session.restore(&c.states).expect("restored");
    session
        .restore_scaler(&s, Some(&saved), c.meta.updates)
        .expect("restored");
    assert_eq!(session.scaler().expect("read"), Some(saved));
}

/// A run broken before, at and after its skipped step goes on with the unbroken run's bits.
#[test]
fn a_run_goes_on_across_a_skipped_step() {
    let dir = folder("scaling-resume", &[], None);
    let whole = isobit(&dir, &TRAIN);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let file = |d: &str, f: &str| std::fs::read_to_string(dir.join(d).join(f)).expect("a file");
    for stop in ["35", "36", "37"] {
        let out = format!("part{stop}");
        let start = [&TRAIN[..6], &[&out, "--stop-after", stop]].concat();
        assert!(isobit(&dir, &start).status.success());
        let rest = isobit(&dir, &["train", "--resume", &out]);
        assert!(rest.status.success(), "{}", stderr(&rest));
        for f in ["steps_fp16.csv", "scaler_fp16.csv", "curve_fp16.csv"] {
            assert_eq!(file(&out, f), file("run", f), "{f} after a stop at {stop}");
        }
    }
}

/// Clipping is told row by row.
#[test]
fn the_clip_factor_is_in_the_ledger() {
    let dir = folder("scaling-clip", &[("clip = 0.0", "clip = 0.5")], None);
    let done = isobit(&dir, &TRAIN);
    assert!(done.status.success(), "{}", stderr(&done));
    let (rows, steps) = (
        Csv::read(&dir.join("run/scaler_fp16.csv")),
        Csv::read(&dir.join("run/steps_fp16.csv")),
    );
    for i in 0..rows.rows.len() {
        let norm = steps.number(rows.number(i, "step") as usize - 1, "grad_norm");
        if rows.text(i, "skipped") == "1" {
            assert!(norm.is_nan() && rows.text(i, "clip_factor").is_empty());
        } else {
            let want = (0.5 / (norm + 1e-6)).min(1.0);
            assert!((rows.number(i, "clip_factor") - want).abs() < 1e-6);
        }
    }
}
