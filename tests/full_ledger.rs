//! The full ledger: it says the same on every device, its figures hang together, and it changes no bit.

mod common;
#[path = "common/devices.rs"]
mod devices;
#[path = "common/runs.rs"]
mod runs;

use common::{Csv, fresh, isobit, repo, stderr, stdout};
use isobit::config::{Preset, SCHEMES, Scheme, Settings};
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::report::ledger::{CurveRow, SchemeLedger};
use isobit::report::sheets::{SHEETS, WHOLE};
use isobit::train::run::{Data, Extras, Observer, run};
use isobit::train::session::{Programs, Session, StepResult};
use runs::{CONFIG, digest_of, write_config};
use std::path::Path;

const ALL: &str = "fp32,mixed,bf16,bf16-sr,bf16-kahan,fp16";

fn done(dir: &Path, more: &[&str]) -> String {
    let o = isobit(dir, &[&CONFIG[..], more].concat());
    assert!(o.status.success(), "{more:?}: {}", stderr(&o));
    stdout(&o)
}

fn sheet(dir: &Path, kind: &str, scheme: &str) -> String {
    let file = dir.join(format!("{kind}_{scheme}.csv"));
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The sheets that a scheme has rows of.
fn sheets_of(scheme: &str) -> Vec<&'static str> {
    let masters = !scheme.starts_with("bf16");
    let all = SHEETS.iter().map(|s| s.name());
    all.filter(|n| masters || *n != "counterfactual").collect()
}

/// With and without, on other numbers of threads, and with a break in between.
#[test]
fn looking_changes_nothing_and_goes_on_after_a_break() {
    let dir = fresh("full-ledger");
    write_config(&dir);
    let schemes = ["--backend", "cpu", "--schemes", ALL];
    let full = [&schemes[..], &["--ledger", "full"]].concat();
    let with = |more: &[&'static str]| [&full[..], more].concat();
    let plain = done(&dir, &[&schemes[..], &["--outdir", "plain"]].concat());
    let text = done(&dir, &with(&["--outdir", "a", "--threads", "1"]));
    done(
        &dir,
        &with(&["--outdir", "b", "--threads", "3", "--stop-after", "5"]),
    );
    let o = isobit(&dir, &["train", "--resume", "b", "--backend", "cpu"]);
    assert!(o.status.success(), "{}", stderr(&o));
    for scheme in ALL.split(',') {
        assert_eq!(digest_of(&plain, scheme), digest_of(&text, scheme));
        let steps = |d: &str| sheet(&dir.join(d), "steps", scheme);
        assert_eq!(steps("plain"), steps("a"), "{scheme}");
        for kind in sheets_of(scheme) {
            let [a, b] = ["a", "b"].map(|d| sheet(&dir.join(d), kind, scheme));
            assert_eq!(a, b, "{kind} {scheme}");
        }
        let none = format!("updates_{scheme}.csv");
        assert!(!dir.join("plain").join(none).exists());
    }
    for file in ["swallow.csv", "tensor_swallow.csv", "gradhist.csv"] {
        let read = |d: &str| std::fs::read(dir.join(d).join(file)).expect("a file");
        assert_eq!(read("plain"), read("a"), "{file}");
    }
    hangs_together(&dir.join("a"));
}

/// What the device counted, and what must follow from the other columns.
fn hangs_together(dir: &Path) {
    let counted = Csv::read(&dir.join("swallow.csv"));
    let by_tensor = Csv::read(&dir.join("tensor_swallow.csv"));
    let mixed = Csv::read(&dir.join("updates_mixed.csv"));
    let share = |csv: &Csv, step: &str, tensor: &str| {
        let here = |i: &usize| csv.text(*i, "step") == step && csv.text(*i, "tensor") == tensor;
        let row = (0..csv.rows.len()).find(here).expect("a row");
        csv.text(row, "swallow_frac").to_string()
    };
    assert_eq!(counted.rows.len(), 5);
    for i in 0..counted.rows.len() {
        let step = counted.text(i, "step");
        assert_eq!(counted.text(i, "swallow_frac"), share(&mixed, step, WHOLE));
    }
    for i in 0..by_tensor.rows.len() {
        let (step, tensor) = (by_tensor.text(i, "step"), by_tensor.text(i, "tensor"));
        let own = by_tensor.text(i, "swallow_frac");
        assert_eq!(own, share(&mixed, step, tensor), "{tensor} at {step}");
    }
    for scheme in ALL.split(',') {
        let u = Csv::read(&dir.join(format!("updates_{scheme}.csv")));
        let ulps = Csv::read(&dir.join(format!("update_ulps_{scheme}.csv")));
        for i in 0..u.rows.len() {
            let n = |c: &str| u.number(i, c);
            let parts = n("zero_frac") + n("below_half_ulp_frac") + n("rounded_away_frac");
            assert!((parts - n("swallow_frac")).abs() < 2e-6, "{scheme} row {i}");
            assert!(n("unmoved_frac") <= n("still_frac") + 1e-9);
            let here = |j: &usize| {
                ["step", "tensor"]
                    .iter()
                    .all(|c| ulps.text(*j, c) == u.text(i, c))
            };
            let rows = (0..ulps.rows.len()).filter(here);
            let sized: f64 = rows.map(|j| ulps.number(j, "count")).sum();
            let zeros = n("zero_frac") * n("elements");
            assert!(
                (sized + zeros - n("elements")).abs() < 0.5,
                "{scheme} row {i}"
            );
            // f32 keeps the update; so does a compensated pair, nearly. Where bf16 keeps nothing, there is
            // no direction; what it keeps points to the update's side.
            let lossy = ["bf16", "bf16-sr"].contains(&scheme);
            match u.text(i, "cosine") {
                "" => assert!(lossy, "{scheme} row {i}"),
                _ if lossy => assert!(n("cosine") > 0.0 && n("cosine") < 0.9999),
                _ if scheme == "bf16-kahan" => assert!(n("cosine") > 0.99, "row {i}"),
                _ => assert!(n("cosine") > 0.9999, "{scheme} row {i}"),
            }
        }
    }
    let c = Csv::read(&dir.join("counterfactual_mixed.csv"));
    for i in 0..c.rows.len() {
        let own = share(&mixed, c.text(i, "step"), c.text(i, "tensor"));
        match c.text(i, "stored_as") {
            "bf16" => assert_eq!(c.text(i, "swallow_frac"), own),
            "bf16-kahan" => assert!(c.number(i, "cosine") > 0.99),
            // Of the whole model: a small tensor's random bits may fall either way.
            "bf16-sr" | "fp16" if c.text(i, "tensor") == WHOLE => {
                let own: f64 = own.parse().expect("a share");
                assert!(c.number(i, "swallow_frac") <= own + 0.02);
            }
            "bf16-sr" | "fp16" => {}
            other => panic!("{other}"),
        }
    }
}

/// In a bf16 run that is looked at after every step, the updates that the rule calls swallowed are those
/// that left the stored weight as it was.
#[test]
fn what_is_called_swallowed_is_what_stands_still() {
    let dir = fresh("full-ledger-bf16");
    write_config(&dir);
    let every = ["--ledger", "full", "--ledger-every", "1", "--outdir", "o"];
    done(
        &dir,
        &[&every[..], &["--backend", "cpu", "--schemes", "bf16"]].concat(),
    );
    let u = Csv::read(&dir.join("o/updates_bf16.csv"));
    let (mut some, mut none) = (false, false);
    for i in 0..u.rows.len() {
        assert_eq!(
            u.text(i, "swallow_frac"),
            u.text(i, "still_frac"),
            "row {i}"
        );
        some |= u.number(i, "still_frac") > 0.0;
        none |= u.number(i, "still_frac") < 1.0;
    }
    assert!(some && none);
    assert_eq!(u.number(u.rows.len() - 1, "step"), 10.0);
}

/// Sees nothing.
struct Blind;

impl Observer for Blind {
    fn step(&mut self, _: usize, _: StepResult, _: f64) {}
    fn evaluated(&mut self, _: &CurveRow) {}
    fn swallowed(&mut self, _: usize, _: f64) {}
    fn stopped(&self) -> bool {
        false
    }
}

fn sheets_on(
    exec: Box<dyn Executor>,
    s: &Settings,
    data: &Data,
    scheme: Scheme,
) -> (u64, Vec<String>) {
    let dir = fresh("full-ledger-devices");
    let model = s.model(data.text.vocab.len());
    let programs = Programs::compile(&model, s, scheme, false).expect("compiles");
    let mut session = Session::new(exec, model, &programs, &model.initial(5)).expect("loads");
    let mut ledger = SchemeLedger::new(&dir, scheme.name(), "");
    let extras = Extras::default();
    let outcome = run(
        &mut session,
        scheme,
        s,
        data,
        &mut ledger,
        &extras,
        &mut Blind,
    );
    let rows = SHEETS.iter().map(|x| ledger.sheets.rows(*x).to_string());
    (outcome.expect("trains").digest, rows.collect())
}

/// Every scheme on every software device, with accumulation, clipping, skips and last steps in fp32.
#[test]
fn every_device_says_the_same() {
    let mut s = Settings::preset(Preset::Tiny);
    s.apply_file(&repo("tests/data/two-layer/config.toml"))
        .expect("the config");
    (s.init, s.train_offsets, s.val_offsets) = (None, None, None);
    (s.steps, s.eval_interval, s.eval_iters, s.batch) = (8, 8, 1, 2);
    (s.clip, s.accumulate) = (0.5, 2);
    s.ledger.full_interval = 1;
    // The first step of fp16 is skipped.
    s.fp16.init_scale = f64::from(1 << 24);
    let data = Data::load(&s).expect("the data");
    for &scheme in SCHEMES {
        s.final_fp32 = usize::from(scheme == Scheme::Mixed);
        let cpu = Box::new(Cpu::new(Some(2)).expect("threads"));
        let expected = sheets_on(cpu, &s, &data, scheme);
        assert!(expected.1[0].contains("\n8,*,"), "{:?}", expected.1[0]);
        assert_eq!(
            scheme == Scheme::Fp16,
            !expected.1[0].contains("1,tok.weight,")
        );
        let without = Settings {
            ledger: isobit::config::LedgerSettings {
                full_interval: 0,
                ..s.ledger
            },
            ..s.clone()
        };
        let cpu = Box::new(Cpu::new(Some(1)).expect("threads"));
        assert_eq!(sheets_on(cpu, &without, &data, scheme).0, expected.0);
        for (label, w) in devices::devices() {
            let there = sheets_on(Box::new(w), &s, &data, scheme);
            assert!(there == expected, "{label} {}", scheme.name());
        }
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let dir = fresh("full-ledger-refused");
    for (args, says) in [
        (["--ledger-every", "5"], "--ledger full"),
        (["--ledger-every", "-1"], "at least 1"),
        (["--ledger", "some"], "full"),
    ] {
        let o = isobit(&dir, &[&["train"], &args[..]].concat());
        assert_eq!(o.status.code(), Some(2));
        assert!(stderr(&o).contains(says), "{}", stderr(&o));
    }
}
