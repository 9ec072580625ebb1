//! The same run gives the same bits: again, on any number of threads, on any instruction set.

mod common;

use common::cases::{Filled, all_cases};
use common::{Csv, fresh, isobit, repo, stderr};
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::kernels::simd::{Isa, set_isa};

/// The digests and losses of a run.
fn bits(name: &str, args: &[&str]) -> Vec<String> {
    let dir = fresh(&format!("determinism-{name}"));
    let config = repo("tests/data/two-layer/config.toml");
    let mut all = vec![
        "train",
        "--config",
        config.to_str().unwrap(),
        "--outdir",
        "out",
    ];
    all.extend(args);
    let o = isobit(&dir, &all);
    assert!(o.status.success(), "{}", stderr(&o));
    let steps = Csv::read(&dir.join("out/steps_fp32.csv"));
    (0..steps.rows.len())
        .map(|i| {
            ["loss", "grad_norm", "digest", "val_loss"]
                .map(|c| steps.text(i, c).to_string())
                .join(" ")
        })
        .collect()
}

#[test]
fn threads_and_repetition_change_nothing() {
    let one = bits("1", &["--threads", "1"]);
    assert_eq!(one, bits("1-again", &["--threads", "1"]));
    assert_eq!(one, bits("2", &["--threads", "2"]));
    assert_eq!(one, bits("5", &["--threads", "5"]));
    assert_ne!(
        one,
        bits("other", &["--lr", "0.002"]),
        "the comparison can fail"
    );
}

/// Another seed gives another run, the same seed the same one, without files.
#[test]
fn the_seed_decides() {
    let run = |name: &str, seed: &str| {
        let dir = fresh(&format!("determinism-seed-{name}"));
        let o = isobit(
            &dir,
            &[
                "--steps", "4", "--batch", "2", "--seed", seed, "--outdir", "out",
            ],
        );
        assert!(o.status.success(), "{}", stderr(&o));
        std::fs::read_to_string(dir.join("out/steps_fp32.csv")).expect("the steps")
    };
    let first = run("a", "5");
    assert_eq!(first, run("b", "5"));
    assert_ne!(first, run("c", "6"));
}

/// Every row of the operation table under every instruction set of this machine. The choice is one for
/// the whole process, so this is one test.
#[test]
fn instruction_sets_change_nothing() {
    let run = |case, filled: &Filled| {
        let mut cpu = Cpu::new(Some(2)).expect("two threads");
        let id = filled.load(&mut cpu, filled.plan());
        cpu.run(id).expect("runs");
        let _: &isobit::ops::Case = case;
        cpu.read_output(id, "y").expect("an output")
    };
    let sets: Vec<Isa> = Isa::ALL.iter().copied().filter(|i| i.available()).collect();
    println!("instruction sets here: {sets:?}");
    for (i, case) in all_cases().iter().enumerate() {
        let mut filled = Filled::new(case, 77 + i as u64);
        filled.roughen();
        set_isa(Some(Isa::Portable));
        let reference = run(case, &filled);
        for &set in &sets {
            set_isa(Some(set));
            assert_eq!(run(case, &filled), reference, "{:?} under {set:?}", case.op);
        }
        set_isa(None);
    }
}
