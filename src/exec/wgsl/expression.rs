//! The generated parts of a pointwise kernel: its uniform block and its expression.

use crate::dtype::DType;
use crate::kernels::Params;
use crate::kernels::pointwise::Expr;
use std::fmt::Write;

/// The uniform block: the zero, the number of elements, and (div, len) for each input.
pub fn params(p: &Params, expr: &Expr) -> String {
    let mut out = String::from("struct Params {\n    zero: u32,\n    n: u32,\n");
    for j in 0..expr.inputs {
        let _ = writeln!(out, "    div{j}: u32,\n    len{j}: u32,");
    }
    out.push_str("}\n");
    debug_assert_eq!(p.words.len(), 2 + 2 * expr.inputs as usize);
    out
}

/// `fn expression(i) -> f32`: loads, flushed, then one `let` for each instruction.
pub fn function(p: &Params, expr: &Expr) -> String {
    let mut out = String::from("fn expression(i: u32) -> f32 {\n");
    let mut registers = Vec::new();
    for j in 0..expr.inputs as usize {
        let _ = writeln!(out, "    let x{j} = ftz(ld_in{j}({}));", index(p, j));
        registers.push(format!("x{j}"));
    }
    registers.extend(expr.consts.iter().map(|&c| constant(c)));
    for (k, i) in expr.code.iter().enumerate() {
        let mut text = i.op.wgsl().to_string();
        for (a, &r) in i.args[..i.op.arity()].iter().enumerate() {
            text = text.replace(&format!("${a}"), &registers[r as usize]);
        }
        if i.round == DType::Bf16 {
            text = format!("narrow_bf16({text})");
        }
        let _ = writeln!(out, "    let t{k} = {text};");
        registers.push(format!("t{k}"));
    }
    let result = registers.last().expect("an expression has a register");
    let _ = writeln!(out, "    return {result};\n}}");
    out
}

/// The element of input `j` for output element `i`: `(i / div) % len`, without the operations that the
/// shapes make superfluous (integer division is slow).
fn index(p: &Params, j: usize) -> String {
    let (n, div, len) = (p.at(0), p.at(1 + 2 * j), p.at(2 + 2 * j));
    let quotient = if div == 1 {
        "i".to_string()
    } else {
        format!("i / P.div{j}")
    };
    if len == 1 {
        "0u".into()
    } else if div * len >= n {
        quotient
    } else {
        format!("{quotient} % P.len{j}")
    }
}

/// A constant by its bits. Infinities and NaN are made at run time: some compilers reject them in
/// constant expressions.
fn constant(bits: u32) -> String {
    if bits & 0x7f80_0000 == 0x7f80_0000 {
        format!("bitcast<f32>({bits:#010x}u ^ P.zero)")
    } else {
        format!("bitcast<f32>({bits:#010x}u)")
    }
}
