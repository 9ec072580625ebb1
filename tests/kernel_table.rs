//! Every kernel on every device of the machine against its Rust twin, bit for bit.

mod common;
#[path = "common/devices.rs"]
mod devices;
mod plans;

use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::{Tuning, Wgpu};
use isobit::plan::Plan;
use plans::{Written, differing, trace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plan with its inputs and what the CPU makes of them.
struct Row {
    name: String,
    plan: Arc<Plan>,
    inputs: Vec<Vec<u32>>,
    expected: Written,
}

fn rows() -> Vec<Row> {
    let mut cpu = Cpu::new(Some(2)).expect("two threads");
    let mut out = Vec::new();
    for (n, case) in plans::cases().iter().enumerate() {
        let plan = Arc::new(plans::of_case(case));
        for rough in [false, true] {
            let inputs = plans::operands(case, n as u64, rough);
            let name = format!(
                "{}{}",
                plans::title(case),
                if rough { ", rough" } else { "" }
            );
            let expected = trace(&mut cpu, &plan, &inputs);
            out.push(Row {
                name,
                plan: plan.clone(),
                inputs,
                expected,
            });
        }
    }
    let plan = Arc::new(plans::random_bits(1001));
    let expected = trace(&mut cpu, &plan, &[]);
    out.push(Row {
        name: "random bits".into(),
        plan,
        inputs: vec![],
        expected,
    });
    let plan = Arc::new(plans::multiply_add(1003, 7));
    let inputs = vec![
        (0..1003)
            .map(|i| (1.0 + i as f32 / 1003.0).to_bits())
            .collect(),
    ];
    let expected = trace(&mut cpu, &plan, &inputs);
    out.push(Row {
        name: "multiply-adds".into(),
        plan,
        inputs,
        expected,
    });
    out
}

/// Runs all rows on a device; returns (kernel, differing elements, elements) and prints the first rows
/// that differ.
fn compare<'a>(
    label: &str,
    rows: impl IntoIterator<Item = &'a Row>,
    device: &mut Wgpu,
) -> BTreeMap<&'static str, (usize, usize)> {
    let mut out = BTreeMap::new();
    let mut told = 0;
    for row in rows {
        let have = trace(device, &row.plan, &row.inputs);
        device
            .check_guards()
            .unwrap_or_else(|e| panic!("{}: {e}", row.name));
        for ((kernel, want), (_, have)) in row.expected.iter().zip(&have) {
            let bad = differing(want, have);
            let entry = out.entry(*kernel).or_insert((0, 0));
            *entry = (entry.0 + bad.len(), entry.1 + want.len());
            if let (Some(&i), true) = (bad.first(), told < 20) {
                told += 1;
                println!(
                    "{label}: {kernel} in {}: {} of {} differ, first at {i}: {:08x} ({:e}) for {:08x} ({:e})",
                    row.name,
                    bad.len(),
                    want.len(),
                    have[i],
                    f32::from_bits(have[i]),
                    want[i],
                    f32::from_bits(want[i]),
                );
            }
        }
    }
    out
}

/// Every row on one device, with the variants for software devices or for others. The choice of variant
/// changes no bit, so a device is held to both where it has the time.
fn holds(wanted: &str, variants: &[bool]) {
    let rows = rows();
    for (label, found) in devices::found() {
        let software = ["lavapipe", "swiftshader", "gl"].contains(&label.as_str());
        if label != wanted && (software || wanted != "real GPUs") {
            continue;
        }
        for &software in variants {
            let mut f = found.clone();
            f.software = software;
            let start = std::time::Instant::now();
            let mut device = Wgpu::new(&f, Tuning::default())
                .unwrap_or_else(|e| panic!("{label}: {e}"))
                .with_guards();
            let name = if software { "software" } else { "gpu" };
            let table = compare(&format!("{label} ({name})"), &rows, &mut device);
            let bad: usize = table.values().map(|v| v.0).sum();
            let all: usize = table.values().map(|v| v.1).sum();
            println!(
                "{label}, {name} variants: {bad} of {all} elements differ, {} kernels, {:.1} s",
                table.len(),
                start.elapsed().as_secs_f64()
            );
            for (kernel, (bad, all)) in table.iter().filter(|(_, v)| v.0 > 0) {
                println!("  {kernel}: {bad} of {all}");
            }
            assert_eq!(bad, 0, "{label}: see above");
        }
    }
}

#[test]
fn lavapipe_gives_the_twins_bits() {
    holds("lavapipe", &[true, false]);
}

#[test]
fn swiftshader_gives_the_twins_bits() {
    holds("swiftshader", &[true, false]);
}

/// The same code generator as lavapipe's behind another interface: the variants it would choose.
#[test]
fn gl_gives_the_twins_bits() {
    holds("gl", &[true]);
}

/// Variants that neither kind of device would choose by itself at the table's shapes, but tuning may: the
/// second of each kernel, and the others of the product.
#[test]
fn every_variant_gives_the_twins_bits() {
    const SECOND: &[&str] = &["MatMul", "LayerNorm", "Softmax", "Reduce", "Lse"];
    let rows = rows();
    for (label, f) in devices::found() {
        let all: &[(usize, &[&str])] = match label.as_str() {
            "lavapipe" => &[(1, SECOND), (2, &["MatMul"]), (3, &["MatMul"])],
            "swiftshader" => &[(2, &["MatMul"])],
            _ => continue,
        };
        for (n, kinds) in all {
            let device =
                Wgpu::new(&f, Tuning::default()).unwrap_or_else(|e| panic!("{label}: {e}"));
            let mut device = device.with_guards().with_variant(*n);
            let kept = |r: &&Row| kinds.iter().any(|k| r.name.contains(k));
            let kept = rows.iter().filter(kept);
            let table = compare(&format!("{label}, variant {n}"), kept, &mut device);
            let bad: usize = table.values().map(|v| v.0).sum();
            assert_eq!(bad, 0, "{label}, variant {n}: {table:?}");
            println!("{label}: variant {n} of {:?}", table.keys());
        }
    }
}

#[test]
fn real_gpus_give_the_twins_bits() {
    holds("real GPUs", &[false]);
}

/// Where there is no belt (Metal, DX12, GL) the fence must hold alone. lavapipe without its belt is the
/// device that shows it: it puts the value of a uniform word that a loop's end depends on into the whole
/// shader, so a fence whose zero also bounds a loop is none.
#[test]
fn the_fence_holds_without_the_belt() {
    const KINDS: [&str; 6] = [
        "Attention",
        "MatMul",
        "LayerNorm",
        "Softmax",
        "Reduce",
        "Pw(",
    ];
    let kept = |r: &Row| KINDS.iter().any(|k| r.name.contains(k));
    let rows: Vec<Row> = rows().into_iter().filter(kept).collect();
    let tuning = Tuning {
        belt: false,
        fence: true,
    };
    for (label, f) in devices::found() {
        if label != "lavapipe" {
            continue;
        }
        let mut device = Wgpu::new(&f, tuning).unwrap_or_else(|e| panic!("{label}: {e}"));
        let table = compare(&format!("{label}, no belt"), &rows, &mut device);
        let bad: usize = table.values().map(|v| v.0).sum();
        assert_eq!(bad, 0, "{table:?}");
    }
}

/// The table is able to fail: without fences and belt, compilers are free to contract and to reassociate,
/// and somewhere they do.
#[test]
fn without_fences_and_belt_some_bits_differ() {
    // A few kernels are enough to show it.
    let few = |r: &Row| {
        ["MatMul", "Exp", "Erf", "LayerNorm("]
            .iter()
            .any(|n| r.name.contains(n))
    };
    let rows: Vec<Row> = rows().into_iter().filter(few).collect();
    let found = devices::found();
    let off = Tuning {
        belt: false,
        fence: false,
    };
    let mut differing = 0;
    for (label, f) in &found {
        let mut device = Wgpu::new(f, off).unwrap_or_else(|e| panic!("{label}: {e}"));
        let table = compare(&format!("{label}, no fences"), &rows, &mut device);
        for (kernel, (bad, all)) in table.iter().filter(|r| r.1.0 > 0) {
            println!("{label}, no fences: {kernel}: {bad} of {all} elements differ");
            differing += bad;
        }
    }
    assert!(found.is_empty() || differing > 0, "nothing differs");
}
