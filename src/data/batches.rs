//! The order in which training and validation batches are drawn: a seeded stream, or offsets replayed
//! from a file.

use super::text::Offsets;
use crate::kernels::rng::Stream;

/// Where each sequence of each batch starts.
pub enum Batches {
    /// Drawn uniformly from 0..len - block - 1, as the seed's program does, from a counter-based stream.
    Stream {
        /// The numbers.
        stream: Stream,
        /// Bound of the offsets.
        below: u64,
        /// Sequences a batch.
        batch: usize,
    },
    /// Replayed row by row.
    Rows(Offsets, usize),
}

/// Where the next batch comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Seed, number and next counter of the stream.
    Stream {
        /// Seed.
        seed: u64,
        /// Number of the stream.
        number: u32,
        /// Next counter.
        next: u32,
    },
    /// Next row of the file, from 0.
    Rows(usize),
}

impl Batches {
    /// These batches from a position on; none if it is of another stream or past the rows.
    pub fn at(self, position: Position) -> Option<Batches> {
        match (self, position) {
            (
                Batches::Stream {
                    stream,
                    below,
                    batch,
                },
                Position::Stream { seed, number, next },
            ) => {
                let (have, of, _) = stream.position();
                (have == seed && of == number).then(|| Batches::Stream {
                    stream: Stream::at(seed, number, next),
                    below,
                    batch,
                })
            }
            (Batches::Rows(offsets, _), Position::Rows(next)) => {
                (next <= offsets.rows.len()).then_some(Batches::Rows(offsets, next))
            }
            _ => None,
        }
    }

    /// A stream over a part of `len` characters. The part must be longer than `block + 1`.
    pub fn stream(seed: u64, stream: u32, len: usize, block: usize, batch: usize) -> Batches {
        Batches::Stream {
            stream: Stream::new(seed, stream),
            below: (len - block - 1) as u64,
            batch,
        }
    }

    /// Where the next batch comes from.
    pub fn position(&self) -> Position {
        match self {
            Batches::Stream { stream, .. } => {
                let (seed, number, next) = stream.position();
                Position::Stream { seed, number, next }
            }
            Batches::Rows(_, next) => Position::Rows(*next),
        }
    }

    /// The offsets of the batch `n` after this point.
    pub fn nth_offsets(mut self, n: usize) -> Vec<u32> {
        (0..n).for_each(|_| {
            self.next_offsets();
        });
        self.next_offsets()
    }

    /// The offsets of the next batch.
    ///
    /// # Panics
    /// Past the end of replayed rows, whose number is checked when they are loaded.
    pub fn next_offsets(&mut self) -> Vec<u32> {
        match self {
            Batches::Stream {
                stream,
                below,
                batch,
            } => (0..*batch).map(|_| stream.below(*below) as u32).collect(),
            Batches::Rows(offsets, next) => {
                *next += 1;
                offsets.rows[*next - 1].clone()
            }
        }
    }
}

/// (inputs, targets) of a batch: `part[o..o + block]` and the same one further, row after row.
pub fn gather(part: &[u32], offsets: &[u32], block: usize) -> (Vec<u32>, Vec<u32>) {
    let rows = |shift: usize| {
        offsets
            .iter()
            .flat_map(|&o| part[o as usize + shift..][..block].iter().copied())
            .collect::<Vec<u32>>()
    };
    (rows(0), rows(1))
}
