use super::super::super::wgsl;
use super::super::pipelines::{Key, prepare};
use super::*;
use crate::graph::{Graph, Program};
use crate::ops;
use crate::passes::compile;
use std::collections::HashSet;

const SOURCE: &str = "
struct U { n: vec4<u32> }
@group(0) @binding(0) var<uniform> u: U;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> o: array<vec4<f32>>;
override FACTOR: f32;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i >= u.n.y { return; }
    let v = x[i];
    let s = v.x * v.y + v.z - FACTOR;
    let k = i * 2u + 1u;
    o[i] = v * s + v - v * v;
    o[i].x = -o[i].x + f32(k);
}
";

fn translated(bounds: bool) -> Vec<u32> {
    let parsed = naga::front::wgsl::parse_str(SOURCE).expect("it parses");
    let mut validator = naga::valid::Validator::new(
        naga::valid::ValidationFlags::all(),
        naga::valid::Capabilities::empty(),
    );
    let info = validator.validate(&parsed).expect("it is valid");
    let mut constants = naga::back::PipelineConstants::default();
    constants.insert("FACTOR".into(), 0.5);
    let (module, info) = naga::back::pipeline_constants::process_overrides(
        &parsed,
        &info,
        Some((naga::ShaderStage::Compute, "main")),
        &constants,
    )
    .expect("the constant is known");
    spirv(&module, &info, "main", bounds).expect("it translates")
}

fn decorated(words: &[u32]) -> Vec<u32> {
    instructions(words)
        .map(|i| i.expect("whole instructions"))
        .filter(|&(at, op, len)| op == DECORATE && len == 3 && words[at + 2] == NO_CONTRACTION)
        .map(|(at, ..)| words[at + 1])
        .collect()
}

#[test]
fn every_float_sum_and_product_is_decorated_and_nothing_else_changes() {
    let words = translated(false);
    let expected: Vec<u32> = instructions(&words)
        .map(|i| i.expect("whole instructions"))
        .filter(|(_, op, _)| FLOAT_ARITHMETIC.contains(op))
        .map(|(at, ..)| words[at + 2])
        .collect();
    // Four scalar ones (one with the constant, one after the negation) and four of vectors.
    assert_eq!(expected.len(), 8);
    assert_eq!(decorated(&words), expected);
    // Without the decorations it is the module that naga wrote, and adding them again gives it back.
    let mut plain = words[..HEADER].to_vec();
    for (at, op, len) in instructions(&words).map(|i| i.expect("whole instructions")) {
        if !(op == DECORATE && len == 3 && words[at + 2] == NO_CONTRACTION) {
            plain.extend(&words[at..at + len]);
        }
    }
    assert_eq!(plain.len() + 3 * expected.len(), words.len());
    assert_eq!(no_contraction(&plain), Ok(words.clone()));
    // Decorations stand before the first type, where the standard wants them.
    let first_type = instructions(&words)
        .map(|i| i.expect("whole instructions"))
        .position(|(_, op, _)| (19..=33).contains(&op));
    let last_decoration = instructions(&words)
        .map(|i| i.expect("whole instructions"))
        .enumerate()
        .filter(|(_, (_, op, _))| *op == DECORATE)
        .map(|(n, _)| n)
        .max();
    assert!(last_decoration < first_type);
}

#[test]
fn what_is_no_module_is_an_error() {
    assert!(no_contraction(&[]).is_err());
    assert!(no_contraction(&[0, 0, 0, 0, 0, (9 << 16) | 17, 1]).is_err());
    assert!(no_contraction(&[0, 0, 0, 0, 0, 0]).is_err());
}

/// What the validator says against a module; nothing where the tool is absent.
fn invalid(name: &str, words: &[u32]) -> Option<String> {
    let file = format!("isobit-belt-{}-{name}.spv", std::process::id());
    let path = std::env::temp_dir().join(file);
    std::fs::write(&path, bytemuck::cast_slice::<u32, u8>(words)).expect("a temporary file");
    let out = std::process::Command::new("spirv-val")
        .args(["--target-env", "vulkan1.0"])
        .arg(&path)
        .output()
        .expect("the tool runs");
    std::fs::remove_file(&path).expect("the temporary file goes");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    (!out.status.success()).then_some(text)
}

fn no_validator() -> bool {
    let tool = std::process::Command::new("spirv-val")
        .arg("--version")
        .output();
    if tool.is_err() {
        println!("skipped: no spirv-val (Debian/Ubuntu: apt install spirv-tools)");
    }
    tool.is_err()
}

#[test]
fn the_validator_accepts_it() {
    if no_validator() {
        return;
    }
    for bounds in [false, true] {
        assert_eq!(
            invalid(&format!("small-{bounds}"), &translated(bounds)),
            None
        );
    }
}

/// Every shader of the operation table and of the model, for software devices and others.
#[test]
fn every_shader_stays_valid() {
    use crate::models::char_gpt::{CharGpt, TrainOptions};
    use crate::passes::autocast::FP32;
    let model = CharGpt {
        vocab: 11,
        block: 37,
        n_layer: 1,
        n_head: 2,
        n_embd: 24,
    };
    let o = TrainOptions {
        batch: 17,
        clip: 1.0,
        dump_grads: false,
        histogram: false,
        digest: false,
        policy: FP32,
        accumulate: 1,
        scaling: None,
    };
    let train = model.train_program(&o).expect("differentiable");
    let mut plans = vec![compile("train", train).expect("compiles")];
    let cases = ops::all().into_iter().flat_map(|d| (d.cases)());
    for case in cases.chain(ops::pointwise::cases()) {
        let graph = Graph::new();
        let src: Vec<_> = (case.src.iter().enumerate())
            .map(|(i, s)| graph.input(&i.to_string(), s.0).id)
            .collect();
        let id = graph.add(case.op.clone(), &src);
        let outputs = vec![("out".to_string(), id)];
        let program = Program {
            graph,
            outputs,
            updates: vec![],
        };
        plans.push(compile("case", program).expect("compiles"));
    }
    let quiet = no_validator();
    let mut seen = HashSet::new();
    for plan in &plans {
        for step in &plan.steps {
            for software in [false, true] {
                let fence = true;
                let shader = wgsl::shader(
                    step,
                    plan,
                    wgsl::Options {
                        fence,
                        fused: false,
                        software,
                    },
                );
                let key = Key::new(&shader, step);
                if !seen.insert(key.clone()) {
                    continue;
                }
                let name = step.kernel.name;
                let ready = prepare(&key).unwrap_or_else(|e| panic!("{name}: {e}"));
                let words = spirv(&ready.module, &ready.info, "main", false).expect(name);
                let sums = instructions(&words)
                    .filter(|i| i.is_ok_and(|i| FLOAT_ARITHMETIC.contains(&i.1)))
                    .count();
                assert_eq!(decorated(&words).len(), sums, "{name}");
                if !quiet {
                    assert_eq!(invalid("table", &words), None, "{name}");
                }
            }
        }
    }
    println!("{} shaders", seen.len());
    assert!(seen.len() > 30);
}
