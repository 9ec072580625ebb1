//! Bindings and their accessors, so that bodies need not know how elements are stored:
//!
//! * `ld_x(i)`, `st_x(i, v)`: element `i` as a number, or as a word where the binding holds words;
//! * `raw_x(i)`, `put_x(i, u)`: word `i` as it lies in memory;
//! * `round_x(v)` of a packed result: the low half of a word, rounded to its type;
//! * `st2_x(row, i, n, v)`: elements `i` (even) and `i + 1`, if it is there, of a row of `n`, in kernels
//!   that host an epilogue: one word where the result is packed;
//! * `ld4_x(i)`: elements `i` to `i + 3`, `i` a multiple of four, where rows are too. Such a binding is
//!   declared as vectors and has no other accessor;
//! * `ldw_x(at)`, `stw_x(at, v, there)` in the attention kernels: the elements that the components of
//!   `at` name, one or several at once; only those that are `there` are stored.
//!
//! Every buffer is declared as words: a raw copy then never passes through a float register.

use super::Options;
use super::variants::Variant;
use crate::dtype::DType;
use crate::kernels::pointwise::Expr;
use crate::kernels::{self, Access, Binding, Host};
use crate::plan::{BufId, Plan, Step};
use std::fmt::Write;

/// Bindings 0 (the parameters) and up, with the accessors that a variant needs.
pub fn declare(step: &Step, plan: &Plan, v: &Variant, options: Options) -> String {
    // Mesa's software drivers compile a shader anew whenever a uniform in a condition may have changed,
    // and keep what they compiled. A storage buffer's words are data to them.
    let space = if options.software {
        "storage, read"
    } else {
        "uniform"
    };
    let mut out = format!("@group(0) @binding(0) var<{space}> P: Params;\n");
    for (i, b) in bindings(step, plan).iter().enumerate() {
        if i < v.fours {
            out.push_str(&in_fours(b, i + 1));
            continue;
        }
        let mode = if b.access == Access::Read {
            "read"
        } else {
            "read_write"
        };
        let name = &b.name;
        let _ = writeln!(
            out,
            "@group(0) @binding({}) var<storage, {mode}> b_{name}: array<u32>;",
            i + 1
        );
        let _ = writeln!(
            out,
            "fn raw_{name}(i: u32) -> u32 {{ return b_{name}[i]; }}"
        );
        out.push_str(&load(b));
        if b.access != Access::Read {
            let _ = writeln!(out, "fn put_{name}(i: u32, u: u32) {{ b_{name}[i] = u; }}");
            out.push_str(&store(b));
            if i == step.reads.len() && step.kernel.host == Host::Epilogue {
                out.push_str(&store_pair(b));
            }
        }
        if let Some(width) = v.width {
            out.push_str(&wide(b, width));
        }
    }
    if step.params.expr.is_some() && step.kernel.host == Host::Prologue {
        let name = step.kernel.bindings[0].name;
        let _ = writeln!(
            out,
            "fn ld_{name}(i: u32) -> f32 {{ return expression(i); }}"
        );
    }
    out
}

/// A binding of a step.
struct Bound {
    name: String,
    access: Access,
    float: bool,
    dtype: DType,
    row: usize,
    /// What it stores goes through the hosted expression.
    epilogue: bool,
}

/// The bindings of a step, reads first: the kernel's own, then the operands of its expression.
fn bindings(step: &Step, plan: &Plan) -> Vec<Bound> {
    let hosting = step.params.expr.is_some();
    let epilogue = hosting && step.kernel.host == Host::Epilogue;
    let own = step.kernel.own_reads(hosting);
    let kernel = step.kernel.bindings;
    let bound = |name: String, b: &Binding, id: BufId, epilogue: bool| {
        let ty = plan.buf(id).ty;
        Bound {
            name,
            access: b.access,
            float: b.float,
            dtype: ty.dtype,
            row: ty.shape.row(),
            epilogue,
        }
    };
    let reads: Vec<_> = kernel.iter().filter(|b| b.access == Access::Read).collect();
    let read = step.reads.iter().enumerate().map(|(i, &id)| {
        if i < own {
            return bound(reads[i].name.to_string(), reads[i], id, false);
        }
        // The host's own value is the expression's first input.
        let j = i - own + usize::from(epilogue);
        bound(format!("in{j}"), &kernels::read("in"), id, false)
    });
    let writes = kernel.iter().filter(|b| b.access != Access::Read);
    let write = writes.zip(&step.writes).enumerate();
    let write = write.map(|(i, (b, &id))| bound(b.name.to_string(), b, id, epilogue && i == 0));
    read.chain(write).collect()
}

fn in_fours(b: &Bound, binding: usize) -> String {
    let name = &b.name;
    let (ty, value) = match b.dtype {
        DType::Bf16 => (
            "vec2<u32>",
            "bitcast<vec4<f32>>(vec4<u32>(u.x << 16u, u.x & 0xffff0000u, u.y << 16u, u.y & 0xffff0000u))",
        ),
        DType::F16 => (
            "vec2<u32>",
            "vec4<f32>(unpack_f16(u.x, 0u), unpack_f16(u.x, 1u), unpack_f16(u.y, 0u), unpack_f16(u.y, 1u))",
        ),
        DType::F32 | DType::U32 => ("vec4<u32>", "bitcast<vec4<f32>>(u)"),
    };
    format!(
        "@group(0) @binding({binding}) var<storage, read> b_{name}: array<{ty}>;\n\
         fn ld4_{name}(i: u32) -> vec4<f32> {{ let u = b_{name}[i / 4u]; return {value}; }}\n"
    )
}

fn load(b: &Bound) -> String {
    let name = &b.name;
    if !b.float {
        return format!("fn ld_{name}(i: u32) -> u32 {{ return b_{name}[i]; }}\n");
    }
    if !b.dtype.packed() {
        return format!("fn ld_{name}(i: u32) -> f32 {{ return bitcast<f32>(b_{name}[i]); }}\n");
    }
    // Packed rows are padded to an even number of elements.
    let (word, half) = if b.row.is_multiple_of(2) {
        ("i / 2u".to_string(), "i % 2u".to_string())
    } else {
        let (row, words) = (b.row, b.row.div_ceil(2));
        (
            format!("i / {row}u * {words}u + i % {row}u / 2u"),
            format!("i % {row}u % 2u"),
        )
    };
    let unpack = format!("unpack_{}", b.dtype.name());
    format!("fn ld_{name}(i: u32) -> f32 {{ return {unpack}(b_{name}[{word}], {half}); }}\n")
}

fn store(b: &Bound) -> String {
    let name = &b.name;
    if b.float {
        if b.dtype.packed() {
            // Kernels with packed results put whole words.
            let round = format!("round_{}", b.dtype.name());
            return format!("fn round_{name}(v: f32) -> u32 {{ return {round}(v); }}\n");
        }
        let value = if b.epilogue { "expression(i, v)" } else { "v" };
        format!("fn st_{name}(i: u32, v: f32) {{ b_{name}[i] = bitcast<u32>({value}); }}\n")
    } else {
        format!("fn st_{name}(i: u32, v: u32) {{ b_{name}[i] = v; }}\n")
    }
}

fn store_pair(b: &Bound) -> String {
    let name = &b.name;
    let (first, second) = if b.dtype.packed() {
        (
            String::new(),
            format!(
                "var high = 0u; if i + 1u < n {{ high = round_{name}(expression(at + 1u, v.y)); }} \
                 put_{name}(row * ((n + 1u) / 2u) + i / 2u, round_{name}(expression(at, v.x)) | (high << 16u));"
            ),
        )
    } else {
        (
            format!("st_{name}(at, v.x); "),
            format!("if i + 1u < n {{ st_{name}(at + 1u, v.y); }}"),
        )
    };
    format!(
        "fn st2_{name}(row: u32, i: u32, n: u32, v: vec2<f32>) \
         {{ let at = row * n + i; {first}{second} }}\n"
    )
}

fn wide(b: &Bound, width: usize) -> String {
    let name = &b.name;
    let parts: &[&str] = if width == 1 {
        &[""]
    } else {
        &[".x", ".y", ".z", ".w"]
    };
    let loads: Vec<String> = parts.iter().map(|c| format!("ld_{name}(at{c})")).collect();
    let load = format!(
        "fn ldw_{name}(at: Index) -> Wide {{ return Wide({}); }}\n",
        loads.join(", ")
    );
    if b.access == Access::Read {
        return load;
    }
    let stores: String = parts
        .iter()
        .map(|c| format!(" if there{c} {{ st_{name}(at{c}, v{c}); }}"))
        .collect();
    format!("{load}fn stw_{name}(at: Index, v: Wide, there: Mask) {{{stores} }}\n")
}

/// The files of the packed types that a step touches or rounds to.
pub fn packing(step: &Step, plan: &Plan) -> Vec<&'static str> {
    let uses = |dtype: DType| {
        let rounds = |e: &Expr| e.code.iter().any(|i| i.round == dtype);
        let mut all = bindings(step, plan).into_iter();
        all.any(|b| b.float && b.dtype == dtype) || step.params.expr.as_deref().is_some_and(rounds)
    };
    let files = [(DType::Bf16, "lib/bf16.wgsl"), (DType::F16, "lib/f16.wgsl")];
    let used = files.into_iter().filter(|f| uses(f.0));
    used.map(|f| f.1).collect()
}
