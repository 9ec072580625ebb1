//! The programs of a training step: one, or one for each micro-batch and one for all; and others of the
//! same weights and moments for the last steps, where those run in fp32.

use crate::config::{Scheme, Settings};
use crate::error::Error;
use crate::exec::{ExecError, Executor, ProgramId};
use crate::models::char_gpt::{CharGpt, TrainOptions};
use crate::passes::autocast::Policy;
use crate::passes::rules::Rules;
use crate::passes::{Optional, compile_with};
use crate::plan::Plan;
use crate::train::scaler;
use std::sync::Arc;

/// The programs of one kind of step.
#[derive(Clone)]
pub struct Stage {
    /// The policy that they follow.
    pub policy: Policy,
    /// Of a micro-batch, where a step has several.
    pub micro: Option<Arc<Plan>>,
    /// The training program.
    pub train: Arc<Plan>,
}

impl Stage {
    /// Loads the training program, and a micro-batch's where a step has several.
    ///
    /// # Errors
    /// The device cannot hold them.
    pub fn load(
        &self,
        exec: &mut dyn Executor,
    ) -> Result<(ProgramId, Option<ProgramId>), ExecError> {
        let train = exec.load(self.train.clone())?;
        let micro = self.micro.as_ref().map(|plan| exec.load(plan.clone()));
        Ok((train, micro.transpose()?))
    }
}

/// Writes what a run begins with: the scaler's states, the weights in the model's order, and moments of zero.
///
/// # Errors
/// The device failed.
pub fn begin(
    exec: &mut dyn Executor,
    model: &CharGpt,
    policy: &Policy,
    start: &[(String, Vec<u32>)],
    weights: &[(String, Vec<f32>)],
) -> Result<(), ExecError> {
    for (name, words) in start {
        exec.write_state(name, words)?;
    }
    for (w, (name, data)) in model.weights().iter().zip(weights) {
        assert_eq!(w.name, *name, "weights come in the model's order");
        let words = policy.storage.pack(w.row(), data);
        let zeros = vec![0; words.len()];
        for state in w.states(policy).iter().skip(1) {
            exec.write_state(state, &zeros)?;
        }
        exec.write_state(name, &words)?;
    }
    Ok(())
}

/// The kinds of steps of a run.
#[derive(Clone)]
pub struct Stages {
    /// The scheme's own.
    pub own: Stage,
    /// The last steps', where they are others.
    pub last: Option<Stage>,
}

impl Stages {
    /// Compiles them. `options` says what else the training program gives; its precision is the scheme's.
    ///
    /// # Errors
    /// Settings that do not fit the scheme, or a violated invariant of the program itself.
    pub fn compile(
        model: &CharGpt,
        s: &Settings,
        scheme: Scheme,
        options: &TrainOptions,
    ) -> Result<Stages, Error> {
        let all = Optional {
            fuse: true,
            share_slots: true,
        };
        Stages::with(model, s, scheme, options, "", all)
    }

    /// The same steps for the full ledger to look at: every operation is a launch of its own, which
    /// changes no bit, and all gradients are outputs.
    ///
    /// # Errors
    /// As [`Stages::compile`].
    pub fn watched(model: &CharGpt, s: &Settings, scheme: Scheme) -> Result<Stages, Error> {
        let options = TrainOptions {
            dump_grads: true,
            histogram: scheme == Scheme::Mixed,
            ..plain(s, s.policy_of(scheme)?)
        };
        let apart = Optional {
            fuse: false,
            share_slots: true,
        };
        Stages::with(model, s, scheme, &options, "-full", apart)
    }

    /// `suffix` ends the names of the plans.
    fn with(
        model: &CharGpt,
        s: &Settings,
        scheme: Scheme,
        options: &TrainOptions,
        suffix: &str,
        passes: Optional,
    ) -> Result<Stages, Error> {
        let stage = |policy: Policy, names: [&str; 2]| {
            let o = TrainOptions {
                policy,
                scaling: scaler::scaling(s, &policy)?,
                accumulate: s.accumulate,
                ..*options
            };
            let plan = |name, program: Result<_, String>| {
                program
                    .and_then(|p| compile_with(&format!("{name}{suffix}"), p, passes))
                    .map(Arc::new)
                    .map_err(Error::Internal)
            };
            Ok::<_, Error>(Stage {
                policy,
                train: plan(names[0], model.train_program(&o))?,
                micro: match s.accumulate {
                    1 => None,
                    _ => Some(plan(names[1], model.micro_program(&o))?),
                },
            })
        };
        Ok(Stages {
            own: stage(s.policy_of(scheme)?, ["train", "micro"])?,
            last: match s.final_policy(scheme)? {
                Some(policy) => Some(stage(policy, ["train-fp32", "micro-fp32"])?),
                None => None,
            },
        })
    }

    /// All plans.
    pub fn plans(&self) -> impl Iterator<Item = &Arc<Plan>> {
        let all = std::iter::once(&self.own).chain(&self.last);
        all.flat_map(|s| std::iter::once(&s.train).chain(&s.micro))
    }

    /// The stage of a step, from 1.
    pub fn at(&self, s: &Settings, step: usize) -> &Stage {
        match &self.last {
            Some(last) if s.is_final(step) => last,
            _ => &self.own,
        }
    }
}

/// Training options that ask for nothing besides loss and norm.
pub fn plain(s: &Settings, policy: Policy) -> TrainOptions {
    TrainOptions {
        batch: s.batch,
        clip: s.clip as f32,
        dump_grads: false,
        histogram: false,
        digest: false,
        policy,
        accumulate: s.accumulate,
        scaling: None,
    }
}

/// Whether a policy's evaluation is that in fp32.
pub fn is_fp32(scheme: Scheme, policy: &Policy) -> bool {
    scheme == Scheme::Fp32 && policy.rules == Rules::NONE
}
