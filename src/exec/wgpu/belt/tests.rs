use super::*;

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

#[test]
fn the_validator_accepts_it() {
    let tool = "spirv-val";
    if std::process::Command::new(tool).arg("--version").output().is_err() {
        println!("skipped: no {tool} (Debian/Ubuntu: apt install spirv-tools)");
        return;
    }
    for bounds in [false, true] {
        let name = format!("isobit-belt-{}-{bounds}.spv", std::process::id());
        let path = std::env::temp_dir().join(name);
        let words = translated(bounds);
        std::fs::write(&path, bytemuck::cast_slice::<u32, u8>(&words)).expect("a temporary file");
        let out = std::process::Command::new(tool)
            .args(["--target-env", "vulkan1.0"])
            .arg(&path)
            .output()
            .expect("the tool runs");
        std::fs::remove_file(&path).expect("the temporary file goes");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}
