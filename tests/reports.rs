//! Faults that other trainers shipped, where they concern bits: contraction, subnormals, rounding, order,
//! noise. The right value, on the CPU and on every device. (Rounding to bf16, tanh inside gelu and the
//! contracted product are also rows of the probe.)

mod common;
#[path = "common/devices.rs"]
mod devices;

use common::repo;
use isobit::config::{Preset, Scheme, Settings};
use isobit::dtype::DType;
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::graph::{Graph, Program, Tx, Type};
use isobit::kernels::rng::RANDOM_BITS;
use isobit::kernels::{Params, ViewMut};
use isobit::numerics::course::{Course, Runner, whole};
use isobit::ops::Op;
use isobit::passes::compile;
use isobit::train::run::Data;
use isobit::train::weights;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An input: its type and its words.
type Input = (Type, Vec<u32>);

fn words(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

fn floats(x: &[u32]) -> Vec<f32> {
    x.iter().map(|&u| f32::from_bits(u)).collect()
}

/// The CPU executor, then every device.
fn everywhere() -> Vec<(String, Box<dyn Executor>)> {
    let cpu = |n| Box::new(Cpu::new(Some(n)).expect("threads")) as Box<dyn Executor>;
    let mut out = vec![
        ("one thread".to_string(), cpu(1)),
        ("three threads".into(), cpu(3)),
    ];
    for (label, gpu) in devices::devices() {
        out.push((label, Box::new(gpu)));
    }
    out
}

/// A value computed from inputs, `times` times.
fn results(
    exec: &mut dyn Executor,
    inputs: &[Input],
    times: usize,
    f: impl for<'g> Fn(&[Tx<'g>]) -> Tx<'g>,
) -> Vec<Vec<u32>> {
    let graph = Graph::new();
    let y = {
        let x: Vec<Tx> = (inputs.iter().enumerate())
            .map(|(i, (ty, _))| graph.input(&format!("x{i}"), *ty))
            .collect();
        f(&x).id
    };
    let program = Program {
        graph,
        outputs: vec![("y".into(), y)],
        updates: vec![],
    };
    let id = exec
        .load(Arc::new(compile("case", program).expect("compiles")))
        .expect("loads");
    for (i, (_, words)) in inputs.iter().enumerate() {
        exec.write_input(id, &format!("x{i}"), words)
            .expect("written");
    }
    (0..times)
        .map(|_| {
            exec.run(id).expect("runs");
            exec.read_output(id, "y").expect("read")
        })
        .collect()
}

/// pytorch and gpuweb reports of fused products: a * b + c with a = b = 1 + 2^-12, c = -(1 + 2^-11) is 0,
/// and 2^-24 where it is fused. Through the matrix product that training uses, and as an expression.
#[test]
fn products_are_not_fused_into_sums() {
    let x = 1.0 + f32::powi(2.0, -12);
    let c = -(1.0 + f32::powi(2.0, -11));
    // c comes first along k, then the product.
    let a = (Type::f32(&[1, 2]), words(&[c, x]));
    let b = (Type::f32(&[2, 1]), words(&[1.0, x]));
    let v = |x: f32| (Type::f32(&[3]), words(&[x; 3]));
    for (label, mut exec) in everywhere() {
        let y = results(&mut *exec, &[a.clone(), b.clone()], 1, |x| {
            x[0].matmul(x[1], false, false)
        });
        assert_eq!(floats(&y[0]), [0.0], "{label}");
        let y = results(&mut *exec, &[v(x), v(x), v(c)], 1, |x| x[0] * x[1] + x[2]);
        assert_eq!(floats(&y[0]), [0.0; 3], "{label}");
    }
}

/// A gradient of 1e-20 has the square 1e-40, which some GPUs flush: everywhere +0.
#[test]
fn subnormal_squares_are_zero_everywhere() {
    let g = (Type::f32(&[4]), words(&[1e-20, -1e-20, 1e-15, 1e-40]));
    for (label, mut exec) in everywhere() {
        let y = results(&mut *exec, std::slice::from_ref(&g), 1, |x| x[0] * x[0]);
        let want = [0.0, 0.0, 1e-15f32 * 1e-15, 0.0].map(f32::to_bits);
        assert_eq!(y[0], want, "{label}");
        let sum = results(&mut *exec, std::slice::from_ref(&g), 1, |x| {
            (x[0] * x[0]).sum_all()
        });
        assert_eq!(floats(&sum[0]), [1e-15f32 * 1e-15], "{label}");
    }
}

/// Softmax of (-20000, -20001) is (0.731, 0.269), not NaN. (There is no mask in this program, so no row
/// is ever masked as a whole; of the smallest numbers a row gives equal shares.)
#[test]
fn softmax_far_from_zero_is_a_softmax() {
    let x = [-20000.0, -20001.0, f32::MIN, f32::MIN];
    let x = (Type::f32(&[2, 2]), words(&x));
    let mut seen = BTreeSet::new();
    for (label, mut exec) in everywhere() {
        let y = results(&mut *exec, std::slice::from_ref(&x), 1, |x| {
            x[0].op(Op::Softmax, &[])
        });
        let p = floats(&y[0]);
        assert!(
            (p[0] - 0.731_058_6).abs() < 1e-6 && (p[1] - 0.268_941_4).abs() < 1e-6,
            "{label}: {p:?}"
        );
        assert_eq!(p[2..], [0.5, 0.5], "{label}");
        seen.insert(y[0].clone());
    }
    assert_eq!(seen.len(), 1);
}

/// An embedding gradient by atomics depends on the order of arrival: one id 16,384 times with gradients
/// 1e8, 1 and -1e8 gives one result in a hundred runs.
#[test]
fn a_crowded_embedding_gradient_is_one_value() {
    let n = 16_384;
    let idx = (Type::new(&[n], DType::U32), vec![3; n]);
    let cycle = [1e8f32, 1.0, -1e8];
    let g: Vec<f32> = (0..2 * n).map(|i| cycle[i / 2 % 3]).collect();
    let g = (Type::f32(&[n, 2]), words(&g));
    let mut seen = BTreeSet::new();
    for (label, mut exec) in everywhere() {
        let times = if label.contains("thread") { 100 } else { 5 };
        let inputs = [idx.clone(), g.clone()];
        let all = results(&mut *exec, &inputs, times, |x| {
            x[0].op(Op::GatherGrad(5), &[x[1]])
        });
        assert_eq!(all.len(), times, "{label}");
        seen.extend(all);
        assert_eq!(seen.len(), 1, "{label}");
    }
    let y = floats(seen.first().expect("a result"));
    assert!(y[..6].iter().chain(&y[8..]).all(|&v| v == 0.0) && y[6].is_finite() && y[6] == y[7]);
}

/// Eight runs of one seed gave eight models: here one, whatever the number of threads.
#[test]
fn eight_runs_of_a_seed_are_one_model() {
    let mut s = Settings::preset(Preset::Tiny);
    s.apply_file(&repo("tests/data/two-layer/config.toml"))
        .expect("the config");
    let data = Data::load(&s).expect("the data");
    let model = s.model(data.text.vocab.len());
    let init = weights::load(s.init.as_deref().expect("weights"), &model).expect("weights");
    for scheme in [Scheme::Fp32, Scheme::Mixed, Scheme::Bf16] {
        let mut course = Course::new(&s, &data, &init, scheme).expect("compiles");
        let mut seen = BTreeSet::new();
        for run in 0..8 {
            let cpu = Cpu::new(Some(1 + run % 3)).expect("threads");
            let mut r = Runner::start(Box::new(cpu), &course).expect("loads");
            (0..10).for_each(|_| r.step(&mut course).expect("runs"));
            seen.insert(whole(&r.digests(&course).expect("digests")));
        }
        assert_eq!(seen.len(), 1, "{scheme:?}");
    }
}

/// Rounding noise that depends on the launch: here element i has the same word whatever the size of the
/// launch and the number of threads, and another one under another stream.
#[test]
fn noise_is_a_function_of_seed_stream_and_element() {
    let draw = |n: usize, stream: u32, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("threads");
        let mut out = vec![0u32; n];
        let mut view = [ViewMut {
            dtype: DType::U32,
            row: n,
            words: &mut out,
        }];
        let params = Params::new(&[n as u32, 7, 9, stream]);
        pool.install(|| (RANDOM_BITS.cpu)(&params, &[], &mut view));
        out
    };
    let long = draw(40_000, 3, 4);
    for (n, threads) in [(2, 1), (1000, 3), (9999, 2), (40_000, 1)] {
        assert_eq!(draw(n, 3, threads), long[..n], "{n} on {threads}");
    }
    let other = draw(1000, 4, 1);
    assert!(other.iter().zip(&long).all(|(a, b)| a != b));
}

/// Split-K sums kept in bf16 lose 40%, and a row's bits depend on how many rows there are: here row 0 is
/// the same for M = 1 and M = 64, long k included, and near the exact sum.
#[test]
fn a_row_of_a_product_does_not_depend_on_the_other_rows() {
    let (k, n) = (5000, 24);
    let mut s = isobit::kernels::rng::Stream::new(11, 5);
    let mut numbers = |count: usize| (0..count).map(|_| s.normal() as f32).collect::<Vec<f32>>();
    let (a, b) = (numbers(64 * k), numbers(k * n));
    for dtype in [DType::F32, DType::Bf16] {
        let pack = |x: &[f32], rows: usize| {
            let ty = Type::new(&[rows, x.len() / rows], dtype);
            (ty, dtype.pack(x.len() / rows, x))
        };
        let exact: f64 = (0..k)
            .map(|i| dtype.round(a[i]) as f64 * dtype.round(b[i * n]) as f64)
            .sum();
        let mut seen = BTreeSet::new();
        for (label, mut exec) in everywhere() {
            let mut row = |rows: usize| {
                let inputs = [pack(&a[..rows * k], rows), pack(&b, k)];
                let y = results(&mut *exec, &inputs, 1, |x| x[0].matmul(x[1], false, false));
                let words = if dtype.packed() { n / 2 } else { n };
                y[0][..words].to_vec()
            };
            let one = row(1);
            assert_eq!(one, row(64), "{label}");
            let first = dtype.unpack(n, &one)[0] as f64;
            let tolerance = if dtype.packed() { 0.01 } else { 1e-4 };
            assert!(
                (first - exact).abs() <= tolerance * exact.abs().max(1.0),
                "{label}: {first} {exact}"
            );
            seen.insert(one);
        }
        assert_eq!(seen.len(), 1, "{dtype:?}");
    }
}
