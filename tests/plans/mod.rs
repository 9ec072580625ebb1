//! Plans that between them use every kernel in every form: what shader and device tests walk.
#![allow(dead_code)] // each test uses a part

use crate::common::cases::{Filled, all_cases};
use isobit::dtype::DType;
use isobit::exec::Executor;
use isobit::graph::{Graph, Program, Type};
use isobit::kernels::{Params, rng};
pub use isobit::measure::plans::multiply_add;
use isobit::models::char_gpt::{CharGpt, TrainOptions};
use isobit::ops::{Case, Fill, Op, ReduceOp};
use isobit::passes::autocast::{BF16, BF16_KAHAN, BF16_SR, FP16, FP32, MIXED, Policy};
use isobit::passes::compile;
use isobit::passes::scaling::Scaling;
use isobit::plan::{Buf, BufId, Class, Plan, Step};
use isobit::shape::Shape;
use isobit::train::ledgers::{snapshot_program, swallow_program};
use std::sync::Arc;

/// What a plan leaves behind: the words of each write of each step.
pub type Written = Vec<(&'static str, Vec<u32>)>;

pub fn trace(exec: &mut dyn Executor, plan: &Arc<Plan>, inputs: &[Vec<u32>]) -> Written {
    let id = exec.load(plan.clone()).expect("loads");
    for (i, words) in inputs.iter().enumerate() {
        exec.write_input(id, &format!("x{i}"), words)
            .expect("written");
    }
    let mut out = Vec::new();
    exec.trace(id, &mut |_, step, wrote| {
        out.extend(wrote.iter().map(|(_, w)| (step.kernel.name, w.clone())));
        true
    })
    .expect("runs");
    out
}

/// Elements that differ. The bits of NaNs are outside the contract.
pub fn differing(a: &[u32], b: &[u32]) -> Vec<usize> {
    let nan = |u: u32| u & 0x7fff_ffff > 0x7f80_0000;
    assert_eq!(a.len(), b.len());
    (0..a.len())
        .filter(|&i| a[i] != b[i] && !(nan(a[i]) && nan(b[i])))
        .collect()
}

/// A plan that computes one case of the operation table: inputs `x0`, `x1`, ..., output `y`.
pub fn of_case(case: &Case) -> Plan {
    let graph = Graph::new();
    let id = {
        let src: Vec<_> = (case.src.iter().enumerate())
            .map(|(i, s)| graph.input(&format!("x{i}"), s.0).id)
            .collect();
        graph.add(case.op.clone(), &src)
    };
    let program = Program {
        graph,
        outputs: vec![("y".into(), id)],
        updates: vec![],
    };
    compile("case", program).expect("the table's cases compile")
}

/// The operation table, and shapes at the boundaries of tiles, blocks and chunks.
pub fn cases() -> Vec<Case> {
    let mut out = all_cases();
    for (m, n, k) in [(64, 64, 16), (65, 63, 17), (257, 131, 15), (33, 31, 1023)] {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let a = if ta { [k, m] } else { [m, k] };
            let b = if tb { [n, k] } else { [k, n] };
            out.push(Case::new(Op::MatMul { ta, tb }, &[&a, &b]));
        }
    }
    let mm = Op::MatMul {
        ta: true,
        tb: false,
    };
    out.push(Case::new(mm.clone(), &[&[7171, 19], &[7171, 21]]));
    out.push(Case::new(mm.clone(), &[&[1024, 8], &[1024, 8]]));
    out.push(Case::new(mm, &[&[9, 33, 40], &[9, 33, 70]]));
    for c in [1usize, 31, 32, 33, 384] {
        let eps = 1e-5f32.to_bits();
        let (x, gain, row, stat) = ([67, c], [c], [67], [67, 1]);
        out.push(Case::new(Op::LayerNorm(eps), &[&x, &gain]));
        out.push(Case::new(Op::NormMean(eps), &[&x]));
        out.push(Case::new(
            Op::LayerNormGrad(eps),
            &[&x, &gain, &stat, &stat, &x],
        ));
        out.push(Case::new(Op::Softmax, &[&x]));
        out.push(Case::new(Op::SoftmaxGrad, &[&x, &x]));
        out.push(Case::new(Op::Lse, &[&x]));
        out.push(Case::new(Op::Xent, &[&x, &row]).ids(1, c as u32));
        out.push(Case::new(Op::XentGrad, &[&x, &row, &row, &row]).ids(1, c as u32));
    }
    for kind in [ReduceOp::Sum, ReduceOp::Max] {
        out.push(Case::new(Op::Reduce(kind, 2), &[&[129, 37]]));
        out.push(Case::new(Op::Reduce(kind, 1), &[&[8193, 3]]));
        out.push(Case::new(Op::Reduce(kind, 1), &[&[517, 80]]));
        out.push(Case::new(Op::Reduce(kind, 1), &[&[70001]]));
    }
    for (t, heads, d) in [(31, 3, 5), (32, 2, 32), (33, 1, 64), (97, 2, 16)] {
        let c = heads * d;
        let (qkv, y) = ([2, t, 3 * c], [2, t, c]);
        out.push(Case::new(Op::Attention(heads as u32), &[&qkv]).fill(0, Fill::Normal(3.0)));
        let (lse, delta) = ([2, heads, t], [2, t, heads]);
        let grad = Case::new(Op::AttentionGrad(heads as u32), &[&qkv, &lse, &delta, &y]);
        out.push(grad.fill(1, Fill::Uniform(2.0, 6.0)));
    }
    out.push(Case::new(
        Op::Broadcast(Shape::new(&[65537, 3])),
        &[&[1, 3]],
    ));
    out
}

/// Random words: no operation asks for them yet.
pub fn random_bits(n: usize) -> Plan {
    let mut plan = Plan {
        name: "random".into(),
        ..Plan::default()
    };
    plan.bufs.push(Buf {
        name: "y".into(),
        ty: Type::new(&[n], DType::U32),
        class: Class::Output,
        slot: 0,
    });
    plan.slots.push(n);
    plan.steps.push(Step {
        kernel: &rng::RANDOM_BITS,
        params: Params::new(&[n as u32, 0x243f_6a88, 0x85a3_08d3, 5]),
        reads: vec![],
        writes: vec![BufId(0)],
        label: "random".into(),
        origin: Default::default(),
    });
    plan.check().expect("a sound plan");
    plan
}

/// The model's programs.
pub fn model(m: &CharGpt, batch: usize) -> Vec<Plan> {
    let each = |policy: Policy| {
        let o = TrainOptions {
            batch,
            clip: 1.0,
            dump_grads: true,
            histogram: true,
            digest: true,
            policy,
            accumulate: 1,
            scaling: policy.scaled.then_some(Scaling {
                interval: 20,
                cap: 65536.0,
                corrections: 30,
            }),
        };
        let train = m.train_program(&o).expect("differentiable");
        let parts = TrainOptions { accumulate: 3, ..o };
        let update = m.train_program(&parts).expect("differentiable");
        vec![
            compile("train", train).expect("compiles"),
            compile("micro", m.micro_program(&parts).expect("differentiable")).expect("compiles"),
            compile("update", update).expect("compiles"),
            compile("eval", m.eval_program(batch, &policy)).expect("compiles"),
            compile("digest", m.digest_program(&policy)).expect("compiles"),
            compile("logits", m.logits_program(batch, 7, &policy)).expect("compiles"),
            compile("ready", m.ready_program(&policy)).expect("compiles"),
            compile("follow", m.follow_program(1, &policy)).expect("compiles"),
            compile("follow", m.follow_program(32, &policy)).expect("compiles"),
        ]
    };
    let mut out: Vec<Plan> = [FP32, MIXED, BF16, BF16_SR, BF16_KAHAN, FP16]
        .into_iter()
        .flat_map(each)
        .collect();
    let weights = m.weights();
    out.push(compile("snapshot", snapshot_program(&weights)).expect("compiles"));
    out.push(compile("swallow", swallow_program(&weights)).expect("compiles"));
    out
}

/// What a case is called in messages.
pub fn title(c: &Case) -> String {
    let shapes: Vec<String> = c.src.iter().map(|s| s.0.to_string()).collect();
    format!("{:?} of {}", c.op, shapes.join(" "))
}

/// All of them, with names.
pub fn all() -> Vec<(String, Plan)> {
    let mut out: Vec<_> = (cases().iter()).map(|c| (title(c), of_case(c))).collect();
    out.push(("random bits".into(), random_bits(1001)));
    out.push(("multiply-adds".into(), multiply_add(1003, 5)));
    let small = CharGpt {
        vocab: 11,
        block: 37,
        n_layer: 2,
        n_head: 2,
        n_embd: 24,
    };
    let wide = CharGpt {
        vocab: 65,
        block: 64,
        n_layer: 1,
        n_head: 4,
        n_embd: 128,
    };
    for (m, batch) in [(small, 3), (wide, 17)] {
        for plan in model(&m, batch) {
            out.push((format!("{} of {m:?}", plan.name), plan));
        }
    }
    out
}

/// The words of a case's operands, as they are filled or roughened.
pub fn operands(case: &Case, seed: u64, rough: bool) -> Vec<Vec<u32>> {
    let mut filled = Filled::new(case, seed);
    if rough {
        filled.roughen();
    }
    (0..case.src.len()).map(|i| filled.words(i)).collect()
}
