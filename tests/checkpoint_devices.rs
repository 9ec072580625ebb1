//! A run goes on bit for bit on another device, and the fp32 evaluation is that of the widened weights.

mod common;
#[path = "common/devices.rs"]
mod devices;

use common::{fresh, repo};
use isobit::config::{Preset, SCHEMES, Scheme, Settings};
use isobit::data::batches::gather;
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::report::ledger::{CurveRow, SchemeLedger};
use isobit::train::checkpoint::keeper::{
    Keeper, Schedule, restore_ledger, template, weights_sha256,
};
use isobit::train::checkpoint::locate::scheme_folder;
use isobit::train::checkpoint::{Checkpoint, Which, locate};
use isobit::train::progress::Progress;
use isobit::train::run::{Data, Extras, Observer, Run};
use isobit::train::session::{Programs, Session, StepResult};
use isobit::train::weights;
use std::path::{Path, PathBuf};

/// Stops after a step.
struct Until(usize, usize);

impl Observer for Until {
    fn step(&mut self, step: usize, _: StepResult, _: f64) {
        self.1 = step;
    }
    fn evaluated(&mut self, _: &CurveRow) {}
    fn swallowed(&mut self, _: usize, _: f64) {}
    fn stopped(&self) -> bool {
        self.1 >= self.0
    }
}

struct Two {
    s: Settings,
    data: Data,
}

impl Two {
    fn new() -> Two {
        let mut s = Settings::preset(Preset::Tiny);
        s.apply_file(&repo("tests/data/two-layer/config.toml"))
            .expect("the config");
        s.steps = 10;
        s.eval_interval = 4;
        s.ledger.swallow_interval = 3;
        s.ledger.gradhist_step = 7;
        // Skips and growth on both sides of the break.
        (s.fp16.init_scale, s.fp16.growth_interval) = (1_048_576.0, 2);
        let data = Data::load(&s).expect("the data");
        Two { s, data }
    }

    /// Trains until a step, from a checkpoint or from the start; returns the digest, the ledger's rows and
    /// the checkpoint's file.
    fn train(
        &self,
        exec: Box<dyn Executor>,
        scheme: Scheme,
        from: Option<&Path>,
        until: usize,
        dir: &Path,
    ) -> (u64, String, PathBuf) {
        let model = self.s.model(self.data.text.vocab.len());
        let programs = Programs::compile(&model, &self.s, scheme, false).expect("compiles");
        let init =
            weights::load(self.s.init.as_deref().expect("weights"), &model).expect("weights");
        let mut session = Session::new(exec, model, &programs, &init).expect("loads");
        let mut ledger = SchemeLedger::new(dir, scheme.name(), "");
        let mut progress = Progress::start(&self.s, &self.data);
        if let Some(path) = from {
            let c = Checkpoint::load(path).expect("a checkpoint");
            assert_eq!(c.states, {
                session.restore(&c.states).expect("restored");
                let scaler = c.meta.scaler.as_ref();
                session
                    .restore_scaler(&self.s, scaler, c.meta.updates)
                    .expect("restored");
                session.states().expect("read back")
            });
            restore_ledger(&c, &mut ledger);
            progress = Progress::at(&c, &self.s, &self.data).expect("in place");
        }
        std::fs::create_dir_all(dir).expect("a folder");
        let id = self.data.id(weights_sha256(&init));
        let vocab = &self.data.text.vocab;
        let fixed = template(&model, scheme, &self.s, "", vocab, id, programs.hash());
        let schedule = Schedule {
            every: 0,
            keep: 2,
            stop_on_error: true,
        };
        let folder = scheme_folder(dir, scheme.name(), "");
        let run = Run {
            session: &mut session,
            scheme,
            s: &self.s,
            data: &self.data,
            ledger: &mut ledger,
            extras: &Extras::default(),
            observer: &mut Until(until, 0),
            keeper: Some(Keeper::new(&folder, schedule, fixed)),
            progress,
        };
        let outcome = run.go().expect("trains");
        assert_eq!(outcome.steps, until);
        let file = locate(&folder, Which::Newest).expect("a checkpoint");
        // The digest of the device, and the one that the file's reader computes.
        let c = Checkpoint::load(&file).expect("a checkpoint");
        assert_eq!(c.meta.digest, format!("{:016x}", outcome.digest));
        let rows = ledger
            .steps
            .iter()
            .filter(|r| r.val_loss.is_some() || r.digest.is_none());
        let rows: Vec<_> = rows.collect();
        let rest = (
            &ledger.curve,
            &ledger.curve_fp32,
            &ledger.swallow,
            &ledger.histogram,
            &ledger.scaler,
        );
        (outcome.digest, format!("{rows:?} {rest:?}"), file)
    }
}

fn cpu(threads: usize) -> Box<dyn Executor> {
    Box::new(Cpu::new(Some(threads)).expect("threads"))
}

#[test]
fn a_run_goes_on_on_another_device() {
    let two = Two::new();
    let dir = fresh("checkpoint-devices");
    for &scheme in SCHEMES {
        let whole = two.train(cpu(2), scheme, None, 10, &dir.join("whole"));
        let half = two.train(cpu(1), scheme, None, 5, &dir.join("half")).2;
        let on = |exec: Box<dyn Executor>, from: &Path, label: &str| {
            let have = two.train(exec, scheme, Some(from), 10, &dir.join(label));
            assert!(have.0 == whole.0, "{} on {label}", scheme.name());
            assert_eq!(
                have.1.replace("digest: None", ""),
                whole.1.replace("digest: None", ""),
                "{} on {label}",
                scheme.name()
            );
        };
        on(cpu(2), &half, "cpu");
        for (label, device) in devices::devices() {
            on(Box::new(device), &half, &label);
        }
        // And back again.
        if scheme == Scheme::Mixed {
            for (label, device) in devices::devices().into_iter().take(1) {
                let there = two
                    .train(
                        Box::new(device),
                        scheme,
                        None,
                        5,
                        &dir.join(format!("from-{label}")),
                    )
                    .2;
                on(cpu(2), &there, &format!("back-{label}"));
            }
        }
    }
}

/// The evaluation in fp32 of a narrow scheme's weights has the bits of an fp32 model with those weights.
#[test]
fn evaluation_in_fp32_is_that_of_the_widened_weights() {
    let two = Two::new();
    let dir = fresh("checkpoint-fp32eval");
    let model = two.s.model(two.data.text.vocab.len());
    let offsets = two.data.batches(&two.s).next_offsets();
    let batch = gather(&two.data.text.train, &offsets, two.s.block);
    for scheme in [Scheme::Mixed, Scheme::Bf16] {
        let file = two.train(cpu(2), scheme, None, 5, &dir).2;
        let c = Checkpoint::load(&file).expect("a checkpoint");
        let session = |scheme| {
            let programs = Programs::compile(&model, &two.s, scheme, false).expect("compiles");
            Session::new(cpu(2), model, &programs, &c.weights()).expect("loads")
        };
        let mut low = session(scheme);
        let twice = || [batch.clone(), batch.clone()].into_iter();
        let own = low.evaluate(twice()).expect("evaluates")[0];
        let wide = low.evaluate_fp32(twice()).expect("evaluates")[1];
        let expected = session(Scheme::Fp32).evaluate(twice()).expect("evaluates")[0];
        assert_eq!(wide.to_bits(), expected.to_bits(), "{}", scheme.name());
        assert_ne!(wide.to_bits(), own.to_bits(), "the comparison can fail");
    }
}

/// Takes the folder of checkpoints away after step 3 and gives it back after step 6.
struct Vandal {
    folder: PathBuf,
    warnings: Vec<String>,
}

impl Observer for Vandal {
    fn step(&mut self, step: usize, _: StepResult, _: f64) {
        let away = self.folder.with_extension("away");
        if step == 4 {
            std::fs::rename(&self.folder, &away).expect("renamed");
            std::fs::write(&self.folder, b"no folder").expect("a file in its place");
        } else if step == 7 {
            std::fs::remove_file(&self.folder).expect("removed");
            std::fs::rename(&away, &self.folder).expect("renamed back");
        }
    }
    fn evaluated(&mut self, _: &CurveRow) {}
    fn swallowed(&mut self, _: usize, _: f64) {}
    fn warned(&mut self, text: &str) {
        self.warnings.push(text.to_string());
    }
    fn stopped(&self) -> bool {
        false
    }
}

/// Checkpoints that cannot be written in the midst of a run are told, and cost nothing else.
#[test]
fn a_folder_that_goes_away_and_comes_back_costs_no_run() {
    let two = Two::new();
    let dir = fresh("checkpoint-vandal");
    let whole = two.train(cpu(2), Scheme::Fp32, None, 10, &dir.join("whole"));
    let model = two.s.model(two.data.text.vocab.len());
    let programs = Programs::compile(&model, &two.s, Scheme::Fp32, false).expect("compiles");
    let init = weights::load(two.s.init.as_deref().expect("weights"), &model).expect("weights");
    let attempt = |stop_on_error: bool, dir: PathBuf| {
        std::fs::create_dir_all(&dir).expect("a folder");
        let mut session = Session::new(cpu(2), model, &programs, &init).expect("loads");
        let id = two.data.id(weights_sha256(&init));
        let vocab = &two.data.text.vocab;
        let fixed = template(&model, Scheme::Fp32, &two.s, "", vocab, id, programs.hash());
        let schedule = Schedule {
            every: 1,
            keep: 2,
            stop_on_error,
        };
        let folder = scheme_folder(&dir, "fp32", "");
        let mut vandal = Vandal {
            folder: folder.clone(),
            warnings: vec![],
        };
        let run = Run {
            session: &mut session,
            scheme: Scheme::Fp32,
            s: &two.s,
            data: &two.data,
            ledger: &mut SchemeLedger::new(&dir, "fp32", ""),
            extras: &Extras::default(),
            observer: &mut vandal,
            keeper: Some(Keeper::new(&folder, schedule, fixed)),
            progress: Progress::start(&two.s, &two.data),
        };
        let result = run.go();
        (result, vandal.warnings, folder)
    };
    let (result, warnings, folder) = attempt(false, dir.join("on"));
    let outcome = result.expect("trains on");
    // Steps 4 to 6, and the best one of the evaluation after step 4.
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    assert!(
        warnings[0].contains("step 4") && warnings[0].contains("fp32"),
        "{warnings:?}"
    );
    assert!(outcome.unsaved.is_none() && outcome.digest == whole.0);
    let c = Checkpoint::load(&locate(&folder, Which::Newest).expect("found")).expect("loads");
    assert_eq!(
        (c.meta.step, c.meta.digest),
        (10, format!("{:016x}", whole.0))
    );
    let (result, warnings, _) = attempt(true, dir.join("stop"));
    assert!(warnings.is_empty() && result.is_err_and(|e| e.to_string().contains("cannot")));
}
