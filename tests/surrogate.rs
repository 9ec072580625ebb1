//! The trainers of shower generators: they learn, with the same bits everywhere, and what judges them does not
//! depend on the precision that they train in.

#[path = "common/devices.rs"]
mod devices;

use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::train::surrogate::settings::{Kind, Settings, Shares, TrunkKind, policy};
use isobit::train::surrogate::{Evaluation, Observer, Outcome, Pace, run, trainer};

fn cpu() -> Box<dyn Executor> {
    Box::new(Cpu::new(Some(2)).expect("threads"))
}

struct Silent;

impl Observer for Silent {
    fn step(&mut self, _: usize, _: f32) {}
    fn evaluated(&mut self, _: &Evaluation) {}
    fn stopped(&self) -> bool {
        false
    }
}

fn tiny(kind: Kind, trunk: TrunkKind, shares: Shares) -> Settings {
    Settings {
        trunk,
        shares,
        hidden: 12,
        blocks: 1,
        experts: 3,
        layers: 4,
        events: 64,
        reference: 33,
        steps: 3,
        batch: 17,
        noise_steps: if kind == Kind::Ddpm { 21 } else { 4 },
        n_critic: 2,
        eval_interval: 2,
        ..Settings::new(kind)
    }
}

fn go(exec: Box<dyn Executor>, s: &Settings, precision: &str) -> Outcome {
    let s = Settings {
        precision: precision.into(),
        ..s.clone()
    };
    let policy = policy(precision).expect("a precision");
    let mut t = trainer(exec, &s, &policy).expect("loads");
    run(&mut *t, &s, None, &mut Silent).expect("runs")
}

fn bits(o: &Outcome) -> Vec<String> {
    let steps = o.steps.iter().map(|r| format!("{r:?}"));
    steps
        .chain(o.evaluations.iter().map(|e| format!("{e:?}")))
        .collect()
}

/// Every model on one thread and two, and in each precision on one of the devices, which take turns: a
/// software GPU compiles the programs of one model for half a minute.
#[test]
fn every_model_has_the_same_bits_on_every_device() {
    let devices = devices::devices().len();
    let mut turn = 0;
    for kind in [Kind::Flow, Kind::Ddpm, Kind::Wgan] {
        for (trunk, shares) in [
            (TrunkKind::Plain, Shares::OneShot),
            (TrunkKind::Routed, Shares::OneShot),
            (TrunkKind::Plain, Shares::Autoregressive),
        ] {
            let s = tiny(kind, trunk, shares);
            for precision in ["fp32", "mixed"] {
                let what = format!("{kind:?} {trunk:?} {shares:?} {precision}");
                let expected = bits(&go(cpu(), &s, precision));
                let one = Box::new(Cpu::new(Some(1)).expect("a thread"));
                assert_eq!(expected, bits(&go(one, &s, precision)), "{what}: a thread");
                if devices > 0 {
                    let all = devices::devices();
                    let (label, device) = all.into_iter().nth(turn % devices).expect("as before");
                    let have = bits(&go(Box::new(device), &s, precision));
                    assert_eq!(expected, have, "{what} on {label}");
                    println!("{what}: the same bits on {label}");
                }
                turn += 1;
            }
        }
    }
}

/// The validation loss and what is drawn depend on the weights alone.
#[test]
fn validation_does_not_depend_on_the_precision_of_training() {
    for kind in [Kind::Flow, Kind::Ddpm, Kind::Wgan] {
        let s = tiny(kind, TrunkKind::Routed, Shares::OneShot);
        let open = |p: &str| trainer(cpu(), &s, &policy(p).expect("a precision")).expect("loads");
        let (mut full, mut low) = (open("fp32"), open("mixed"));
        for step in 1..=3 {
            low.step(&Pace::at(&s, step)).expect("runs");
        }
        let weights = low.averages().expect("read");
        full.adopt(&weights).expect("the same model");
        let conditions = vec![0.3; 3 * s.reference];
        let of = |t: &mut dyn isobit::train::surrogate::Trainer| {
            let loss = t.validate().expect("runs").map(f64::to_bits);
            let drawn = t.generate(&conditions).expect("runs");
            (loss, drawn.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        assert_eq!(of(&mut *full), of(&mut *low), "{kind:?}");
    }
}

/// What the documentation reports: the default sizes, whose bits are the same on every machine.
#[test]
fn trainers_approach_the_known_distributions() {
    for kind in [Kind::Flow, Kind::Ddpm, Kind::Wgan] {
        let s = Settings {
            eval_interval: 500,
            ..Settings::new(kind)
        };
        let [full, low] = ["fp32", "mixed"].map(|p| go(cpu(), &s, p).evaluations);
        let w1 = |e: &[Evaluation]| (e[0].mean_w1(), e[e.len() - 1].mean_w1());
        let ((start, full), (_, low)) = (w1(&full), w1(&low));
        println!("{kind:?}: W1 {start:.4} GeV, then fp32 {full:.4}, mixed {low:.4}");
        // An untrained draw is wrong, not astray: of the size of the energies, which the fall is told from.
        assert!(start < 10.0, "{kind:?}: {start} GeV before the first step");
        assert!(start > 5.0 * full, "{kind:?}: {start} to {full}");
        assert!(start > 5.0 * low, "{kind:?}: {start} to {low} in mixed");
        let apart = (low - full).abs() / full;
        assert!(apart < 0.1, "{kind:?}: mixed {low}, fp32 {full}");
    }
}
