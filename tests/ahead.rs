//! A step on a GPU makes nothing and waits for nothing but its own outputs: pipelines, buffers and bind
//! groups are made when a program is loaded, and a step may begin before the outputs of the one before it
//! are taken, which changes none of them.

#[path = "common/devices.rs"]
mod devices;

use isobit::exec::cpu::Cpu;
use isobit::exec::{Begun, Executor, ProgramId};
use isobit::kernels::optim::HYPER;
use isobit::kernels::rng::Stream;
use isobit::models::char_gpt::{CharGpt, TrainOptions};
use isobit::passes::autocast::{BF16, FP32, MIXED, Policy};
use isobit::passes::compile;
use isobit::plan::Plan;
use std::sync::Arc;

const MODEL: CharGpt = CharGpt {
    vocab: 11,
    block: 16,
    n_layer: 1,
    n_head: 2,
    n_embd: 24,
};
const BATCH: usize = 3;
const OUTPUTS: [&str; 2] = ["loss", "grad_norm"];
const STEPS: u32 = 10;

fn train(policy: Policy) -> Arc<Plan> {
    let o = TrainOptions {
        batch: BATCH,
        clip: 1.0,
        dump_grads: false,
        histogram: false,
        digest: false,
        policy,
        accumulate: 1,
        scaling: None,
    };
    let p = MODEL.train_program(&o).expect("differentiable");
    Arc::new(compile("train", p).expect("compiles"))
}

fn start(e: &mut dyn Executor, plan: &Arc<Plan>, policy: Policy) -> ProgramId {
    let id = e.load(plan.clone()).expect("loads");
    for (w, (name, data)) in MODEL.weights().iter().zip(MODEL.initial(3)) {
        let words = policy.storage.pack(w.row(), &data);
        e.write_state(&name, &words).expect("written");
    }
    id
}

/// The inputs of a step, other ones for each.
fn feed(e: &mut dyn Executor, id: ProgramId, step: u32) {
    let mut s = Stream::new(11, step);
    let mut ids = || -> Vec<u32> {
        (0..BATCH * MODEL.block)
            .map(|_| s.below(11) as u32)
            .collect()
    };
    e.write_input(id, "idx", &ids()).expect("written");
    e.write_input(id, "target", &ids()).expect("written");
    let hyper: Vec<u32> = (0..HYPER)
        .map(|i| (0.01f32 + 0.1 * i as f32).to_bits())
        .collect();
    e.write_input(id, "hyper", &hyper).expect("written");
}

/// Outputs of each step, one step after the other.
fn one_by_one(e: &mut dyn Executor, id: ProgramId) -> Vec<Vec<Vec<u32>>> {
    let each = (0..STEPS).map(|i| {
        feed(e, id, i);
        e.run(id).expect("runs");
        let read = OUTPUTS.map(|name| e.read_output(id, name).expect("an output"));
        read.to_vec()
    });
    each.collect()
}

#[test]
fn steps_that_begin_early_give_the_same_outputs_make_nothing_and_wait_once() {
    for policy in [FP32, MIXED, BF16] {
        let plan = train(policy);
        let mut cpu = Cpu::new(Some(2)).expect("threads");
        let id = start(&mut cpu, &plan, policy);
        let expected = one_by_one(&mut cpu, id);
        for (label, mut gpu) in devices::devices() {
            let id = start(&mut gpu, &plan, policy);
            let (mut have, mut before): (Vec<Vec<Vec<u32>>>, Option<Begun>) = (vec![], None);
            let mut counted = None;
            for i in 0..STEPS {
                feed(&mut gpu, id, i);
                let begun = gpu.begin(id, &OUTPUTS).expect("begins");
                assert!(matches!(begun, Begun::UnderWay(_)), "{label}");
                if let Some(before) = before.replace(begun) {
                    have.push(gpu.end(before).expect("ends"));
                }
                // From the third step on.
                if i == 2 {
                    counted = Some(gpu.created());
                }
            }
            let (then, now) = (counted.expect("counted"), gpu.created());
            let name = policy.name;
            println!("{label}, {name}: {then:?}, then {now:?}");
            assert_eq!(now.pipelines, then.pipelines, "{label}, {name}");
            assert_eq!(now.buffers, then.buffers, "{label}, {name}");
            assert_eq!(now.groups, then.groups, "{label}, {name}");
            assert!(then.pipelines > 0 && then.buffers > 0 && then.groups > 0);
            // One wait a step: for the outputs of the one before.
            assert_eq!(now.waits - then.waits, u64::from(STEPS - 3), "{label}");
            have.push(gpu.end(before.expect("begun")).expect("ends"));
            assert_eq!(have, expected, "{label}, {name}");
            // After all that, one by one.
            assert_eq!(
                gpu.read_output(id, "loss").expect("an output"),
                expected[9][0]
            );
        }
    }
}

#[test]
fn runs_end_in_their_order_and_only_once() {
    let plan = train(FP32);
    for (label, mut gpu) in devices::devices() {
        let id = start(&mut gpu, &plan, FP32);
        feed(&mut gpu, id, 0);
        assert!(gpu.begin(id, &["nonsense"]).is_err(), "{label}");
        let first = gpu.begin(id, &OUTPUTS).expect("begins");
        let second = gpu.begin(id, &OUTPUTS).expect("begins");
        // No room for a third one: it is done at once.
        let third = gpu.begin(id, &OUTPUTS).expect("begins");
        assert!(matches!(third, Begun::Done(_)), "{label}");
        let (a, b) = (
            gpu.end(first).expect("ends"),
            gpu.end(second).expect("ends"),
        );
        assert_eq!(a.len(), 2, "{label}");
        assert_ne!(a, b, "{label}: the weights have moved");
        let c = gpu.end(third).expect("ends");
        assert_ne!(b, c, "{label}");
        assert!(gpu.end(Begun::UnderWay(1)).is_err(), "{label}");
    }
}
