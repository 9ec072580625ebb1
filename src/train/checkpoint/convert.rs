//! Going on in another scheme: weights and moments in its types, and what that cost.

use super::meta::{Ancestor, LedgerMeta};
use super::{Checkpoint, Columns, Role, State, digest, layout, roles};
use crate::config::Scheme;
use crate::dtype::DType;
use crate::error::Error;

/// What a change of types lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Elements.
    pub elements: u64,
    /// Elements whose value changed.
    pub rounded: u64,
    /// Significant bits of all elements that the narrower type has no place for.
    pub bits: u64,
}

/// Rounds a state to a type, and counts what is lost.
///
/// # Errors
/// An element that the type cannot hold.
fn narrow(state: &State, to: DType) -> Result<(State, Lost), String> {
    let values = state.values();
    let words = to.pack(state.row(), &values);
    let mut lost = Lost {
        elements: values.len() as u64,
        ..Lost::default()
    };
    for (i, (before, after)) in values
        .iter()
        .zip(to.unpack(state.row(), &words))
        .enumerate()
    {
        if !after.is_finite() {
            return Err(format!(
                "{} element {i} is {before}, more than {} can hold",
                state.name,
                to.name()
            ));
        }
        if after.to_bits() != before.to_bits() {
            lost.rounded += 1;
            lost.bits += significant(*before).saturating_sub(places(to));
        }
    }
    let state = State {
        dtype: to,
        words,
        ..state.clone()
    };
    Ok((state, lost))
}

/// What a checkpoint holds for a state of another scheme, in f32: of a compensation's weight, the weight;
/// of a compensated weight, the sum.
fn exact(c: &Checkpoint, state: &State) -> State {
    let find = |role: Role| {
        let mut all = c.states.iter();
        all.find(|s| s.of == state.of && s.role == role)
    };
    let role = match state.role {
        Role::Kahan => Role::Weight,
        other => other,
    };
    let Some(there) = find(role) else {
        unreachable!("every scheme has weights and moments")
    };
    let mut values = there.values();
    if let (Role::Weight, Some(kept)) = (role, find(Role::Kahan)) {
        values
            .iter_mut()
            .zip(kept.values())
            .for_each(|(x, k)| *x += k);
    }
    State {
        dtype: DType::F32,
        words: DType::F32.pack(there.row(), &values),
        ..there.clone()
    }
}

/// What rounding a weight takes away, rounded itself: a compensation's state.
fn residual(weight: &State, state: &State) -> State {
    let lost = |x: f32| x - state.dtype.round(x);
    let values: Vec<f32> = weight.values().into_iter().map(lost).collect();
    State {
        words: state.dtype.pack(state.row(), &values),
        ..state.clone()
    }
}

/// Bits of a significand, from its leading one to its last one.
fn significant(x: f32) -> u64 {
    let bits = x.to_bits();
    if bits << 1 == 0 {
        return 0;
    }
    let fraction = bits & 0x007f_ffff;
    // A subnormal has no leading one of its own.
    let whole = if bits & 0x7f80_0000 == 0 {
        fraction
    } else {
        fraction | 0x0080_0000
    };
    u64::from(32 - whole.leading_zeros() - whole.trailing_zeros())
}

/// Bits of a type's significand.
fn places(dtype: DType) -> u64 {
    match dtype {
        DType::Bf16 => 8,
        DType::F16 => 11,
        DType::F32 | DType::U32 => 24,
    }
}

/// The checkpoint from which another scheme goes on: the same weights and moments, rounded to its types,
/// the same place in data and schedule, and a ledger that starts anew. Also tells what the weights and
/// the moments lost.
///
/// # Errors
/// It is the checkpoint's own scheme, or an element that the scheme's type cannot hold.
pub fn convert(c: &Checkpoint, to: Scheme) -> Result<(Checkpoint, [Lost; 2]), Error> {
    let refuse = |why: String| Error::Weights {
        path: c.path.clone(),
        why,
    };
    if c.scheme() == to {
        return Err(refuse(format!(
            "is a checkpoint of {} already; leave out --resume-as",
            to.name()
        )));
    }
    let mut out = c.clone();
    let mut lost = [Lost::default(); 2];
    let policy = to.policy();
    out.states = layout(&c.model(), &policy);
    for state in &mut out.states {
        let exact = exact(c, state);
        *state = match state.role {
            Role::Kahan => residual(&exact, state),
            _ => {
                let (new, cost) = narrow(&exact, policy.storage).map_err(refuse)?;
                let sum = &mut lost[usize::from(new.role != Role::Weight)];
                sum.elements += cost.elements;
                sum.rounded += cost.rounded;
                sum.bits += cost.bits;
                new
            }
        };
    }
    out.scheme = to;
    out.columns = Columns::default();
    out.full = None;
    let m = &mut out.meta;
    m.lineage.push(Ancestor {
        scheme: c.meta.scheme.clone(),
        until: m.step,
        digest: m.digest.clone(),
        rounded: lost[0].rounded + lost[1].rounded,
    });
    m.scheme = to.name().into();
    m.tensors = roles(&c.model(), &policy, false);
    m.storage = to.policy().storage.name().into();
    m.digest = format!("{:016x}", digest(&out.states));
    m.settings.schemes = vec![to];
    m.scaler = None;
    m.best = None;
    m.ledger = LedgerMeta {
        first: m.step + 1,
        ..LedgerMeta::default()
    };
    Ok((out, lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_significant_bits() {
        assert_eq!(significant(0.0), 0);
        assert_eq!(significant(-2.0), 1);
        assert_eq!(significant(1.5), 2);
        assert_eq!(significant(1.0 + f32::EPSILON), 24);
        assert_eq!(significant(f32::from_bits(1)), 1);
    }

    #[test]
    fn widening_loses_nothing_and_narrowing_is_counted() {
        let state = |dtype: DType, values: &[f32]| State {
            name: "w".into(),
            role: super::super::Role::Weight,
            of: "w".into(),
            dims: vec![1, values.len()],
            dtype,
            words: dtype.pack(values.len(), values),
        };
        let x = [1.0, 1.0 + f32::EPSILON, -0.5];
        let (narrowed, lost) = narrow(&state(DType::F32, &x), DType::Bf16).expect("fits");
        assert_eq!(
            lost,
            Lost {
                elements: 3,
                rounded: 1,
                bits: 16
            }
        );
        let (wide, none) = narrow(&narrowed, DType::F32).expect("fits");
        assert_eq!((none.rounded, none.bits), (0, 0));
        assert_eq!(wide.values(), [1.0, 1.0, -0.5]);
        let e = narrow(&state(DType::F32, &[f32::MAX]), DType::Bf16).expect_err("too large");
        assert!(e.contains("w element 0") && e.contains("bf16"), "{e}");
    }
}
