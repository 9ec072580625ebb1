//! What the storage of weights does to small updates, scheme by scheme, and the optimizer's own traps. The
//! numbers are those of public bug reports, named by project and number.

use isobit::dtype::DType;
use isobit::kernels::optim::{ADAMW, HYPER};
use isobit::kernels::optim_low::{ADAMW_COMPENSATED, ADAMW_STOCHASTIC};
use isobit::kernels::rng::threefry;
use isobit::kernels::{Params, View, ViewMut};
use isobit::train::schedule::step_key;

/// How a weight is stored.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    F32,
    Nearest,
    Stochastic,
    Compensated,
}
use Kind::{Compensated, F32, Nearest, Stochastic};

const N: usize = 4096;

/// Equal elements under AdamW's kernels.
struct Bank {
    kind: Kind,
    /// w, m, v, c.
    states: [Vec<u32>; 4],
    t: u64,
}

impl Bank {
    fn new(kind: Kind, w: f32, v: f32) -> Bank {
        let dtype = Bank::dtype_of(kind);
        let fill = |x: f32| dtype.pack(N, &vec![x; N]);
        let states = [fill(w), fill(0.0), fill(v), fill(0.0)];
        Bank { kind, states, t: 0 }
    }

    fn dtype_of(kind: Kind) -> DType {
        match kind {
            F32 => DType::F32,
            _ => DType::Bf16,
        }
    }

    fn step(&mut self, h: [f32; HYPER], g: f32) {
        self.t += 1;
        let dtype = Bank::dtype_of(self.kind);
        let g = dtype.pack(N, &vec![g; N]);
        let view = |dtype, words| View {
            dtype,
            row: N,
            words,
        };
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let (hyper, one) = (bits(&h), bits(&[1.0]));
        let mut scalars = [hyper.clone(), one.clone(), one.clone()].concat();
        scalars.extend(step_key(7, self.t));
        let g = view(dtype, &g);
        let (hyper, one) = (view(DType::F32, &hyper), view(DType::F32, &one));
        let scalars = view(DType::F32, &scalars);
        let writes = self.states.iter_mut().map(|words| ViewMut {
            dtype,
            row: N,
            words,
        });
        let mut writes: Vec<ViewMut> = writes.collect();
        let p = Params::new(&[N as u32, 0]);
        match self.kind {
            F32 | Nearest => (ADAMW.cpu)(&p, &[g, hyper, one, one], &mut writes[..3]),
            Stochastic => (ADAMW_STOCHASTIC.cpu)(&p, &[g, scalars], &mut writes[..3]),
            Compensated => (ADAMW_COMPENSATED.cpu)(&p, &[g, scalars], &mut writes),
        }
    }

    /// The mean of a state; of a compensated weight with its compensation.
    fn mean(&self, state: usize) -> f64 {
        let of = |i: usize| -> f64 {
            let values = Bank::dtype_of(self.kind).unpack(N, &self.states[i]);
            values.iter().map(|&x| f64::from(x)).sum::<f64>() / N as f64
        };
        of(state) + if state == 0 { of(3) } else { 0.0 }
    }
}

/// Moments of one step's memory, so that every step moves a weight by `lr`, up to decay.
fn plain(lr: f32, decay: f32) -> [f32; HYPER] {
    [1.0 - lr * decay, lr, 1.0, 0.0, 1.0, 0.0, 1.0, 1e-30]
}

/// Case 2 (Model-Optimizer 2322): 1000 updates of -1e-3 to a gain of 1.
#[test]
fn gains_do_not_freeze() {
    let after = |kind| {
        let mut b = Bank::new(kind, 1.0, 0.0);
        (0..1000).for_each(|_| b.step(plain(1e-3, 0.0), 1.0));
        b.mean(0)
    };
    assert!(after(F32).abs() < 2e-5, "{}", after(F32));
    assert_eq!(after(Nearest), 1.0);
    assert!(after(Stochastic).abs() < 5e-3, "{}", after(Stochastic));
    assert!(after(Compensated).abs() < 5e-3, "{}", after(Compensated));
}

/// Case 3 (OneTrainer 996): a decay of 1e-4 a step is a no-op where 1 - 1e-4 is rounded to bf16, or the
/// product is.
#[test]
fn weight_decay_is_not_lost() {
    let after = |kind| {
        let mut b = Bank::new(kind, 1.0, 0.0);
        (0..1000).for_each(|_| b.step(plain(1e-3, 0.1), 0.0));
        b.mean(0)
    };
    let want = 0.9999f64.powi(1000);
    assert!((after(F32) - want).abs() < 1e-4, "{}", after(F32));
    assert_eq!(after(Nearest), 1.0);
    assert!((after(Stochastic) - want).abs() < 5e-3);
    assert!((after(Compensated) - want).abs() < 5e-3);
}

/// Case 4 (tt-metal 55935): bf16(0.999) is 1, so a second moment never decays. Ours is f32; where the
/// moment itself is kept in bf16 and rounded to nearest, it sticks all the same.
#[test]
fn the_second_moment_decays() {
    let after = |kind| {
        let mut b = Bank::new(kind, 1.0, 1.0);
        let h = [1.0, 0.0, 1.0, 0.9, 0.1, 0.999, 0.001, 1e-8];
        (0..5000).for_each(|_| b.step(h, 0.0));
        b.mean(2)
    };
    let want = 0.999f64.powi(5000); // 0.0067
    assert!((after(F32) / want - 1.0).abs() < 1e-3, "{}", after(F32));
    assert_eq!(after(Nearest), 1.0);
    assert!((after(Stochastic) / want - 1.0).abs() < 0.05);
}

/// Case 5 (optax 1754): with both moments 0 the update is 0, not NaN: eps is no fp16 number here.
#[test]
fn no_gradient_no_update() {
    for kind in [F32, Nearest, Stochastic, Compensated] {
        let mut b = Bank::new(kind, 1.0, 0.0);
        b.step([1.0, 1e-3, 1.0, 0.9, 0.1, 0.999, 0.001, 1e-8], 0.0);
        assert_eq!(
            (b.mean(0), b.mean(1), b.mean(2)),
            (1.0, 0.0, 0.0),
            "{kind:?}"
        );
    }
}

/// Case 6 (apex 240): eps outside the square root, after the bias correction, as PyTorch has it.
#[test]
fn eps_stands_where_pytorch_has_it() {
    let mut b = Bank::new(F32, 0.0, 0.0);
    let (lr, c1, c2) = (1e-3f64, 1.0 - 0.9, 1.0 - 0.999f64);
    let h = [1.0, lr / c1, 1.0 / c2.sqrt(), 0.9, 0.1, 0.999, 0.001, 1e-8].map(|x| x as f32);
    b.step(h, 1e-8);
    assert!((b.mean(0) + 5.0e-4).abs() < 1e-6, "{}", b.mean(0));
}

/// Case 25 (OneTrainer 804): rounding noise is a function of seed, update, tensor and element.
#[test]
fn rounding_noise_has_a_place() {
    let bits = |seed, t, tensor, element| threefry(step_key(seed, t), [element, tensor]);
    let first = bits(1, 1, 1, 1);
    assert_eq!(first, bits(1, 1, 1, 1));
    for other in [
        bits(2, 1, 1, 1),
        bits(1, 2, 1, 1),
        bits(1, 1, 2, 1),
        bits(1, 1, 1, 2),
    ] {
        assert_ne!(first, other);
    }
    // The whole high half of the seed counts too.
    assert_ne!(step_key(1, 1), step_key(1 + (1 << 32), 1));
    // An element's noise does not depend on how many there are, or on the task that computes it.
    let mut b = Bank::new(Stochastic, 1.0, 0.0);
    b.step(plain(1e-3, 0.0), 1.0);
    let one = |n: usize| {
        let half = |x: f32| DType::Bf16.pack(n, &vec![x; n]);
        let (mut w, mut m, mut v, g) = (half(1.0), half(0.0), half(0.0), half(1.0));
        let mut scalars: Vec<u32> = plain(1e-3, 0.0).iter().map(|x| x.to_bits()).collect();
        scalars.extend([1f32.to_bits(); 2]);
        scalars.extend(step_key(7, 1));
        let view = |dtype, words| View {
            dtype,
            row: n,
            words,
        };
        let reads = [view(DType::Bf16, &g), view(DType::F32, &scalars)];
        let mut writes = [&mut w, &mut m, &mut v].map(|words| ViewMut {
            dtype: DType::Bf16,
            row: n,
            words,
        });
        (ADAMW_STOCHASTIC.cpu)(&Params::new(&[n as u32, 0]), &reads, &mut writes);
        w
    };
    assert_eq!(one(1000)[..], b.states[0][..500]);
    assert_eq!(one(100_000)[..N / 2], b.states[0][..]);
}
