//! Golden files: the printed graph and plan of the model's programs, and what a training step of each
//! preset costs: launches, bytes moved, bytes held. A refactor shows an empty diff, a regression shows
//! itself; `UPDATE=1 cargo test --test golden` accepts a change.

mod common;

use common::repo;
use isobit::config::{Preset, SCHEMES, Settings};
use isobit::graph::print::print as print_graph;
use isobit::models::char_gpt::{CharGpt, TrainOptions};
use isobit::passes::autocast::{BF16, BF16_KAHAN, BF16_SR, FP16, FP32, MIXED, Policy};
use isobit::passes::compile;
use isobit::passes::scaling::Scaling;
use isobit::plan::account::{held, total};
use isobit::plan::print::print as print_plan;
use isobit::train::session::Programs;

const MODEL: CharGpt = CharGpt {
    vocab: 59,
    block: 16,
    n_layer: 1,
    n_head: 2,
    n_embd: 32,
};

fn golden(name: &str, text: &str) {
    let path = repo("tests/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).expect("the folder");
        std::fs::write(&path, text).expect("written");
    }
    let accepted = std::fs::read_to_string(&path).unwrap_or_default();
    let first = accepted.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(
        accepted == text,
        "{name} differs from line {:?} on; UPDATE=1 accepts it\n{}",
        first.map(|l| l + 1),
        changes(&accepted, text)
    );
}

/// The first lines that differ, before and after.
fn changes(before: &str, after: &str) -> String {
    const SHOWN: usize = 20;
    let (mut before, mut after) = (before.lines(), after.lines());
    let mut out = String::new();
    for _ in 0..SHOWN {
        let next = loop {
            match (before.next(), after.next()) {
                (None, None) => return out,
                (a, b) if a == b => {}
                differ => break differ,
            }
        };
        for (mark, line) in [("before", next.0), ("after ", next.1)] {
            if let Some(line) = line {
                out.push_str(&format!("{mark} {line}\n"));
            }
        }
    }
    out
}

fn options(clip: f32, policy: Policy) -> TrainOptions {
    TrainOptions {
        batch: 4,
        clip,
        dump_grads: false,
        histogram: false,
        digest: false,
        policy,
        accumulate: 1,
        scaling: policy.scaled.then_some(Scaling {
            interval: 20,
            cap: 65536.0,
            corrections: 30,
        }),
    }
}

#[test]
fn graphs_and_plans() {
    for policy in [FP32, MIXED, BF16, BF16_SR, BF16_KAHAN, FP16] {
        let train = || {
            MODEL
                .train_program(&options(1.0, policy))
                .expect("differentiable")
        };
        let plan = |name, p| print_plan(&compile(name, p).expect("compiles"));
        golden(
            &format!("{}.train.graph.txt", policy.name),
            &print_graph(&train()),
        );
        golden(
            &format!("{}.train.plan.txt", policy.name),
            &plan("train", train()),
        );
        golden(
            &format!("{}.follow.plan.txt", policy.name),
            &plan("follow", MODEL.follow_program(1, &policy)),
        );
        golden(
            &format!("{}.eval.plan.txt", policy.name),
            &plan("eval", MODEL.eval_program(4, &policy)),
        );
    }
}

#[test]
fn compiling_twice_gives_the_same_plan() {
    let program = || {
        MODEL
            .train_program(&options(0.0, FP32))
            .expect("differentiable")
    };
    let hash = || compile("train", program()).expect("compiles").hash;
    assert_eq!(hash(), hash());
}

/// Launches and bytes moved of a training step, bytes that its plan holds when most is live, and bytes
/// that an executor allocates for all programs of a run. The same on every device: they are the plans'.
#[test]
fn what_a_training_step_costs() {
    let mut text = String::from(
        "preset scheme: launches, bytes moved a step, bytes held at the peak, bytes of all programs\n",
    );
    for preset in [Preset::Tiny, Preset::Small, Preset::Seed] {
        let s = Settings::preset(preset);
        // The vocabulary of tiny-shakespeare, the seed's text.
        let model = s.model(65);
        for &scheme in SCHEMES {
            let programs = Programs::compile(&model, &s, scheme, false).expect("compiles");
            let plan = programs.train();
            let (moved, held) = (total(plan), held(plan).total());
            text.push_str(&format!(
                "{} {}: {}, {}, {held}, {}\n",
                s.name,
                scheme.name(),
                moved.launches,
                moved.bytes,
                programs.bytes()
            ));
        }
    }
    golden("counts.txt", &text);
}

#[test]
fn a_change_is_told_before_and_after() {
    let told = changes("a\nb 1\nc\n", "a\nb 2\nc\nd\n");
    assert_eq!(told, "before b 1\nafter  b 2\nafter  d\n");
}
