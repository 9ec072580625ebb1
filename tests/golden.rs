//! Golden files: the printed graph and plan of the model's programs. A refactor shows an empty diff;
//! `UPDATE=1 cargo test --test golden` accepts a change.

mod common;

use common::repo;
use isobit::graph::print::print as print_graph;
use isobit::models::char_gpt::CharGpt;
use isobit::passes::compile;
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

#[test]
fn graphs_and_plans() {
    let train = || MODEL.train_program(4, 1.0, false).expect("differentiable");
    golden("train.graph.txt", &print_graph(&train()));
    golden(
        "train.plan.txt",
        &print_plan(&compile("train", train()).expect("compiles")),
    );
    golden(
        "eval.plan.txt",
        &print_plan(&compile("eval", MODEL.eval_program(4)).expect("compiles")),
    );
}

#[test]
fn compiling_twice_gives_the_same_plan() {
    let hash = || {
        compile(
            "train",
            MODEL.train_program(4, 0.0, false).expect("differentiable"),
        )
        .expect("compiles")
        .hash
    };
    assert_eq!(hash(), hash());
}
