//! Expressions.

use super::function::Function;
use super::{Context, global, read_only};
use naga::{
    AddressSpace, BinaryOperator as B, Expression as E, Handle, Literal, MathFunction as M,
    RelationalFunction, ScalarKind, TypeInner, UnaryOperator,
};

type Value = Handle<naga::Expression>;

/// A literal. Floats are their bits.
fn literal(l: &Literal) -> Result<String, String> {
    Ok(match *l {
        Literal::F32(x) => format!("as_f32({:#010x}u)", x.to_bits()),
        Literal::U32(x) => format!("{x}u"),
        Literal::I32(x) => format!("as_i32({:#010x}u)", x as u32),
        Literal::Bool(b) => b.to_string(),
        ref other => return Err(format!("the literal {other:?} is not offered")),
    })
}

impl Context<'_> {
    /// A constant expression of the module.
    pub(super) fn constant(&self, e: Value) -> Result<String, String> {
        match &self.module.global_expressions[e] {
            E::Literal(l) => literal(l),
            E::Constant(c) => self.constant(self.module.constants[*c].init),
            E::ZeroValue(ty) => Ok(format!("{}{{}}", self.type_name(*ty)?)),
            E::Compose { ty, components } => {
                let parts: Result<Vec<String>, String> =
                    components.iter().map(|c| self.constant(*c)).collect();
                self.composed(*ty, &parts?)
            }
            E::Splat { size, value } => {
                let value = self.constant(*value)?;
                Ok(format!("splat{}({value})", *size as u8))
            }
            other => Err(format!("the constant {other:?} is not offered")),
        }
    }

    /// Parts as one value. A vector's parts may be vectors.
    fn composed(&self, ty: Handle<naga::Type>, parts: &[String]) -> Result<String, String> {
        let name = self.type_name(ty)?;
        Ok(match self.module.types[ty].inner {
            TypeInner::Vector { size, .. } => {
                format!("join{}({})", size as u8, parts.join(", "))
            }
            TypeInner::Array { .. } => format!("{name}{{{{{}}}}}", parts.join(", ")),
            _ => format!("{name}{{{}}}", parts.join(", ")),
        })
    }
}

impl Function<'_> {
    /// The type of an expression.
    pub(super) fn inner(&self, e: Value) -> &TypeInner {
        self.info[e].ty.inner_with(&self.context.module.types)
    }

    /// The name of an expression's type.
    pub(super) fn type_of(&self, e: Value) -> Result<String, String> {
        let handle = self.info[e].ty.handle();
        self.context.inner_name(self.inner(e), handle)
    }

    /// Whether an expression is a place and no value.
    pub(super) fn is_place(&self, e: Value) -> bool {
        matches!(
            self.inner(e),
            TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. }
        )
    }

    /// An expression as it is used: by its name, if it has one.
    pub(super) fn value(&self, e: Value) -> Result<String, String> {
        match self.named.contains(&e) {
            true => Ok(format!("e{}", e.index())),
            false => self.computed(e),
        }
    }

    /// An expression's computation.
    pub(super) fn computed(&self, e: Value) -> Result<String, String> {
        let v = |e: Value| self.value(e);
        let context = self.context;
        Ok(match &self.function.expressions[e] {
            E::Literal(l) => literal(l)?,
            E::Constant(c) => context.constant(context.module.constants[*c].init)?,
            E::ZeroValue(ty) => format!("{}{{}}", context.type_name(*ty)?),
            E::Compose { ty, components } => {
                let parts: Result<Vec<String>, String> = components.iter().map(|c| v(*c)).collect();
                context.composed(*ty, &parts?)?
            }
            E::Splat { size, value } => format!("splat{}({})", *size as u8, v(*value)?),
            E::Swizzle {
                size,
                vector,
                pattern,
            } => {
                let of = v(*vector)?;
                let parts: Vec<String> = pattern[..*size as usize]
                    .iter()
                    .map(|c| format!("{of}.{}", component(*c as u32)))
                    .collect();
                format!("join{}({})", *size as u8, parts.join(", "))
            }
            E::FunctionArgument(i) => format!("a{i}"),
            E::GlobalVariable(_) | E::LocalVariable(_) => self.place(e)?,
            E::Access { .. } | E::AccessIndex { .. } if self.is_place(e) => self.place(e)?,
            E::Access { base, index } => format!("{}[{}]", v(*base)?, v(*index)?),
            E::AccessIndex { base, index } => self.part(&v(*base)?, self.inner(*base), *index)?,
            E::Load { pointer } => self.loaded(*pointer)?,
            E::Unary { op, expr } => {
                let name = match op {
                    UnaryOperator::Negate => "negate",
                    UnaryOperator::LogicalNot => "not_",
                    UnaryOperator::BitwiseNot => "invert",
                };
                format!("{name}({})", v(*expr)?)
            }
            E::Binary { op, left, right } => {
                format!("{}({}, {})", binary(*op), v(*left)?, v(*right)?)
            }
            E::Select {
                condition,
                accept,
                reject,
            } => format!(
                "choose({}, {}, {})",
                v(*condition)?,
                v(*accept)?,
                v(*reject)?
            ),
            E::Relational { fun, argument } => match fun {
                RelationalFunction::All => format!("all_of({})", v(*argument)?),
                RelationalFunction::Any => format!("any_of({})", v(*argument)?),
                other => return Err(format!("{other:?} is not offered")),
            },
            E::Math {
                fun,
                arg,
                arg1,
                arg2,
                arg3,
            } => {
                let given = [Some(arg), arg1.as_ref(), arg2.as_ref(), arg3.as_ref()];
                let given: Result<Vec<String>, String> =
                    given.into_iter().flatten().map(|a| v(*a)).collect();
                format!("{}({})", math(*fun)?, given?.join(", "))
            }
            E::As {
                expr,
                kind,
                convert,
            } => {
                let to = match (kind, convert) {
                    (ScalarKind::Uint, Some(4)) => "to_u32",
                    (ScalarKind::Sint, Some(4)) => "to_i32",
                    (ScalarKind::Float, Some(4)) => "to_f32",
                    (ScalarKind::Bool, Some(_)) => "to_bool",
                    (ScalarKind::Uint, None) => "as_u32",
                    (ScalarKind::Sint, None) => "as_i32",
                    (ScalarKind::Float, None) => "as_f32",
                    other => return Err(format!("the conversion {other:?} is not offered")),
                };
                format!("{to}({})", v(*expr)?)
            }
            E::ArrayLength(of) => {
                let E::GlobalVariable(g) = self.function.expressions[*of] else {
                    return Err("the length of something that is no buffer is not offered".into());
                };
                self.length(g)?
            }
            other => return Err(format!("the expression {other:?} is not offered")),
        })
    }

    /// A buffer's length in elements.
    fn length(&self, g: Handle<naga::GlobalVariable>) -> Result<String, String> {
        let v = &self.context.module.global_variables[g];
        let slot = v.binding.as_ref().map_or(0, |b| b.binding);
        let words = self.context.element(v.ty)?.1;
        Ok(match words {
            1 => format!("given.n{slot}"),
            _ => format!("(given.n{slot} / {words}u)"),
        })
    }

    /// A part of a value or place by its number.
    fn part(&self, base: &str, of: &TypeInner, index: u32) -> Result<String, String> {
        Ok(match of {
            TypeInner::Vector { .. } => format!("{base}.{}", component(index)),
            TypeInner::Struct { .. } => format!("{base}.m{index}"),
            TypeInner::Array { .. } => format!("{base}[{index}u]"),
            other => return Err(format!("a part of {other:?} is not offered")),
        })
    }

    /// A place, as C++ writes it.
    pub(super) fn place(&self, e: Value) -> Result<String, String> {
        let types = &self.context.module.types;
        Ok(match &self.function.expressions[e] {
            E::GlobalVariable(g) => global(*g, &self.context.module.global_variables[*g])?,
            E::LocalVariable(l) => format!("l{}", l.index()),
            E::Access { base, index } => {
                let (text, at) = (self.place(*base)?, self.value(*index)?);
                match self.buffer(*base).filter(|_| self.context.bounds) {
                    Some(g) => format!("{text}[inside({at}, {})]", self.length(g)?),
                    None => format!("{text}[{at}]"),
                }
            }
            E::AccessIndex { base, index } => {
                let text = self.place(*base)?;
                match (self.inner(*base), self.buffer(*base)) {
                    (_, Some(g)) if self.context.bounds => {
                        format!("{text}[inside({index}u, {})]", self.length(g)?)
                    }
                    (TypeInner::Pointer { base, .. }, _) => {
                        self.part(&text, &types[*base].inner, *index)?
                    }
                    (TypeInner::ValuePointer { .. }, _) => {
                        format!("{text}.{}", component(*index))
                    }
                    (other, _) => return Err(format!("a part of {other:?} is not offered")),
                }
            }
            other => return Err(format!("the place {other:?} is not offered")),
        })
    }

    /// The buffer that a place is the whole of.
    fn buffer(&self, place: Value) -> Option<Handle<naga::GlobalVariable>> {
        let E::GlobalVariable(g) = self.function.expressions[place] else {
            return None;
        };
        let v = &self.context.module.global_variables[g];
        let parameters = v.binding.as_ref().is_some_and(|b| b.binding == 0);
        (matches!(v.space, AddressSpace::Storage { .. }) && !parameters).then_some(g)
    }

    /// What a place holds.
    fn loaded(&self, pointer: Value) -> Result<String, String> {
        let text = self.place(pointer)?;
        if self.is_atomic(pointer) {
            return Ok(format!("atomic_load({text})"));
        }
        let mut root = pointer;
        while let E::Access { base, .. } | E::AccessIndex { base, .. } =
            self.function.expressions[root]
        {
            root = base;
        }
        let globals = &self.context.module.global_variables;
        Ok(match self.buffer(root) {
            Some(g) if read_only(&globals[g]) => format!("load({text})"),
            _ => text,
        })
    }

    /// Whether a place is an atomic's.
    pub(super) fn is_atomic(&self, pointer: Value) -> bool {
        let types = &self.context.module.types;
        matches!(self.inner(pointer), TypeInner::Pointer { base, .. }
            if matches!(types[*base].inner, TypeInner::Atomic(_)))
    }
}

fn component(i: u32) -> char {
    ['x', 'y', 'z', 'w'][i as usize]
}

fn binary(op: B) -> &'static str {
    match op {
        B::Add => "plus",
        B::Subtract => "minus",
        B::Multiply => "times",
        B::Divide => "over",
        B::Modulo => "rest",
        B::Equal => "equal",
        B::NotEqual => "differ",
        B::Less => "less",
        B::LessEqual => "at_most",
        B::Greater => "greater",
        B::GreaterEqual => "at_least",
        B::And | B::LogicalAnd => "and_",
        B::InclusiveOr | B::LogicalOr => "or_",
        B::ExclusiveOr => "xor_",
        B::ShiftLeft => "left",
        B::ShiftRight => "right",
    }
}

fn math(fun: M) -> Result<&'static str, String> {
    Ok(match fun {
        M::Abs => "magnitude",
        M::Min => "smaller",
        M::Max => "larger",
        M::Clamp => "clamped",
        M::Fma => "fused",
        M::CountLeadingZeros => "leading_zeros",
        M::CountTrailingZeros => "trailing_zeros",
        M::CountOneBits => "ones",
        M::ReverseBits => "reversed",
        // The probe's questions alone.
        M::Sqrt => "device_sqrt",
        M::InverseSqrt => "device_rsqrt",
        M::Exp => "device_exp",
        M::Log => "device_log",
        M::Tanh => "device_tanh",
        M::Round => "device_round",
        M::Dot => "device_dot",
        M::Pack2x16float => "device_pack_f16",
        M::Unpack2x16float => "device_unpack_f16",
        other => return Err(format!("the function {other:?} is not offered")),
    })
}
