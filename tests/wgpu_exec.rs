//! The wgpu executor on every device of the machine.

mod common;

#[test]
fn lists() {
    for (label, f) in common::devices::found() {
        println!("{label}: {} {} | {} | {}\n{:?}\n{:?} {:?}", f.index, f.title(), f.driver, f.driver_info, f.limits, f.features, f.unusable);
    }
    let t = std::time::Instant::now();
    let d = common::devices::devices();
    println!("{:?}", t.elapsed());
    for (l, w) in &d { println!("{l} belt {}", w.has_belt()); }
}
