//! The generators of showers: gradients against finite differences, and a test for each f32 island with
//! the fault that it prevents.

mod common;

use isobit::dtype::DType;
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::graph::eval::{Tensor, eval};
use isobit::graph::{Graph, Program, Tx, Type};
use isobit::kernels::rng::Stream;
use isobit::models::showers::{Denoiser, fractions, mixed, mixed_without, stick_constants};
use isobit::models::step::{
    Constant, Model, average_program, declare_all, declare_constants, train_program,
};
use isobit::models::trunk::{Routing, Trunk};
use isobit::models::weight::{Init, Weight, state_index};
use isobit::models::wgan::{Critic, Gan, Generator};
use isobit::passes::autocast::{FP32, Policy, autocast};
use isobit::passes::grad::grad;
use isobit::train::driver::Driver;
use isobit::train::surrogate::Pace;
use isobit::train::surrogate::batches::embed;
use isobit::train::surrogate::settings::{Kind, Settings, resolve_precision};

const PLAIN: Trunk = Trunk {
    hidden: 6,
    blocks: 1,
    routing: None,
};

const ROUTED: Trunk = Trunk {
    routing: Some(Routing { experts: 3, top: 2 }),
    ..PLAIN
};

fn gan(trunk: Trunk, autoregressive: bool) -> Gan {
    Gan {
        layers: 4,
        trunk,
        autoregressive,
        batch: 3,
    }
}

fn cpu() -> Box<dyn Executor> {
    Box::new(Cpu::new(Some(2)).expect("threads"))
}

/// Values for all states of a graph: constants as they are, weights drawn.
fn states(g: &Graph, constants: &[Constant], seed: u64) -> Vec<Tensor> {
    let value = |(i, leaf): (usize, &isobit::graph::Leaf)| {
        let shape = leaf.ty.shape;
        if let Some(c) = constants.iter().find(|c| c.name == leaf.name) {
            return Tensor::new(shape, c.data.iter().map(|&x| x as f64).collect());
        }
        let mut s = Stream::new(seed, i as u32);
        let norm = leaf.name.contains("norm");
        let one = |_| s.normal() * 0.5 + if norm { 1.0 } else { 0.0 };
        Tensor::new(shape, (0..shape.elems()).map(one).collect())
    };
    g.states().iter().enumerate().map(value).collect()
}

fn inputs(g: &Graph, seed: u64) -> Vec<Tensor> {
    let value = |(i, leaf): (usize, &isobit::graph::Leaf)| {
        let mut s = Stream::new(seed, 100 + i as u32);
        let shape = leaf.ty.shape;
        let unit = ["mix", "real"].contains(&leaf.name.as_str());
        let one = |_| if unit { s.unit() } else { s.normal() };
        Tensor::new(shape, (0..shape.elems()).map(one).collect())
    };
    g.inputs().iter().enumerate().map(value).collect()
}

/// Every loss of a model, differentiated by every weight, against central differences in f64.
fn gradients_hold(model: &dyn Model, name: &str) {
    let g = Graph::new();
    let w = declare_all(&g, model, false);
    let losses = model.losses(&g, &w).expect("differentiable");
    let weights: Vec<Tx> = model.weights().iter().map(|x| w[&x.name]).collect();
    let (mut values, given) = (states(&g, &model.constants(), 11), inputs(&g, 12));
    for (loss, y) in losses {
        let grads = grad(&g, y, &weights).expect("differentiable");
        let ids: Vec<_> = grads.iter().map(|x| x.id).collect();
        let analytic = eval(&g, &ids, &values, &given);
        let mut largest = 0f64;
        for (x, d) in weights.iter().zip(&analytic) {
            let state = state_index(*x) as usize;
            let n = d.data.len();
            for k in (0..n).step_by(n.div_ceil(3)) {
                let mut at = |h: f64| {
                    values[state].data[k] += h;
                    let y = eval(&g, &[y.id], &values, &given)[0].data[0];
                    values[state].data[k] -= h;
                    y
                };
                let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
                let off = (numeric - d.data[k]).abs() / d.data[k].abs().max(1.0);
                assert!(
                    off < 1e-6,
                    "{name} {loss}: weight {state}, element {k}: {off:e}"
                );
                largest = largest.max(d.data[k].abs());
            }
        }
        assert!(largest > 1e-6, "{name} {loss}: no gradient at all");
    }
}

#[test]
fn gradients_of_the_penalty_and_of_all_losses_agree_with_finite_differences() {
    for (trunk, autoregressive) in [(PLAIN, false), (ROUTED, false), (PLAIN, true)] {
        let gan = gan(trunk, autoregressive);
        gradients_hold(&Critic(gan), "critic");
        gradients_hold(&Generator(gan), "generator");
        let denoiser = Denoiser {
            layers: 4,
            trunk,
            autoregressive,
            batch: 3,
        };
        gradients_hold(&denoiser, "denoiser");
    }
}

/// Case 32 (keras-io 910): the root of a flat critic's gradient has no slope; with eps inside it has.
#[test]
fn a_flat_critic_gives_no_nan() {
    // The fault: the norm of a gradient of zero, without eps.
    let g = Graph::new();
    let x = g.state("x", Type::f32(&[3]));
    let norm = (x * x).sum_all().sqrt();
    let slope = grad(&g, norm, &[x]).expect("differentiable")[0];
    let zero = [Tensor::full(x.shape(), 0.0)];
    let bad = eval(&g, &[slope.id], &zero, &[])[0].data[0];
    assert!(bad.is_nan(), "{bad}");
    // Its absence: a whole step of a critic whose head is zero.
    for policy in [FP32, mixed()] {
        let gan = gan(PLAIN, false);
        let mut driver = Driver::new(cpu());
        let step = train_program(&Critic(gan), &policy, 0.0, true);
        let step = driver.load("critic", step).expect("loads");
        let model = Critic(gan);
        driver
            .draw_weights(&model.frozen(), (1, 0), false)
            .expect("written");
        driver
            .draw_weights(&model.weights(), (1, 50), false)
            .expect("written");
        driver.write_constants(&model.constants()).expect("written");
        driver
            .write("critic.head.weight", &[0.0; 6])
            .expect("written");
        let pace = Pace::at(&Settings::new(Kind::Wgan), 1);
        let hyper = pace.hyper(1);
        let g = Graph::new();
        let w = declare_all(&g, &model, false);
        model.losses(&g, &w).expect("builds");
        let given = inputs(&g, 3);
        let values: Vec<Vec<f32>> = given
            .iter()
            .map(|t| t.data.iter().map(|&x| x as f32).collect())
            .collect();
        let leaves = g.inputs();
        let mut all: Vec<(&str, &[f32])> = leaves
            .iter()
            .zip(&values)
            .map(|(l, v)| (l.name.as_str(), v.as_slice()))
            .collect();
        all.push(("hyper", &hyper));
        driver.run(step, &all).expect("runs");
        let penalty = driver.scalar(step, "penalty").expect("an output");
        assert!(
            (penalty - 1.0).abs() < 1e-4,
            "a flat critic is off by 1: {penalty}"
        );
        for w in model.weights() {
            let name = format!("grad.{}", w.name);
            let d = driver.output(step, &name).expect("an output");
            assert!(d.iter().all(|x| x.is_finite()), "{name}: {d:?}");
        }
        for (name, _, data) in driver.tensors(&model.weights(), false).expect("read") {
            assert!(data.iter().all(|x| x.is_finite()), "{name}");
        }
    }
}

/// One output of a graph under a policy, on the CPU executor, with states as given.
fn low(
    policy: &Policy,
    values: &[(&str, &[f32])],
    constants: &[Constant],
    build: impl for<'g> Fn(&'g Graph) -> Tx<'g>,
) -> Vec<f32> {
    let graph = Graph::new();
    let id = {
        let y = build(&graph);
        let id = autocast(&graph, policy, &[y.id])[0];
        graph.tx(id).f32().id
    };
    let program = Program {
        graph,
        outputs: vec![("y".into(), id)],
        updates: vec![],
    };
    let mut driver = Driver::new(cpu());
    let p = driver.load("low", Ok(program)).expect("loads");
    driver.write_constants(constants).expect("written");
    for (name, data) in values {
        driver.write(name, data).expect("written");
    }
    driver.run(p, &[]).expect("runs");
    driver.output(p, "y").expect("an output")
}

/// Case 33: a product of many factors near 1. In bf16 they are 1; ours is a sum of logarithms in f32.
#[test]
fn a_stick_is_broken_in_f32() {
    assert_eq!(DType::Bf16.round(0.999), 1.0);
    for (left, times, right) in [(0.999f64, 1000, 0.3677), (0.99, 512, 0.005824)] {
        // The fault: the product itself, each factor and each result in bf16.
        let factor = DType::Bf16.round(left as f32);
        let bad = (0..times).fold(1.0, |p, _| DType::Bf16.round(p * factor));
        assert!((bad as f64 - right).abs() > 0.1 * right, "{bad}");
        // Its absence, under the policy that computes products in bf16.
        let layers = times + 1;
        let constants = stick_constants(layers);
        let offset = &constants[0].data;
        let log_odds = libm::log((1.0 - left) / left);
        let shares: Vec<f32> = offset
            .iter()
            .map(|&o| (log_odds - o as f64) as f32)
            .collect();
        let build = |policy: &Policy| {
            let values: [(&str, &[f32]); 2] = [("total", &[0.0]), ("shares", &shares)];
            let y = low(policy, &values, &constants, |g| {
                let w = declare_constants(g, &constants);
                let total = g.state("total", Type::f32(&[1, 1]));
                let shares = g.state("shares", Type::f32(&[1, layers - 1]));
                fractions(g, &w, total, shares)
            });
            let sum: f64 = y.iter().map(|&x| x as f64).sum();
            (y[layers - 1] as f64 / 0.9, sum / 0.9)
        };
        let (last, sum) = build(&mixed());
        assert!((last - right).abs() < 1e-3 * right, "{last} of {right}");
        assert!((sum - 1.0).abs() < 1e-3, "shares sum to {sum}");
        assert_eq!(build(&mixed()), build(&FP32));
        let (unguarded, _) = build(&mixed_without("*sticks"));
        let off = |x: f64| (x - right).abs() / right;
        assert!(
            off(unguarded) > 3.0 * off(last),
            "without the island {unguarded}, with it {last}"
        );
    }
}

/// Case 34: a moving average of decay 0.9999 from 1 towards 2. In bf16 it never moves.
#[test]
fn averages_move_in_f32() {
    let decay = 0.9999f64;
    let step = |a: f32| DType::Bf16.round(decay as f32 * a + (1.0 - decay) as f32 * 2.0);
    assert_eq!((0..10_000).fold(1.0, |a, _| step(a)), 1.0);
    let weights = [Weight::new("w", &[1], Init::Ones)];
    let mut driver = Driver::new(cpu());
    let p = driver.load("average", Ok(average_program(&weights)));
    let p = p.expect("loads");
    driver.write("w", &[2.0]).expect("written");
    driver.write("ema.w", &[1.0]).expect("written");
    let (keep, take) = ([decay as f32], [(1.0 - decay) as f32]);
    for _ in 0..10_000 {
        let inputs: [(&str, &[f32]); 2] = [("keep", &keep), ("take", &take)];
        driver.run(p, &inputs).expect("runs");
    }
    let (_, _, data) = driver.tensors(&weights, true).expect("read").remove(0);
    assert!((data[0] - 1.632).abs() < 2e-3, "{}", data[0]);
}

/// A quantity under full precision, under `mixed`, and without one of its islands: the distance of the
/// second and of the third from the first.
fn island(
    pattern: &str,
    values: &[(&str, &[f32])],
    constants: &[Constant],
    build: impl for<'g> Fn(&'g Graph) -> Tx<'g>,
) -> (f64, f64) {
    let [full, guarded, bare] =
        [FP32, mixed(), mixed_without(pattern)].map(|p| low(&p, values, constants, &build));
    (
        common::distance(&guarded, &full),
        common::distance(&bare, &full),
    )
}

/// Values for the states and inputs (as states) of a model.
fn filled(weights: &[Weight], seed: u64) -> Vec<(String, Vec<f32>)> {
    let one = |(i, w): (usize, &Weight)| (w.name.clone(), w.draw(seed, i));
    weights.iter().enumerate().map(one).collect()
}

#[test]
fn the_router_is_exact_in_f32() {
    let (n, hidden) = (64, 32);
    let trunk = Trunk {
        hidden,
        blocks: 1,
        routing: Some(Routing { experts: 4, top: 2 }),
    };
    let mut weights = trunk.weights("t");
    weights.push(Weight::new("h", &[n, hidden], Init::FanIn));
    let mut drawn = filled(&weights, 5);
    drawn
        .iter_mut()
        .filter(|w| w.0 == "h")
        .for_each(|w| w.1.iter_mut().for_each(|x| *x *= 6.0));
    for which in ["balance", "entropy"] {
        let values: Vec<(&str, &[f32])> = drawn
            .iter()
            .map(|(n, d)| (n.as_str(), d.as_slice()))
            .collect();
        let used = ["t.router.weight", "h"];
        let values: Vec<_> = values.into_iter().filter(|v| used.contains(&v.0)).collect();
        let constants: Vec<Constant> = trunk
            .constants()
            .into_iter()
            .filter(|c| which == "balance" && c.name == "const.experts.before")
            .collect();
        let (guarded, bare) = island("*router", &values, &constants, |g| {
            let mut w = isobit::models::step::declare(g, &weights, false);
            w.extend(declare_constants(g, &trunk.constants()));
            let (_, routed) = trunk.forward(g, &w, "t", w["h"]);
            let routed = routed.expect("routed");
            match which {
                "balance" => routed.balance,
                _ => routed.entropy,
            }
        });
        println!("{which}: off by {guarded:.1e} in the island, {bare:.1e} without");
        assert_eq!(guarded, 0.0, "{which}");
        assert!(bare > 1e-6, "{which}: the island makes no difference");
    }
}

/// The penalty and its gradient, in the island and without.
#[test]
fn the_penalty_is_exact_in_f32() {
    let gan = Gan {
        layers: 8,
        trunk: Trunk {
            hidden: 32,
            blocks: 2,
            routing: None,
        },
        autoregressive: false,
        batch: 64,
    };
    let mut weights = Critic(gan).weights();
    let n = gan.batch;
    weights.push(Weight::new("fake", &[n, 8], Init::Normal));
    weights.push(Weight::new("real", &[n, 8], Init::Normal));
    weights.push(Weight::new("mix", &[n, 1], Init::Normal));
    weights.push(Weight::new("conditions", &[n, 3], Init::FanIn));
    let drawn = filled(&weights, 8);
    let values: Vec<(&str, &[f32])> = drawn
        .iter()
        .filter(|w| w.0 != "critic.head.bias")
        .map(|(n, d)| (n.as_str(), d.as_slice()))
        .collect();
    let (guarded, bare) = island("penalty*", &values, &[], |g| {
        let w = isobit::models::step::declare(g, &weights, false);
        let points = ["fake", "real", "mix"].map(|p| w[p]);
        gan.penalty(g, &w, points, w["conditions"]).expect("twice")
    });
    println!("penalty: off by {guarded:.1e} in the island, {bare:.1e} without");
    assert_eq!(guarded, 0.0);
    assert!(bare > 1e-4, "the island makes no difference");
}

/// Times and schedules come from the host in f64: in bf16 late times are one.
#[test]
fn times_are_told_apart() {
    let (a, b) = (0.9985f64, 0.9995f64);
    assert_eq!(DType::Bf16.round(a as f32), DType::Bf16.round(b as f32));
    let far = embed(a)
        .iter()
        .zip(embed(b))
        .any(|(x, y)| (x - y).abs() > 0.1);
    assert!(far);
}

#[test]
fn a_router_changes_no_type() {
    for policy in [FP32, mixed()] {
        let ty = |trunk: Trunk| {
            let g = Graph::new();
            let mut w = isobit::models::step::declare(&g, &trunk.weights("t"), false);
            w.extend(declare_constants(&g, &trunk.constants()));
            // As a network's embedding gives it: products.
            let x = g.state("x", Type::f32(&[5, 6]));
            let e = g.state("e", Type::f32(&[6, 6]));
            let h = x.matmul(e, false, true);
            let (y, _) = trunk.forward(&g, &w, "t", h);
            let id = autocast(&g, &policy, &[y.id])[0];
            g.ty(id)
        };
        assert_eq!(ty(PLAIN), ty(ROUTED), "{}", policy.name);
        let low = policy.low;
        assert_eq!(ty(ROUTED).dtype, low);
    }
}

/// Equal probabilities: the first experts win, and exactly `top` of them.
#[test]
fn ties_go_to_the_first_experts() {
    let trunk = Trunk {
        hidden: 2,
        blocks: 1,
        routing: Some(Routing { experts: 3, top: 2 }),
    };
    let g = Graph::new();
    let mut w = isobit::models::step::declare(&g, &trunk.weights("t"), false);
    w.extend(declare_constants(&g, &trunk.constants()));
    let h = g.state("h", Type::f32(&[1, 2]));
    let (y, routed) = trunk.forward(&g, &w, "t", h);
    let mut values = states(&g, &trunk.constants(), 4);
    let index = |name: &str| g.states().iter().position(|s| s.name == name);
    let router = index("t.router.weight").expect("declared");
    values[router].data.fill(0.0);
    let last = index("t.experts.2.blocks.0.proj.weight").expect("declared");
    let before = eval(&g, &[y.id], &values, &[])[0].clone();
    values[last].data.fill(9.0);
    assert_eq!(before, eval(&g, &[y.id], &values, &[])[0]);
    let balance = eval(&g, &[routed.expect("routed").balance.id], &values, &[]);
    assert!((balance[0].data[0] - 1.0).abs() < 1e-6);
}

#[test]
fn precisions_are_refused_with_reasons() {
    for (name, says) in [
        ("fp16", "1e-8"),
        ("fp16", "65504"),
        ("bf16", "mixed"),
        ("fp8", "fp32"),
    ] {
        let e = resolve_precision(name, "a device").expect_err(name);
        let text = e.to_string();
        assert!(text.contains(says) && text.contains("a device"), "{text}");
    }
    let (p, how) = resolve_precision("mixed", "a device").expect("offered");
    assert!(how.contains("emulated") && p.low == DType::Bf16);
}
