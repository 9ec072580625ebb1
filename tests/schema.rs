//! `docs/ledger.md` against what is written: every CSV file is documented, column by column in order, and
//! every documented file is written by what the page says writes it.

mod common;
#[path = "common/runs.rs"]
mod runs;

use common::{fresh, isobit, repo, stderr, stdout};
use isobit::config::SCHEMES;
use runs::write_config;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Pattern of a file's name, and its columns, in the page's order.
fn documented() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string(repo("docs/ledger.md")).expect("the page");
    let quoted = |l: &str| l.split('`').nth(1).map(String::from);
    let mut out: Vec<(String, Vec<String>)> = vec![];
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            out.push((quoted(title).unwrap_or_default(), vec![]));
        } else if let (true, Some(last)) = (line.starts_with("| `"), out.last_mut()) {
            last.1.push(quoted(line).expect("a name"));
            assert!(line.matches(" | ").count() >= 1, "{line}");
        }
    }
    out.retain(|(name, _)| name.ends_with(".csv"));
    assert!(out.len() >= 9, "{out:?}");
    out
}

/// The pattern that a file's name fits.
fn pattern<'a>(name: &str, tag: &str, all: &'a [(String, Vec<String>)]) -> Option<&'a String> {
    let schemes = SCHEMES.iter().map(|s| s.name());
    let fits = |p: &String| {
        let p = p.replace("{tag}", tag);
        p == name || schemes.clone().any(|s| p.replace("{scheme}", s) == name)
    };
    all.iter().map(|d| &d.0).find(|p| fits(p))
}

/// Columns of every CSV file of a folder, by name.
fn written(dir: &Path) -> BTreeMap<String, Vec<String>> {
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "csv") {
            let text = std::fs::read_to_string(&path).expect("a file");
            let header = text.lines().next().unwrap_or("").split(',');
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            out.insert(name, header.map(String::from).collect());
        }
    }
    out
}

fn run(dir: &Path, args: &[&str]) {
    let o = isobit(dir, args);
    assert!(o.status.success(), "{args:?}: {}", stderr(&o));
}

#[test]
fn the_page_is_what_is_written() {
    let all = documented();
    let dir = fresh("schema");
    write_config(&dir);
    let schemes: Vec<&str> = SCHEMES.iter().map(|s| s.name()).collect();
    let schemes = schemes.join(",");
    let train = [
        "train",
        "--config",
        "train.toml",
        "--backend",
        "cpu",
        "--schemes",
        &schemes,
    ];
    let with = |more: &[&'static str]| -> Vec<String> {
        train.iter().chain(more).map(|s| s.to_string()).collect()
    };
    let call = |more: &[&'static str]| {
        let args = with(more);
        run(&dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    };
    call(&["--outdir", "out"]);
    call(&["--outdir", "out", "--tag", "_x", "--ledger", "full"]);
    let mut seen = BTreeSet::new();
    let compare = |folder: &str, tag: &str, seen: &mut BTreeSet<String>| {
        for (name, columns) in written(&dir.join(folder)) {
            let (own, other) = (pattern(&name, tag, &all), pattern(&name, "", &all));
            let p = own
                .or(other)
                .unwrap_or_else(|| panic!("{name} is not in docs/ledger.md"));
            let d = all.iter().find(|d| d.0 == *p).expect("the pattern");
            assert_eq!(d.1, columns, "{name}");
            seen.insert(p.clone());
        }
    };
    compare("out", "_x", &mut seen);
    let help = stdout(&isobit(&dir, &["train", "--help"]));
    if help.contains("--seeds") {
        call(&["--outdir", "seeds", "--seeds", "2"]);
        compare("seeds", "_seed12", &mut seen);
    }
    let commands = stdout(&isobit(&dir, &["--help"]));
    if commands.contains("\n  gemm ") {
        let args = [
            "gemm", "--n", "64", "--dtypes", "fp32", "--warmup", "1", "--steps", "1",
        ];
        let to = ["--backend", "cpu", "--out", "products/gemm.csv"];
        std::fs::create_dir(dir.join("products")).expect("a folder");
        run(&dir, &[&args[..], &to[..]].concat());
        compare("products", "", &mut seen);
    }
    let absent = |p: &str| match p {
        "seeds{tag}.csv" => !help.contains("--seeds"),
        "gemm.csv" => !commands.contains("\n  gemm "),
        "scaler_fp16{tag}.csv" => !schemes.contains("fp16"),
        _ => false,
    };
    for (p, _) in &all {
        assert!(
            seen.contains(p) || absent(p),
            "{p} is documented, but nothing wrote it"
        );
    }
}
