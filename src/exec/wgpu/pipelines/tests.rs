use super::*;

fn key(source: &str, reads: usize, writes: usize) -> Key {
    Key {
        source: source.into(),
        constants: vec![("N".into(), 8f64.to_bits())],
        reads,
        writes,
        bounds: false,
    }
}

const GOOD: &str = "
@group(0) @binding(0) var<uniform> u: vec3<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> o: array<u32>;
var<workgroup> w: array<u32, 9>;
override N: u32;
@compute @workgroup_size(N, 2)
fn main(@builtin(local_invocation_index) i: u32) {
    w[i % 9u] = x[i % u.x];
    o[i % u.x] = w[i % 9u];
}
";

#[test]
fn shaders_tell_what_they_ask_for() {
    let ready = prepare(&key(GOOD, 1, 1)).unwrap_or_else(|e| panic!("{e}"));
    let facts = Facts {
        workgroup: [8, 2, 1],
        workgroup_bytes: 48,
        uniform_bytes: 16,
    };
    assert_eq!(ready.facts, facts);
}

#[test]
fn wrong_shaders_are_refused_in_one_line() {
    let edits = [
        ("fn main(", "fn mian(", "no entry point"),
        ("var<uniform> u", "var<uniform u", "expected"),
        ("x[i % u.x];", "1.5;", "type"),
        ("binding(2)", "binding(3)", "does not fit"),
        // A buffer that is only read by the plan may not be written.
        (
            "var<storage, read> x",
            "var<storage, read_write> x",
            "does not fit",
        ),
        ("group(0) @binding(1)", "group(1) @binding(1)", "group 1"),
        ("override N: u32;", "override N: u32; override M: u32;", ""),
    ];
    for (from, to, says) in edits {
        assert!(GOOD.contains(from));
        let broken = GOOD.replace(from, to);
        match prepare(&key(&broken, 1, 1)) {
            // An override that nothing uses is dropped.
            Ok(_) => assert!(says.is_empty(), "{to}"),
            Err(e) => assert!(
                !says.is_empty() && e.contains(says) && e.lines().count() == 1,
                "{to}: {e}"
            ),
        }
    }
    assert!(prepare(&key(GOOD, 2, 1)).is_err());
    let unset = Key {
        constants: vec![],
        ..key(GOOD, 1, 1)
    };
    assert!(prepare(&unset).is_err());
}

/// Every shader of the catalogue that takes ids from data is built with checks.
#[test]
fn kernels_that_index_by_data_are_known() {
    let names: Vec<&str> = crate::kernels::ALL
        .iter()
        .filter(|k| wgsl::data_dependent(k))
        .map(|k| k.name)
        .collect();
    let expected = [
        "xent",
        "xent_grad",
        "attention_cached",
        "put_rows",
        "gather",
        "row_order",
        "gather_grad",
        "step_scalars",
        "loss_scale",
    ];
    assert_eq!(names, expected);
}
