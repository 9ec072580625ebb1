//! One row times a matrix that is stored `[k,n]`: what generation does, token by token. The matrix is read
//! once, as it lies; neighbouring columns are summed side by side, each over ascending k.

use super::{Operand, SERIAL_WORK};
use crate::kernels::math::floor_to;
use rayon::prelude::*;
use std::ops::Range;

/// Columns that are summed together.
const COLUMNS: usize = 256;

/// `c[n] = a[ks] * b[ks, n]`.
pub(super) fn product(
    ks: Range<usize>,
    n: usize,
    (a, b): (Operand, Operand),
    floor: u32,
    c: &mut [f32],
) {
    let a: Vec<f32> = match a {
        Operand::F32(x) => x[ks.clone()].to_vec(),
        Operand::Bf16(x) => bytemuck::cast_slice::<u32, u16>(x)[ks.clone()]
            .iter()
            .map(|&h| f32::from_bits((h as u32) << 16))
            .collect(),
    };
    let a: Vec<f32> = a.iter().map(|&x| floor_to(x, floor)).collect();
    let columns = |(i, c): (usize, &mut [f32])| match b {
        Operand::F32(b) => wide(&a, &b[ks.start * n..], n, i * COLUMNS, floor, c),
        Operand::Bf16(b) => {
            let pitch = n.next_multiple_of(2);
            let b = &bytemuck::cast_slice::<u32, u16>(b)[ks.start * pitch..];
            narrow(&a, b, pitch, i * COLUMNS, floor, c);
        }
    };
    if a.len() * n < SERIAL_WORK {
        c.chunks_mut(COLUMNS).enumerate().for_each(columns);
    } else {
        c.par_chunks_mut(COLUMNS).enumerate().for_each(columns);
    }
}

crate::multiversion! {
    fn wide(a: &[f32], b: &[f32], pitch: usize, first: usize, floor: u32, c: &mut [f32]) {
        sums(a, |k| &b[k * pitch + first..], |x| x, floor, c);
    }

    fn narrow(a: &[f32], b: &[u16], pitch: usize, first: usize, floor: u32, c: &mut [f32]) {
        sums(a, |k| &b[k * pitch + first..], |h| f32::from_bits((h as u32) << 16), floor, c);
    }
}

#[inline(always)]
fn sums<'b, E: Copy + 'b>(
    a: &[f32],
    row: impl Fn(usize) -> &'b [E],
    value: impl Fn(E) -> f32,
    floor: u32,
    c: &mut [f32],
) {
    let mut done = 0;
    // Whole groups of columns in registers, then the rest.
    const GROUP: usize = 64;
    while c.len() - done >= GROUP {
        let mut acc = [0f32; GROUP];
        for (k, &x) in a.iter().enumerate() {
            let b: &[E; GROUP] = row(k)[done..done + GROUP].try_into().expect("a group");
            for j in 0..GROUP {
                acc[j] += x * floor_to(value(b[j]), floor);
            }
        }
        c[done..done + GROUP].copy_from_slice(&acc);
        done += GROUP;
    }
    let rest = &mut c[done..];
    rest.fill(0.0);
    for (k, &x) in a.iter().enumerate() {
        for (c, &b) in rest.iter_mut().zip(&row(k)[done..]) {
            *c += x * floor_to(value(b), floor);
        }
    }
}
