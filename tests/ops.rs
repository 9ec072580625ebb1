//! The operation table: shape rules, the f64 meaning, gradients by finite differences, and the CPU
//! kernels against the f64 meaning; for every operation, over prime, size-1 and boundary shapes.

mod common;

use common::cases::{Filled, all_cases, run_cpu};
use isobit::graph::eval::{Tensor, eval};
use isobit::graph::{Graph, check};
use isobit::ops::{self, Vjp};
use isobit::passes::grad::grad;

#[test]
fn every_operation_has_cases_and_a_place_under_the_closure_rule() {
    let cases = all_cases();
    for def in ops::all() {
        assert!(
            cases.iter().any(|c| ops::def(&c.op).name == def.name),
            "{} has no case",
            def.name
        );
        if matches!(def.vjp, Vjp::ViaExpand) {
            assert!(
                def.expand.is_some(),
                "{} has neither gradient nor expansion",
                def.name
            );
        }
        if let Vjp::Stop(why) = def.vjp {
            assert!(why.len() > 10, "{} stops without a reason", def.name);
        }
    }
}

#[test]
fn shape_rules_refuse_what_does_not_fit() {
    let g = Graph::new();
    let f = |name: &str, dims: &[usize]| g.state(name, isobit::graph::Type::f32(dims));
    let (a, b, v) = (f("a", &[3, 4]), f("b", &[3, 5]), f("v", &[4]));
    use isobit::kernels::pointwise::PwOp;
    use isobit::ops::Op;
    let refuses = |op: Op, src: &[isobit::graph::NodeId]| {
        let e = g.try_add(op.clone(), src).expect_err(&format!("{op:?}"));
        assert!(e.contains('('), "{e}"); // names operation and operand types
    };
    refuses(Op::Pw(PwOp::Add), &[a.id, b.id]);
    refuses(Op::Pw(PwOp::Add), &[a.id]);
    refuses(
        Op::MatMul {
            ta: false,
            tb: false,
        },
        &[a.id, b.id],
    );
    refuses(
        Op::MatMul {
            ta: false,
            tb: false,
        },
        &[a.id, v.id],
    );
    refuses(Op::Reshape(isobit::shape::Shape::new(&[5])), &[a.id]);
    refuses(Op::Broadcast(isobit::shape::Shape::new(&[2, 4])), &[a.id]);
    refuses(Op::Reduce(isobit::ops::ReduceOp::Sum, 4), &[a.id]);
    refuses(Op::Gather, &[a.id, v.id]);
    refuses(Op::LayerNorm(0), &[b.id, v.id]);
    refuses(Op::Attention(2), &[a.id]);
}

/// A reshape is an alias: a product reads the rows that it is given, not those of the buffer.
#[test]
fn a_reshaped_operand_has_its_new_rows() {
    use isobit::exec::Executor;
    let graph = Graph::new();
    let y = {
        let x = graph.state("x", isobit::graph::Type::f32(&[3, 4]));
        let w = graph.state("w", isobit::graph::Type::f32(&[5, 2]));
        x.reshape(&[12, 1])
            .matmul(w.reshape(&[1, 10]), false, false)
            .id
    };
    let program = isobit::graph::Program {
        graph,
        outputs: vec![("y".into(), y)],
        updates: vec![],
    };
    let plan = isobit::passes::compile("reshaped", program).expect("compiles");
    let mut cpu = isobit::exec::cpu::Cpu::new(Some(1)).expect("a thread");
    let id = cpu.load(std::sync::Arc::new(plan)).expect("loads");
    let words = |n: u32| (0..n).map(|i| (i as f32).to_bits()).collect::<Vec<_>>();
    cpu.write_state("x", &words(12)).expect("written");
    cpu.write_state("w", &words(10)).expect("written");
    cpu.run(id).expect("runs");
    let y = cpu.read_output(id, "y").expect("an output");
    for (i, &word) in y.iter().enumerate() {
        assert_eq!(f32::from_bits(word), (i / 10 * (i % 10)) as f32);
    }
}

/// The largest difference from f64, relative to the largest magnitude of the reference.
fn error(ours: &[f64], reference: &[f64]) -> f64 {
    let scale = reference.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    ours.iter()
        .zip(reference)
        .fold(0f64, |m, (a, b)| m.max((a - b).abs()))
        / scale
}

#[test]
fn cpu_kernels_agree_with_f64() {
    let mut worst = (0f64, String::new());
    for (i, case) in all_cases().iter().enumerate() {
        let filled = Filled::new(case, i as u64);
        let g = Graph::new();
        let out = filled.build(&g);
        let reference = &eval(&g, &[out.id], &filled.f64(), &[])[0];
        let ours = run_cpu(case, &filled);
        let e = error(&ours, &reference.data);
        assert!(
            e <= case.tol,
            "{:?} on {:?}: error {e:.2e}, allowed {:.1e}",
            case.op,
            case.src,
            case.tol
        );
        if case.tol.is_finite() && e > worst.0 {
            worst = (e, format!("{:?}", case.op));
        }
    }
    println!("largest error against f64: {:.2e} in {}", worst.0, worst.1);
    assert!(
        worst.0 > 0.0,
        "f32 kernels that agree with f64 exactly are not f32 kernels"
    );
}

/// d/dx of sum(w * op(x)) against central differences in f64, for each float operand.
#[test]
fn gradients_agree_with_finite_differences() {
    let mut checked = std::collections::BTreeSet::new();
    for (i, case) in all_cases().iter().enumerate() {
        let def = ops::def(&case.op);
        if !case.differentiable || matches!(def.vjp, Vjp::Stop(_)) {
            continue;
        }
        let filled = Filled::new(case, 1000 + i as u64);
        let e = gradient_error(&filled);
        assert!(
            e < 1e-6,
            "{:?} on {:?}: gradient off by {e:.2e}",
            case.op,
            case.src
        );
        checked.insert(def.name);
    }
    for def in ops::all() {
        let wanted = matches!(def.vjp, Vjp::Rule(_) | Vjp::ViaExpand) && def.name != "gt";
        assert!(
            !wanted || checked.contains(def.name),
            "no gradient of {} was checked",
            def.name
        );
    }
}

/// The second column: d/dx of a weighted sum of d/dx, against central differences of the first gradient in
/// f64. Where there is no second derivative, asking for it is an error that names an operation of this
/// kind, and never a gradient of zero.
#[test]
fn second_derivatives_agree_with_finite_differences_or_are_refused_by_name() {
    let (mut checked, mut refused) = (std::collections::BTreeSet::new(), Vec::new());
    for (i, case) in all_cases().iter().enumerate() {
        let def = ops::def(&case.op);
        if !case.differentiable || matches!(def.vjp, Vjp::Stop(_)) {
            continue;
        }
        let filled = Filled::new(case, 2000 + i as u64);
        let g = Graph::new();
        let (wrt, loss, mut states) = weighted(&g, &filled);
        let nodes: Vec<_> = wrt.iter().map(|x| x.1).collect();
        let first = grad(&g, loss, &nodes).expect("differentiable once");
        // Every element of every first gradient counts, each differently.
        let mut sum = g.constant(0.0, isobit::dtype::DType::F32);
        for (k, d) in first.iter().enumerate() {
            let w = g.state(
                &format!("second{k}"),
                isobit::graph::Type::f32(&d.shape().dims()),
            );
            states.push(uneven(d.shape(), 0.7));
            sum = sum + (d.f32() * w).sum_all();
        }
        match grad(&g, sum, &nodes) {
            Err(why) => {
                assert!(why.starts_with("attention"), "{:?}: {why}", case.op);
                assert!(def.name.starts_with("attention"), "{}: {why}", def.name);
                refused.push(def.name);
            }
            Ok(second) => {
                let e = error_of(&g, sum, &wrt, &second, &states);
                assert!(
                    e < 1e-6,
                    "{:?} on {:?}: second derivative off by {e:.2e}",
                    case.op,
                    case.src
                );
                checked.insert(def.name);
            }
        }
    }
    assert!(
        !refused.is_empty(),
        "attention has no second derivative yet"
    );
    for def in ops::all() {
        let wanted = matches!(def.vjp, Vjp::Rule(_) | Vjp::ViaExpand) && def.name != "gt";
        assert!(
            !wanted || checked.contains(def.name) || refused.contains(&def.name),
            "no second derivative of {} was checked",
            def.name
        );
    }
}

/// Values that differ from element to element.
fn uneven(shape: isobit::shape::Shape, from: f64) -> Tensor {
    let one = |k: usize| from + ((k * 7919) % 13) as f64 / 13.0;
    Tensor::new(shape, (0..shape.elems()).map(one).collect())
}

type Operands<'g> = Vec<(usize, isobit::graph::Tx<'g>)>;

/// The operands that have a gradient, a weighted sum of the result (so that every element of the Jacobian
/// counts), and the values of all states.
fn weighted<'g>(
    g: &'g Graph,
    filled: &Filled,
) -> (Operands<'g>, isobit::graph::Tx<'g>, Vec<Tensor>) {
    let out = filled.build(g);
    let w = g.state("weights", isobit::graph::Type::f32(&out.shape().dims()));
    let loss = (out * w).sum_all();
    let mut states = filled.f64();
    states.push(uneven(out.shape(), 0.3));
    (filled.float_operands(g), loss, states)
}

fn gradient_error(filled: &Filled) -> f64 {
    let g = Graph::new();
    let (wrt, loss, states) = weighted(&g, filled);
    let nodes: Vec<_> = wrt.iter().map(|x| x.1).collect();
    let grads = grad(&g, loss, &nodes).expect("differentiable");
    error_of(&g, loss, &wrt, &grads, &states)
}

/// The largest difference of gradients of `y` from central differences, relative to the largest gradient
/// of an operand, or to 1.
fn error_of(
    g: &Graph,
    y: isobit::graph::Tx,
    wrt: &Operands,
    grads: &[isobit::graph::Tx],
    states: &[Tensor],
) -> f64 {
    let ids: Vec<_> = grads.iter().map(|t| t.id).collect();
    check::check_nodes(g, &ids, "grad").expect("gradients keep the graph's invariants");
    let analytic = eval(g, &ids, states, &[]);
    let mut worst = 0f64;
    for ((operand, _), grad) in wrt.iter().zip(&analytic) {
        let scale = grad.data.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        let n = grad.data.len();
        for k in (0..n).step_by(n.div_ceil(24)) {
            let at = |d: f64| {
                let mut moved = states.to_vec();
                moved[*operand].data[k] += d;
                eval(g, &[y.id], &moved, &[])[0].data[0]
            };
            let h = 1e-5;
            let numeric = (at(h) - at(-h)) / (2.0 * h);
            worst = worst.max((numeric - grad.data[k]).abs() / scale);
        }
    }
    worst
}

/// A gradient of a gradient: the closure rule at work on the fused rules.
#[test]
fn gradients_of_gradients_exist_where_the_rule_says_so() {
    use isobit::graph::Type;
    use isobit::ops::Op;
    let g = Graph::new();
    let (x, gain) = (
        g.state("x", Type::f32(&[3, 5])),
        g.state("gain", Type::f32(&[5])),
    );
    let y = x
        .op(Op::LayerNorm(1e-5f32.to_bits()), &[gain])
        .op(Op::Softmax, &[])
        .gelu();
    let first = grad(&g, (y * y).sum_all(), &[x]).expect("first")[0];
    let penalty = (first * first).sum_all();
    let second = grad(&g, penalty, &[x, gain]).expect("second");
    let data = |n: usize, s: f64| {
        (0..n)
            .map(|i| ((i * 37 % 17) as f64 / 8.5 - 1.0) * s)
            .collect::<Vec<_>>()
    };
    let states = vec![
        Tensor::new(x.shape(), data(15, 1.0)),
        Tensor::new(gain.shape(), data(5, 0.7)),
    ];
    let analytic = eval(&g, &[second[0].id, second[1].id], &states, &[]);
    for (operand, grad) in analytic.iter().enumerate() {
        for k in 0..grad.data.len() {
            let at = |d: f64| {
                let mut moved = states.clone();
                moved[operand].data[k] += d;
                eval(&g, &[penalty.id], &moved, &[])[0].data[0]
            };
            let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!(
                (numeric - grad.data[k]).abs() < 1e-6,
                "operand {operand}, element {k}"
            );
        }
    }
    let qkv = g.state("qkv", Type::f32(&[1, 4, 12]));
    let att = qkv.op(Op::Attention(2), &[]);
    let once = grad(&g, (att * att).sum_all(), &[qkv]).expect("first")[0];
    let twice = grad(&g, (once * once).sum_all(), &[qkv])
        .err()
        .expect("a clear stop");
    assert!(twice.contains("attention"), "{twice}");
}

/// The table must be able to fail: every kernel's constants, perturbed one at a time, break a row.
#[test]
fn a_perturbed_constant_makes_the_table_fail() {
    let mut perturbed = std::collections::BTreeSet::new();
    for (i, case) in all_cases().iter().enumerate() {
        let filled = Filled::new(case, i as u64);
        let reference = run_cpu(case, &filled);
        for (kernel, ours) in common::cases::run_cpu_perturbed(case, &filled) {
            let differs = ours
                .iter()
                .zip(&reference)
                .any(|(a, b)| (a - b).abs() > 1e-4 * b.abs().max(1.0));
            if differs || ours.iter().any(|v| v.is_nan()) {
                perturbed.insert(kernel);
            }
        }
    }
    for name in [
        "pointwise",
        "norm_fwd",
        "norm_dx",
        "attention",
        "attention_grad",
    ] {
        assert!(
            perturbed.contains(name),
            "{name}: no perturbed constant was noticed; noticed: {perturbed:?}"
        );
    }
}
