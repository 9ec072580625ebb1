//! A tensor's digest: the wrapping sums of two independent 32-bit mixes of (tensor, element, bits).
//! Free of order, so any device computes it in parallel, but not blind to a swap of elements.

use super::{Host, KernelDef, Params, View, ViewMut, read, write_u32};
use rayon::prelude::*;

/// Words of a digest block: one pair of sums for each run of [`BLOCK`] elements.
pub const BLOCK: usize = 4096;

/// `x[n] -> out[ceil(n / BLOCK), 2]`: the two sums of each block; the host adds the blocks, modulo 2^32.
/// Uniform words: n, tensor id.
pub static DIGEST: KernelDef = KernelDef {
    name: "digest",
    bindings: &[read("x"), write_u32("out")],
    host: Host::No,
    cpu: digest,
};

/// The uniform block.
pub fn params(n: usize, tensor: u32) -> Params {
    Params::new(&[n as u32, tensor])
}

/// The finaliser of MurmurHash3 (A. Appleby, public domain): each input bit reaches each output bit.
#[inline(always)]
pub fn mix(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// The two mixes of one element. -0 counts as +0.
#[inline(always)]
pub fn element(tensor: u32, index: u32, bits: u32) -> (u32, u32) {
    let bits = if bits == 0x8000_0000 { 0 } else { bits };
    let key = mix(tensor.wrapping_mul(0x9e37_79b9) ^ mix(index ^ 0x5bd1_e995));
    (
        mix(bits ^ key),
        mix(bits.wrapping_mul(0x27d4_eb2f) ^ key.rotate_left(15)),
    )
}

crate::multiversion! {
    fn block(tensor: u32, first: u32, x: &[u32], out: &mut [u32]) {
        let (mut a, mut b) = (0u32, 0u32);
        for (i, &bits) in x.iter().enumerate() {
            let (p, q) = element(tensor, first + i as u32, bits);
            a = a.wrapping_add(p);
            b = b.wrapping_add(q);
        }
        (out[0], out[1]) = (a, b);
    }
}

fn digest(p: &Params, reads: &[View], writes: &mut [ViewMut]) {
    let tensor = p.words[2];
    reads[0]
        .words
        .par_chunks(BLOCK)
        .zip(writes[0].words.par_chunks_mut(2))
        .enumerate()
        .for_each(|(i, (x, out))| block(tensor, (i * BLOCK) as u32, x, out));
}

/// The whole digest from the sums of all blocks of all tensors.
pub fn combine(words: impl IntoIterator<Item = u32>) -> u64 {
    let (mut a, mut b) = (0u32, 0u32);
    for (i, w) in words.into_iter().enumerate() {
        if i % 2 == 0 {
            a = a.wrapping_add(w);
        } else {
            b = b.wrapping_add(w);
        }
    }
    (a as u64) << 32 | b as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(x: &[f32]) -> u64 {
        combine(
            x.iter()
                .enumerate()
                .flat_map(|(i, v)| <[u32; 2]>::from(element(3, i as u32, v.to_bits()))),
        )
    }

    #[test]
    fn sees_swaps_and_single_bits_but_not_the_sign_of_zero() {
        let x = [1.0, 2.0, 0.0, -3.5];
        assert_ne!(of(&x), of(&[2.0, 1.0, 0.0, -3.5]));
        assert_ne!(
            of(&x),
            of(&[1.0, f32::from_bits(2f32.to_bits() + 1), 0.0, -3.5])
        );
        assert_eq!(of(&x), of(&[1.0, 2.0, -0.0, -3.5]));
    }
}
