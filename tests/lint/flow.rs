//! Where float products go. A product that reaches a sum without a fence may be contracted with it. The
//! analysis knows no order of statements: a variable holds whatever is stored to it anywhere.
//!
//! * A product passes through bit casts, selections, vectors, variables, functions, masks and shifts of
//!   its bits, signs and absolute values.
//! * It ends at an exclusive or with a value that only the run knows, at integer arithmetic on its bits
//!   and at comparisons.

use super::{Finding, MARK, PRODUCT, Scope, UNPACKERS, marked, statements};
use naga::{
    BinaryOperator, Expression, Function, GlobalVariable, Handle, LocalVariable, MathFunction,
    ScalarKind, Statement,
};
use std::collections::{BTreeSet, HashMap};

/// What is known of a value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Value {
    /// Lines of the unfenced products that it may be.
    products: BTreeSet<u32>,
    /// Arguments of the function that it may be.
    arguments: BTreeSet<u32>,
    /// Whether it may be a value from elsewhere: anything but zero, low values and arguments.
    foreign: bool,
    /// Whether only the run knows it.
    runtime: bool,
}

impl Value {
    fn foreign() -> Value {
        Value {
            foreign: true,
            ..Value::default()
        }
    }

    fn join(&mut self, other: &Value) -> bool {
        let before = (
            self.products.len(),
            self.arguments.len(),
            self.foreign,
            self.runtime,
        );
        self.products.extend(&other.products);
        self.arguments.extend(&other.arguments);
        self.foreign |= other.foreign;
        self.runtime |= other.runtime;
        before
            != (
                self.products.len(),
                self.arguments.len(),
                self.foreign,
                self.runtime,
            )
    }

    /// A value of the function's caller, with the arguments that it passes.
    fn seen_from(&self, arguments: &[Value]) -> Value {
        let mut out = Value {
            products: self.products.clone(),
            foreign: self.foreign,
            runtime: self.runtime,
            ..Value::default()
        };
        for &a in &self.arguments {
            if let Some(v) = arguments.get(a as usize) {
                out.join(v);
            }
        }
        out
    }
}

/// What callers need to know of a function.
#[derive(Clone, Default)]
struct Summary {
    result: Value,
    /// Arguments that feed a sum in it.
    summed: BTreeSet<u32>,
}

#[derive(Default)]
struct Analysis {
    functions: HashMap<Handle<Function>, Summary>,
    globals: HashMap<Handle<GlobalVariable>, Value>,
    /// Lines whose products all have operands of a low type.
    exact: HashMap<u32, bool>,
    findings: BTreeSet<(&'static str, u32)>,
}

/// The unfenced products of a module, and the marks that should not be.
pub fn products(scopes: &[Scope]) -> BTreeSet<Finding> {
    let mut a = Analysis::default();
    // Variables that outlive a function carry products from one to another: until nothing changes.
    loop {
        let before = a.globals.clone();
        a.findings.clear();
        a.exact.clear();
        for s in scopes {
            a.function(s);
        }
        if before == a.globals {
            break;
        }
    }
    let Some(first) = scopes.first() else {
        return BTreeSet::new();
    };
    let lines = first.source.lines().count() as u32;
    for line in (1..=lines).filter(|&l| marked(first.source, l)) {
        if a.exact.get(&line) != Some(&true) {
            a.findings.insert((MARK, line));
        }
    }
    let findings = a.findings.iter();
    findings
        .map(|&(rule, line)| first.finding(rule, line))
        .collect()
}

/// The variable behind a pointer.
enum Root {
    Local(Handle<LocalVariable>),
    Global(Handle<GlobalVariable>),
    Unknown,
}

fn root(f: &Function, mut pointer: Handle<Expression>) -> Root {
    loop {
        match f.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                pointer = base
            }
            Expression::LocalVariable(v) => return Root::Local(v),
            Expression::GlobalVariable(v) => return Root::Global(v),
            _ => return Root::Unknown,
        }
    }
}

impl Analysis {
    fn function(&mut self, s: &Scope) {
        let f = s.function;
        let handle = s
            .module
            .functions
            .iter()
            .find(|x| std::ptr::eq(x.1, f))
            .map(|x| x.0);
        let mut calls: HashMap<Handle<Expression>, &[Handle<Expression>]> = HashMap::new();
        statements(&f.body, &mut |st, _| {
            if let Statement::Call {
                arguments,
                result: Some(r),
                ..
            } = st
            {
                calls.insert(*r, arguments);
            }
        });
        let mut locals: HashMap<Handle<LocalVariable>, Value> = HashMap::new();
        let mut values: HashMap<Handle<Expression>, Value> = HashMap::new();
        loop {
            for (h, e) in f.expressions.iter() {
                let v = self.value(s, e, h, &values, &locals, &calls);
                values.insert(h, v);
            }
            if !self.stores(s, &values, &mut locals) {
                break;
            }
        }
        let mut summary = Summary::default();
        self.sums(s, &values, &mut summary);
        statements(&f.body, &mut |st, _| match st {
            Statement::Return { value: Some(v) } => {
                summary.result.join(&values[v]);
            }
            Statement::Call {
                function,
                arguments,
                ..
            } => {
                for &i in &self.functions[function].summed.clone() {
                    let v = &values[&arguments[i as usize]];
                    self.feeds_sum(s, s.line(arguments[i as usize]), v, &mut summary);
                }
            }
            _ => {}
        });
        if UNPACKERS.contains(&s.name) {
            summary.result = Value::default();
        }
        if let Some(h) = handle {
            self.functions.insert(h, summary);
        }
    }

    /// Takes every store into account; returns whether a local variable changed.
    fn stores(
        &mut self,
        s: &Scope,
        values: &HashMap<Handle<Expression>, Value>,
        locals: &mut HashMap<Handle<LocalVariable>, Value>,
    ) -> bool {
        let f = s.function;
        let mut changed = false;
        for (h, v) in f.local_variables.iter() {
            if let Some(init) = v.init {
                changed |= locals.entry(h).or_default().join(&values[&init]);
            }
        }
        statements(&f.body, &mut |st, _| {
            let Statement::Store { pointer, value } = st else {
                return;
            };
            match root(f, *pointer) {
                Root::Local(v) => changed |= locals.entry(v).or_default().join(&values[value]),
                Root::Global(v) => {
                    let mut stored = values[value].clone();
                    // Arguments mean nothing outside of the function.
                    stored.foreign |= !stored.arguments.is_empty();
                    stored.arguments.clear();
                    self.globals.entry(v).or_default().join(&stored);
                }
                Root::Unknown => {}
            }
        });
        changed
    }

    /// Sums and products of a function.
    fn sums(
        &mut self,
        s: &Scope,
        values: &HashMap<Handle<Expression>, Value>,
        summary: &mut Summary,
    ) {
        for (h, e) in s.function.expressions.iter() {
            let Expression::Binary { op, left, right } = *e else {
                continue;
            };
            if !s.is_float(h) {
                continue;
            }
            let line = s.line(h);
            match op {
                BinaryOperator::Add | BinaryOperator::Subtract => {
                    self.feeds_sum(s, line, &values[&left], summary);
                    self.feeds_sum(s, line, &values[&right], summary);
                }
                BinaryOperator::Multiply => {
                    let low =
                        |v: &Value| !v.foreign && v.arguments.is_empty() && v.products.is_empty();
                    let both = low(&values[&left]) && low(&values[&right]);
                    let entry = self.exact.entry(line).or_insert(true);
                    *entry &= both;
                }
                _ => {}
            }
        }
    }

    fn feeds_sum(&mut self, s: &Scope, line: u32, v: &Value, summary: &mut Summary) {
        summary.summed.extend(&v.arguments);
        if v.products.iter().any(|&l| !marked(s.source, l)) {
            self.findings.insert((PRODUCT, line));
        }
    }

    fn value(
        &self,
        s: &Scope,
        e: &Expression,
        h: Handle<Expression>,
        values: &HashMap<Handle<Expression>, Value>,
        locals: &HashMap<Handle<LocalVariable>, Value>,
        calls: &HashMap<Handle<Expression>, &[Handle<Expression>]>,
    ) -> Value {
        let of = |e: Handle<Expression>| values.get(&e).cloned().unwrap_or_default();
        let both = |a: Handle<Expression>, b: Handle<Expression>| {
            let mut v = of(a);
            v.join(&of(b));
            v
        };
        match *e {
            Expression::FunctionArgument(i) => Value {
                arguments: BTreeSet::from([i]),
                ..Value::default()
            },
            Expression::ZeroValue(_) => Value::default(),
            Expression::Literal(l) => Value {
                foreign: !matches!(
                    l,
                    naga::Literal::F32(0.0) | naga::Literal::U32(0) | naga::Literal::I32(0)
                ),
                ..Value::default()
            },
            Expression::Load { pointer } => match root(s.function, pointer) {
                Root::Local(v) => locals.get(&v).cloned().unwrap_or_default(),
                Root::Global(v) => {
                    let mut out = self.globals.get(&v).cloned().unwrap_or_default();
                    let shared = s.module.global_variables[v].space != naga::AddressSpace::Private;
                    out.foreign |= s.module.global_variables[v].binding.is_some();
                    out.runtime |= shared;
                    out
                }
                Root::Unknown => Value::foreign(),
            },
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => of(base),
            Expression::Splat { value, .. } => of(value),
            Expression::Swizzle { vector, .. } => of(vector),
            Expression::Compose { ref components, .. } => {
                let mut out = Value::default();
                components.iter().for_each(|&c| {
                    out.join(&of(c));
                });
                out
            }
            Expression::Select { accept, reject, .. } => both(accept, reject),
            Expression::Unary { expr, .. } => of(expr),
            Expression::As { expr, convert, .. } => Value {
                foreign: of(expr).foreign || convert.is_some(),
                ..of(expr)
            },
            Expression::Math {
                fun: MathFunction::Abs,
                arg,
                ..
            } => of(arg),
            Expression::Binary { op, left, right } => {
                self.binary(s, h, op, both(left, right), [of(left), of(right)])
            }
            Expression::CallResult(f) => {
                let arguments: Vec<Value> = calls[&h].iter().map(|&a| of(a)).collect();
                self.functions[&f].result.seen_from(&arguments)
            }
            _ => Value::foreign(),
        }
    }

    fn binary(
        &self,
        s: &Scope,
        h: Handle<Expression>,
        op: BinaryOperator,
        both: Value,
        sides: [Value; 2],
    ) -> Value {
        use BinaryOperator as B;
        let runtime = both.runtime;
        let kept = Value {
            foreign: true,
            runtime,
            ..Value::default()
        };
        if s.is_float(h) {
            let mut out = kept;
            if op == B::Multiply {
                out.products.insert(s.line(h));
            }
            return out;
        }
        if s.ty(h).scalar_kind() == Some(ScalarKind::Bool) {
            return kept;
        }
        match op {
            B::ExclusiveOr
                if sides
                    .iter()
                    .any(|v| v.runtime && v.products.is_empty() && v.arguments.is_empty()) =>
            {
                kept
            }
            B::And | B::ExclusiveOr | B::InclusiveOr | B::ShiftLeft | B::ShiftRight => Value {
                foreign: true,
                ..both
            },
            _ => kept,
        }
    }
}
