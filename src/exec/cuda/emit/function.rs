//! Functions and statements.

use super::Context;
use naga::valid::FunctionInfo;
use naga::{AtomicFunction, Block, Expression, Handle, Statement, SwitchValue};
use std::collections::HashSet;
use std::fmt::Write;

/// A function's name in the text: its own, made unique by its number.
pub(super) fn name(handle: Handle<naga::Function>, f: &naga::Function) -> String {
    let own = f.name.as_deref().unwrap_or("f");
    let own = own.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    format!("f{}_{own}", handle.index())
}

/// A function on its way into text.
pub(super) struct Function<'a> {
    pub context: &'a Context<'a>,
    pub function: &'a naga::Function,
    pub info: &'a FunctionInfo,
    /// Expressions that have a name by now.
    pub named: HashSet<Handle<Expression>>,
    /// Labels of the loops around, innermost last.
    loops: Vec<usize>,
    labels: usize,
    out: String,
    depth: usize,
}

impl Context<'_> {
    /// A function as a member.
    pub(super) fn function(
        &self,
        name: &str,
        function: &naga::Function,
        info: &FunctionInfo,
    ) -> Result<String, String> {
        let mut f = Function {
            context: self,
            function,
            info,
            named: HashSet::new(),
            loops: vec![],
            labels: 0,
            out: String::new(),
            depth: 1,
        };
        let wrong = |e: String| format!("{name}: {e}");
        f.whole(name).map_err(wrong)?;
        Ok(f.out)
    }
}

impl Function<'_> {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", 4 * self.depth);
    }

    fn whole(&mut self, name: &str) -> Result<(), String> {
        let context = self.context;
        let result = match &self.function.result {
            Some(r) => context.type_name(r.ty)?,
            None => "void".into(),
        };
        let mut arguments = Vec::new();
        for (i, a) in self.function.arguments.iter().enumerate() {
            arguments.push(format!("{} a{i}", context.type_name(a.ty)?));
        }
        self.line(&format!("FN {result} {name}({}) {{", arguments.join(", ")));
        self.depth += 1;
        for (handle, v) in self.function.local_variables.iter() {
            let init = match v.init {
                Some(e) => self.computed(e)?,
                None => "{}".into(),
            };
            let ty = context.type_name(v.ty)?;
            self.line(&format!("{ty} l{} = {init};", handle.index()));
        }
        self.block(&self.function.body)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Result<(), String> {
        block.iter().try_for_each(|s| self.statement(s))
    }

    /// A block in braces, after `head`.
    fn braced(&mut self, head: &str, block: &Block) -> Result<(), String> {
        self.line(&format!("{head}{{"));
        self.depth += 1;
        self.block(block)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    /// Gives an expression a name.
    fn give(&mut self, e: Handle<Expression>, text: &str) -> Result<(), String> {
        let ty = self.type_of(e)?;
        self.line(&format!("const {ty} e{} = {text};", e.index()));
        self.named.insert(e);
        Ok(())
    }

    fn statement(&mut self, s: &Statement) -> Result<(), String> {
        match s {
            Statement::Emit(range) => {
                for e in range.clone() {
                    // A place is written where it is used: its indices have names.
                    if !self.is_place(e) {
                        let text = self.computed(e)?;
                        self.give(e, &text)?;
                    }
                }
            }
            Statement::Block(block) => self.braced("", block)?,
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                let condition = self.value(*condition)?;
                self.braced(&format!("if ({condition}) "), accept)?;
                if !reject.is_empty() {
                    self.braced("else ", reject)?;
                }
            }
            Statement::Switch { selector, cases } => self.switch(*selector, cases)?,
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => self.loop_(body, continuing, *break_if)?,
            Statement::Break => self.line("break;"),
            Statement::Continue => {
                let label = self.loops.last().ok_or("continue outside of a loop")?;
                self.line(&format!("goto next_{label};"));
            }
            Statement::Return { value } => {
                let value = value.map(|v| self.value(v)).transpose()?;
                self.line(&format!("return {};", value.unwrap_or_default()));
            }
            Statement::ControlBarrier(_) => self.line("block_barrier();"),
            Statement::Store { pointer, value } => {
                let (place, value) = (self.place(*pointer)?, self.value(*value)?);
                match self.is_atomic(*pointer) {
                    true => self.line(&format!("atomic_store({place}, {value});")),
                    false => self.line(&format!("{place} = {value};")),
                }
            }
            Statement::Atomic {
                pointer,
                fun: AtomicFunction::Add,
                value,
                result,
            } => {
                let text = format!(
                    "atomic_add({}, {})",
                    self.place(*pointer)?,
                    self.value(*value)?
                );
                match result {
                    Some(r) => self.give(*r, &text)?,
                    None => self.line(&format!("{text};")),
                }
            }
            Statement::Call {
                function,
                arguments,
                result,
            } => {
                let callee = name(*function, &self.context.module.functions[*function]);
                let given: Result<Vec<String>, String> =
                    arguments.iter().map(|a| self.value(*a)).collect();
                let text = format!("{callee}({})", given?.join(", "));
                match result {
                    Some(r) => self.give(*r, &text)?,
                    None => self.line(&format!("{text};")),
                }
            }
            other => return Err(format!("the statement {other:?} is not offered")),
        }
        Ok(())
    }

    fn loop_(
        &mut self,
        body: &Block,
        continuing: &Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<(), String> {
        self.labels += 1;
        let label = self.labels;
        self.loops.push(label);
        self.line("for (;;) {");
        self.depth += 1;
        // In braces, because a jump may not pass what it would leave without a value.
        self.braced("", body)?;
        self.loops.pop();
        if jumps(body) {
            self.line(&format!("next_{label}:;"));
        }
        self.block(continuing)?;
        if let Some(e) = break_if {
            let end = self.value(e)?;
            self.line(&format!("if ({end}) break;"));
        }
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn switch(
        &mut self,
        selector: Handle<Expression>,
        cases: &[naga::SwitchCase],
    ) -> Result<(), String> {
        let selector = self.value(selector)?;
        self.line(&format!("switch ({selector}) {{"));
        for case in cases {
            let label = match case.value {
                SwitchValue::U32(v) => format!("case {v}u:"),
                SwitchValue::I32(v) => format!("case {v}:"),
                SwitchValue::Default => "default:".into(),
            };
            self.braced(&format!("{label} "), &case.body)?;
            if !case.fall_through {
                self.line("break;");
            }
        }
        self.line("}");
        Ok(())
    }
}

/// Whether a loop's body goes on with the next round from within.
fn jumps(body: &Block) -> bool {
    body.iter().any(|s| match s {
        Statement::Continue => true,
        Statement::Block(b) => jumps(b),
        Statement::If { accept, reject, .. } => jumps(accept) || jumps(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|c| jumps(&c.body)),
        _ => false,
    })
}
