//! Matrix products of fast numerics: by the library, on tensor cores.
//!
//! The library knows nothing of our expressions. A product that hosts one is split again, into the product
//! and a pointwise step, as they were before fusion; expressions round as before, so that only the order
//! of the sums is the library's own. A product in chunks of k stays a batch of products, one a chunk, whose
//! sums `gemm_tree` combines: few outputs with a long k keep the whole device busy that way, without a
//! split whose order would be the library's secret.

use super::driver::{Element, Extents, Lay, Product};
use crate::dtype::DType;
use crate::graph::Type;
use crate::kernels::{Params, pointwise};
use crate::plan::{Buf, BufId, Class, Plan, Step};

/// A step's products: usually one; two where the last chunk of k is shorter. With each, how many elements
/// its operands and its result lie behind the beginning of their buffers.
pub struct Products(pub Vec<(Product, [u64; 3])>);

/// A plan whose products are the library's: those that host an expression are split.
pub fn split(plan: &Plan) -> Plan {
    let mut out = plan.clone();
    out.steps.clear();
    let mut scratch: Option<usize> = None;
    for step in &plan.steps {
        let hosted = step.kernel.name == "gemm" && step.params.expr.is_some();
        if !hosted || lays(step, plan).is_none() {
            out.steps.push(step.clone());
            continue;
        }
        // All of them take turns in one slot: each is read by the very next step.
        let slot = *scratch.get_or_insert_with(|| {
            out.slots.push(0);
            out.slots.len() - 1
        });
        let p = &step.params;
        let dims = [p.at(4).max(1), p.at(0), p.at(1)];
        let buf = Buf {
            name: format!("{}.product", step.label),
            ty: Type::new(&dims, DType::F32),
            class: Class::Temp,
            slot,
        };
        out.slots[slot] = out.slots[slot].max(buf.words());
        let id = BufId(out.bufs.len() as u32);
        out.bufs.push(buf);
        let (product, rest) = halves(step, id, dims.iter().product());
        out.steps.extend([product, rest]);
    }
    out
}

/// A hosting product as a product into `scratch`, of `n` elements, and a pointwise step.
fn halves(step: &Step, scratch: BufId, n: usize) -> (Step, Step) {
    let operands = step.operands();
    let own = step.kernel.own_reads(true);
    let words = &step.params.words;
    let product = Step {
        kernel: step.kernel,
        params: Params {
            words: words[..words.len() - 2 * operands.len()].to_vec(),
            spec: step.params.spec.clone(),
            expr: None,
        },
        reads: step.reads[..own].to_vec(),
        writes: vec![scratch],
        label: step.label.clone(),
        origin: step.origin.clone(),
    };
    let mut access = vec![(1, n)];
    access.extend(operands.iter().map(|o| o.1));
    let expr = step.params.expr.as_deref().cloned();
    let mut reads = vec![scratch];
    reads.extend(operands.iter().map(|o| o.0));
    let rest = Step {
        kernel: &pointwise::POINTWISE,
        params: pointwise::params(n, &access, expr.expect("it hosts an expression")),
        reads,
        writes: step.writes.clone(),
        label: step.label.clone(),
        origin: step.origin.clone(),
    };
    (product, rest)
}

/// How an operand of `rows` by `cols` lies in its buffer, row by row: elements from row to row.
fn pitch(plan: &Plan, b: BufId, cols: usize) -> Option<u64> {
    let ty = plan.buf(b).ty;
    let row = ty.shape.row();
    match ty.dtype.packed() {
        // Even rows have no padding, so that it does not matter where they end.
        true if row % 2 == 1 && row != cols => None,
        true if row % 2 == 1 => Some(cols as u64 + 1),
        _ => Some(cols as u64),
    }
}

/// The operands' type and row lengths, if the library can take them.
fn lays(step: &Step, plan: &Plan) -> Option<(Element, u64, u64)> {
    if step.kernel.name != "gemm" {
        return None;
    }
    let p = &step.params;
    let (m, n, k) = (p.at(0), p.at(1), p.at(2));
    if m * n * k == 0 {
        return None;
    }
    let types = [0, 1].map(|i| plan.buf(step.reads[i]).ty.dtype);
    let element = match types {
        [DType::F32, DType::F32] => Element::F32,
        [DType::Bf16, DType::Bf16] => Element::Bf16,
        [DType::F16, DType::F16] => Element::F16,
        _ => return None,
    };
    let a = pitch(plan, step.reads[0], if p.spec("TA") == 1 { m } else { k })?;
    let b = pitch(plan, step.reads[1], if p.spec("TB") == 1 { k } else { n })?;
    Some((element, a, b))
}

/// The products of a step, if it is one for the library: a product without an expression, whose operands
/// are of one type.
pub fn products(step: &Step, plan: &Plan) -> Option<Products> {
    if step.params.expr.is_some() || plan.buf(*step.writes.first()?).ty.dtype != DType::F32 {
        return None;
    }
    let (element, pitch_a, pitch_b) = lays(step, plan)?;
    let p = &step.params;
    let (m, n, k, chunk) = (
        p.at(0) as u64,
        p.at(1) as u64,
        p.at(2) as u64,
        p.at(3) as u64,
    );
    let batch = (p.at(4) as u64).max(1);
    let (ta, tb) = (p.spec("TA") == 1, p.spec("TB") == 1);
    // From one matrix of the batch to the next: whole matrices, or a chunk of k.
    let (along_a, along_b) = match batch > 1 {
        true => (
            pitch_a * if ta { k } else { m },
            pitch_b * if tb { n } else { k },
        ),
        false => (
            chunk * if ta { pitch_a } else { 1 },
            chunk * if tb { 1 } else { pitch_b },
        ),
    };
    let size = if element == Element::F32 { 4 } else { 2 };
    // A row-major product is the column-major one of the transposes, in the other order.
    let of = |count: u64, k: u64, behind: [u64; 3]| {
        let extents = Extents {
            m: n,
            n: m,
            k,
            batch: count,
            a: Lay {
                transposed: tb,
                pitch: pitch_b,
                stride: along_b,
            },
            b: Lay {
                transposed: ta,
                pitch: pitch_a,
                stride: along_a,
            },
            c: Lay {
                transposed: false,
                pitch: n,
                stride: m * n,
            },
            alignment: alignment([size * behind[0], size * behind[1], 4 * behind[2]]),
        };
        (Product { element, extents }, behind)
    };
    if batch > 1 {
        return Some(Products(vec![of(batch, k, [0; 3])]));
    }
    let (whole, rest) = (k / chunk, k % chunk);
    let mut out = Vec::new();
    if whole > 0 {
        out.push(of(whole, chunk, [0; 3]));
    }
    if rest > 0 {
        let behind = [whole * along_b, whole * along_a, whole * m * n];
        out.push(of(1, rest, behind));
    }
    Some(Products(out))
}

/// What addresses so many bytes behind allocations are multiples of.
fn alignment(behind: [u64; 3]) -> u32 {
    behind
        .iter()
        .fold(256, |a, b| a.min(1 << b.trailing_zeros().min(8)))
}
