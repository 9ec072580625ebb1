//! The kernel table timed on every device of the machine, and what the fence and the belt cost:
//! `cargo bench --bench kernels [-- NAME-OF-A-DEVICE]`. The rows are those of the tests.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/devices.rs"]
mod devices;
#[path = "../tests/plans/mod.rs"]
mod plans;

use isobit::exec::Executor;
use isobit::exec::cpu::Cpu;
use isobit::exec::wgpu::Tuning;
use isobit::ops::{Case, Op};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Median wall-clock time of a case in ms, after a first run that compiles.
fn time(exec: &mut dyn Executor, case: &Case) -> f64 {
    let plan = Arc::new(plans::of_case(case));
    let id = exec.load(plan).expect("loads");
    for (i, words) in plans::operands(case, 1, false).iter().enumerate() {
        exec.write_input(id, &format!("x{i}"), words)
            .expect("written");
    }
    exec.run(id).expect("runs");
    let mut all: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            exec.run(id).expect("runs");
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all[2]
}

fn table(label: &str, exec: &mut dyn Executor) {
    let mut by_op: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for case in plans::cases() {
        let name = isobit::ops::def(&case.op).name.to_string();
        let e = by_op.entry(name).or_default();
        *e = (e.0 + 1, e.1 + time(exec, &case));
    }
    println!("\n{label}");
    for (name, (rows, ms)) in by_op {
        println!("  {name:<16} {rows:>3} rows {ms:>10.3} ms");
    }
}

/// A square f32 product with fence and belt on and off.
fn fence_and_belt(wanted: &str) {
    const N: usize = 512;
    let case = Case::new(
        Op::MatMul {
            ta: false,
            tb: true,
        },
        &[&[N, N], &[N, N]],
    );
    let gflop = 2.0 * (N as f64).powi(3) / 1e9;
    println!("\nf32 product, {N} x {N} x {N}: what keeps its bits costs");
    for (fence, belt, name) in [
        (true, true, "fence and belt"),
        (true, false, "fence"),
        (false, true, "belt"),
        (false, false, "neither (other bits)"),
    ] {
        for (label, mut device) in devices::tuned(Tuning { belt, fence }) {
            if label.contains(wanted) {
                let ms = time(&mut device, &case);
                let belt = if device.has_belt() == belt {
                    ""
                } else {
                    " (no belt on this backend)"
                };
                println!(
                    "  {label:<12} {name:<22} {ms:>8.2} ms {:>7.2} GFLOP/s{belt}",
                    gflop / ms * 1e3
                );
            }
        }
    }
    let ms = time(&mut Cpu::new(None).expect("threads"), &case);
    println!(
        "  {:<12} {:<22} {ms:>8.2} ms {:>7.2} GFLOP/s",
        "cpu",
        "separate mul and add",
        gflop / ms * 1e3
    );
}

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .unwrap_or_default();
    fence_and_belt(&wanted);
    if "cpu".contains(&wanted) {
        table("cpu", &mut Cpu::new(None).expect("threads"));
    }
    for (label, mut device) in devices::devices() {
        if label.contains(&wanted) {
            table(&label, &mut device);
        }
    }
}
