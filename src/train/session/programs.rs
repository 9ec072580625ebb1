//! The programs of a run under one scheme, compiled.

use crate::config::{Scheme, Settings};
use crate::dtype::DType;
use crate::error::Error;
use crate::models::char_gpt::{CharGpt, TrainOptions};
use crate::passes::autocast::Policy;
use crate::passes::compile;
use crate::passes::memory::session_bytes;
use crate::passes::rules::Rules;
use crate::train::ledgers::{snapshot_program, swallow_program};
use crate::train::scaler;
use crate::train::stages::{self, Stages};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The model's programs under one scheme, compiled but not loaded.
pub struct Programs {
    pub(super) scheme: Scheme,
    pub(super) stages: Stages,
    pub(super) eval: Arc<crate::plan::Plan>,
    /// The evaluation of the same weights in fp32, where the scheme's own is another.
    pub(super) eval_fp32: Option<Arc<crate::plan::Plan>>,
    pub(super) digest: Arc<crate::plan::Plan>,
    /// The seed's ledgers, in a mixed run.
    pub(super) ledgers: Option<LedgerPlans>,
    /// The training step as the full ledger looks at it: see [`Stages::watched`].
    pub(super) full: Option<Stages>,
    /// States that a run starts from besides weights and moments.
    pub(super) start: Vec<(String, Vec<u32>)>,
}

/// fp32 arithmetic on weights as a policy stores them: each is widened, which is exact, where it is used.
fn widened(policy: &Policy) -> Policy {
    Policy {
        name: "fp32",
        low: DType::F32,
        narrow_activations: false,
        rules: Rules::NONE,
        ..*policy
    }
}

pub(super) struct LedgerPlans {
    pub(super) snapshot: Arc<crate::plan::Plan>,
    pub(super) swallow: Arc<crate::plan::Plan>,
    /// The training step with histograms of all gradients.
    pub(super) histogram: Arc<crate::plan::Plan>,
}

impl Programs {
    /// Compiles them.
    ///
    /// # Errors
    /// A violated invariant of the program itself.
    pub fn compile(
        model: &CharGpt,
        s: &Settings,
        scheme: Scheme,
        dump_grads: bool,
    ) -> Result<Programs, Error> {
        let policy = s.policy_of(scheme)?;
        let options = TrainOptions {
            dump_grads,
            ..stages::plain(s, policy)
        };
        let stages = Stages::compile(model, s, scheme, &options)?;
        let plan = |name: &str, p| compile(name, p).map(Arc::new).map_err(Error::Internal);
        let ledgers = if scheme == Scheme::Mixed {
            let options = TrainOptions {
                histogram: true,
                ..options
            };
            let histogram = model.train_program(&options).map_err(Error::Internal)?;
            let weights = model.weights();
            Some(LedgerPlans {
                snapshot: plan("snapshot", snapshot_program(&weights))?,
                swallow: plan("swallow", swallow_program(&weights))?,
                histogram: plan("train-histogram", histogram)?,
            })
        } else {
            None
        };
        let eval_fp32 = if stages::is_fp32(scheme, &policy) {
            None
        } else {
            Some(plan(
                "eval-fp32",
                model.eval_program(s.batch, &widened(&policy)),
            )?)
        };
        let full = match s.ledger.full_interval {
            0 => None,
            _ => Some(Stages::watched(model, s, scheme)?),
        };
        Ok(Programs {
            full,
            scheme,
            start: scaler::start(s, &policy)?,
            ledgers,
            eval_fp32,
            stages,
            eval: plan("eval", model.eval_program(s.batch, &policy))?,
            digest: plan("digest", model.digest_program(&policy))?,
        })
    }

    /// The plans, by name.
    pub fn plans(&self) -> Vec<&crate::plan::Plan> {
        let ledgers = self
            .ledgers
            .iter()
            .flat_map(|l| [&l.snapshot, &l.swallow, &l.histogram]);
        let own = &self.stages.own.train;
        let others = self.stages.plans().filter(|p| p.name != own.name);
        let full = self.full.iter().flat_map(Stages::plans);
        [own, &self.eval, &self.digest]
            .into_iter()
            .chain(others)
            .chain(ledgers)
            .chain(&self.eval_fp32)
            .chain(full)
            .map(|p| &**p)
            .collect()
    }

    /// The plans of the scheme itself: without those that only measure, the evaluation in fp32 and the
    /// training step of the full ledger.
    pub fn own_plans(&self) -> Vec<&crate::plan::Plan> {
        let full: Vec<_> = self.full.iter().flat_map(Stages::plans).collect();
        let beside = |p: &&crate::plan::Plan| {
            let same = |q: &Arc<crate::plan::Plan>| q.name == p.name;
            !self.eval_fp32.iter().chain(full.iter().copied()).any(same)
        };
        self.plans().into_iter().filter(beside).collect()
    }

    /// The plan of the training step.
    pub fn train(&self) -> &crate::plan::Plan {
        &self.stages.own.train
    }

    /// The plan of a micro-batch, where a step has several.
    pub fn micro(&self) -> Option<&crate::plan::Plan> {
        self.stages.own.micro.as_deref()
    }

    /// Hashes of the plans, by name.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        self.plans()
            .iter()
            .map(|p| (format!("{}.{}", self.scheme.name(), p.name), p.hash.clone()))
            .collect()
    }

    /// Hash of the training program's plan.
    pub fn hash(&self) -> &str {
        &self.stages.own.train.hash
    }

    /// Bytes that an executor allocates for them: the states, and slots that the programs share, since
    /// they take turns.
    pub fn bytes(&self) -> u64 {
        session_bytes(&self.plans())
    }
}
