//! Which files can run a step, and how many workgroups of them. Where there are several variants, all give
//! the same bits: the first is the one that shapes and the kind of device suggest, and the choice among
//! them is made for speed alone.

use super::Options;
use crate::dtype::DType;
use crate::kernels::order::KEY_BLOCK;
use crate::kernels::{Params, digest, histogram, math};
use crate::plan::{Plan, Step};

/// One way to run a step.
pub struct Variant {
    /// What tells it from the step's other variants.
    pub name: &'static str,
    /// The file with the entry point.
    pub file: &'static str,
    /// Pairs (file, file that stands in for it).
    pub swaps: Vec<(&'static str, &'static str)>,
    /// Constants that the file expects.
    pub header: String,
    /// Components of the wide accessors, where the file uses them.
    pub width: Option<usize>,
    /// The first reads, as many, are loaded four elements at a time.
    pub fours: usize,
    /// Invocations of a workgroup.
    pub size: [u32; 3],
    /// Workgroups.
    pub groups: u64,
}

/// Invocations of a workgroup where each computes one element.
const FLAT: u32 = 256;
/// From this many rows on a software device is kept busy by one invocation a row.
const SERIAL_ROWS: u64 = 64;
/// Tiles of 64 x 64 that keep a software device busy.
const FEW_TILES: u64 = 8;

/// The variants of a step, the one first that its shape and the kind of device suggest.
pub fn all(step: &Step, plan: &Plan, options: Options) -> Vec<Variant> {
    let p = &step.params;
    let mut all = match step.kernel.name {
        "norm_fwd" => rows("norm_fwd.wgsl", p.at(0), options),
        "norm_stats" => rows("norm_stats.wgsl", p.at(0), options),
        "norm_dx" => rows("norm_dx.wgsl", p.at(0), options),
        "softmax" => rows("softmax.wgsl", p.at(0), options),
        "softmax_grad" => rows("softmax_grad.wgsl", p.at(0), options),
        "lse" => rows("lse.wgsl", p.at(0), options),
        "reduce" => reduce(p, options),
        "gemm" => gemm(step, plan, options),
        "attention" => attention(step, plan, "attention.wgsl", 1, options),
        "attention_grad" => attention(step, plan, "attention_grad.wgsl", 2, options),
        _ => vec![only(step, plan)],
    };
    for v in &mut all {
        if options.fused {
            v.swaps.push(("lib/fold.wgsl", "lib/fold_fast.wgsl"));
            v.swaps
                .push(("lib/fold_wide.wgsl", "lib/fold_wide_fast.wgsl"));
        }
        if !options.fence {
            v.swaps.push(("lib/zero.wgsl", "lib/zero_off.wgsl"));
        }
    }
    all
}

/// Whether a kernel has more than one variant.
pub fn is_tunable(kernel: &str) -> bool {
    const TUNABLE: [&str; 10] = [
        "norm_fwd",
        "norm_stats",
        "norm_dx",
        "softmax",
        "softmax_grad",
        "lse",
        "reduce",
        "gemm",
        "attention",
        "attention_grad",
    ];
    TUNABLE.contains(&kernel)
}

/// The one variant of all other kernels.
fn only(step: &Step, plan: &Plan) -> Variant {
    let p = &step.params;
    match step.kernel.name {
        "pointwise" => packed(step, plan, "pointwise.wgsl", "pointwise_packed.wgsl"),
        "copy" => flat("copy.wgsl", p.at(0)),
        "adamw" => packed(step, plan, "adamw.wgsl", "adamw_packed.wgsl"),
        "adamw_scalars" => one("adamw_scalars.wgsl", 1, 1),
        "adamw_stochastic" => words(step, plan, "adamw_stochastic.wgsl"),
        "adamw_compensated" => words(step, plan, "adamw_compensated.wgsl"),
        "gemm_tree" => packed(step, plan, "gemm_tree.wgsl", "gemm_tree_packed.wgsl"),
        "xent" => flat("xent.wgsl", p.at(0)),
        "xent_grad" => flat("xent_grad.wgsl", p.at(0) * p.at(1)),
        "gather" => flat("gather.wgsl", p.at(0) * p.at(1)),
        "gather_grad" => flat("gather_grad.wgsl", p.at(0) * p.at(1)),
        "random_bits" => flat("random_bits.wgsl", p.at(0).div_ceil(2)),
        "multiply_add" => one("multiply_add.wgsl", 64, p.at(0).div_ceil(64 * 16)),
        "step_scalars" => one("step_scalars.wgsl", 1, 1),
        "loss_scale" => one("loss_scale.wgsl", 1, 1),
        "row_order" => one("row_order.wgsl", 32, p.at(1).div_ceil(32)),
        "histogram" => one("histogram.wgsl", 64, p.at(0).div_ceil(histogram::BLOCK)),
        "digest" => one("digest.wgsl", 64, digest::blocks(p)),
        "attention_cached" => attention_cached(step, plan),
        "put_rows" => flat("put_rows.wgsl", p.at(0) * p.at(1)),
        "probe_arithmetic" => one("probe/arithmetic.wgsl", 64, p.at(0).div_ceil(64)),
        "probe_functions" => one("probe/functions.wgsl", 64, p.at(0).div_ceil(64)),
        "probe_facts" => one("probe/facts.wgsl", 64, p.at(0).div_ceil(64)),
        "probe_halves" => one("probe/halves.wgsl", 64, p.at(0).div_ceil(64)),
        "probe_workgroup" => one("probe/workgroup.wgsl", 64, 2 * p.at(0)),
        name => panic!("kernel {name} has no shader"),
    }
}

fn one(file: &'static str, invocations: u32, groups: usize) -> Variant {
    Variant {
        name: file,
        file,
        swaps: vec![],
        header: String::new(),
        width: None,
        fours: 0,
        size: [invocations, 1, 1],
        groups: groups as u64,
    }
}

/// One invocation an element.
fn flat(file: &'static str, elements: usize) -> Variant {
    one(file, FLAT, elements.div_ceil(FLAT as usize))
}

/// One invocation an element, or a word where the result is packed.
fn packed(step: &Step, plan: &Plan, wide: &'static str, narrow: &'static str) -> Variant {
    let out = plan.buf(step.writes[0]);
    if !out.ty.dtype.packed() {
        return flat(wide, step.params.at(0));
    }
    words(step, plan, narrow)
}

/// One invocation a word of a packed result.
fn words(step: &Step, plan: &Plan, file: &'static str) -> Variant {
    let out = plan.buf(step.writes[0]);
    let mut v = flat(file, out.words());
    let (row, words) = (out.ty.shape.row(), out.words());
    v.header = format!("const ROW: u32 = {row}u;\nconst WORDS: u32 = {words}u;\n");
    v
}

/// Rows of 32 virtual lanes: one invocation a row, or eight that share it. Barriers are dear on a software
/// device.
fn rows(file: &'static str, rows: usize, options: Options) -> Vec<Variant> {
    let mut serial = one(file, 16, rows.div_ceil(16));
    serial.name = "serial";
    serial.swaps.push(("lib/rows.wgsl", "lib/rows_serial.wgsl"));
    let mut shared = one(file, 64, rows.div_ceil(8));
    shared.name = "shared";
    if options.software && rows as u64 >= SERIAL_ROWS {
        vec![serial, shared]
    } else {
        vec![shared, serial]
    }
}

fn reduce(p: &Params, options: Options) -> Vec<Variant> {
    let chunks = p.at(1).div_ceil(p.at(3)).max(1);
    rows("reduce.wgsl", p.at(0) * chunks * p.at(2), options)
}

/// Whether both operands of a product can be loaded four neighbouring elements at a time.
fn in_fours(p: &Params) -> bool {
    let (m, n, k, chunk) = (p.at(0), p.at(1), p.at(2), p.at(3));
    let along = |swapped: bool, extent: usize| !swapped || extent.is_multiple_of(4);
    k.is_multiple_of(4)
        && chunk.is_multiple_of(4)
        && along(p.spec("TA") == 1, m)
        && along(p.spec("TB") == 0, n)
}

/// Tiles in workgroup memory, for GPUs, or sums in registers alone, for software devices; small tiles where
/// there are few outputs.
fn gemm(step: &Step, plan: &Plan, options: Options) -> Vec<Variant> {
    let p = &step.params;
    let (m, n, k, chunk, batch) = (p.at(0), p.at(1), p.at(2), p.at(3), p.at(4));
    let parts = if batch > 1 {
        batch
    } else {
        k.div_ceil(chunk).max(1)
    };
    let tiles = |side: usize| m.div_ceil(side) * n.div_ceil(side) * parts;
    let in_registers = |file, side| {
        let mut v = one(file, 64, tiles(side));
        v.size = [8, 8, 1];
        v
    };
    let mut quads = in_registers("gemm_quads.wgsl", 64);
    quads.fours = 2;
    let mut all = vec![
        one("gemm.wgsl", 256, tiles(64)),
        one("gemm_large.wgsl", 256, tiles(128)),
        quads,
        in_registers("gemm_registers.wgsl", 64),
        in_registers("gemm_small.wgsl", 32),
    ];
    all.retain(|v| v.fours == 0 || in_fours(p));
    let first = match options.software {
        false => "gemm.wgsl",
        true if (tiles(64) as u64) < FEW_TILES => "gemm_small.wgsl",
        true if in_fours(p) => "gemm_quads.wgsl",
        true => "gemm_registers.wgsl",
    };
    // The others keep their order.
    all.sort_by_key(|v| v.file != first);
    let packed = (step.reads[..2].iter()).all(|&b| plan.buf(b).ty.dtype.packed());
    let floor = if packed {
        math::FLOOR_BF16_OPERAND
    } else {
        math::FLOOR_F32_OPERAND
    };
    for v in &mut all {
        v.header = format!("const OPERAND_FLOOR: u32 = {floor:#x}u;\n");
    }
    all
}

/// A workgroup for each query of each head, an invocation for each key of a block.
fn attention_cached(step: &Step, plan: &Plan) -> Variant {
    let p = &step.params;
    let mut v = one("attention_cached.wgsl", KEY_BLOCK as u32, p.at(0) * p.at(2));
    match plan.buf(step.reads[0]).ty.dtype {
        DType::Bf16 => v
            .swaps
            .push(("lib/weight_f32.wgsl", "lib/weight_bf16.wgsl")),
        DType::F16 => v.swaps.push(("lib/weight_f32.wgsl", "lib/weight_f16.wgsl")),
        DType::F32 | DType::U32 => {}
    }
    v.header = format!("const HEAD: u32 = {}u;\n", p.at(3));
    v
}

/// Workgroups of [`KEY_BLOCK`] rows of one head: an invocation has one of them, or, for software devices,
/// four, so that each load serves four sums.
fn attention(
    step: &Step,
    plan: &Plan,
    file: &'static str,
    parts: usize,
    options: Options,
) -> Vec<Variant> {
    let p = &step.params;
    let groups = p.at(0) * p.at(2) * p.at(1).div_ceil(KEY_BLOCK) * parts;
    let variant = |width: usize| {
        let mut v = one(file, (KEY_BLOCK / width) as u32, groups);
        v.name = if width == 1 { "narrow" } else { "wide" };
        if width == 1 {
            v.swaps.push(("lib/wide.wgsl", "lib/narrow.wgsl"));
        }
        match plan.buf(step.reads[0]).ty.dtype {
            DType::Bf16 => v
                .swaps
                .push(("lib/operand_f32.wgsl", "lib/operand_bf16.wgsl")),
            DType::F16 => v
                .swaps
                .push(("lib/operand_f32.wgsl", "lib/operand_f16.wgsl")),
            DType::F32 | DType::U32 => {}
        }
        v.width = Some(width);
        v.header = format!("const HEAD: u32 = {}u;\n", p.at(3));
        v
    };
    match options.software {
        true => vec![variant(4), variant(1)],
        false => vec![variant(1), variant(4)],
    }
}
