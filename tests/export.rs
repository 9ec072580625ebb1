//! `isobit export`: the round trip through safetensors, and ONNX against onnxruntime.
//!
//! onnxruntime comes from PyPI (`pip install onnxruntime numpy`) for the interpreter in `ISOBIT_PYTHON`,
//! else `python3`. Without it those tests are skipped with a printed reason; where `ISOBIT_REQUIRE_ONNX`
//! is set, as in CI, they fail.

mod common;

use common::{fresh, isobit, repo, stderr, stdout, tensors};
use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::infer::export::{Kind, convert};
use isobit::infer::generate::make_ready;
use isobit::infer::onnx;
use isobit::models::char_gpt::CharGpt;
use isobit::passes::autocast::FP32;
use isobit::passes::compile;
use isobit::train::weights;
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn run(dir: &Path, args: &str) -> String {
    let o = isobit(dir, &args.split(' ').collect::<Vec<_>>());
    assert!(o.status.success(), "{args}: {}", stderr(&o));
    stdout(&o)
}

/// A folder with a trained run in `run`, its last weights in `saved.safetensors`.
fn trained(name: &str) -> PathBuf {
    let dir = fresh(name);
    run(
        &dir,
        "train --backend cpu --schemes fp32 --steps 40 --batch 4 --outdir run --save saved.safetensors",
    );
    dir
}

#[test]
fn exported_weights_are_the_weights() {
    let dir = trained("export-round-trip");
    let export = "export --from run/checkpoints/fp32";
    let told = run(&dir, &format!("{export} --safetensors out.safetensors"));
    assert!(told.contains("weights in fp32"), "{told}");
    let (saved, out) = (dir.join("saved.safetensors"), dir.join("out.safetensors"));
    let exact = tensors(&saved);
    assert!(exact == tensors(&out));
    // A run from the exported file is the run from the saved one.
    let digest = |init: &str| {
        let text = run(
            &dir,
            &format!(
                "train --backend cpu --schemes fp32 --steps 3 --batch 2 --init {init} --outdir {init}.run"
            ),
        );
        let at = text
            .find("digest of weights and moments")
            .expect("a digest");
        text[at..].lines().next().expect("a line").to_string()
    };
    assert_eq!(digest("saved.safetensors"), digest("out.safetensors"));
    for (kind, size) in [("bf16", 2), ("fp16", 2)] {
        let file = format!("{kind}.safetensors");
        let told = run(
            &dir,
            &format!("{export} --precision {kind} --safetensors {file}"),
        );
        assert!(told.contains("weights are rounded"), "{told}");
        let bytes = std::fs::read(dir.join(&file)).expect("written");
        let st = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        assert_eq!(st.len(), exact.len());
        for (name, t) in st.iter() {
            let want = &exact[name];
            assert_eq!(t.data().len(), want.len() * size);
            for (h, &x) in t.data().chunks_exact(2).zip(want) {
                let h = u16::from_le_bytes([h[0], h[1]]);
                let expected = match kind {
                    "bf16" => half::bf16::from_f32(x).to_bits(),
                    _ => half::f16::from_f32(x).to_bits(),
                };
                assert_eq!(h, expected, "{name}");
            }
        }
    }
}

#[test]
fn what_cannot_be_written_is_refused_and_told() {
    let dir = trained("export-refused");
    let refused = |args: &str, says: &str| {
        let all = format!("export --from run/checkpoints/fp32 {args}");
        let o = isobit(&dir, &all.split(' ').collect::<Vec<_>>());
        let text = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{args}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{args}: {text}");
        assert!(
            text.contains(says),
            "{args}: {text:?} does not say {says:?}"
        );
    };
    refused("--best", "--safetensors or --onnx");
    refused("--precision int8 --onnx m.onnx", "int8");
    refused("--onnx nowhere/m.onnx", "nowhere");
    refused("--onnx run", "no regular file");
    refused("--onnx a.x --safetensors ./a.x", "two files");
    let own = "run/checkpoints/fp32/step-00000040.safetensors";
    refused(&format!("--safetensors {own}"), "the checkpoint itself");
    refused("--onnx run/../a.x --safetensors a.x", "two files");
    for own in [
        "run/checkpoints/fp32/m.onnx",
        "run/checkpoints/m.onnx",
        "run/../run/checkpoints/fp32/best.safetensors",
        "run/env.json",
    ] {
        refused(&format!("--onnx {own}"), "a run's own files are there");
    }
    // Weights that fp16 cannot hold.
    let model = CharGpt {
        vocab: 2,
        block: 1,
        n_layer: 1,
        n_head: 1,
        n_embd: 1,
    };
    let mut w = model.initial(1);
    w[0].1 = vec![1e6, 1e-9];
    let (_, l) = convert(&model, &w, Kind::Fp16);
    assert_eq!((l.overflowed, l.vanished), (1, 1));
    let (_, l) = convert(&model, &w, Kind::Bf16);
    assert_eq!((l.overflowed, l.vanished), (0, 0));
    let (_, l) = convert(&model, &w, Kind::Fp32);
    assert_eq!((l.changed, l.of as u128), (0, model.parameters()));
}

/// The interpreter, if it has onnxruntime.
fn python() -> Option<String> {
    let python = std::env::var("ISOBIT_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python)
        .args(["-c", "import onnxruntime, numpy"])
        .output();
    if found.is_ok_and(|o| o.status.success()) {
        return Some(python);
    }
    let why = format!(
        "{python} has no onnxruntime: pip install onnxruntime numpy, or name another interpreter in ISOBIT_PYTHON"
    );
    assert!(std::env::var_os("ISOBIT_REQUIRE_ONNX").is_none(), "{why}");
    println!("skipped: {why}");
    None
}

/// Our logits, from the program for them.
fn ours(model: &CharGpt, w: &[(String, Vec<f32>)], idx: &[u32], batch: usize) -> Vec<f32> {
    let length = idx.len() / batch;
    let mut exec = Cpu::new(Some(2)).expect("threads");
    let plan = compile("logits", model.logits_program(batch, length, &FP32)).expect("compiles");
    let id = exec.load(Arc::new(plan)).expect("loads");
    make_ready(&mut exec, model, &FP32, w).expect("written");
    let at: Vec<u32> = (0..idx.len()).map(|i| (i % length) as u32).collect();
    exec.write_input(id, "idx", idx).expect("written");
    exec.write_input(id, "at", &at).expect("written");
    exec.run(id).expect("runs");
    let words = exec.read_output(id, "logits").expect("an output");
    words.into_iter().map(f32::from_bits).collect()
}

/// Runs a file over batches 1 and 3 and lengths 1, 7 and the block; returns the largest difference from
/// our logits under `w`, the largest logit, and the metadata.
fn compare(
    python: &str,
    file: &Path,
    model: &CharGpt,
    w: &[(String, Vec<f32>)],
) -> (f32, f32, String) {
    let folder = file.parent().expect("a folder");
    let mut args = vec![repo("tests/onnx/run.py"), file.to_path_buf()];
    let mut runs = Vec::new();
    for batch in [1, 3] {
        for length in [1, 7, model.block] {
            let n = batch * length;
            let idx: Vec<u32> = (0..n)
                .map(|i| ((i * 31 + i * i) % model.vocab) as u32)
                .collect();
            let bytes: Vec<u8> = idx.iter().flat_map(|&i| (i as i64).to_le_bytes()).collect();
            let name = |end: &str| folder.join(format!("{batch}x{length}.{end}"));
            std::fs::write(name("in"), bytes).expect("written");
            args.extend([batch.to_string().into(), length.to_string().into()]);
            args.extend([name("in"), name("out")]);
            runs.push((batch, idx, name("out")));
        }
    }
    let o = Command::new(python)
        .args(&args)
        .output()
        .expect("it starts");
    assert!(o.status.success(), "{}", stderr(&o));
    let (mut worst, mut largest) = (0f32, 0f32);
    for (batch, idx, out) in runs {
        let bytes = std::fs::read(out).expect("its logits");
        let theirs = bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let ours = ours(model, w, &idx, batch);
        assert_eq!(bytes.len(), 4 * ours.len());
        for (a, b) in ours.iter().zip(theirs) {
            worst = worst.max((a - b).abs());
            largest = largest.max(a.abs());
        }
    }
    (worst, largest, stdout(&o))
}

#[test]
fn onnxruntime_gives_our_logits() {
    let Some(python) = python() else {
        return;
    };
    let dir = trained("export-onnx");
    let vocab = isobit::data::text::Text::from_str("", &isobit::data::corpus::dialogue())
        .expect("the dialogue")
        .vocab;
    let model = isobit::config::Settings::preset(isobit::config::Preset::Tiny).model(vocab.len());
    let exact = weights::load(&dir.join("saved.safetensors"), &model).expect("weights");
    for kind in ["fp32", "fp16", "bf16"] {
        let file = format!("{kind}.onnx");
        run(
            &dir,
            &format!("export --from run/checkpoints/fp32 --onnx {file} --precision {kind}"),
        );
        let round = |x: f32| match kind {
            "fp32" => x,
            "fp16" => half::f16::from_f32(x).to_f32(),
            _ => half::bf16::from_f32(x).to_f32(),
        };
        let rounded: Vec<(String, Vec<f32>)> = exact
            .iter()
            .map(|(n, d)| (n.clone(), d.iter().map(|&x| round(x)).collect()))
            .collect();
        let (worst, largest, meta) = compare(&python, &dir.join(&file), &model, &rounded);
        println!("{kind}: logits up to {largest:.2}, largest difference {worst:.2e}");
        assert!(
            worst <= 1e-5 && largest > 1.0,
            "{kind}: {worst:e} {largest}"
        );
        let meta: serde_json::Value = serde_json::from_str(&meta).expect("the metadata");
        assert_eq!(meta["vocabulary"], vocab.iter().collect::<String>());
        assert_eq!(meta["block"], "64");
    }
}

/// Odd extents, and weights so large that attention is sharp and GELU far from linear.
#[test]
fn onnxruntime_gives_our_logits_with_large_weights() {
    let Some(python) = python() else {
        return;
    };
    let dir = fresh("export-onnx-large");
    let model = CharGpt {
        vocab: 13,
        block: 37,
        n_layer: 3,
        n_head: 3,
        n_embd: 24,
    };
    let mut w = model.initial(9);
    for (name, data) in &mut w {
        let gain = name.contains("ln");
        for (i, x) in data.iter_mut().enumerate() {
            *x = if gain {
                0.5 + (i % 5) as f32 * 0.25
            } else {
                *x * 10.0
            };
        }
    }
    let vocab: Vec<char> = "\n\"'abcdeé😀\u{1}z".chars().collect();
    let bytes = onnx::encode(
        &model,
        &vocab,
        Kind::Fp32,
        convert(&model, &w, Kind::Fp32).0,
    )
    .expect("small enough");
    std::fs::write(dir.join("model.onnx"), bytes).expect("written");
    let (worst, largest, meta) = compare(&python, &dir.join("model.onnx"), &model, &w);
    println!("logits up to {largest:.2}, largest difference {worst:.2e}");
    assert!(worst <= 1e-5 * largest.max(1.0), "{worst:e} of {largest}");
    let meta: serde_json::Value = serde_json::from_str(&meta).expect("the metadata");
    assert_eq!(meta["vocabulary"], vocab.iter().collect::<String>());
}
