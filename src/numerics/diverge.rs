//! The first difference of two devices: which step, which operation, which element.

use super::course::{Course, Runner, Snapshot, whole};
use crate::dtype::DType;
use crate::error::Error;
use crate::graph::Type;
use crate::kernels::digest;
use crate::plan::{BufId, Plan};
use std::fmt;

/// The first element that differs.
#[derive(Clone, PartialEq, Debug)]
pub struct Element {
    /// The training step, from 1.
    pub step: usize,
    /// Step of the plan.
    pub plan_step: usize,
    /// Where in the model the operation stands.
    pub op: String,
    /// Its kernel.
    pub kernel: String,
    /// The buffer it writes.
    pub tensor: String,
    /// Shape and type of that.
    pub ty: Type,
    /// The element's number, row by row.
    pub index: usize,
    /// Both values' bits, in their type's width: the first device's, the second's.
    pub bits: [u32; 2],
    /// Elements that differ in this buffer.
    pub differ: usize,
}

impl Element {
    /// Both values.
    pub fn values(&self) -> [f64; 2] {
        self.bits.map(|b| match self.ty.dtype {
            DType::U32 => b as f64,
            dtype => dtype.unpack(1, &[b])[0] as f64,
        })
    }

    /// Representable numbers from one to the other, for floats.
    pub fn ulps(&self) -> Option<u64> {
        let sign = match self.ty.dtype {
            DType::U32 => return None,
            DType::F32 => 1u32 << 31,
            DType::Bf16 | DType::F16 => 1 << 15,
        };
        // Numbers in order; both zeros are 0.
        let place = |b: u32| match b & sign {
            0 => b as i64,
            _ => -((b & (sign - 1)) as i64),
        };
        Some(place(self.bits[0]).abs_diff(place(self.bits[1])))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let op = if self.op.is_empty() {
            "the step's own"
        } else {
            &self.op
        };
        let width = if self.ty.dtype.is_low() { 4 } else { 8 };
        let hex = |b: u32| format!("{b:0width$x}");
        let [a, b] = self.values();
        writeln!(f, "  step     {}", self.step)?;
        writeln!(f, "  op       {op}, number {} of the plan", self.plan_step)?;
        writeln!(f, "  kernel   {}", self.kernel)?;
        writeln!(
            f,
            "  tensor   {} {}, {} of {} elements differ",
            self.tensor,
            self.ty,
            self.differ,
            self.ty.shape.elems()
        )?;
        writeln!(f, "  element  {}", self.index)?;
        writeln!(
            f,
            "  values   {a:e} ({}) and {b:e} ({})",
            hex(self.bits[0]),
            hex(self.bits[1])
        )?;
        match self.ulps() {
            Some(n) => write!(f, "  apart    {n} ULP"),
            None => write!(
                f,
                "  apart    {} as integers",
                self.bits[0].abs_diff(self.bits[1])
            ),
        }
    }
}

/// What a search ends with.
#[derive(Clone, PartialEq, Debug)]
pub enum Finding {
    /// The first difference.
    Element(Element),
    /// The difference did not come again: a device that does not repeat itself.
    Gone {
        /// The step at whose end digests differed.
        step: usize,
    },
}

/// Finds the first difference of two runners whose digests were equal at `start` and differ after step
/// `end`: by bisection over the steps, then over the operations of the first step that differs.
///
/// # Errors
/// A device failed.
pub fn first(
    course: &mut Course,
    a: &mut Runner,
    b: &mut Runner,
    start: &Snapshot,
    end: usize,
) -> Result<Finding, Error> {
    let (mut low, mut high) = (start.clone(), end);
    while high - low.at > 1 {
        let middle = low.at + (high - low.at) / 2;
        let there = advance(course, a, &low, middle)?;
        let equal = there == advance(course, b, &low, middle)?;
        if equal {
            low = a.snapshot(course)?;
        } else {
            high = middle;
        }
    }
    let found = within(course, a, b, &low)?;
    Ok(found.map_or(Finding::Gone { step: high }, Finding::Element))
}

/// Runs from a snapshot to the end of a step; returns the digest there.
fn advance(course: &mut Course, r: &mut Runner, from: &Snapshot, to: usize) -> Result<u64, Error> {
    r.restore(from)?;
    while r.at < to {
        r.step(course)?;
    }
    Ok(whole(&r.digests(course)?))
}

/// The digests of what each operation of a step wrote.
fn marks(course: &mut Course, r: &mut Runner, from: &Snapshot) -> Result<Vec<Vec<u64>>, Error> {
    r.restore(from)?;
    let mut out = Vec::new();
    r.trace(course, &mut |_, _, wrote| {
        out.push(wrote.iter().map(|(_, words)| mark(words)).collect());
        true
    })?;
    Ok(out)
}

fn mark(words: &[u32]) -> u64 {
    let sums = words.iter().enumerate().flat_map(|(i, &w)| {
        let (p, q) = digest::element(0, i as u32, w);
        [p, q]
    });
    digest::combine(sums)
}

/// What operation `n` of a step writes.
fn writes(
    course: &mut Course,
    r: &mut Runner,
    from: &Snapshot,
    n: usize,
) -> Result<Vec<(BufId, Vec<u32>)>, Error> {
    r.restore(from)?;
    let mut out = Vec::new();
    r.trace(course, &mut |i, _, wrote| {
        if i == n {
            out = wrote.to_vec();
        }
        i < n
    })?;
    Ok(out)
}

/// The first difference within the step after a snapshot. Operations are compared by digests of what
/// they write, so that no device's whole step is held at once.
fn within(
    course: &mut Course,
    a: &mut Runner,
    b: &mut Runner,
    from: &Snapshot,
) -> Result<Option<Element>, Error> {
    let (left, right) = (marks(course, a, from)?, marks(course, b, from)?);
    let Some(n) = left.iter().zip(&right).position(|(x, y)| x != y) else {
        return Ok(None);
    };
    let (left, right) = (writes(course, a, from, n)?, writes(course, b, from, n)?);
    let (plan, n) = course.locate(n);
    let differing = left.iter().zip(&right);
    let found = differing.filter_map(|((buf, x), (_, y))| element(&plan, n, *buf, x, y));
    Ok(found.into_iter().next().map(|e| Element {
        step: from.at + 1,
        ..e
    }))
}

/// The first element of a buffer that differs.
fn element(plan: &Plan, n: usize, buf: BufId, x: &[u32], y: &[u32]) -> Option<Element> {
    let (b, step) = (plan.buf(buf), &plan.steps[n]);
    let (row, packed) = (b.ty.shape.row(), b.ty.dtype.packed());
    let words = if packed { row.div_ceil(2) } else { row };
    let mut differing = (0..b.ty.shape.elems()).filter_map(|i| {
        let (at, shift) = match packed {
            true => (i / row * words + i % row / 2, 16 * (i % row % 2)),
            false => (i, 0),
        };
        let of = |w: &[u32]| match packed {
            true => (w[at] >> shift) & 0xffff,
            false => w[at],
        };
        let (p, q) = (of(x), of(y));
        // As digests: both zeros are one.
        let zero = !packed && p | q == 0x8000_0000 && p & q == 0;
        (p != q && !zero).then_some((i, [p, q]))
    });
    let (index, bits) = differing.next()?;
    Some(Element {
        step: 0,
        plan_step: n,
        op: step.label.clone(),
        kernel: step.kernel.name.into(),
        tensor: b.name.clone(),
        ty: b.ty,
        index,
        bits,
        differ: 1 + differing.count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dtype: DType, bits: [u32; 2]) -> Element {
        Element {
            step: 1,
            plan_step: 0,
            op: "op".into(),
            kernel: "k".into(),
            tensor: "t".into(),
            ty: Type::new(&[4], dtype),
            index: 0,
            bits,
            differ: 1,
        }
    }

    #[test]
    fn distances_count_representable_numbers() {
        let f32s = |a: f32, b: f32| at(DType::F32, [a.to_bits(), b.to_bits()]).ulps();
        assert_eq!(f32s(1.0, 1.0 + f32::EPSILON), Some(1));
        assert_eq!(f32s(1.0, 1.0 - f32::EPSILON), Some(2));
        assert_eq!(f32s(0.0, -0.0), Some(0));
        assert_eq!(f32s(f32::from_bits(1), -f32::from_bits(1)), Some(2));
        let low = at(DType::Bf16, [0x3f80, 0x3f82]);
        assert_eq!(low.ulps(), Some(2));
        assert_eq!(low.values(), [1.0, 1.015625]);
        assert_eq!(at(DType::U32, [3, 7]).ulps(), None);
        let text = at(DType::F32, [0x3f80_0000, 0x3f80_0001]).to_string();
        assert!(
            text.contains("1e0 (3f800000) and") && text.contains("1 ULP"),
            "{text}"
        );
    }
}
