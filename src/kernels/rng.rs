//! Counter-based random numbers: Threefry-2x32 with 20 rounds (Salmon et al., SC'11, "Parallel random
//! numbers: as easy as 1, 2, 3"). A number is a function of its key and counter, never of a thread or a
//! launch shape.

use super::{Host, KernelDef, Params, View, ViewMut, write_u32};
use rayon::prelude::*;

/// `out[2 i], out[2 i + 1] = threefry(key, (i, stream))`. Uniform words: n (words, even), key 0, key 1,
/// stream.
pub static RANDOM_BITS: KernelDef = KernelDef {
    name: "random_bits",
    bindings: &[write_u32("out")],
    host: Host::No,
    cpu: random_bits,
};

/// Threefry-2x32-20.
pub fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    let ks = [key[0], key[1], 0x1bd1_1bda ^ key[0] ^ key[1]];
    let mut x = [
        counter[0].wrapping_add(ks[0]),
        counter[1].wrapping_add(ks[1]),
    ];
    for round in 0..20 {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(ROTATIONS[round % 8]) ^ x[0];
        if round % 4 == 3 {
            let s = round / 4 + 1;
            x[0] = x[0].wrapping_add(ks[s % 3]);
            x[1] = x[1].wrapping_add(ks[(s + 1) % 3]).wrapping_add(s as u32);
        }
    }
    x
}

fn random_bits(p: &Params, _: &[View], writes: &mut [ViewMut]) {
    let (key, stream) = ([p.words[2], p.words[3]], p.words[4]);
    writes[0]
        .words
        .par_chunks_mut(2)
        .with_min_len(4096)
        .enumerate()
        .for_each(|(i, out)| {
            let x = threefry(key, [i as u32, stream]);
            out.copy_from_slice(&x[..out.len()]);
        });
}

/// A stream of numbers on the host: batches, initial weights.
pub struct Stream {
    key: [u32; 2],
    stream: u32,
    next: u32,
}

impl Stream {
    /// The stream `stream` of the seed.
    pub fn new(seed: u64, stream: u32) -> Stream {
        Stream {
            key: [seed as u32, (seed >> 32) as u32],
            stream,
            next: 0,
        }
    }

    /// The stream from its counter `next` on.
    pub fn at(seed: u64, stream: u32, next: u32) -> Stream {
        Stream {
            next,
            ..Stream::new(seed, stream)
        }
    }

    /// Seed, stream and next counter: what [`Stream::at`] takes.
    pub fn position(&self) -> (u64, u32, u32) {
        let seed = u64::from(self.key[1]) << 32 | u64::from(self.key[0]);
        (seed, self.stream, self.next)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b] = threefry(self.key, [self.next, self.stream]);
        self.next = self.next.wrapping_add(1);
        (a as u64) << 32 | b as u64
    }

    /// Uniform in 0..n (n at least 1), by the high half of a product: bias below n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.bits() as u128 * n as u128) >> 64) as u64
    }

    /// Uniform in (0, 1], 53 bits.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal deviate (Box and Muller, 1958; the cosine half), in pure-Rust f64.
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.unit(), self.unit());
        libm::sqrt(-2.0 * libm::log(u)) * libm::cos(2.0 * std::f64::consts::PI * v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers from Random123's kat_vectors for threefry2x32, 20 rounds.
    #[test]
    fn known_answers() {
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([!0, !0], [!0, !0]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }

    #[test]
    fn normals_have_unit_variance() {
        let mut s = Stream::new(1, 2);
        let x: Vec<f64> = (0..20000).map(|_| s.normal()).collect();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / x.len() as f64;
        assert!(
            mean.abs() < 0.03 && (var - 1.0).abs() < 0.05,
            "{mean} {var}"
        );
    }
}
