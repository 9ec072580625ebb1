//! Generation: the cache changes no bit, on any device, under any scheme, past the end of the block.

mod common;
#[path = "common/devices.rs"]
mod devices;

use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::infer::draw::{Drawing, draw};
use isobit::infer::generate::{Generator, check_extent};
use isobit::models::char_gpt::CharGpt;
use isobit::passes::autocast::{BF16, FP32, MIXED, Policy};

fn cpu(threads: usize) -> Box<dyn Executor> {
    Box::new(Cpu::new(Some(threads)).expect("threads"))
}

/// Weights large enough that attention and logits are far from uniform.
fn weights(model: &CharGpt) -> Vec<(String, Vec<f32>)> {
    let mut w = model.initial(5);
    for (name, data) in &mut w {
        if !name.contains("ln") {
            data.iter_mut().for_each(|x| *x *= 12.0);
        }
    }
    w
}

/// Bits of the logits of each of `n` tokens, drawn one after the other, and the tokens.
fn generate(
    exec: Box<dyn Executor>,
    model: CharGpt,
    policy: Policy,
    cached: bool,
    weights: &[(String, Vec<f32>)],
    prompt: usize,
    n: usize,
) -> (Vec<Vec<u32>>, Vec<u32>) {
    let mut g = Generator::new(exec, model, policy, weights, cached).expect("loads");
    go_on(&mut g, &model, prompt, n)
}

fn go_on(g: &mut Generator, model: &CharGpt, prompt: usize, n: usize) -> (Vec<Vec<u32>>, Vec<u32>) {
    let prompt: Vec<u32> = (0..prompt).map(|i| (i * 7 % model.vocab) as u32).collect();
    g.start(&prompt);
    let how = Drawing {
        temperature: 0.7,
        top_k: Some(9),
        seed: 42,
    };
    let (mut logits, mut tokens) = (Vec::new(), Vec::new());
    for position in 0..n {
        let row = g.logits().expect("runs");
        assert!(g.window().len() <= model.block);
        tokens.push(draw(&row, &how, position as u32).expect("finite"));
        logits.push(row.iter().map(|x| x.to_bits()).collect());
        g.push(tokens[position]);
    }
    (logits, tokens)
}

const SMALL: CharGpt = CharGpt {
    vocab: 29,
    block: 70,
    n_layer: 2,
    n_head: 3,
    n_embd: 24,
};

#[test]
fn with_cache_and_without_the_logits_have_the_same_bits() {
    let odd = CharGpt {
        vocab: 13,
        block: 5,
        n_layer: 1,
        n_head: 1,
        n_embd: 3,
    };
    let one = CharGpt { block: 1, ..odd };
    // Its products over k = 1040 are cut into chunks.
    let deep = CharGpt {
        n_embd: 260,
        n_head: 2,
        n_layer: 1,
        ..SMALL
    };
    for (model, prompt, n) in [
        (SMALL, 1, 150),
        (SMALL, 45, 40),
        (SMALL, 200, 3),
        (odd, 2, 14),
        (one, 1, 4),
        (deep, 33, 8),
    ] {
        for policy in [FP32, MIXED, BF16] {
            let w = weights(&model);
            let with = generate(cpu(2), model, policy, true, &w, prompt, n);
            let without = generate(cpu(1), model, policy, false, &w, prompt, n);
            for (i, (a, b)) in with.0.iter().zip(&without.0).enumerate() {
                assert!(a == b, "{model:?} {}: token {i}", policy.name);
            }
            assert_eq!(with.1, without.1);
        }
    }
    let w = weights(&SMALL);
    let other = generate(cpu(2), SMALL, FP32, true, &w, 2, 10).1;
    assert_ne!(other, generate(cpu(2), SMALL, FP32, true, &w, 3, 10).1);
}

/// The logits of a training-shaped run over whole blocks, row by row, are those of the cache.
#[test]
fn generation_sees_what_training_sees() {
    let batch = 2;
    for policy in [FP32, MIXED, BF16] {
        let mut exec = cpu(2);
        let program = SMALL.compare_program(batch, &policy);
        let plan = isobit::passes::compile("compare", program).expect("compiles");
        let id = exec.load(std::sync::Arc::new(plan)).expect("loads");
        isobit::infer::generate::write_weights(&mut *exec, &SMALL, &policy, &weights(&SMALL))
            .expect("written");
        let n = batch * SMALL.block;
        let idx: Vec<u32> = (0..n).map(|i| (i * i % SMALL.vocab) as u32).collect();
        exec.write_input(id, "idx", &idx).expect("written");
        exec.write_input(id, "target", &idx).expect("written");
        exec.run(id).expect("runs");
        let all = exec.read_output(id, "logits").expect("an output");
        let mut g = Generator::new(cpu(1), SMALL, policy, &weights(&SMALL), true).expect("loads");
        for b in 0..batch {
            let tokens = &idx[b * SMALL.block..][..SMALL.block];
            for i in [0, 1, 31, 32, 33, 69] {
                g.start(&tokens[..=i]);
                let row = g.logits().expect("runs");
                let row: Vec<u32> = row.iter().map(|x| x.to_bits()).collect();
                let at = (b * SMALL.block + i) * SMALL.vocab;
                assert!(row == all[at..at + SMALL.vocab], "{} row {i}", policy.name);
            }
        }
    }
}

#[test]
fn every_device_gives_the_same_logits() {
    let w = weights(&SMALL);
    for policy in [FP32, MIXED, BF16] {
        let expected = generate(cpu(2), SMALL, policy, true, &w, 40, 50);
        for (label, device) in devices::devices() {
            let have = generate(Box::new(device), SMALL, policy, true, &w, 40, 50);
            assert!(have == expected, "{label}, {}", policy.name);
        }
    }
    let expected = generate(cpu(2), SMALL, MIXED, true, &w, 33, 6);
    for (label, device) in devices::devices() {
        let have = generate(Box::new(device), SMALL, MIXED, false, &w, 33, 6);
        assert!(have == expected, "{label} without the cache");
    }
}

/// On the shapes of the presets the cache changes no token; what it saves is printed, because times are
/// not promises.
#[test]
fn the_cache_changes_no_token() {
    let wide = CharGpt {
        vocab: 65_535,
        block: 65_536,
        ..SMALL
    };
    assert!(check_extent(&wide, wide.block).is_err() && check_extent(&wide, 32).is_ok());
    for (name, block, n) in [("small", 64, 256), ("small at block 256", 256, 200)] {
        let model = CharGpt {
            vocab: 65,
            block,
            n_layer: 4,
            n_head: 4,
            n_embd: 128,
        };
        let w = weights(&model);
        let time = |cached| {
            let mut g = Generator::new(cpu(2), model, FP32, &w, cached).expect("loads");
            // The best of several, and the first loads programs: the machine has other work.
            let mut best = f64::INFINITY;
            let mut tokens = Vec::new();
            for _ in 0..2 {
                let start = std::time::Instant::now();
                tokens = go_on(&mut g, &model, 1, n).1;
                best = best.min(start.elapsed().as_secs_f64());
            }
            (best, tokens)
        };
        let (with, without) = (time(true), time(false));
        assert_eq!(with.1, without.1);
        println!(
            "{name}, {n} tokens: {:.3} s with the cache, {:.3} s without: {:.1} times",
            with.0,
            without.0,
            without.0 / with.0
        );
    }
}
