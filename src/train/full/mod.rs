//! The full ledger: what every update does to every tensor, what other ways of storing weights would have
//! made of it, and what every operation's values look like to narrower types. It is asked for, since it
//! costs time: at its steps the training program runs launch by launch and everything is read back.
//!
//! All figures are computed on the host from what the device stored, by rules that give the same bits on
//! any number of threads: they are the same on every device, and no step is another for being looked at.

mod frozen;
mod otherwise;
mod ranges;
mod sums;
mod updates;

pub use frozen::Frozen;

use super::checkpoint::{Role, State};
use super::progress::Progress;
use super::schedule::{hyper, step_key};
use super::session::{Looked, Session, StepResult};
use crate::config::{Scheme, Settings};
use crate::dtype::DType;
use crate::error::Error;
use crate::kernels::math::ftz;
use crate::kernels::optim;
use crate::report::ledger::SchemeLedger;
use crate::report::sheets::{Sheet, Sheets, WHOLE, fraction};
use frozen::Standing;
use otherwise::{Master, Outcomes};
use ranges::Ranges;
use sums::Add;
use updates::{Sums, Update};

/// Takes a training step and looks at it: rows of the full ledger.
///
/// # Errors
/// The device failed.
pub fn look(
    session: &mut Session,
    scheme: Scheme,
    s: &Settings,
    batches: &[(Vec<u32>, Vec<u32>)],
    lr: f64,
    p: &mut Progress,
    ledger: &mut SchemeLedger,
) -> Result<StepResult, Error> {
    let is_final = s.is_final(p.step);
    let low = match s.final_policy(scheme)? {
        Some(last) if is_final => last.low,
        _ => scheme.policy().low,
    };
    let mut ranges = Ranges::default();
    let mut watch = |plan: &_, step: &_, wrote: &_| ranges.watch(low, plan, step, wrote);
    let seen = session.look(s, batches, (lr, p.updates), is_final, &mut watch)?;
    let result = seen.result;
    let scale = result.scaled.map_or(1.0, |x| f64::from(x.scale));
    ranges.write(&mut ledger.sheets, p.step, scale);
    // A skipped step has no update to look at, nor has one that ends the run.
    if result.grad_norm.is_finite() && result.loss.is_finite() {
        let t = result.scaled.map_or(p.updates, |x| x.applied);
        let key = step_key(s.seed, t);
        updates(&seen, &hyper(s, lr, t), key, scheme, p, ledger);
    }
    Ok(result)
}

/// The states of one weight.
struct Tensor<'a> {
    before: [&'a State; 3],
    kept: Option<&'a State>,
    after: &'a State,
    kept_after: Option<&'a State>,
}

/// The rows of one update.
fn updates(
    seen: &Looked,
    h: &[f32; optim::HYPER],
    key: [u32; 2],
    scheme: Scheme,
    p: &mut Progress,
    ledger: &mut SchemeLedger,
) {
    let frozen = p.frozen.as_mut().expect("begun with the run");
    let sheets = &mut ledger.sheets;
    let (mut whole, mut standing) = (Sums::default(), Standing::default());
    let mut others = Outcomes::default();
    let masters = scheme.policy().storage == DType::F32;
    let mut first = 0;
    for (tensor, (name, _, gradient)) in seen.gradients.iter().enumerate() {
        let states =
            |all: &'_ [State], role| all.iter().position(|x| x.of == *name && x.role == role);
        let find = |role| states(&seen.before, role);
        let get = |role| &seen.before[find(role).expect("every weight has moments")];
        let t = Tensor {
            before: [Role::Weight, Role::M, Role::V].map(get),
            kept: find(Role::Kahan).map(|i| &seen.before[i]),
            after: &seen.after[find(Role::Weight).expect("a weight")],
            kept_after: find(Role::Kahan).map(|i| &seen.after[i]),
        };
        let (sums, before, after) = update(&t, h, seen.factor, gradient);
        let stood = frozen.look(p.step, first, &after);
        first += after.len();
        update_rows(sheets, p.step, name, &sums, &stood);
        if masters {
            let outcomes = Outcomes::of(&Master {
                before: &before,
                after: &after,
                row: t.after.row(),
                tensor: tensor as u32,
                key,
            });
            other_rows(sheets, p.step, name, &outcomes);
            others.add(outcomes);
        }
        whole.add(sums);
        standing.add(&stood);
    }
    update_rows(sheets, p.step, WHOLE, &whole, &standing);
    if masters {
        other_rows(sheets, p.step, WHOLE, &others);
    }
}

/// One tensor's update: its sums, and the stored weight before and after it.
fn update(
    t: &Tensor,
    h: &[f32; optim::HYPER],
    factor: f32,
    gradient: &[f32],
) -> (Sums, Vec<f32>, Vec<f32>) {
    let [before, m, v] = t.before.map(State::values);
    let after = t.after.values();
    let zeros = || vec![0.0; before.len()];
    let kept = t.kept.map_or_else(zeros, State::values);
    let kept_after = t.kept_after.map_or_else(zeros, State::values);
    // What the optimizer sees as the weight.
    let base: Vec<f32> = match t.kept {
        Some(_) => add(&before, &kept),
        None => before.clone(),
    };
    let exact = match t.after.dtype {
        DType::F32 => after.clone(),
        // As the kernel computes before it rounds.
        _ => {
            let (mut w, mut m, mut v) = (base.clone(), m.clone(), v.clone());
            let h = h.map(ftz);
            optim::run(&h, ftz(factor), gradient, &mut w, &mut m, &mut v);
            w
        }
    };
    let pair = |w: &[f32], c: &[f32], i: usize| f64::from(w[i]) + f64::from(c[i]);
    let all = 0..before.len();
    let applied: Vec<f64> = all
        .clone()
        .map(|i| pair(&after, &kept_after, i) - pair(&before, &kept, i))
        .collect();
    let intended: Vec<f64> = all
        .map(|i| updates::intended(h, factor, gradient[i], pair(&before, &kept, i), m[i], v[i]))
        .collect();
    let sums = Sums::of(&Update {
        before: &base,
        exact: &exact,
        applied: &applied,
        intended: &intended,
    });
    (sums, before, after)
}

fn add(w: &[f32], c: &[f32]) -> Vec<f32> {
    let sum = |(&w, &c): (&f32, &f32)| ftz(ftz(w) + ftz(c));
    w.iter().zip(c).map(sum).collect()
}

fn update_rows(sheets: &mut Sheets, step: usize, name: &str, sums: &Sums, stood: &Standing) {
    let (columns, cosine) = sums.columns();
    let mut row = vec![step.to_string(), name.to_string()];
    row.extend(columns);
    row.extend([
        fraction(stood.still()),
        fraction(stood.unmoved()),
        stood.median().to_string(),
        cosine,
    ]);
    sheets.push(Sheet::Updates, &row);
    for (log2, count) in &sums.ulps {
        let row = [
            step.to_string(),
            name.to_string(),
            log2.to_string(),
            count.to_string(),
        ];
        sheets.push(Sheet::UpdateUlps, &row);
    }
}

fn other_rows(sheets: &mut Sheets, step: usize, name: &str, outcomes: &Outcomes) {
    for columns in outcomes.rows() {
        let mut row = vec![step.to_string(), name.to_string()];
        row.extend(columns);
        sheets.push(Sheet::Counterfactual, &row);
    }
}
