//! The kernels that training runs, as the device would run them: the variants that are chosen for it, on
//! small shapes with ragged ends, against the Rust twins.

use super::kernels::Task;
use crate::dtype::DType;
use crate::graph::{Graph, NodeId, Program};
use crate::kernels::optim::HYPER;
use crate::kernels::pointwise::PwOp;
use crate::kernels::rng::Stream;
use crate::ops::{AdamPart, Case, Fill, Op, ReduceOp};
use crate::passes::compile;

fn product(ta: bool, tb: bool, shapes: [[usize; 2]; 2]) -> Case {
    Case::new(Op::MatMul { ta, tb }, &[&shapes[0], &shapes[1]])
}

fn adamw(part: AdamPart) -> Case {
    let shapes: [&[usize]; 7] = [&[301], &[301], &[301], &[301], &[HYPER], &[1], &[1]];
    Case::new(Op::AdamW(part), &shapes)
        .fill(2, Fill::Uniform(0.1, 1.0))
        .fill(4, Fill::Uniform(0.1, 0.9))
}

/// What it is, and the operation. The second list is attention, whose shaders take as long to compile as
/// all others together, so that the two are built side by side.
fn cases() -> [Vec<(&'static str, Case)>; 2] {
    let (t, heads, d) = (37, 2, 16);
    let c = heads * d;
    let attention = Case::new(Op::Attention(heads as u32), &[&[2, t, 3 * c]]);
    let attention_grad = {
        let shapes: [&[usize]; 4] = [&[2, t, 3 * c], &[2, heads, t], &[2, t, heads], &[2, t, c]];
        Case::new(Op::AttentionGrad(heads as u32), &shapes).fill(1, Fill::Uniform(2.0, 6.0))
    };
    let sum = |mask, dims: &[usize]| Case::new(Op::Reduce(ReduceOp::Sum, mask), &[dims]);
    let rest = vec![
        ("product, f32", product(false, false, [[33, 37], [37, 41]])),
        (
            "product, f32, many tiles",
            product(false, true, [[190, 23], [260, 23]]),
        ),
        (
            "product, f32, loads of four",
            product(false, false, [[192, 24], [24, 260]]),
        ),
        (
            "product, f32, long k in chunks",
            product(true, false, [[2050, 9], [2050, 11]]),
        ),
        (
            "product, bf16",
            product(false, true, [[70, 38], [61, 38]]).narrow(&[0, 1]),
        ),
        (
            "product, bf16, long k in chunks",
            product(true, false, [[2050, 10], [2050, 12]]).narrow(&[0, 1]),
        ),
        ("sums of rows", sum(2, &[70, 129])),
        ("sums of columns", sum(1, &[517, 80])),
        ("a long sum in chunks", sum(1, &[9001])),
        ("softmax", Case::new(Op::Softmax, &[&[67, 65]])),
        (
            "gelu, as an expression",
            Case::new(Op::Pw(PwOp::Gelu), &[&[501]]),
        ),
        ("AdamW", adamw(AdamPart::W)),
    ];
    let attention = vec![
        (
            "attention, bf16",
            attention.fill(0, Fill::Normal(3.0)).narrow(&[0]),
        ),
        ("attention's gradient, bf16", attention_grad.narrow(&[0, 3])),
    ];
    [rest, attention]
}

/// Parts of the rows.
pub const PARTS: usize = 2;

/// Names of the rows of a part; row `i` is the output `out.i`.
pub fn names(part: usize) -> Vec<&'static str> {
    cases()[part].iter().map(|c| c.0).collect()
}

/// One plan of a part's rows.
///
/// # Errors
/// A violated invariant of the program itself.
pub fn task(part: usize) -> Result<Task, String> {
    let graph = Graph::new();
    let (mut outputs, mut inputs): (Vec<(String, NodeId)>, Vec<_>) = (vec![], vec![]);
    for (i, (_, case)) in cases()[part].iter().enumerate() {
        let mut src = Vec::new();
        for (k, &(ty, fill)) in case.src.iter().enumerate() {
            let name = format!("in.{i}.{k}");
            src.push(graph.input(&name, ty).id);
            let values = values(ty.shape.elems(), fill, (100 * i + k) as u32);
            let words = match ty.dtype {
                DType::U32 => values.iter().map(|&v| v as u32).collect(),
                dtype => dtype.pack(ty.shape.row(), &values),
            };
            inputs.push((name, words));
        }
        outputs.push((format!("out.{i}"), graph.add(case.op.clone(), &src)));
    }
    let program = Program {
        graph,
        outputs,
        updates: vec![],
    };
    Ok((compile("probe-production", program)?, inputs))
}

/// What devices treat differently: subnormals and values around the floors.
const ROUGH: [u32; 6] = [
    1,
    0x807f_ffff,
    0x0080_0001,
    0x25ff_ffff,
    0x2600_0000,
    0x0c7f_ffff,
];

fn values(n: usize, fill: Fill, salt: u32) -> Vec<f32> {
    let mut s = Stream::new(0x1505_b175, 1000 + salt);
    let one = |i: usize| match fill {
        Fill::Normal(_) if i % 11 == 7 => f32::from_bits(ROUGH[i / 11 % ROUGH.len()]),
        Fill::Normal(scale) => (s.normal() * scale) as f32,
        Fill::Uniform(a, b) => (a + (b - a) * s.unit()) as f32,
        Fill::Ids(bound) => s.below(bound as u64) as f32,
        Fill::Ascending(a, step) => (a + step * i as f64) as f32,
    };
    (0..n).map(one).collect()
}
