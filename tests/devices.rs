//! Whole training runs: every device of the machine gives the CPU executor's bits, under every scheme,
//! ledgers included; and without fence and belt some device does not, so the comparison can fail.

mod common;
#[path = "common/devices.rs"]
mod devices;

use common::repo;
use isobit::config::{Preset, SCHEMES, Scheme, Settings};
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::{Tuning, Wgpu};
use isobit::report::ledger::{CurveRow, SchemeLedger};
use isobit::train::run::{Data, Extras, Observer, run};
use isobit::train::session::{Programs, Session, StepResult};
use isobit::train::weights;
use std::path::Path;

struct Silent;

impl Observer for Silent {
    fn step(&mut self, _: usize, _: StepResult, _: f64) {}
    fn evaluated(&mut self, _: &CurveRow) {}
    fn swallowed(&mut self, _: usize, _: f64) {}
    fn stopped(&self) -> bool {
        false
    }
}

/// Everything that a run measures, but for time: losses, norms, digests, validation, both ledgers.
fn measured(exec: Box<dyn Executor>, config: &Path, scheme: Scheme, steps: usize) -> Vec<String> {
    accumulated(exec, config, scheme, steps, 1)
}

fn accumulated(
    exec: Box<dyn Executor>,
    config: &Path,
    scheme: Scheme,
    steps: usize,
    accumulate: usize,
) -> Vec<String> {
    let mut s = Settings::preset(Preset::Tiny);
    s.apply_file(config).expect("the config");
    s.steps = steps.min(s.steps);
    s.accumulate = accumulate;
    let data = Data::load(&s).expect("the data");
    let model = s.model(data.text.vocab.len());
    let init = weights::load(s.init.as_deref().expect("weights"), &model).expect("weights");
    let programs = Programs::compile(&model, &s, scheme, false).expect("compiles");
    let mut session = Session::new(exec, model, &programs, &init).expect("loads");
    let dir = common::fresh(&format!("devices-{:?}", std::thread::current().id()));
    let mut ledger = SchemeLedger::new(&dir, scheme.name(), "");
    let (extras, mut silent) = (Extras::default(), Silent);
    run(
        &mut session,
        scheme,
        &s,
        &data,
        &mut ledger,
        &extras,
        &mut silent,
    )
    .expect("runs");
    let mut out: Vec<String> = ledger.steps.iter().map(|r| format!("{r:?}")).collect();
    out.push(format!("{:?} {:?}", ledger.swallow, ledger.histogram));
    out.push(format!("{:?}", ledger.scaler));
    out
}

fn cpu(threads: usize) -> Box<dyn Executor> {
    Box::new(Cpu::new(Some(threads)).expect("threads"))
}

fn same_everywhere(config: &Path, name: &str, steps: usize) {
    for &scheme in SCHEMES {
        let expected = measured(cpu(1), config, scheme, steps);
        assert!(
            measured(cpu(2), config, scheme, steps) == expected,
            "two threads"
        );
        for (label, device) in devices::devices() {
            let have = measured(Box::new(device), config, scheme, steps);
            let first = have.iter().zip(&expected).find(|(a, b)| a != b);
            assert!(
                first.is_none(),
                "{name} {} on {label}: {first:?}",
                scheme.name()
            );
            println!(
                "{name} {}: {} steps on {label} have the CPU's bits",
                scheme.name(),
                have.len() - 2
            );
        }
    }
}

#[test]
fn two_layer_runs_are_the_same_on_every_device() {
    same_everywhere(&repo("tests/data/two-layer/config.toml"), "two-layer", 60);
}

#[test]
fn block256_runs_are_the_same_on_every_device() {
    let config = repo("../shared/parity/block256/config.toml");
    if config.exists() {
        same_everywhere(&config, "block256", 12);
    } else {
        println!("skipped: {} is not there", config.display());
    }
}

#[test]
fn accumulated_runs_are_the_same_on_every_device() {
    let config = repo("tests/data/two-layer/config.toml");
    for &scheme in SCHEMES {
        let expected = accumulated(cpu(1), &config, scheme, 8, 3);
        assert!(accumulated(cpu(2), &config, scheme, 8, 3) == expected);
        for (label, device) in devices::devices() {
            let have = accumulated(Box::new(device), &config, scheme, 8, 3);
            let first = have.iter().zip(&expected).find(|(a, b)| a != b);
            assert!(first.is_none(), "{} on {label}: {first:?}", scheme.name());
        }
    }
}

/// Beside the planned buffers there are uniform blocks and room for transfers, which are small. What
/// is allocated follows from the plan and the device's limits: every scheme on one device, and one
/// scheme on every device, see both.
#[test]
fn devices_allocate_what_was_planned() {
    let s = Settings::preset(Preset::Small);
    let model = s.model(65);
    for (at, &scheme) in SCHEMES.iter().enumerate() {
        let programs = Programs::compile(&model, &s, scheme, false).expect("compiles");
        let count = if at == 0 { usize::MAX } else { 1 };
        for (label, device) in devices::devices().into_iter().take(count) {
            let init = model.initial(1);
            let session = Session::new(Box::new(device), model, &programs, &init).expect("loads");
            let (have, planned) = (session.exec().memory().allocated, programs.bytes());
            println!("{label}, {}: {have} of {planned} bytes", scheme.name());
            assert!(have >= planned && have as f64 <= 1.05 * planned as f64);
        }
    }
}

/// Without fence and belt a driver may fuse a product into a sum: where one does, bits differ.
#[test]
fn without_fence_and_belt_some_device_differs() {
    let config = repo("tests/data/two-layer/config.toml");
    let expected = measured(cpu(2), &config, Scheme::Fp32, 5);
    let bare = Tuning {
        belt: false,
        fence: false,
    };
    let all: Vec<(String, Wgpu)> = devices::tuned(bare);
    let software = all
        .iter()
        .any(|(l, _)| l == "lavapipe" || l == "swiftshader");
    let mut differing = Vec::new();
    for (label, device) in all {
        if measured(Box::new(device), &config, Scheme::Fp32, 5) != expected {
            differing.push(label);
        }
    }
    println!("without fence and belt these differ: {differing:?}");
    assert!(
        !software || !differing.is_empty(),
        "fence and belt guard against nothing here"
    );
}
