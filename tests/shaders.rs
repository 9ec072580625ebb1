//! Every shader text that plans can ask for, without a device: it parses, validates, binds what its
//! kernel says, and translates to every shading language.

mod common;
mod lint;
mod plans;

use isobit::exec::wgsl::{self, Options, Shader};
use isobit::kernels::{self, Access, Host};
use isobit::plan::{Plan, Step};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess};
use std::collections::{BTreeSet, HashMap, HashSet};

const fn options(fence: bool, fused: bool, software: bool) -> Options {
    Options {
        fence,
        fused,
        software,
    }
}

/// The portable texts, those without fences, those of fast numerics.
const OPTIONS: [Options; 6] = [
    options(true, false, false),
    options(true, false, true),
    options(false, false, false),
    options(false, false, true),
    options(true, true, false),
    options(true, true, true),
];

/// A text that some step needs.
struct Permutation {
    name: String,
    step: Step,
    shader: Shader,
    groups: u64,
    options: Options,
}

fn permutations(plans: &[(String, Plan)]) -> Vec<Permutation> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for (name, plan) in plans {
        for step in &plan.steps {
            for options in OPTIONS {
                let variants = wgsl::variants(step, plan, options);
                assert_eq!(variants.len() > 1, wgsl::is_tunable(step.kernel.name));
                for v in &variants {
                    let shader = wgsl::assemble(step, plan, options, v);
                    if seen.insert(format!("{}{:?}", shader.source, shader.constants)) {
                        let kernel = step.kernel.name;
                        out.push(Permutation {
                            name: format!("{kernel} ({}) in {name}, {options:?}", v.name),
                            step: step.clone(),
                            shader,
                            groups: v.groups,
                            options,
                        });
                    }
                }
            }
        }
    }
    out
}

fn parse(name: &str, source: &str) -> (Module, ModuleInfo) {
    let module = naga::front::wgsl::parse_str(source)
        .unwrap_or_else(|e| panic!("{name}: {}\n{source}", e.emit_to_string(source)));
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .unwrap_or_else(|e| panic!("{name}: {}\n{source}", e.emit_to_string(source)));
    (module, info)
}

/// With the override constants in place.
fn fixed(s: &Shader, module: &Module, info: &ModuleInfo) -> (Module, ModuleInfo) {
    let constants = s.constants.iter().cloned().collect::<HashMap<_, _>>();
    let constants = constants.into_iter().collect();
    let (m, i) = naga::back::pipeline_constants::process_overrides(
        module,
        info,
        Some((ShaderStage::Compute, "main")),
        &constants,
    )
    .expect("overrides have values");
    (m.into_owned(), i.into_owned())
}

#[test]
fn every_permutation_validates_and_binds_what_its_kernel_says() {
    let plans = plans::all();
    let all = permutations(&plans);
    let mut kernels_seen = HashSet::new();
    for p in &all {
        let (module, info) = parse(&p.name, &p.shader.source);
        fixed(&p.shader, &module, &info);
        kernels_seen.insert(p.step.kernel.name);
        bindings_fit(p, &module);
        let entry = &module.entry_points[0];
        assert_eq!(
            (entry.name.as_str(), module.entry_points.len()),
            ("main", 1)
        );
        assert_eq!(entry.workgroup_size, p.shader.workgroup_size, "{}", p.name);
        assert!(
            entry.workgroup_size.iter().product::<u32>() <= 256,
            "{}",
            p.name
        );
        assert!(p.groups > 0, "{}", p.name);
        for (name, _) in &p.shader.constants {
            let found = module
                .overrides
                .iter()
                .any(|(_, o)| o.name.as_deref() == Some(name));
            assert!(found, "{}: there is no constant {name}", p.name);
        }
    }
    for k in kernels::ALL {
        assert!(
            kernels_seen.contains(k.name),
            "no plan here uses {}",
            k.name
        );
    }
    println!("{} texts", all.len());
}

fn bindings_fit(p: &Permutation, module: &Module) {
    let k = p.step.kernel;
    let mut expected = vec![Access::Read; p.step.reads.len()];
    expected.extend(
        k.bindings
            .iter()
            .map(|b| b.access)
            .filter(|a| *a != Access::Read),
    );
    if p.step.params.expr.is_none() {
        let declared: Vec<Access> = k.bindings.iter().map(|b| b.access).collect();
        assert_eq!(declared, expected, "{}: reads come first", p.name);
    }
    assert!(expected.len() <= 7, "{}", p.name);
    let mut memory = 0;
    let mut bound = vec![None; expected.len()];
    for (_, v) in module.global_variables.iter() {
        let layout = module.types[v.ty].inner.size(module.to_ctx());
        match v.space {
            AddressSpace::WorkGroup => memory += layout,
            // The parameters: a storage buffer on software devices, else a uniform.
            space
                if space == AddressSpace::Uniform
                    || v.binding.as_ref().is_some_and(|b| b.binding == 0) =>
            {
                assert_eq!(space != AddressSpace::Uniform, p.options.software);
                assert_eq!(
                    v.binding.as_ref().map(|b| (b.group, b.binding)),
                    Some((0, 0))
                );
                let mut words = p.step.params.words.len();
                if k.host != Host::No {
                    words -= 2 * p.step.operands().len(); // literals in a host
                }
                assert_eq!(layout as usize, 4 * words, "{}: uniform block", p.name);
                assert_eq!(p.shader.uniform_words, words, "{}", p.name);
            }
            AddressSpace::Storage { access } => {
                let b = v.binding.as_ref().expect("storage is bound");
                assert_eq!(b.group, 0);
                bound[b.binding as usize - 1] = Some(access);
            }
            _ => {}
        }
    }
    assert!(
        memory <= 16384,
        "{}: {memory} bytes of workgroup memory",
        p.name
    );
    for (i, (have, want)) in bound.iter().zip(&expected).enumerate() {
        let want = match want {
            Access::Read => StorageAccess::LOAD,
            _ => StorageAccess::LOAD | StorageAccess::STORE,
        };
        assert_eq!(*have, Some(want), "{}: binding {}", p.name, i + 1);
    }
}

#[test]
fn every_permutation_translates_to_spirv_msl_and_hlsl() {
    let plans = plans::all();
    for p in permutations(&plans) {
        let (module, info) = parse(&p.name, &p.shader.source);
        let (module, info) = fixed(&p.shader, &module, &info);
        let spv = naga::back::spv::write_vec(&module, &info, &Default::default(), None);
        spv.unwrap_or_else(|e| panic!("{}: SPIR-V: {e}", p.name));
        let msl_options = naga::back::msl::Options {
            lang_version: (2, 1), // what wgpu asks for at the least
            fake_missing_bindings: true,
            ..Default::default()
        };
        naga::back::msl::write_string(&module, &info, &msl_options, &Default::default())
            .unwrap_or_else(|e| panic!("{}: MSL: {e}", p.name));
        let hlsl_options = naga::back::hlsl::Options::default();
        let pipeline = Default::default();
        let mut text = String::new();
        naga::back::hlsl::Writer::new(&mut text, &hlsl_options, &pipeline)
            .write(&module, &info, None)
            .unwrap_or_else(|e| panic!("{}: HLSL: {e}", p.name));
    }
}

#[test]
fn every_shader_file_is_embedded() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let mut found = Vec::new();
    for dir in ["", "lib", "probe"] {
        for entry in std::fs::read_dir(root.join(dir)).expect("the shaders' folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "wgsl") {
                let name = path.strip_prefix(&root).expect("inside").to_string_lossy();
                found.push(name.replace('\\', "/"));
            }
        }
    }
    found.sort();
    let mut embedded: Vec<String> = wgsl::NAMES.iter().map(|s| s.to_string()).collect();
    embedded.sort();
    assert_eq!(found, embedded);
}

fn portable(o: Options) -> bool {
    o.fence && !o.fused
}

#[test]
fn every_permutation_is_portable() {
    let plans = plans::all();
    let mut failed = BTreeSet::new();
    let mut linted = 0;
    for p in permutations(&plans).iter().filter(|p| portable(p.options)) {
        let findings = lint::lint(&p.shader.source).unwrap_or_else(|e| panic!("{}: {e}", p.name));
        linted += 1;
        for f in findings {
            failed.insert(format!("{}: {}: {}", p.step.kernel.name, f.rule, f.text));
        }
    }
    println!("{linted} texts");
    assert!(failed.is_empty(), "{failed:#?}");
}

/// The probe's shaders are no part of a run, but those that stand for portable kernels keep their rules.
/// The others ask what a device does where nothing holds it, and break them on purpose.
#[test]
fn the_probe_keeps_the_rules_but_for_its_facts() {
    const FREE: &[(&str, &str)] = &[
        (
            "probe_facts",
            "built-in functions and unfenced products are its questions",
        ),
        (
            "probe_halves",
            "the built-in fp16 conversions are its questions",
        ),
    ];
    let mut seen = 0;
    for plan in isobit::numerics::probe::plans() {
        for step in &plan.steps {
            let name = step.kernel.name;
            let shader = wgsl::shader(step, &plan, OPTIONS[0]);
            let findings = lint::lint(&shader.source).unwrap_or_else(|e| panic!("{name}: {e}"));
            match FREE.iter().find(|f| f.0 == name) {
                Some((_, why)) => assert!(!findings.is_empty(), "{name} needs no leave: {why}"),
                None => assert!(findings.is_empty(), "{name}: {findings:?}"),
            }
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} steps");
}

/// The files of a folder of shaders, by name.
fn folder(name: &str) -> Vec<(String, String)> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name);
    let mut out: Vec<_> = std::fs::read_dir(dir)
        .expect("a folder")
        .map(|e| e.expect("an entry").path())
        .map(|p| {
            let text = std::fs::read_to_string(&p).expect("a text");
            (
                p.file_name()
                    .expect("a file")
                    .to_string_lossy()
                    .into_owned(),
                text,
            )
        })
        .collect();
    out.sort();
    out
}

#[test]
fn each_bad_shader_is_rejected_for_its_own_reason() {
    let bad = folder("bad_shaders");
    let mut rules = HashSet::new();
    for (name, text) in &bad {
        let rule = text
            .lines()
            .next()
            .and_then(|l| l.strip_prefix("// rule: "))
            .expect("names its rule");
        let findings = lint::lint(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!findings.is_empty(), "{name} is not rejected");
        for f in findings {
            assert_eq!(f.rule, rule, "{name}: {f:?}");
        }
        rules.insert(rule.to_string());
    }
    for rule in [
        lint::BUILT_IN,
        lint::DIVISION,
        lint::CONVERSION,
        lint::ATOMIC,
        lint::SUBGROUP,
        lint::PRODUCT,
        lint::MARK,
        lint::POINTER,
    ] {
        assert!(
            rules.contains(rule),
            "no bad shader breaks the rule {rule:?}"
        );
    }
    for (name, text) in folder("good_shaders") {
        let findings = lint::lint(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(findings.is_empty(), "{name}: {findings:?}");
    }
}

/// The texts on cooperative matrices, which are no core WGSL: they validate where a device has the
/// extension, are refused where it has none, and translate for Vulkan and Metal. Nothing runs here.
#[test]
fn cooperative_texts_validate_and_translate() {
    use isobit::exec::wgpu::cooperative::{FILES, Shape, text};
    use naga::back::{msl, spv};
    let all = Capabilities::COOPERATIVE_MATRIX | Capabilities::SHADER_FLOAT16;
    for (file, _) in FILES {
        for (size, lanes) in [(8, 8), (8, 32), (16, 32), (16, 64)] {
            let source = text(file, Shape { size, lanes });
            let name = format!("{file}, {size} x {size}, {lanes} lanes");
            let module = naga::front::wgsl::parse_str(&source)
                .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&source)));
            let check = |c| {
                let checked = Validator::new(ValidationFlags::all(), c).validate(&module);
                checked.map_err(|e| e.emit_to_string(&source))
            };
            let info = check(all).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(check(Capabilities::SHADER_FLOAT16).is_err(), "{name}");
            let entry = &module.entry_points[0];
            assert_eq!(entry.workgroup_size, [lanes, 1, 1], "{name}");
            let options = spv::Options {
                lang_version: (1, 6),
                capabilities: None,
                ..Default::default()
            };
            let words = spv::write_vec(&module, &info, &options, None)
                .unwrap_or_else(|e| panic!("{name}: SPIR-V: {e}"));
            if let Some(dir) = std::env::var_os("ISOBIT_KEEP_SPIRV") {
                let path = std::path::Path::new(&dir).join(format!("{file}.{size}.{lanes}.spv"));
                std::fs::write(path, bytemuck::cast_slice(&words)).expect("written");
            }
            // Metal's are 8 x 8.
            if size != 8 {
                continue;
            }
            let options = msl::Options {
                lang_version: (2, 4),
                fake_missing_bindings: true,
                ..Default::default()
            };
            let (metal, _) = msl::write_string(&module, &info, &options, &Default::default())
                .unwrap_or_else(|e| panic!("{name}: Metal: {e}"));
            assert!(metal.contains("simdgroup_"), "{name}");
        }
    }
}
