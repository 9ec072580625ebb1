//! Types and variables outside of functions.

use super::{Context, global, read_only};
use naga::{
    AddressSpace, ArraySize, BuiltIn, EntryPoint, Handle, Scalar, ScalarKind, Type, TypeInner,
    VectorSize,
};
use std::fmt::Write;

/// A scalar's name.
pub(super) fn scalar(s: Scalar) -> Result<&'static str, String> {
    Ok(match (s.kind, s.width) {
        (ScalarKind::Float, 4) => "f32",
        (ScalarKind::Uint, 4) => "u32",
        (ScalarKind::Sint, 4) => "i32",
        (ScalarKind::Bool, _) => "bool",
        (kind, width) => return Err(format!("{kind:?} of {width} bytes is not offered")),
    })
}

/// A vector's name.
pub(super) fn vector(size: VectorSize, s: Scalar) -> Result<String, String> {
    Ok(format!("v{}<{}>", size as u8, scalar(s)?))
}

impl Context<'_> {
    /// A type's name.
    pub(super) fn type_name(&self, ty: Handle<Type>) -> Result<String, String> {
        self.inner_name(&self.module.types[ty].inner, Some(ty))
    }

    /// A type's name; structs have one by their handle alone.
    pub(super) fn inner_name(
        &self,
        inner: &TypeInner,
        ty: Option<Handle<Type>>,
    ) -> Result<String, String> {
        Ok(match (inner, ty) {
            (TypeInner::Scalar(s) | TypeInner::Atomic(s), _) => scalar(*s)?.into(),
            (TypeInner::Vector { size, scalar }, _) => vector(*size, *scalar)?,
            (TypeInner::Array { base, size, .. }, _) => {
                let ArraySize::Constant(n) = size else {
                    return Err("an array of open length is a buffer".into());
                };
                format!("arr<{}, {n}>", self.type_name(*base)?)
            }
            (TypeInner::Struct { .. }, Some(ty)) => format!("S{}", ty.index()),
            (other, _) => return Err(format!("the type {other:?} is not offered")),
        })
    }

    /// Structs, in the order in which they rest on each other.
    pub(super) fn declare_types(&self, out: &mut String) -> Result<(), String> {
        for (ty, t) in self.module.types.iter() {
            let TypeInner::Struct { members, .. } = &t.inner else {
                continue;
            };
            let _ = writeln!(out, "struct S{} {{", ty.index());
            for (i, m) in members.iter().enumerate() {
                let _ = writeln!(out, "    {} m{i};", self.type_name(m.ty)?);
            }
            out.push_str("};\n");
        }
        Ok(())
    }

    /// The kernel's argument: see [`super::Kernel::argument`]. Returns the number of buffers and the words
    /// of the parameters.
    pub(super) fn declare_arguments(&self, out: &mut String) -> Result<(usize, usize), String> {
        let mut bound: Vec<_> = (self.module.global_variables.iter())
            .filter_map(|(_, v)| Some((v.binding.as_ref()?.binding, v)))
            .collect();
        bound.sort_by_key(|b| b.0);
        out.push_str("struct Arguments {\n");
        let (mut lengths, mut parameters) = (String::new(), None);
        let mut buffers = 0;
        for (slot, v) in bound {
            if slot == 0 {
                parameters = Some((v.ty, self.words_of(v.ty)?));
                continue;
            }
            buffers += 1;
            if slot as usize != buffers {
                return Err(format!("there is no binding {buffers}"));
            }
            let constant = if read_only(v) { "const " } else { "" };
            let _ = writeln!(out, "    {constant}{}* b{slot};", self.element(v.ty)?.0);
            let _ = writeln!(lengths, "    u32 n{slot};");
        }
        let (ty, words) = parameters.ok_or("there are no parameters at binding 0")?;
        let _ = writeln!(out, "{lengths}    {} parameters;\n}};", self.type_name(ty)?);
        Ok((buffers, words))
    }

    /// The element of a buffer: its name and its words.
    pub(super) fn element(&self, buffer: Handle<Type>) -> Result<(String, u32), String> {
        let wrong = || "a buffer holds words, or vectors of two or four".to_string();
        let TypeInner::Array { base, .. } = self.module.types[buffer].inner else {
            return Err(wrong());
        };
        let words = match self.module.types[base].inner {
            TypeInner::Scalar(s) if s.width == 4 => 1,
            TypeInner::Vector { size, scalar } if size != VectorSize::Tri && scalar.width == 4 => {
                size as u32
            }
            _ => return Err(wrong()),
        };
        Ok((self.type_name(base)?, words))
    }

    /// Words of the parameters, whose layout is C's because they are single words.
    fn words_of(&self, ty: Handle<Type>) -> Result<usize, String> {
        let wrong = || "parameters are a struct of words".to_string();
        let TypeInner::Struct { members, .. } = &self.module.types[ty].inner else {
            return Err(wrong());
        };
        let word = |t: Handle<Type>| matches!(self.module.types[t].inner, TypeInner::Scalar(s) if s.width == 4);
        match members.iter().all(|m| word(m.ty)) {
            true => Ok(members.len()),
            false => Err(wrong()),
        }
    }

    /// What the threads of a block share; whether there is anything.
    pub(super) fn declare_shared(&self, out: &mut String) -> Result<bool, String> {
        let shared = |space| space == AddressSpace::WorkGroup;
        let mut any = false;
        for (handle, v) in self.module.global_variables.iter() {
            if !shared(v.space) {
                continue;
            }
            if !std::mem::replace(&mut any, true) {
                out.push_str("struct Shared {\n");
            }
            let _ = writeln!(out, "    {} g{};", self.type_name(v.ty)?, handle.index());
        }
        if any {
            out.push_str("};\n");
        }
        Ok(any)
    }

    /// Variables of a thread.
    pub(super) fn declare_private(&self, out: &mut String) -> Result<(), String> {
        for (handle, v) in self.module.global_variables.iter() {
            if v.space != AddressSpace::Private {
                continue;
            }
            let init = match v.init {
                Some(e) => self.constant(e)?,
                None => "{}".into(),
            };
            let ty = self.type_name(v.ty)?;
            let _ = writeln!(out, "    {ty} {} = {init};", global(handle, v)?);
        }
        Ok(())
    }

    /// What the entry point is called with.
    pub(super) fn entry_arguments(&self, entry: &EntryPoint) -> Result<String, String> {
        let mut out = Vec::new();
        for a in &entry.function.arguments {
            out.push(match a.binding {
                Some(naga::Binding::BuiltIn(BuiltIn::WorkGroupId)) => "block_index()",
                Some(naga::Binding::BuiltIn(BuiltIn::NumWorkGroups)) => "grid_size()",
                Some(naga::Binding::BuiltIn(BuiltIn::LocalInvocationIndex)) => "thread_number()",
                ref other => return Err(format!("the argument {other:?} is not offered")),
            });
        }
        Ok(out.join(", "))
    }
}
