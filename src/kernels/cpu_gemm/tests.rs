//! Bit for bit against a naive scalar fold.

use super::*;
use crate::kernels::simd::{set_isa, with_fused};
use half::bf16;

/// A stored matrix, as the values that its operand holds and as words.
struct Matrix {
    values: Vec<f32>,
    words: Vec<u32>,
    bf16: bool,
}

impl Matrix {
    fn operand(&self) -> Operand<'_> {
        if self.bf16 {
            Operand::Bf16(&self.words)
        } else {
            Operand::F32(&self.values)
        }
    }
}

/// 64-bit linear congruential generator, upper half.
fn random(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    (*state >> 32) as u32
}

/// Ordinary values mixed with zeros, subnormals and values about both floors.
fn value(state: &mut u64) -> f32 {
    let r = random(state);
    let sign = r & 0x8000_0000;
    let mantissa = random(state) & 0x007f_ffff;
    let exponent = match r % 16 {
        0 => return f32::from_bits(sign),
        1 => return f32::from_bits(sign | mantissa),
        2 => 127 - 57 + (r >> 8) % 8,
        3 => return f32::from_bits(sign | ((127 - 51) << 23)),
        4 => return f32::from_bits(sign | (((127 - 51) << 23) - 1)),
        5 => return f32::from_bits(sign | ((127 - 55) << 23)),
        _ => 127 - 4 + (r >> 8) % 8,
    };
    f32::from_bits(sign | exponent << 23 | mantissa)
}

fn matrix(rows: usize, cols: usize, bf16: bool, seed: u64) -> Matrix {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut values: Vec<f32> = (0..rows * cols).map(|_| value(&mut state)).collect();
    let mut words = Vec::new();
    if bf16 {
        values
            .iter_mut()
            .for_each(|x| *x = bf16::from_f32(*x).to_f32());
        for row in values.chunks(cols.max(1)) {
            // The padding is not part of the matrix: nothing may read it.
            let bits = |x: Option<&f32>| x.map_or(0x7fc0, |x| x.to_bits() >> 16);
            words.extend(
                row.chunks(2)
                    .map(|two| bits(two.first()) | bits(two.get(1)) << 16),
            );
        }
    }
    Matrix {
        values,
        words,
        bf16,
    }
}

/// The contract, word for word.
fn naive(g: &Gemm, ks: Range<usize>, a: &Matrix, b: &Matrix) -> Vec<f32> {
    let limit = if a.bf16 && b.bf16 {
        2f32.powi(-55)
    } else {
        2f32.powi(-51)
    };
    let floor = |x: f32| if x.abs() < limit { 0.0 } else { x };
    let mut c = vec![0.0; g.m * g.n];
    for i in 0..g.m {
        for j in 0..g.n {
            let mut acc = 0.0f32;
            for p in ks.clone() {
                let x = a.values[if g.ta { p * g.m + i } else { i * g.k + p }];
                let y = b.values[if g.tb { j * g.k + p } else { p * g.n + j }];
                let product = floor(x) * floor(y);
                acc += product;
            }
            c[i * g.n + j] = acc;
        }
    }
    c
}

fn check(g: Gemm, ks: Range<usize>, types: (bool, bool), isas: &[Isa]) {
    let (ar, ac) = if g.ta { (g.k, g.m) } else { (g.m, g.k) };
    let (br, bc) = if g.tb { (g.n, g.k) } else { (g.k, g.n) };
    let a = matrix(ar, ac, types.0, 1 + g.m as u64);
    let b = matrix(br, bc, types.1, 99 + g.n as u64);
    let want = naive(&g, ks.clone(), &a, &b);
    for &isa in isas {
        let mut c = vec![f32::NAN; g.m * g.n];
        run(
            isa,
            &g,
            ks.clone(),
            a.operand(),
            b.operand(),
            None,
            Target::F32(&mut c),
        );
        for (at, (got, want)) in c.iter().zip(&want).enumerate() {
            let same = got.to_bits() == want.to_bits();
            assert!(
                same,
                "{isa:?} {g:?} {ks:?} {types:?}: C[{at}] is {got:e}, not {want:e}"
            );
        }
    }
}

fn available() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available()).collect()
}

const TYPES: [(bool, bool); 4] = [(false, false), (true, true), (true, false), (false, true)];

fn layouts(m: usize, n: usize, k: usize) -> impl Iterator<Item = Gemm> {
    (0..4).map(move |bits| Gemm {
        m,
        n,
        k,
        ta: bits & 1 != 0,
        tb: bits & 2 != 0,
    })
}

#[test]
fn edge_shapes() {
    let isas = available();
    let sides = [1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 31, 32, 33, 37];
    let depths = [1, 2, 7, 8, 9, 16, 23];
    for (x, &m) in sides.iter().enumerate() {
        for (y, &n) in sides.iter().enumerate() {
            for g in layouts(m, n, depths[(x + 3 * y) % depths.len()]) {
                for types in TYPES {
                    check(g, 0..g.k, types, &isas);
                }
            }
        }
    }
}

#[test]
fn ranges_of_k() {
    let isas = available();
    for g in layouts(13, 35, 41) {
        for types in TYPES {
            for ks in [0..0, 5..5, 41..41, 0..1, 40..41, 1..41, 3..30, 8..24, 0..40] {
                check(g, ks, types, &isas);
            }
        }
    }
}

#[test]
fn blocks_of_k_continue_the_fold() {
    let isas = available();
    let depth = |fuse| isas.iter().map(move |isa| Kernels::of(*isa, fuse).kc).max();
    let kc = depth(true).max(depth(false)).unwrap();
    for (m, n) in [(25, 67), (67, 25), (1, 97), (97, 1)] {
        for g in layouts(m, n, 2 * kc + 13) {
            for types in [(false, false), (true, true)] {
                check(g, 0..g.k, types, &isas);
                check(g, 7..g.k - 2, types, &isas);
            }
        }
    }
}

#[test]
fn own_operand_packed_in_several_parts() {
    for (m, n) in [(200, 9), (9, 400)] {
        for g in layouts(m, n, 3000) {
            for types in [(false, false), (true, true)] {
                check(g, 0..g.k, types, &available());
            }
        }
    }
}

#[test]
fn shared_operand_in_several_passes() {
    let isas = [isa()];
    check(
        Gemm {
            m: 4200,
            n: 4099,
            k: 3,
            ta: false,
            tb: true,
        },
        0..3,
        (false, false),
        &isas,
    );
    check(
        Gemm {
            m: 4099,
            n: 4200,
            k: 3,
            ta: true,
            tb: false,
        },
        0..3,
        (true, true),
        &isas,
    );
    let long = Gemm {
        m: 70,
        n: 66,
        k: SHARED_ELEMS / 66 + 100,
        ta: true,
        tb: false,
    };
    check(long, 0..long.k, (false, false), &isas);
}

#[test]
fn threads_do_not_change_bits() {
    let isas = available();
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            for (m, n) in [(131, 65), (61, 190), (12, 500), (500, 5)] {
                for g in layouts(m, n, 300) {
                    for types in [(false, false), (true, true)] {
                        check(g, 0..g.k, types, &isas);
                    }
                }
            }
        });
    }
}

#[test]
fn products_are_rounded_before_the_add() {
    // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 when fused, 0 when the product is rounded first.
    let x = 1.0 + 2f32.powi(-12);
    let g = Gemm {
        m: 1,
        n: 1,
        k: 2,
        ta: false,
        tb: false,
    };
    for isa in available() {
        let mut c = [f32::NAN];
        let (a, b) = ([-1.0, x], [1.0 + 2f32.powi(-11), x]);
        run(
            isa,
            &g,
            0..2,
            Operand::F32(&a),
            Operand::F32(&b),
            None,
            Target::F32(&mut c),
        );
        assert_eq!(c[0].to_bits(), 0, "{isa:?}");
    }
}

#[test]
fn products_are_fused_only_with_leave() {
    let x = 1.0 + 2f32.powi(-12);
    let g = Gemm {
        m: 2,
        n: 1,
        k: 2,
        ta: false,
        tb: false,
    };
    let (a, b) = ([-1.0, x, -1.0, x], [1.0 + 2f32.powi(-11), x]);
    for isa in available() {
        for fused in [false, true] {
            let mut c = [f32::NAN; 2];
            let (a, b) = (Operand::F32(&a), Operand::F32(&b));
            with_fused(fused, || {
                run(isa, &g, 0..2, a, b, None, Target::F32(&mut c));
            });
            let can = isa != Isa::Portable;
            let expected = if fused && can { 2f32.powi(-24) } else { 0.0 };
            assert_eq!(c, [expected; 2], "{isa:?}, fused {fused}");
        }
    }
}

#[test]
fn sums_start_at_plus_zero() {
    let g = Gemm {
        m: 1,
        n: 1,
        k: 1,
        ta: false,
        tb: false,
    };
    for isa in available() {
        let mut c = [f32::NAN];
        run(
            isa,
            &g,
            0..1,
            Operand::F32(&[-0.0]),
            Operand::F32(&[1.0]),
            None,
            Target::F32(&mut c),
        );
        assert_eq!(c[0].to_bits(), 0, "{isa:?}");
    }
}

#[test]
fn isa_can_be_forced() {
    for forced in available() {
        set_isa(Some(forced));
        assert_eq!(isa(), forced);
    }
    set_isa(None);
    assert!(isa().available());
}

#[test]
#[should_panic(expected = "operand shorter")]
fn short_operand_is_refused() {
    let g = Gemm {
        m: 2,
        n: 2,
        k: 2,
        ta: false,
        tb: false,
    };
    gemm(
        &g,
        0,
        2,
        Operand::F32(&[0.0; 3]),
        Operand::F32(&[0.0; 4]),
        &mut [0.0; 4],
    );
}
