use super::*;

#[test]
fn numbers_are_unique_and_controls_differ_on_their_vectors() {
    for (i, m) in TABLE.iter().enumerate() {
        assert!(
            TABLE[..i].iter().all(|o| (o.file, o.op) != (m.file, m.op)),
            "{}",
            m.name
        );
        let vectors = (m.vectors)();
        assert!(vectors.len() >= 16, "{}", m.name);
        let differ = vectors
            .iter()
            .filter(|t| (m.cpu)(**t) != (m.want)(**t))
            .count();
        assert_eq!(
            differ > 0,
            m.kind == Kind::Control,
            "{}: {differ} of {}",
            m.name,
            vectors.len()
        );
    }
}

#[test]
fn the_cases_of_public_reports_are_among_the_vectors() {
    // Truncation instead of rounding; contraction; a flushed square; tanh that overflows in gelu.
    let bf16 = |x: f32| f(nearest_bf16(x.to_bits()) << 16);
    assert_eq!(bf16(f(0x4048_f5c3)), 3.140625);
    assert_eq!(
        (bf16(261.0 / 256.0), bf16(259.0 / 256.0)),
        (1.015625, 1.015625)
    );
    let contraction = TABLE.iter().find(|m| m.op == 3).expect("a row");
    let x = 1.0 + two_to(-12);
    let first = (contraction.vectors)()[0];
    assert_eq!(first.map(f), [x, x, -(1.0 + two_to(-11))]);
    assert_eq!(f((contraction.want)(first)), 0.0);
    assert_eq!(x.mul_add(x, -(1.0 + two_to(-11))), two_to(-24));
    let flush = TABLE.iter().find(|m| m.op == 9).expect("a row");
    assert_eq!((flush.want)([1e-20f32.to_bits(), 1e-20f32.to_bits(), 0]), 0);
    let gelu = TABLE.iter().find(|m| m.name == "gelu").expect("a row");
    assert_eq!(f((gelu.want)([13.24f32.to_bits(), 0, 0])), 13.24);
    assert_eq!(f((gelu.want)([(-13.24f32).to_bits(), 0, 0])), 0.0);
}
