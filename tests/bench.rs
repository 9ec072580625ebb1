//! `isobit bench`: its table and its trace are about the plan that training runs.

mod common;

use common::{fresh, isobit, stderr, stdout};
use isobit::config::{Preset, Scheme, Settings};
use isobit::plan::account::{step_bytes, step_flops};
use isobit::train::session::Programs;

#[test]
fn every_launch_of_the_training_step_is_in_the_table_and_in_the_trace() {
    let dir = fresh("bench");
    let flags = ["--preset", "tiny", "--schemes", "fp32,fp16", "--steps", "2"];
    let more = ["--outdir", "out", "--trace", "t.json", "--backend", "cpu"];
    let o = isobit(&dir, &[&["bench"], &flags[..], &more].concat());
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(stdout(&o).contains("ceilings: "), "{}", stdout(&o));
    let text = std::fs::read(dir.join("t.json")).expect("a trace");
    let trace: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let s = Settings::preset(Preset::Tiny);
    let model = s.model(
        isobit::train::run::Data::load(&s)
            .expect("text")
            .text
            .vocab
            .len(),
    );
    for (track, scheme) in [Scheme::Fp32, Scheme::Fp16].into_iter().enumerate() {
        let programs = Programs::compile(&model, &s, scheme, false).expect("compiles");
        let plan = programs.train();
        let file = dir.join(format!("out/bench_tiny_{}.csv", scheme.name()));
        let mut csv = csv::Reader::from_path(file).expect("a table");
        let rows: Vec<csv::StringRecord> = csv.records().map(|r| r.expect("a row")).collect();
        let kernels = &rows[..rows.len() - 2];
        let sum = |column: usize| -> u64 {
            let number = |r: &csv::StringRecord| r[column].parse::<u64>().expect("a number");
            kernels.iter().map(number).sum()
        };
        assert_eq!(sum(1), plan.steps.len() as u64);
        assert_eq!(
            sum(3),
            plan.steps.iter().map(|x| step_bytes(plan, x)).sum::<u64>()
        );
        assert_eq!(
            sum(4),
            plan.steps.iter().map(|x| step_flops(plan, x)).sum::<u64>()
        );
        assert!(
            kernels
                .iter()
                .all(|r| r[2].parse::<f64>().expect("ms") > 0.0)
        );
        let here = |e: &&serde_json::Value| e["ph"] == "X" && e["tid"] == track as u64 + 1;
        let names: Vec<&str> = events
            .iter()
            .filter(here)
            .map(|e| e["name"].as_str().expect("a name"))
            .collect();
        let launched: Vec<&str> = plan.steps.iter().map(|x| x.kernel.name).collect();
        assert_eq!(names, launched);
    }
}

#[test]
fn training_can_be_profiled_and_keeps_its_bits() {
    let dir = fresh("bench-train");
    let flags =
        "train --preset tiny --schemes mixed --steps 3 --backend cpu --accumulate 2 --tag _p";
    let train = |outdir: &str, more: &[&str]| {
        let flags = flags.split(' ').chain(["--outdir", outdir]);
        let o = isobit(&dir, &[&flags.collect::<Vec<_>>()[..], more].concat());
        assert!(o.status.success(), "{}", stderr(&o));
        stdout(&o)
    };
    let digest = |out: &str| {
        let line = out.lines().find(|l| l.contains("digest of weights"));
        line.and_then(|l| l.split(' ').next_back().map(String::from))
            .expect("a digest")
    };
    let (plain, with) = (train("plain", &[]), train("with", &["--profile"]));
    assert_eq!(digest(&plain), digest(&with));
    assert!(!plain.contains("profile") && with.contains("of GB/s"));
    let csv = common::Csv::read(&dir.join("with/profile_mixed_p.csv"));
    assert!((0..csv.rows.len()).all(|i| csv.number(i, "ms") > 0.0));
    let trace = std::fs::read(dir.join("with/profile_trace_p.json")).expect("a trace");
    let trace: serde_json::Value = serde_json::from_slice(&trace).expect("JSON");
    assert!(!trace["traceEvents"].as_array().expect("events").is_empty());
}

#[test]
fn what_it_cannot_do_is_one_line() {
    let dir = fresh("bench-bad");
    for (flags, says) in [
        (&["--steps", "0"][..], "at least 1"),
        (&["--schemes", "fp8"], "fp8"),
        (&["--batch", "0"], "batch"),
        (&["--trace", "none/t.json", "--preset", "tiny"], "none"),
    ] {
        let o = isobit(&dir, &[&["bench"], flags].concat());
        assert_eq!(o.status.code(), Some(2), "{flags:?}");
        let text = stderr(&o);
        assert!(text.lines().count() == 1 && text.contains(says), "{text}");
    }
}

#[test]
fn growth_times_every_size_and_fits_it() {
    use isobit::measure::growth::sizes;
    let dir = fresh("bench-growth");
    let flags = ["--preset", "tiny", "--schemes", "mixed", "--steps", "1"];
    let more = ["--growth", "--outdir", "out", "--backend", "cpu"];
    let o = isobit(&dir, &[&["bench"], &flags[..], &more].concat());
    assert!(o.status.success(), "{}", stderr(&o));
    let text = stdout(&o);
    assert!(
        text.contains("by FLOP: ") && text.contains("by kind: "),
        "{text}"
    );
    let csv = common::Csv::read(&dir.join("out/growth_tiny_mixed.csv"));
    let sizes = sizes(&Settings::preset(Preset::Tiny));
    assert_eq!(csv.rows.len(), sizes.len());
    for (i, size) in sizes.iter().enumerate() {
        let s = &size.s;
        let extents = ["n_layer", "n_embd", "block", "batch"].map(|c| csv.number(i, c) as usize);
        assert_eq!(extents, [s.n_layer, s.n_embd, s.block, s.batch]);
        assert!(csv.number(i, "ms") > 0.0 && csv.number(i, "fit_flop_ms") > 0.0);
        let model = s.model(
            isobit::train::run::Data::load(s)
                .expect("text")
                .text
                .vocab
                .len(),
        );
        let programs = Programs::compile(&model, s, Scheme::Mixed, false).expect("compiles");
        let plan = programs.train();
        let flops: u64 = plan.steps.iter().map(|x| step_flops(plan, x)).sum();
        assert_eq!(csv.number(i, "flop"), flops as f64, "{}", size.axis);
    }
}
