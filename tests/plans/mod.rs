//! Plans that between them use every kernel in every form: what shader and device tests walk.
#![allow(dead_code)] // each test uses a part

use isobit::dtype::DType;
use isobit::graph::{Graph, Program, Type};
use isobit::kernels::{Params, rng};
use isobit::models::char_gpt::CharGpt;
use isobit::ops::{self, Case};
use isobit::passes::compile;
use isobit::plan::{Buf, BufId, Class, Plan, Step};

/// A plan that computes one case of the operation table: inputs `0`, `1`, ..., output `out`.
pub fn of_case(case: &Case) -> Plan {
    let graph = Graph::new();
    let id = {
        let src: Vec<_> = (case.src.iter().enumerate())
            .map(|(i, s)| graph.input(&i.to_string(), s.0).id)
            .collect();
        graph.add(case.op.clone(), &src)
    };
    let program = Program {
        graph,
        outputs: vec![("out".into(), id)],
        updates: vec![],
    };
    compile("case", program).expect("the table's cases compile")
}

/// Every case of the operation table.
pub fn cases() -> Vec<Case> {
    let all = ops::all().into_iter().flat_map(|d| (d.cases)());
    all.chain(ops::pointwise::cases()).collect()
}

/// Random words: no operation asks for them yet.
pub fn random_bits(n: usize) -> Plan {
    let mut plan = Plan {
        name: "random".into(),
        ..Plan::default()
    };
    plan.bufs.push(Buf {
        name: "out".into(),
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
    });
    plan.check().expect("a sound plan");
    plan
}

/// The model's programs.
pub fn model(m: &CharGpt, batch: usize) -> Vec<Plan> {
    let train = m.train_program(batch, 1.0, true).expect("differentiable");
    vec![
        compile("train", train).expect("compiles"),
        compile("eval", m.eval_program(batch)).expect("compiles"),
        compile("digest", m.digest_program()).expect("compiles"),
    ]
}

/// All of them, with names.
pub fn all() -> Vec<(String, Plan)> {
    let mut out: Vec<_> = (cases().iter())
        .map(|c| (format!("{:?} {:?}", c.op, c.src), of_case(c)))
        .collect();
    out.push(("random bits".into(), random_bits(1001)));
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
