//! Faults of other trainers that a precision scheme can bring back, by project and number. Those of loss
//! scaling, rounding and accumulation are in `scaling.rs`, `rounding.rs` and `accumulate.rs`.

use isobit::config::{Preset, SCHEMES, Scheme, Settings};
use isobit::data::batches::gather;
use isobit::dtype::DType;
use isobit::exec::cpu::Cpu;
use isobit::plan::Class;
use isobit::train::run::Data;
use isobit::train::session::{Programs, Session};

fn settings() -> Settings {
    Settings {
        n_embd: 32,
        block: 16,
        batch: 2,
        steps: 10,
        ..Settings::preset(Preset::Tiny)
    }
}

/// Case 16 (pytorch 113685): an evaluation between two steps leaves the steps' bits alone.
#[test]
fn evaluation_leaves_training_alone() {
    let s = settings();
    let data = Data::load(&s).expect("the built-in text");
    let model = s.model(data.text.vocab.len());
    for &scheme in SCHEMES {
        let programs = Programs::compile(&model, &s, scheme, false).expect("compiles");
        let run = |evaluates: bool| {
            let cpu = Box::new(Cpu::new(Some(1)).expect("a thread"));
            let mut session =
                Session::new(cpu, model, &programs, &model.initial(1)).expect("loads");
            let mut batches = data.batches(&s);
            for t in 1..=4 {
                let batch = gather(&data.text.train, &batches.next_offsets(), s.block);
                let batch = [batch];
                session
                    .step(&s, &batch, 1e-3, t, false, false)
                    .expect("runs");
                if evaluates {
                    session.evaluate(batch.iter().cloned()).expect("runs");
                    session.evaluate_fp32(batch.iter().cloned()).expect("runs");
                }
            }
            session.digest().expect("read")
        };
        assert_eq!(run(false), run(true), "{}", scheme.name());
    }
}

/// Cases 21 and 30 (optax 1020, parameter-golf 10): the loss is f32, and a tied table is one tensor with one
/// update, an f32 master wherever the scheme has masters.
#[test]
fn the_loss_is_f32_and_a_tied_table_has_one_master() {
    let s = settings();
    let model = s.model(59);
    for &scheme in SCHEMES {
        let programs = Programs::compile(&model, &s, scheme, false).expect("compiles");
        let plan = programs.plans()[0];
        let loss = plan.find(Class::Output, "loss").expect("an output");
        assert_eq!(plan.buf(loss).ty.dtype, DType::F32);
        let table = plan.find(Class::State, "tok.weight").expect("a state");
        let masters = matches!(scheme, Scheme::Fp32 | Scheme::Mixed | Scheme::Fp16);
        assert_eq!(plan.buf(table).ty.dtype == DType::F32, masters);
        let writers = plan.steps.iter().filter(|x| x.writes.contains(&table));
        assert_eq!(writers.count(), 1, "{}", scheme.name());
    }
}
