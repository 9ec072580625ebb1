//! Shapes of at most six dimensions, and broadcasting.

use crate::dtype::DType;
use std::fmt;

/// Most dimensions a tensor may have.
pub const MAX_DIMS: usize = 6;

/// The extents of a tensor, row-major, outermost first. No dimension at all means one element.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    len: u8,
    dims: [u32; MAX_DIMS],
}

impl Shape {
    /// A shape from its extents.
    ///
    /// # Panics
    /// On more than [`MAX_DIMS`] dimensions: shapes come from model code, which checks user input first.
    pub fn new(dims: &[usize]) -> Shape {
        assert!(
            dims.len() <= MAX_DIMS,
            "{dims:?} has more than {MAX_DIMS} dimensions"
        );
        let mut out = [1u32; MAX_DIMS];
        for (o, &d) in out.iter_mut().zip(dims) {
            *o = u32::try_from(d).expect("an extent fits 32 bits");
        }
        Shape {
            len: dims.len() as u8,
            dims: out,
        }
    }

    /// The shape of one element.
    pub fn scalar() -> Shape {
        Shape::new(&[])
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.len as usize
    }

    /// The extents.
    pub fn dims(&self) -> Vec<usize> {
        self.dims[..self.rank()]
            .iter()
            .map(|&d| d as usize)
            .collect()
    }

    /// One extent.
    pub fn dim(&self, axis: usize) -> usize {
        assert!(axis < self.rank(), "axis {axis} of {self}");
        self.dims[axis] as usize
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.dims[..self.rank()]
            .iter()
            .map(|&d| d as usize)
            .product()
    }

    /// Length of the last dimension; 1 for a scalar.
    pub fn row(&self) -> usize {
        if self.rank() == 0 {
            1
        } else {
            self.dim(self.rank() - 1)
        }
    }

    /// Number of rows, that is elements over the last dimension.
    pub fn rows(&self) -> usize {
        if self.row() == 0 {
            0
        } else {
            self.elems() / self.row()
        }
    }

    /// 32-bit words that a tensor of this shape and type occupies (packed rows are padded to even).
    pub fn words(&self, dtype: DType) -> usize {
        if dtype.packed() {
            self.rows() * self.row().div_ceil(2)
        } else {
            self.elems()
        }
    }

    /// Row-major strides, in elements.
    pub fn strides(&self) -> Vec<usize> {
        let mut out = vec![1; self.rank()];
        for i in (0..self.rank().saturating_sub(1)).rev() {
            out[i] = out[i + 1] * self.dim(i + 1);
        }
        out
    }

    /// This shape with some axes set to 1 (`mask` bit i for axis i).
    pub fn reduced(&self, mask: u8) -> Shape {
        let dims = self
            .dims()
            .iter()
            .enumerate()
            .map(|(i, &d)| if mask >> i & 1 == 1 { 1 } else { d })
            .collect::<Vec<_>>();
        Shape::new(&dims)
    }

    /// The common shape of two operands by NumPy's broadcasting rule, or none.
    pub fn broadcast(a: Shape, b: Shape) -> Option<Shape> {
        let rank = a.rank().max(b.rank());
        let (pa, pb) = (a.padded(rank), b.padded(rank));
        let dims = pa
            .iter()
            .zip(&pb)
            .map(|(&x, &y)| match (x, y) {
                (x, y) if x == y => Some(x),
                (1, y) => Some(y),
                (x, 1) => Some(x),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Shape::new(&dims))
    }

    /// The extents with ones in front up to `rank`.
    pub fn padded(&self, rank: usize) -> Vec<usize> {
        let mut out = vec![1; rank - self.rank()];
        out.extend(self.dims());
        out
    }

    /// Whether this shape can be broadcast to `to`.
    pub fn broadcasts_to(&self, to: Shape) -> bool {
        self.rank() <= to.rank() && Shape::broadcast(*self, to) == Some(to)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "[{}]",
            self.dims()
                .iter()
                .map(|d| d.to_string())
                .collect::<Vec<_>>()
                .join(",")
        )
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let s = Shape::new;
        assert_eq!(Shape::broadcast(s(&[4, 1]), s(&[3])), Some(s(&[4, 3])));
        assert_eq!(Shape::broadcast(s(&[]), s(&[2, 5])), Some(s(&[2, 5])));
        assert_eq!(Shape::broadcast(s(&[2]), s(&[3])), None);
        assert!(s(&[1, 3]).broadcasts_to(s(&[7, 3])));
        assert!(!s(&[7, 3]).broadcasts_to(s(&[1, 3])));
    }

    #[test]
    fn packed_rows_are_padded_to_even() {
        assert_eq!(Shape::new(&[3, 5]).words(DType::Bf16), 9);
        assert_eq!(Shape::new(&[3, 5]).words(DType::F32), 15);
        assert_eq!(Shape::scalar().words(DType::F16), 1);
    }
}
