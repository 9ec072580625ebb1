//! The generated parts of a kernel with an expression: the uniform block of a pointwise one, and the
//! expression.

use crate::kernels::pointwise::{Expr, PwOp};
use crate::kernels::{Host, Params};
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

/// The library files that an expression calls.
pub fn libraries(expr: &Expr) -> Vec<&'static str> {
    let mut out = vec!["lib/fence.wgsl"];
    for i in &expr.code {
        match i.op {
            PwOp::Add | PwOp::Sub | PwOp::Mul | PwOp::Gt | PwOp::Select => {}
            PwOp::Copy | PwOp::Neg | PwOp::Abs => {}
            PwOp::Max | PwOp::Min => out.push("lib/reduce.wgsl"),
            _ => out.push("lib/math.wgsl"),
        }
    }
    out
}

/// `fn expression(i) -> f32`: loads, flushed, then one `let` for each instruction. In an epilogue the
/// host's value is one more argument.
pub fn function(p: &Params, expr: &Expr, host: Host) -> String {
    let epilogue = usize::from(host == Host::Epilogue);
    let arguments = ["i: u32", "i: u32, own: f32"][epilogue];
    let mut out = format!("fn expression({arguments}) -> f32 {{\n");
    let mut registers = Vec::new();
    for j in 0..expr.inputs as usize {
        let value = if j < epilogue {
            "own".to_string()
        } else if host == Host::No {
            format!("ld_in{j}({})", index(p, j))
        } else {
            format!("ld_in{j}({})", fixed_index(p, expr.inputs as usize - j))
        };
        let _ = writeln!(out, "    let x{j} = ftz({value});");
        registers.push(format!("x{j}"));
    }
    registers.extend(expr.consts.iter().map(|&c| constant(c)));
    for (k, i) in expr.code.iter().enumerate() {
        let mut text = i.op.wgsl().to_string();
        for (a, &r) in i.args[..i.op.arity()].iter().enumerate() {
            text = text.replace(&format!("${a}"), &registers[r as usize]);
        }
        if i.round.is_low() {
            text = format!("narrow_{}({text})", i.round.name());
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

/// The same in a host, whose uniform block has no names for the pairs: they are literals. The pair is
/// the last but `back - 1`.
fn fixed_index(p: &Params, back: usize) -> String {
    let at = p.words.len() - 2 * back;
    match (p.words[at], p.words[at + 1]) {
        (_, 1) => "0u".into(),
        (1, len) => format!("i % {len}u"),
        (div, len) => format!("i / {div}u % {len}u"),
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
