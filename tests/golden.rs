//! Golden files: the printed graph and plan of the model's programs. A refactor shows an empty diff;
//! `UPDATE=1 cargo test --test golden` accepts a change.

mod common;

use common::repo;
use isobit::graph::print::print as print_graph;
use isobit::models::char_gpt::{CharGpt, TrainOptions};
use isobit::passes::autocast::{BF16, BF16_KAHAN, BF16_SR, FP16, FP32, MIXED, Policy};
use isobit::passes::compile;
use isobit::passes::scaling::Scaling;
use isobit::plan::print::print as print_plan;

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
        "{name} differs from line {:?} on; UPDATE=1 accepts it",
        first.map(|l| l + 1)
    );
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
