//! What a portable shader may not contain: a walk over naga's IR of a text. The rules are those that the
//! bits need (no built-in math, no float division, no unfenced product that feeds a sum, ...), each by
//! name, so that a text is known to fail for its own reason.

mod flow;

use naga::proc::TypeResolution;
use naga::valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator};
use naga::{
    BinaryOperator, Block, Expression, Function, Handle, MathFunction, Module, ScalarKind,
    Statement, TypeInner,
};
use std::collections::BTreeSet;

/// A broken rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// Line of the text, from 1.
    pub line: u32,
    /// The line.
    pub text: String,
}

pub const BUILT_IN: &str = "built-in math";
pub const DIVISION: &str = "float division";
pub const CONVERSION: &str = "int to float";
pub const ATOMIC: &str = "float atomic";
pub const SUBGROUP: &str = "subgroup float";
pub const PRODUCT: &str = "unfenced product";
pub const MARK: &str = "exact mark";
pub const POINTER: &str = "pointer argument";

/// Functions that may divide and take square roots in hardware: their results are first guesses that
/// integers make exact.
const GUESSES: [&str; 2] = ["guess_div", "guess_sqrt"];
/// Functions that may convert any integer to float, and why the integer is at most 2^24: `log_` converts
/// the exponent of an f32.
const SMALL_INTEGERS: [&str; 1] = ["log_"];
/// Functions whose results are values of a low type, so that a product of two of them is exact in f32.
const UNPACKERS: [&str; 2] = ["unpack_bf16", "unpack_f16"];

/// A function under inspection.
struct Scope<'a> {
    module: &'a Module,
    info: &'a FunctionInfo,
    function: &'a Function,
    name: &'a str,
    source: &'a str,
}

impl Scope<'_> {
    fn ty(&self, e: Handle<Expression>) -> &TypeInner {
        match &self.info[e].ty {
            TypeResolution::Handle(h) => &self.module.types[*h].inner,
            TypeResolution::Value(inner) => inner,
        }
    }

    fn is_float(&self, e: Handle<Expression>) -> bool {
        match self.ty(e) {
            TypeInner::Matrix { .. } => true,
            other => other.scalar_kind() == Some(ScalarKind::Float),
        }
    }

    fn line(&self, e: Handle<Expression>) -> u32 {
        let span = self.function.expressions.get_span(e);
        span.location(self.source).line_number
    }

    fn finding(&self, rule: &'static str, line: u32) -> Finding {
        let text = self.source.lines().nth(line as usize - 1).unwrap_or("");
        Finding {
            rule,
            line,
            text: text.trim().to_string(),
        }
    }
}

/// Whether a line bears the mark of an exact product.
fn marked(source: &str, line: u32) -> bool {
    let text = source.lines().nth(line as usize - 1);
    text.is_some_and(|l| l.trim_end().ends_with("// exact"))
}

/// All broken rules of a text.
///
/// # Errors
/// It is no valid shader.
pub fn lint(source: &str) -> Result<BTreeSet<Finding>, String> {
    let module = naga::front::wgsl::parse_str(source).map_err(|e| e.emit_to_string(source))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string(source))?;
    let mut out = BTreeSet::new();
    let scopes = scopes(&module, &info, source);
    for s in &scopes {
        for (handle, expression) in s.function.expressions.iter() {
            if let Some(rule) = expression_rule(s, expression) {
                out.insert(s.finding(rule, s.line(handle)));
            }
        }
        for a in &s.function.arguments {
            if matches!(
                module.types[a.ty].inner,
                TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. }
            ) {
                let span = module
                    .functions
                    .iter()
                    .find(|f| std::ptr::eq(f.1, s.function));
                let span = span.map(|f| module.functions.get_span(f.0));
                let line = span.map_or(1, |p| p.location(source).line_number);
                out.insert(s.finding(POINTER, line));
            }
        }
        statements(&s.function.body, &mut |statement, span| {
            if let Some(rule) = statement_rule(s, statement) {
                out.insert(s.finding(rule, span.location(source).line_number));
            }
        });
    }
    out.extend(flow::products(&scopes));
    Ok(out)
}

/// Every function, callees first, then the entry points.
fn scopes<'a>(module: &'a Module, info: &'a ModuleInfo, source: &'a str) -> Vec<Scope<'a>> {
    let functions = module.functions.iter().map(|(h, function)| Scope {
        module,
        info: &info[h],
        function,
        name: function.name.as_deref().unwrap_or(""),
        source,
    });
    let entries = module.entry_points.iter().enumerate().map(|(i, e)| Scope {
        module,
        info: info.get_entry_point(i),
        function: &e.function,
        name: &e.name,
        source,
    });
    functions.chain(entries).collect()
}

fn statements<'a>(block: &'a Block, f: &mut dyn FnMut(&'a Statement, naga::Span)) {
    for (statement, span) in block.span_iter() {
        f(statement, *span);
        match statement {
            Statement::Block(b) => statements(b, f),
            Statement::If { accept, reject, .. } => {
                statements(accept, f);
                statements(reject, f);
            }
            Statement::Switch { cases, .. } => cases.iter().for_each(|c| statements(&c.body, f)),
            Statement::Loop {
                body, continuing, ..
            } => {
                statements(body, f);
                statements(continuing, f);
            }
            _ => {}
        }
    }
}

fn expression_rule(s: &Scope, e: &Expression) -> Option<&'static str> {
    let guess = GUESSES.contains(&s.name);
    match *e {
        Expression::Math { fun, arg, .. } => {
            use MathFunction as M;
            let unpacks = matches!(
                fun,
                M::Unpack4x8snorm
                    | M::Unpack4x8unorm
                    | M::Unpack2x16snorm
                    | M::Unpack2x16unorm
                    | M::Unpack2x16float
            );
            let allowed = fun == M::Abs || (guess && fun == M::Sqrt);
            (unpacks || (s.is_float(arg) && !allowed)).then_some(BUILT_IN)
        }
        Expression::Derivative { .. } => Some(BUILT_IN),
        Expression::Binary { op, left, right } if s.is_float(left) || s.is_float(right) => match op
        {
            BinaryOperator::Divide | BinaryOperator::Modulo if !guess => Some(DIVISION),
            BinaryOperator::Multiply if matrix(s, left) || matrix(s, right) => Some(BUILT_IN),
            _ => None,
        },
        Expression::As {
            expr,
            kind: ScalarKind::Float,
            convert: Some(_),
        } => {
            let from = s.ty(expr).scalar_kind();
            let integer = matches!(from, Some(ScalarKind::Sint | ScalarKind::Uint));
            let fine = SMALL_INTEGERS.contains(&s.name) || at_most_2_to_24(s, expr);
            (integer && !fine).then_some(CONVERSION)
        }
        _ => None,
    }
}

fn matrix(s: &Scope, e: Handle<Expression>) -> bool {
    matches!(s.ty(e), TypeInner::Matrix { .. })
}

/// Whether an unsigned value is masked or shifted down to 2^24, or a small constant.
fn at_most_2_to_24(s: &Scope, e: Handle<Expression>) -> bool {
    const LIMIT: i64 = 1 << 24;
    let literal = |e: Handle<Expression>| match s.function.expressions[e] {
        Expression::Literal(naga::Literal::U32(v)) => Some(v as i64),
        Expression::Literal(naga::Literal::I32(v)) => Some((v as i64).abs()),
        _ => None,
    };
    match s.function.expressions[e] {
        Expression::Binary {
            op: BinaryOperator::And,
            left,
            right,
        } => {
            let small = |e| literal(e).is_some_and(|v| (0..=LIMIT).contains(&v));
            small(left) || small(right)
        }
        Expression::Binary {
            op: BinaryOperator::ShiftRight,
            left,
            right,
        } => {
            s.ty(left).scalar_kind() == Some(ScalarKind::Uint)
                && literal(right).is_some_and(|v| v >= 8)
        }
        _ => literal(e).is_some_and(|v| v <= LIMIT),
    }
}

fn statement_rule(s: &Scope, statement: &Statement) -> Option<&'static str> {
    match *statement {
        Statement::Atomic { value, .. } if s.is_float(value) => Some(ATOMIC),
        Statement::SubgroupCollectiveOperation { argument, .. }
        | Statement::SubgroupGather { argument, .. }
            if s.is_float(argument) =>
        {
            Some(SUBGROUP)
        }
        Statement::CooperativeStore { .. } => Some(BUILT_IN),
        _ => None,
    }
}
