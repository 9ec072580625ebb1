//! The probe on every device of the machine: software GPUs pass and agree, the controls and the bare runs
//! show that a pass means something, and a device that fails is refused.

mod common;
#[path = "common/devices.rs"]
mod devices;

use common::{fresh, repo, stderr, stdout};
use isobit::numerics::passport::{Kind, Passport};
use isobit::numerics::probe::{FAULT, Target, probe};
use std::path::Path;
use std::process::{Command, Output};

fn finding<'a>(p: &'a Passport, name: &str) -> &'a str {
    let fact = p.facts.iter().find(|f| f.name == name);
    &fact.unwrap_or_else(|| panic!("no fact {name}")).finding
}

/// Differences of the rows whose names begin so, without fence and belt.
fn bare(p: &Passport, name: &str) -> usize {
    let rows = p.rows.iter().filter(|r| r.name.starts_with(name));
    let less = rows.flat_map(|r| r.less.iter().filter(|l| l.0 == "neither"));
    less.map(|l| l.1).sum()
}

#[test]
fn every_device_passes_with_one_digest_and_the_probe_can_see() {
    let cpu = probe(Target::Cpu(Some(2))).expect("the CPU");
    assert!(cpu.portable, "{}", cpu.table());
    assert!(cpu.rows.len() >= 40);
    for (label, found) in devices::found() {
        let p = probe(Target::Gpu(&found)).unwrap_or_else(|e| panic!("{label}: {e}"));
        println!(
            "{label}: {}, digest {}, {:.0} ms",
            p.verdict(),
            p.digest,
            p.ms
        );
        assert!(p.portable, "{label}: {}", p.table());
        assert_eq!(p.digest, cpu.digest, "{label}");
        let controls: Vec<_> = p.rows.iter().filter(|r| r.kind == Kind::Control).collect();
        assert!(controls.len() >= 5 && controls.iter().all(|r| r.differ > 0));
        // What is known of these drivers: without fence and belt they cancel, and one flushes.
        match label.as_str() {
            "lavapipe" | "gl" => {
                assert!(bare(&p, "fence: (x + C) - C") > 0, "{}", p.table());
                assert!(bare(&p, "fence: (a + b) - b") > 0, "{}", p.table());
                assert_eq!(finding(&p, "subnormal products"), "kept");
            }
            "swiftshader" => {
                assert_eq!(finding(&p, "subnormal products"), "flushed");
                assert_eq!(finding(&p, "subnormal operands"), "flushed");
                assert_ne!(finding(&p, "f32(u32) past 2^24"), "to nearest even");
                assert_ne!(finding(&p, "pack2x16float"), "rounds as IEEE");
            }
            _ => {}
        }
    }
}

/// The program with a cache folder of its own.
fn run(dir: &Path, cache: &str, fault: Option<&str>, args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_isobit"));
    c.args(args)
        .current_dir(dir)
        .env("XDG_CACHE_HOME", dir.join(cache));
    c.env_remove(FAULT);
    if let Some(row) = fault {
        c.env(FAULT, row);
    }
    c.output().expect("the program starts")
}

#[test]
fn the_command_prints_a_table_and_writes_json() {
    let dir = fresh("probe-cli");
    let o = run(
        &dir,
        "cache",
        None,
        &["probe", "--on", "cpu,cpu:1", "--json", "p.json"],
    );
    let text = stdout(&o);
    assert!(o.status.success(), "{}", stderr(&o));
    assert_eq!(text.lines().last(), Some("portable: yes"), "{text}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("p.json")).expect("p.json")).expect("JSON");
    let passports = json["passports"].as_array().expect("a list");
    assert_eq!(passports.len(), 2);
    assert_eq!(passports[0]["portable"], true);
    assert_eq!(passports[0]["digest"], passports[1]["digest"]);
    let o = run(
        &dir,
        "cache",
        Some("product, bf16"),
        &["probe", "--on", "cpu"],
    );
    assert_eq!(o.status.code(), Some(1));
    let text = stdout(&o);
    assert_eq!(text.lines().last(), Some("portable: no: product, bf16"));
    assert!(text.contains("a test falsified the row"), "{text}");
    let o = run(&dir, "cache", None, &["probe", "--on", "abacus"]);
    assert_eq!(o.status.code(), Some(2));
    assert_eq!(stderr(&o).lines().count(), 1);
    assert!(stderr(&o).contains("abacus") && stderr(&o).contains("vulkan"));
}

#[test]
fn a_device_that_fails_is_refused_in_portable_and_runs_in_fast() {
    // Any software device will do.
    let Some((_, f)) = devices::found().into_iter().find(|d| d.1.software) else {
        return;
    };
    let dir = fresh("probe-refusal");
    let config = repo("tests/data/two-layer/config.toml");
    let backend = f.backend.name();
    let base = [
        "train",
        "--backend",
        backend,
        "--config",
        config.to_str().expect("a path"),
        "--steps",
        "2",
        "--schemes",
        "fp32",
        "--outdir",
        "out",
    ];
    let row = "flush: products below 2^-125 are +0";
    let o = run(&dir, "cache", Some(row), &base);
    assert_eq!(o.status.code(), Some(2), "{}", stdout(&o));
    let text = stderr(&o);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains(row) && text.contains("--numerics fast"),
        "{text}"
    );
    assert!(!dir.join("out").exists(), "nothing is written");
    let fast = [&base[..], &["--numerics", "fast"]].concat();
    let o = run(&dir, "cache", Some(row), &fast);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(stdout(&o).contains("numerics: fast"), "{}", stdout(&o));
    let env = std::fs::read_to_string(dir.join("out/env.json")).expect("env.json");
    assert!(env.contains("\"numerics\": \"fast\""), "{env}");
    let summary = std::fs::read_to_string(dir.join("out/summary.csv")).expect("the summary");
    assert!(
        summary.lines().nth(1).is_some_and(|l| l.ends_with(",fast")),
        "{summary}"
    );
    // Without the fault it is admitted, and the passport is kept; a broken one is made anew.
    let again = [&base[..], &["--overwrite"]].concat();
    let ok = run(&dir, "cache", None, &again);
    assert!(ok.status.success(), "{}", stderr(&ok));
    assert!(stdout(&ok).contains("passes the probe"), "{}", stdout(&ok));
    let kept = || {
        let o = run(&dir, "cache", None, &["probe", "--backend", backend]);
        assert!(o.status.success(), "{}", stderr(&o));
        stdout(&o).contains("kept from an earlier probe")
    };
    assert!(kept());
    for file in std::fs::read_dir(dir.join("cache/isobit")).expect("the cache") {
        std::fs::write(file.expect("a file").path(), "{\"format\":").expect("written");
    }
    assert!(!kept(), "a broken passport is none");
    assert!(kept(), "and is replaced");
}
