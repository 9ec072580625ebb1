//! The operands of a measured product, and what it should have given.

use super::format::Format;
use crate::error::Error;
use crate::kernels::rng::threefry;
use rayon::prelude::*;

/// Key of the operands' random numbers.
const KEY: [u32; 2] = [0x6765_6d6d, 0x1ed9_e400];
/// Rows of the product that the error is taken over.
const ROWS: usize = 16;
/// Largest extent for which int8 in f32 sums is exact for operands from [`normal`]: partial sums stay below
/// 2^24.
pub const INT8_EXACT: usize = 16384;

/// Standard normal deviates (Box and Muller, 1958, both halves), each a function of its index and of the
/// stream alone.
pub fn normal(n: usize, stream: u32) -> Vec<f32> {
    let mut out = vec![0.0f32; n];
    const BLOCK: usize = 1 << 14;
    out.par_chunks_mut(BLOCK).enumerate().for_each(|(b, x)| {
        for (i, pair) in x.chunks_mut(2).enumerate() {
            let at = (b * BLOCK / 2 + i) as u64;
            let [u, v] = threefry(KEY, [at as u32, stream ^ ((at >> 32) as u32) << 16]);
            // In (0, 1].
            let unit = |w: u32| (f64::from(w) + 1.0) / 4294967296.0;
            let radius = libm::sqrt(-2.0 * libm::log(unit(u)));
            let (sin, cos) = libm::sincos(2.0 * std::f64::consts::PI * unit(v));
            for (x, half) in pair.iter_mut().zip([cos, sin]) {
                *x = (radius * half) as f32;
            }
        }
    });
    out
}

/// Two square matrices, and some rows of their product in f64.
pub struct Operands {
    /// Extent.
    pub n: usize,
    /// The left one, row-major.
    pub a: Vec<f32>,
    /// The right one, row-major.
    pub b: Vec<f32>,
    rows: Vec<usize>,
    /// The rows of the product, one after the other.
    right: Vec<f64>,
}

impl Operands {
    /// Draws the matrices and computes the rows.
    pub fn draw(n: usize) -> Operands {
        let (a, b) = (normal(n * n, 0), normal(n * n, 1));
        let count = n.min(ROWS);
        let rows: Vec<usize> = (0..count).map(|i| (2 * i + 1) * n / (2 * count)).collect();
        let right = product_rows(n, &a, &b, &rows);
        Operands {
            n,
            a,
            b,
            rows,
            right,
        }
    }

    /// ‖C - C64‖ / ‖C64‖ over the sampled rows, C64 being the f64 product of the unrounded operands.
    /// `scale` is what the product's elements are multiplied by.
    pub fn error(&self, c: &[f32], scale: f64) -> f64 {
        let n = self.n;
        let (mut apart, mut norm) = (0.0, 0.0);
        for (i, &row) in self.rows.iter().enumerate() {
            for (c, right) in c[row * n..][..n].iter().zip(&self.right[i * n..][..n]) {
                let d = f64::from(*c) * scale - right;
                apart += d * d;
                norm += right * right;
            }
        }
        (apart / norm).sqrt()
    }
}

/// Rows of a * b in f64, summed over ascending k.
fn product_rows(n: usize, a: &[f32], b: &[f32], rows: &[usize]) -> Vec<f64> {
    const COLUMNS: usize = 256;
    let parts: Vec<Vec<f64>> = (0..n.div_ceil(COLUMNS))
        .into_par_iter()
        .map(|part| {
            let columns = part * COLUMNS..n.min((part + 1) * COLUMNS);
            let mut sums = vec![0.0f64; rows.len() * columns.len()];
            for k in 0..n {
                let b = &b[k * n..][columns.clone()];
                for (sums, &row) in sums.chunks_mut(columns.len()).zip(rows) {
                    let a = f64::from(a[row * n + k]);
                    sums.iter_mut()
                        .zip(b)
                        .for_each(|(s, b)| *s += a * f64::from(*b));
                }
            }
            sums
        })
        .collect();
    let mut out = Vec::with_capacity(rows.len() * n);
    for i in 0..rows.len() {
        for part in &parts {
            let width = part.len() / rows.len();
            out.extend_from_slice(&part[i * width..][..width]);
        }
    }
    out
}

/// A matrix in a format.
pub struct Rounded {
    /// Its elements, rounded and widened.
    pub values: Vec<f32>,
    /// What they are multiplied by.
    pub scale: f32,
}

impl Rounded {
    /// Rounds a matrix.
    pub fn new(format: Format, x: &[f32]) -> Rounded {
        let scale = format.scale(x);
        let values = x.par_iter().map(|v| format.round(*v, scale)).collect();
        Rounded { values, scale }
    }
}

/// Makes sure that f32 sums of a product of whole numbers are what int32 sums would be: by Cauchy and
/// Schwarz no partial sum exceeds the norm of a row of `a` times that of a column of `b`, and whole numbers
/// below 2^24 are exact in f32.
///
/// # Errors
/// They are not: a fault in what was drawn.
pub fn exact_sums(n: usize, a: &[f32], b: &[f32]) -> Result<(), Error> {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let row = |r: &[f32]| r.iter().map(|&x| square(x)).sum::<f64>();
    let rows = a.par_chunks(n).map(row).reduce(|| 0.0, f64::max);
    let mut columns = vec![0.0f64; n];
    for r in b.chunks(n) {
        columns
            .iter_mut()
            .zip(r)
            .for_each(|(c, &x)| *c += square(x));
    }
    let most = (rows * columns.into_iter().fold(0.0, f64::max)).sqrt();
    if most < 16_777_216.0 {
        return Ok(());
    }
    Err(Error::Internal(format!(
        "sums of int8 products may reach {most:.0}, which f32 does not hold exactly"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_their_index_alone() {
        let x = normal(50_001, 3);
        assert_eq!(normal(7, 3), x[..7]);
        assert_ne!(normal(7, 4), x[..7]);
        let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
        let square = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
        assert!(
            mean.abs() < 0.02 && (square - 1.0).abs() < 0.03,
            "{mean} {square}"
        );
    }

    #[test]
    fn the_error_is_that_of_all_rows_when_all_are_taken() {
        let n = 5;
        let o = Operands::draw(n);
        let mut c = vec![0.0f32; n * n];
        for i in 0..n {
            for j in 0..n {
                let terms = (0..n).map(|k| f64::from(o.a[i * n + k]) * f64::from(o.b[k * n + j]));
                c[i * n + j] = terms.sum::<f64>() as f32;
            }
        }
        assert!(o.error(&c, 1.0) < 1e-7);
        let off: Vec<f32> = c.iter().map(|v| v * 1.25).collect();
        assert!((o.error(&off, 1.0) - 0.25).abs() < 1e-6);
        assert!(o.error(&off, 0.8) < 1e-6);
        assert_eq!(Operands::draw(40).rows.len(), ROWS);
        assert_eq!(Operands::draw(1).rows, [0]);
    }

    #[test]
    fn int8_sums_beyond_f32_are_found() {
        assert!(exact_sums(2, &[127.0; 4], &[127.0; 4]).is_ok());
        assert!(exact_sums(2, &[4000.0; 4], &[4000.0; 4]).is_err());
    }
}
