//! `check` finds the first difference: faults of every kind, on the CPU and on devices; and certificates
//! carry digests from one run to another.

mod common;
#[path = "common/devices.rs"]
mod devices;
#[path = "common/faults.rs"]
mod faults;

use common::{fresh, isobit, repo, stderr, stdout};
use faults::{BACKWARD_GEMM, Fault, Faulty};
use isobit::config::{Preset, Scheme, Settings};
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::{Tuning, Wgpu};
use isobit::numerics::check::{self, Entry, Extent, Outcome, Watcher};
use isobit::numerics::course::{Course, Runner};
use isobit::numerics::diverge::{Element, Finding};
use isobit::plan::Plan;
use isobit::train::run::Data;
use isobit::train::weights;
use std::path::Path;

struct Silent;

impl Watcher for Silent {
    fn working(&mut self, _: usize, _: &str) {}
    fn compared(&mut self, _: usize, _: &[u64], _: bool) {}
    fn searching(&mut self, _: usize, _: [&str; 2]) {}
    fn stopped(&self) -> bool {
        false
    }
}

/// Something to compare on the two-layer model.
fn on_course<R>(scheme: Scheme, f: impl FnOnce(&mut Course) -> R) -> R {
    let mut s = Settings::preset(Preset::Tiny);
    s.apply_file(&repo("tests/data/two-layer/config.toml"))
        .expect("the config");
    let data = Data::load(&s).expect("the data");
    let model = s.model(data.text.vocab.len());
    let init = weights::load(s.init.as_deref().expect("weights"), &model).expect("weights");
    f(&mut Course::new(&s, &data, &init, scheme).expect("compiles"))
}

type Open<'a> = Box<dyn Fn() -> Box<dyn Executor> + 'a>;

fn entry<'a>(label: &str, open: Open<'a>) -> Entry<'a> {
    Entry {
        label: label.into(),
        open: Box::new(move || Ok(open())),
    }
}

fn cpu<'a>(threads: usize) -> Entry<'a> {
    entry(
        "cpu",
        Box::new(move || Box::new(Cpu::new(Some(threads)).expect("threads"))),
    )
}

fn compare(course: &mut Course, a: Entry, b: Entry, steps: usize, every: usize) -> Outcome {
    let extent = Extent {
        steps,
        every,
        tensors: 10,
    };
    check::check(course, &[a, b], extent, None, &|_| None, &mut Silent).expect("both work")
}

fn element(o: &Outcome) -> &Element {
    match &o.divergence.as_ref().expect("they differ").finding {
        Finding::Element(e) => e,
        Finding::Gone { step } => panic!("gone at {step}"),
    }
}

/// The number of an operation by kernel and place in the model.
fn op(plan: &Plan, kernel: &str, label: &str) -> usize {
    let is = |s: &isobit::plan::Step| s.kernel.name == kernel && s.label == label;
    let found = plan.steps.iter().position(is);
    found.unwrap_or_else(|| panic!("no {kernel} in {label}"))
}

/// Runs with faults, and requires that the first of them, and nothing else, is named.
fn finds(scheme: Scheme, every: usize, first: (&str, &str), faults: impl Fn(&Plan) -> Vec<Fault>) {
    on_course(scheme, |course| {
        let faults = faults(&course.plan);
        let bad = entry("faulty", Box::new(|| Box::new(Faulty::new(&faults))));
        let outcome = compare(course, cpu(1), bad, 12, every);
        let e = element(&outcome);
        let n = op(&course.plan, first.0, first.1);
        let hit = faults.iter().filter(|f| f.step == 7 && f.op == n);
        let word = hit.map(|f| f.word).min().expect("the first fault");
        let step = &course.plan.steps[n];
        let buf = course.plan.buf(step.writes[0]);
        assert_eq!((e.step, e.plan_step), (7, n), "{e}");
        assert_eq!((e.kernel.as_str(), e.op.as_str()), first, "{e}");
        assert_eq!(e.tensor, buf.name, "{e}");
        let per_word = if buf.ty.dtype.packed() { 2 } else { 1 };
        assert_eq!(e.index, word * per_word, "{e}");
        assert_eq!(e.ulps(), Some(1), "{e}");
    });
}

const FC: (&str, &str) = ("gemm", "blocks.1.fc");

#[test]
fn one_unit_in_one_element_at_step_7() {
    finds(Scheme::Fp32, 1, FC, |p| {
        vec![Fault::ulp(7, op(p, FC.0, FC.1), 5)]
    });
    // The optimizer's own result, the last thing that a step does.
    let adamw = ("adamw", "blocks.0.proj.weight");
    finds(Scheme::Fp32, 1, adamw, |p| {
        vec![Fault::ulp(7, op(p, adamw.0, adamw.1), 77)]
    });
    // Two to a word.
    let norm = ("adamw", "blocks.1.attn.weight");
    finds(Scheme::Bf16, 1, norm, |p| {
        vec![Fault::ulp(7, op(p, norm.0, norm.1), 31)]
    });
}

#[test]
fn bisection_reaches_the_same_place_from_far_apart() {
    for every in [5, 12] {
        finds(Scheme::Fp32, every, FC, |p| {
            vec![Fault::ulp(7, op(p, FC.0, FC.1), 5)]
        });
    }
}

#[test]
fn of_two_faults_the_first_is_named() {
    let fc = |p: &Plan| op(p, FC.0, FC.1);
    let head = |p: &Plan| op(p, "gemm", "head");
    // Steps apart, operations apart, elements apart.
    finds(Scheme::Fp32, 1, FC, |p| {
        vec![Fault::ulp(9, fc(p), 3), Fault::ulp(7, fc(p), 8)]
    });
    finds(Scheme::Fp32, 1, FC, |p| {
        vec![Fault::ulp(7, head(p), 0), Fault::ulp(7, fc(p), 8)]
    });
    finds(Scheme::Fp32, 1, FC, |p| {
        vec![Fault::ulp(7, fc(p), 90), Fault::ulp(7, fc(p), 8)]
    });
}

#[test]
fn a_fault_that_does_not_come_again_is_told_as_such() {
    on_course(Scheme::Fp32, |course| {
        let fault = Fault {
            every_time: false,
            ..Fault::ulp(7, op(&course.plan, FC.0, FC.1), 5)
        };
        let bad = entry("faulty", Box::new(|| Box::new(Faulty::new(&[fault]))));
        let d = compare(course, cpu(1), bad, 12, 1)
            .divergence
            .expect("they differ");
        assert_eq!((d.step, d.finding), (7, Finding::Gone { step: 7 }));
    });
}

#[test]
fn a_wrong_order_of_summation_is_named() {
    on_course(Scheme::Fp32, |course| {
        let edit = |p: &mut Plan| {
            let n = op(p, "gemm", "blocks.0.proj");
            p.steps[n].kernel = &BACKWARD_GEMM;
        };
        let bad = entry("faulty", Box::new(move || Box::new(Faulty::edited(edit))));
        let outcome = compare(course, cpu(2), bad, 3, 1);
        let e = element(&outcome);
        assert_eq!(
            (e.step, e.kernel.as_str(), e.op.as_str()),
            (1, "gemm", "blocks.0.proj"),
            "{e}"
        );
        assert!(e.differ > 1, "{e}");
    });
}

/// The first difference of the first step, by comparing everything.
fn plainly(course: &mut Course, a: &Entry, b: &Entry) -> Option<(usize, usize)> {
    let mut all = |e: &Entry| {
        let mut out = Vec::new();
        let mut r = Runner::start((e.open)().expect("opens"), course).expect("loads");
        r.trace(course, &mut |_, _, wrote| {
            out.push(wrote.iter().flat_map(|w| w.1.clone()).collect::<Vec<u32>>());
            true
        })
        .expect("runs");
        out
    };
    let (x, y) = (all(a), all(b));
    let differ = x
        .iter()
        .zip(&y)
        .map(|(x, y)| x.iter().zip(y).position(|(p, q)| p != q));
    differ.enumerate().find_map(|(n, at)| Some((n, at?)))
}

#[test]
fn a_dropped_fence_is_named() {
    let bare = Tuning {
        belt: false,
        fence: false,
    };
    for (label, found) in devices::found() {
        // SwiftShader neither contracts nor reassociates what is in a training step.
        if label != "lavapipe" {
            continue;
        }
        on_course(Scheme::Fp32, |course| {
            let device =
                || -> Box<dyn Executor> { Box::new(Wgpu::new(&found, bare).expect("opens")) };
            let first = plainly(course, &cpu(2), &entry(&label, Box::new(device)));
            let outcome = compare(course, cpu(2), entry(&label, Box::new(device)), 3, 1);
            let e = element(&outcome);
            println!("{label} without fences:\n{e}");
            assert_eq!(Some((e.plan_step, e.index)), first, "{e}");
            assert_eq!(e.step, 1);
        });
    }
}

#[test]
fn devices_agree_and_a_faulty_cpu_is_found_from_a_device() {
    for (label, found) in devices::found() {
        let device = || -> Box<dyn Executor> {
            Box::new(Wgpu::new(&found, Tuning::default()).expect("opens"))
        };
        on_course(Scheme::Mixed, |course| {
            let o = compare(course, cpu(2), entry(&label, Box::new(device)), 4, 1);
            assert_eq!((o.divergence, o.steps), (None, 4), "{label}");
            if label == "lavapipe" {
                let n = op(&course.plan, "adamw", "blocks.1.fc.weight");
                let fault = [Fault::ulp(3, n, 2)];
                let bad = entry("faulty", Box::new(|| Box::new(Faulty::new(&fault))));
                let o = compare(course, entry(&label, Box::new(device)), bad, 4, 1);
                let e = element(&o);
                assert_eq!((e.step, e.plan_step, e.differ), (3, fault[0].op, 1), "{e}");
            }
        });
    }
}

fn run(dir: &Path, args: &str) -> std::process::Output {
    isobit(dir, &args.split_whitespace().collect::<Vec<_>>())
}

/// The last digest of each scheme in a table.
fn last_digests(text: &str) -> Vec<String> {
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    let of = |scheme: &str| {
        let mut mine = rows
            .iter()
            .filter(|r| r.first() == Some(&scheme) && r.len() >= 3);
        mine.next_back().map(|r| r[2].to_string())
    };
    ["fp32", "mixed", "bf16"]
        .iter()
        .filter_map(|s| of(s))
        .collect()
}

#[test]
fn the_command_gives_the_digests_of_training() {
    let dir = fresh("check-digests");
    let config = repo("tests/data/two-layer/config.toml");
    let o = run(
        &dir,
        &format!(
            "check --on cpu:1,cpu:2 --config {} --steps 60 --schemes fp32,mixed,bf16",
            config.display()
        ),
    );
    let text = stdout(&o);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let known = ["f0e3bc7f61ba79a2", "e3783b7932ec3754", "38bdef72332d57cf"];
    assert_eq!(last_digests(&text), known, "{text}");
    let last = text.lines().last();
    assert_eq!(
        last,
        Some("equal: every bit, after steps 1 to 60"),
        "{text}"
    );
}

const BASE: &str = "check --on cpu --preset tiny --batch 2 --schemes fp32,mixed --steps 6";

#[test]
fn certificates_carry_a_run() {
    let dir = fresh("check-certificate");
    let o = run(&dir, &format!("{BASE} --record c.json --tensors-every 2"));
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    for again in [
        "check --on cpu:1 --against c.json",
        "check --on cpu --against c.json --steps 3 --schemes mixed",
        "check --on cpu --preset tiny --batch 2 --against c.json",
    ] {
        let o = run(&dir, again);
        assert_eq!(
            o.status.code(),
            Some(0),
            "{again}: {}{}",
            stdout(&o),
            stderr(&o)
        );
        assert!(stdout(&o).contains("equal: every bit"));
    }
    // Digests tensor by tensor that do not fit that of the whole.
    edit(&dir, "c.json", "bad.json", |c| {
        c["runs"][1]["by_tensor"][1]["digests"][4] = "0123456789abcdef".into();
    });
    let o = run(&dir, "check --on cpu --against bad.json --schemes mixed");
    let text = stdout(&o);
    assert_eq!(o.status.code(), Some(1), "{text}{}", stderr(&o));
    assert!(
        text.contains("those of 1 of 45 tensors differ; the first: pos.weight.m"),
        "{text}"
    );
    // A run that goes another way from step 3 on.
    edit(&dir, "c.json", "bad.json", |c| {
        let digests = c["runs"][0]["digests"].as_array_mut().expect("a list");
        for d in &mut digests[2..] {
            d[1] = "0123456789abcdef".into();
        }
        for at in c["runs"][0]["by_tensor"].as_array_mut().expect("a list") {
            if at["step"].as_u64() > Some(2) {
                at["digests"][4] = "0123456789abcdef".into();
            }
        }
    });
    let o = run(&dir, "check --on cpu --against bad.json");
    let text = stdout(&o);
    assert_eq!(o.status.code(), Some(1), "{text}{}", stderr(&o));
    assert!(
        text.contains("differs from the certificate at step 3"),
        "{text}"
    );
    assert!(
        text.contains("at step 4, 1 of 45 tensors differ; the first: pos.weight.m"),
        "{text}"
    );
    assert!(text.ends_with("different\n"), "{text}");
}

#[test]
fn the_steps_compared_are_told() {
    let dir = fresh("check-steps");
    let base = "check --on cpu --preset tiny --batch 2 --schemes fp32 --steps 6";
    let o = run(
        &dir,
        &format!("{base} --every 4 --tensors-every 5 --record c.json"),
    );
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let o = run(&dir, "check --on cpu --against c.json");
    let text = stdout(&o);
    assert!(
        text.ends_with("equal: every bit, after steps 4 to 6\n"),
        "{text}"
    );
    let short = "check --on cpu --against c.json --steps 3";
    refuses(&dir, short, "no digest of fp32 from step 1 to 3", "short");
    edit(&dir, "c.json", "gap.json", |c| {
        let digests = c["runs"][0]["digests"].as_array_mut().expect("a list");
        digests.remove(1);
    });
    refuses(
        &dir,
        "check --on cpu --against gap.json",
        "gap in its digests at step 5",
        "gap",
    );
    // A run's inputs are not written over.
    let text = "to be or not to be. ".repeat(200);
    std::fs::write(dir.join("a.txt"), &text).expect("written");
    std::fs::write(dir.join("c.toml"), "[train]\nbatch = 2\n").expect("written");
    for flags in [
        "--data a.txt --record a.txt",
        "--config c.toml --record ../check-steps/c.toml",
    ] {
        let args = format!("check --on cpu --steps 1 {flags}");
        refuses(&dir, &args, "this run reads it", flags);
    }
    assert_eq!(
        std::fs::read(dir.join("a.txt")).expect("there"),
        text.as_bytes()
    );
}

fn edit(dir: &Path, from: &str, to: &str, f: impl FnOnce(&mut serde_json::Value)) {
    let bytes = std::fs::read(dir.join(from)).expect("a certificate");
    let mut c = serde_json::from_slice(&bytes).expect("JSON");
    f(&mut c);
    std::fs::write(dir.join(to), serde_json::to_vec(&c).expect("JSON")).expect("written");
}

#[test]
fn certificates_that_do_not_fit_are_refused_with_what_differs() {
    let dir = fresh("check-refusals");
    let o = run(&dir, &format!("{BASE} --record c.json"));
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    std::fs::write(dir.join("other.txt"), "to be or not to be. ".repeat(200)).expect("written");
    type Edit = fn(&mut serde_json::Value);
    let edits: &[(&str, Edit, &str)] = &[
        (
            "version",
            |c| c["version"] = "0.0.7".into(),
            "made by isobit 0.0.7",
        ),
        (
            "format",
            |c| c["format"] = "isobit certificate 9".into(),
            "certificate 9",
        ),
        (
            "shaders",
            |c| c["shaders"] = "00".into(),
            "its shaders are 00",
        ),
        (
            "plan",
            |c| c["runs"][0]["plan"] = "aa".into(),
            "plan for fp32 is aa",
        ),
        ("lr", |c| c["config"]["lr"] = (-1.0).into(), "lr = -1"),
        (
            "weights",
            |c| c["weights"] = "bb".into(),
            "initial weights have SHA-256 bb",
        ),
        (
            "batches",
            |c| c["batches"] = "cc".into(),
            "batches have SHA-256 cc",
        ),
        (
            "cut",
            |c| c["runs"][0]["digests"] = serde_json::json!([]),
            "not whole",
        ),
        (
            "gap",
            |c| drop(c["runs"][0]["digests"].as_array_mut().map(|d| d.remove(3))),
            "gap in its digests at step 4",
        ),
        (
            "part",
            |c| c["runs"][0]["by_tensor"][0]["digests"][2] = "0123".into(),
            "e.json: its digest of step 6 is not 16 hex digits; record it anew",
        ),
        (
            "twice",
            |c| c["runs"][1] = c["runs"][0].clone(),
            "lists fp32 twice",
        ),
        (
            "passport",
            |c| c["passports"][0]["portable"] = false.into(),
            "is not portable",
        ),
        (
            "no passport",
            |c| c["passports"] = serde_json::json!([]),
            "has no passport",
        ),
        (
            "escape",
            |c| c["version"] = "\u{1b}[2J".into(),
            "made by isobit \\u{1b}[2J,",
        ),
    ];
    for digest in [
        "zzzz",
        "",
        "0123456789abcdef0",
        "0123456789ABCDEF",
        "+123456789abcdef",
    ] {
        edit(&dir, "c.json", "e.json", |c| {
            c["runs"][1]["digests"][2][1] = digest.into();
        });
        let what = "e.json: its digest of step 3 is not 16 hex digits; record it anew";
        refuses(&dir, "check --on cpu --against e.json", what, digest);
        let replay = "replay --against e.json --run none --from 1 --steps 1";
        refuses(&dir, replay, what, digest);
    }
    for &(name, f, what) in edits {
        edit(&dir, "c.json", "e.json", f);
        refuses(&dir, "check --on cpu --against e.json", what, name);
    }
    let cases = [
        ("--batch 3", "batch is 2 there and 3 here"),
        (
            "--preset small --batch 2",
            "n_embd is 64 there and 128 here",
        ),
        ("--seed 5", "seed is 1337 there and 5 here"),
        ("--data other.txt", "give it with --data"),
        (
            "--schemes bf16",
            "the certificate has fp32, mixed, not bf16",
        ),
        ("--steps 7", "the certificate has 6 steps"),
        (
            "--numerics fast",
            "numerics is \"portable\" there and \"fast\" here",
        ),
    ];
    for (flags, what) in cases {
        refuses(
            &dir,
            &format!("check --on cpu --against c.json {flags}"),
            what,
            flags,
        );
    }
    std::fs::write(dir.join("half.json"), "{\"format\": \"isobit").expect("written");
    refuses(
        &dir,
        "check --on cpu --against half.json",
        "is no certificate",
        "half",
    );
    refuses(
        &dir,
        "check --on cpu --against absent.json",
        "absent.json",
        "absent",
    );
    refuses(
        &dir,
        "check --on cpu --record no/such/c.json",
        "no/such",
        "a folder",
    );
    refuses(&dir, "check --on cpu,cpu --steps 1", "named twice", "twice");
    refuses(&dir, "check --on cpu --steps 0", "take 1 to", "no steps");
    for on in ["", "--on cpu"] {
        let args = format!("check --backend metal {on} --steps 1");
        refuses(&dir, &args, "instead of --backend", "a backend");
    }
}

fn refuses(dir: &Path, args: &str, what: &str, case: &str) {
    let o = run(dir, args);
    let text = stderr(&o);
    assert_eq!(o.status.code(), Some(2), "{case}: {}{text}", stdout(&o));
    assert_eq!(text.lines().count(), 1, "{case}: {text}");
    assert!(text.contains(what), "{case}: {text}");
}

/// A window of a certificate's run from a checkpoint; and a run in two processes, on other threads, has
/// the digests of the unbroken one.
#[test]
fn a_window_is_replayed_from_a_checkpoint() {
    let dir = fresh("check-replay");
    let tiny = "--preset tiny --batch 2 --schemes fp32,bf16";
    let o = run(
        &dir,
        &format!("check --on cpu {tiny} --steps 12 --record c.json"),
    );
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let train = format!("train --backend cpu {tiny} --checkpoint-every 4 --keep 9 --outdir out");
    let o = run(&dir, &format!("{train} --stop-after 5 --threads 1"));
    assert!(o.status.success(), "{}", stderr(&o));
    let o = run(
        &dir,
        "train --backend cpu --resume out --checkpoint-every 4 --keep 9 --stop-after 12 --threads 3",
    );
    assert!(o.status.success(), "{}", stderr(&o));
    let ended = stdout(&o);
    let c: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("c.json")).expect("read")).expect("JSON");
    for r in c["runs"].as_array().expect("runs") {
        let last = r["digests"][11][1].as_str().expect("a digest");
        assert!(ended.contains(last), "{last}: {ended}");
    }
    let replay = "replay --on cpu:1,cpu:2 --against c.json --run out";
    for (window, steps) in [
        ("--from 4 --steps 8", "steps 5 to 12"),
        ("--from 8 --steps 1 --schemes bf16", "step 9"),
    ] {
        let o = run(&dir, &format!("{replay} {window}"));
        assert_eq!(o.status.code(), Some(0), "{}{}", stdout(&o), stderr(&o));
        let ends = format!("equal: every bit, after {steps}\n");
        assert!(stdout(&o).ends_with(&ends), "{}", stdout(&o));
    }
    // A certificate that says otherwise within the window, and before it.
    edit(&dir, "c.json", "bad.json", |c| {
        c["runs"][0]["digests"][9][1] = "0123456789abcdef".into();
    });
    let bad = "replay --on cpu --against bad.json --run out";
    let o = run(&dir, &format!("{bad} --from 8 --steps 4"));
    assert_eq!(o.status.code(), Some(1), "{}{}", stdout(&o), stderr(&o));
    assert!(
        stdout(&o).contains("differs from the certificate at step 10"),
        "{}",
        stdout(&o)
    );
    edit(&dir, "c.json", "bad.json", |c| {
        c["runs"][0]["digests"][7][1] = "0123456789abcdef".into();
    });
    refuses(
        &dir,
        &format!("{bad} --from 8 --steps 4"),
        "went another way",
        "before",
    );
    refuses(
        &dir,
        &format!("{replay} --from 8 --steps 5"),
        "has 12 steps",
        "too far",
    );
    refuses(
        &dir,
        &format!("{replay} --from 3 --steps 2"),
        "no checkpoint of step 3",
        "no point",
    );
    refuses(
        &dir,
        "replay --against c.json --run none --from 4 --steps 2",
        "none",
        "no run",
    );
    let o = run(
        &dir,
        "train --backend cpu --preset tiny --batch 3 --schemes fp32,bf16 --checkpoint-every 4 --keep 9 --outdir other --stop-after 4",
    );
    assert!(o.status.success(), "{}", stderr(&o));
    let other = "replay --on cpu --against c.json --run other --from 4 --steps 2";
    refuses(&dir, other, "batch is 2 there and 3 here", "another run");
}
