//! Overrides of a policy: what they make of the plan, in both passes, and that they are part of the run.

mod common;
#[path = "common/runs.rs"]
mod runs;

use common::{fresh, isobit, stderr, stdout};
use isobit::config::{Preset, SCHEMES, Scheme, Settings};
use isobit::dtype::DType;
use isobit::models::char_gpt::TrainOptions;
use isobit::passes::compile;
use isobit::plan::{Class, Plan};
use runs::{CONFIG, digest_of, write_config};
use std::path::Path;

fn settings(rules: &[(&str, &str)]) -> Settings {
    let mut s = Settings {
        n_embd: 32,
        block: 16,
        batch: 2,
        ..Settings::preset(Preset::Tiny)
    };
    let rules = rules.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    s.policy = rules.collect();
    s
}

fn plan(scheme: Scheme, rules: &[(&str, &str)]) -> Plan {
    let s = settings(rules);
    let policy = s.policy_of(scheme).expect("sound rules");
    let o = TrainOptions {
        batch: s.batch,
        clip: 0.0,
        dump_grads: false,
        histogram: false,
        digest: false,
        policy,
        accumulate: 1,
        scaling: isobit::train::scaler::scaling(&s, &policy).expect("a table"),
    };
    compile(
        "train",
        s.model(59).train_program(&o).expect("differentiable"),
    )
    .expect("compiles")
}

/// (label, type of the operands) of every product and attention.
fn operands(plan: &Plan) -> Vec<(String, DType)> {
    let each = plan
        .steps
        .iter()
        .filter(|s| ["gemm", "attention", "attention_grad"].contains(&s.kernel.name));
    each.map(|s| (s.label.clone(), plan.buf(s.reads[0]).ty.dtype))
        .collect()
}

#[test]
fn an_island_is_f32_forward_and_backward() {
    for scheme in [Scheme::Mixed, Scheme::Bf16, Scheme::Fp16] {
        let low = scheme.policy().low;
        let with = operands(&plan(scheme, &[("blocks.0.*", "fp32")]));
        let inside = |l: &str| l.starts_with("blocks.0.");
        // Four products in each direction, two gradients each, and attention.
        let f32s = with.iter().filter(|(_, t)| *t == DType::F32).count();
        assert_eq!(f32s, 4 + 8 + 2, "{with:?}");
        for (label, t) in &with {
            let want = if inside(label) { DType::F32 } else { low };
            assert_eq!(*t, want, "{} {label}", scheme.name());
        }
        let without = operands(&plan(scheme, &[]));
        assert!(without.iter().all(|(_, t)| *t == low) && without.len() == with.len());
    }
}

/// Where activations are narrow, they are narrow again past an island: the other blocks cost no more.
#[test]
fn an_island_ends_where_it_ends() {
    let wide = |rules: &[(&str, &str)]| {
        let p = plan(Scheme::Bf16, rules);
        let of = |b: &&isobit::plan::Buf| b.name.starts_with("blocks.1") && b.ty.shape.rank() > 1;
        let bufs: Vec<_> = p.bufs.iter().filter(of).collect();
        let f32s = bufs.iter().filter(|b| b.ty.dtype == DType::F32).count();
        (f32s, bufs.len())
    };
    assert_eq!(wide(&[("blocks.0.*", "fp32")]), wide(&[]));
}

/// The loss, with the mean that makes it, is f32 under every scheme and rule.
#[test]
fn no_rule_reaches_the_loss() {
    for &scheme in SCHEMES {
        for pattern in ["*", "sum", "mul", "xent", "l*"] {
            for dtype in ["bf16", "fp16"] {
                let plan = plan(scheme, &[(pattern, dtype)]);
                let loss = plan.find(Class::Output, "loss").expect("an output");
                let what = format!("{} {pattern} {dtype}", scheme.name());
                assert_eq!(plan.buf(loss).ty.dtype, DType::F32, "{what}");
            }
        }
    }
    let e = settings(&[("loss", "bf16")]).policy_of(Scheme::Mixed);
    assert!(e.is_err_and(|e| e.to_string().contains("the loss is f32")));
}

#[test]
fn a_class_is_overridden_everywhere() {
    let all = operands(&plan(Scheme::Fp32, &[("matmul", "bf16")]));
    let narrow = all.iter().filter(|(_, t)| *t == DType::Bf16).count();
    assert_eq!((narrow, all.len() - narrow), (9 * 3, 2 * 2), "{all:?}");
    let all = operands(&plan(Scheme::Mixed, &[("attention", "fp32")]));
    let wide = all.iter().filter(|(_, t)| *t == DType::F32).count();
    assert_eq!(wide, 2 * 2);
}

fn with_rules(dir: &Path, rules: &str) {
    write_config(dir);
    let config = std::fs::read_to_string(dir.join("train.toml")).expect("the config");
    std::fs::write(dir.join("train.toml"), config + rules).expect("written");
}

/// A run with overrides goes on with its bits, is told apart from one without, and its samples see the same
/// model with and without the cache.
#[test]
fn overrides_are_part_of_the_run() {
    let dir = fresh("policy-run");
    with_rules(
        &dir,
        "[policy]\n\"blocks.0.*\" = \"fp32\"\ngelu = \"bf16\"\n",
    );
    let done = |args: &[&str]| {
        let o = isobit(&dir, args);
        assert!(o.status.success(), "{args:?}: {}", stderr(&o));
        stdout(&o)
    };
    let schemes = ["--schemes", "mixed,bf16,fp16"];
    let whole = done(&[&CONFIG[..], &schemes, &["--outdir", "a"]].concat());
    let half = ["--outdir", "b", "--stop-after", "5"];
    done(&[&CONFIG[..], &schemes, &half].concat());
    let rest = done(&["train", "--resume", "b"]);
    for scheme in ["mixed", "bf16", "fp16"] {
        assert_eq!(digest_of(&whole, scheme), digest_of(&rest, scheme));
        let from = format!("a/checkpoints/{scheme}");
        let sample = ["sample", "--from", &from, "--tokens", "40", "--seed", "3"];
        let cached = done(&sample);
        assert_eq!(cached, done(&[&sample[..], &["--no-cache"]].concat()));
    }
    write_config(&dir); // without the overrides
    let other = done(&[&CONFIG[..], &schemes, &["--outdir", "c"]].concat());
    assert_ne!(digest_of(&whole, "mixed"), digest_of(&other, "mixed"));
}

#[test]
fn explain_shows_the_overrides_and_mistakes_are_refused() {
    let dir = fresh("policy-explain");
    with_rules(
        &dir,
        "[policy]\nsoftmax = \"bf16\"\n\"blocks.0.*\" = \"fp32\"\n",
    );
    let args = [
        "explain",
        "--config",
        "train.toml",
        "--policy",
        "mixed",
        "--show",
        "policy",
    ];
    let o = isobit(&dir, &args);
    let text = stdout(&o);
    assert!(o.status.success(), "{}", stderr(&o));
    let line = |start: &str| {
        let mut all = text.lines().filter(|l| l.trim_start().starts_with(start));
        all.next_back().unwrap_or_default().to_string()
    };
    assert!(line("softmax").contains("none by itself"), "{text}");
    assert!(line("blocks.0.*").contains("f32"), "{text}");
    for (rules, says) in [
        ("[policy]\n\"blocks.9.*\" = \"fp32\"\n", "blocks.9.*"),
        ("[policy]\nsofmax = \"bf16\"\n", "softmax"),
        ("[policy]\nmatmul = \"fp8\"\n", "fp16"),
        ("[policy]\nmatmul = 3\n", "string"),
    ] {
        with_rules(&dir, rules);
        for args in [&args[..], &[&CONFIG[..], &["--outdir", "x"]].concat()] {
            let o = isobit(&dir, args);
            assert_eq!(o.status.code(), Some(2), "{rules}: {}", stdout(&o));
            let text = stderr(&o);
            assert!(
                text.contains(says) && text.trim_end().lines().count() == 1,
                "{text}"
            );
        }
    }
    assert!(!dir.join("x").exists());
}
