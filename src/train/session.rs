//! A session: the programs of one training run, loaded on one executor over shared states.

use super::checkpoint::meta;
use super::checkpoint::{State, layout};
use super::ledgers::{edges, snapshot_program, swallow_program};
use super::scaler::{self, Scaled};
use super::schedule::hyper_words;
use super::weights::Tensors;
use crate::config::{Scheme, Settings};
use crate::dtype::DType;
use crate::error::Error;
use crate::exec::{Executor, ProgramId, StepTime, bytes};
use crate::kernels::digest::combine;
use crate::kernels::histogram::BINS;
use crate::models::char_gpt::{CharGpt, DIGEST_STATE, TrainOptions, Weight};
use crate::passes::autocast::Policy;
use crate::passes::compile;
use crate::passes::memory::session_bytes;
use crate::passes::rules::Rules;
use crate::passes::scaling::accumulated;
use crate::train::stages::{self, Stage, Stages};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The model's programs under one scheme, compiled but not loaded.
pub struct Programs {
    scheme: Scheme,
    stages: Stages,
    eval: Arc<crate::plan::Plan>,
    /// The evaluation of the same weights in fp32, where the scheme's own is another.
    eval_fp32: Option<Arc<crate::plan::Plan>>,
    digest: Arc<crate::plan::Plan>,
    /// The seed's ledgers, in a mixed run.
    ledgers: Option<LedgerPlans>,
    /// States that a run starts from besides weights and moments.
    start: Vec<(String, Vec<u32>)>,
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

struct LedgerPlans {
    snapshot: Arc<crate::plan::Plan>,
    swallow: Arc<crate::plan::Plan>,
    /// The training step with histograms of all gradients.
    histogram: Arc<crate::plan::Plan>,
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
        Ok(Programs {
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
        [own, &self.eval, &self.digest]
            .into_iter()
            .chain(others)
            .chain(ledgers)
            .chain(&self.eval_fp32)
            .map(|p| &**p)
            .collect()
    }

    /// The plan of the training step.
    pub fn train(&self) -> &crate::plan::Plan {
        &self.stages.own.train
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

/// What a training step gives.
#[derive(Clone, Copy, Debug)]
pub struct StepResult {
    /// Loss before the update.
    pub loss: f32,
    /// Norm of all gradients together, before clipping; not finite where the step is skipped.
    pub grad_norm: f32,
    /// What the loss scaler did, where there is one.
    pub scaled: Option<Scaled>,
    /// The factor that clipped the gradient, where it is told.
    pub clip_factor: Option<f32>,
}

/// Programs loaded on an executor.
pub struct Session {
    exec: Box<dyn Executor>,
    model: CharGpt,
    policy: Policy,
    /// The programs of a step, and of the last steps where they are others.
    own: Loaded,
    final_fp32: Option<Loaded>,
    eval: ProgramId,
    eval_fp32: ProgramId,
    /// Bytes that the evaluation in fp32 added.
    beside: u64,
    digest: ProgramId,
    ledgers: Option<LedgerIds>,
    /// Which of the training programs ran last, and in which stage.
    last: (ProgramId, Loaded),
}

/// A stage's programs on the executor.
#[derive(Clone)]
struct Loaded {
    stage: Stage,
    train: ProgramId,
    micro: Option<ProgramId>,
}

impl Loaded {
    fn load(exec: &mut dyn Executor, stage: &Stage) -> Result<Loaded, Error> {
        let (train, micro) = stage.load(exec)?;
        Ok(Loaded {
            train,
            micro,
            stage: stage.clone(),
        })
    }
}

#[derive(Clone, Copy)]
struct LedgerIds {
    snapshot: ProgramId,
    swallow: ProgramId,
    histogram: ProgramId,
}

/// Refuses a model that the machine cannot hold, from its extents alone.
///
/// # Errors
/// More bytes than `have`.
pub fn check_memory(model: &CharGpt, batch: usize, have: u64) -> Result<(), Error> {
    let need = model.least_bytes(batch);
    if need <= have as u128 {
        return Ok(());
    }
    let need = bytes(u64::try_from(need).unwrap_or(u64::MAX));
    let text = format!(
        "this model with {} parameters at batch {batch}, block {} needs at least {need} of memory, {} are free; \
         take a smaller n_layer, n_embd, batch or block",
        model.parameters(),
        model.block,
        bytes(have)
    );
    Err(Error::Usage(text))
}

impl Session {
    /// Loads the programs and writes the initial weights, in the model's order; moments start at zero.
    ///
    /// # Errors
    /// The device cannot hold them.
    pub fn new(
        mut exec: Box<dyn Executor>,
        model: CharGpt,
        programs: &Programs,
        weights: &[(String, Vec<f32>)],
    ) -> Result<Session, Error> {
        let own = Loaded::load(&mut *exec, &programs.stages.own)?;
        let final_fp32 = match &programs.stages.last {
            Some(stage) => Some(Loaded::load(&mut *exec, stage)?),
            None => None,
        };
        let eval = exec.load(programs.eval.clone())?;
        let digest = exec.load(programs.digest.clone())?;
        let ledgers = match &programs.ledgers {
            Some(l) => Some(LedgerIds {
                snapshot: exec.load(l.snapshot.clone())?,
                swallow: exec.load(l.swallow.clone())?,
                histogram: exec.load(l.histogram.clone())?,
            }),
            None => None,
        };
        let without = exec.memory().allocated;
        let eval_fp32 = match &programs.eval_fp32 {
            Some(plan) => exec.load(plan.clone())?,
            None => eval,
        };
        let beside = exec.memory().allocated - without;
        let policy = programs.scheme.policy();
        stages::begin(&mut *exec, &model, &policy, &programs.start, weights)?;
        Ok(Session {
            exec,
            model,
            policy,
            last: (own.train, own.clone()),
            own,
            final_fp32,
            eval,
            eval_fp32,
            beside,
            digest,
            ledgers,
        })
    }

    /// The executor.
    pub fn exec(&self) -> &dyn Executor {
        &*self.exec
    }

    /// Peak of the executor's allocations for the scheme's own programs: the evaluation in fp32, which
    /// measures and is no part of the scheme, is not counted.
    pub fn peak_bytes(&self) -> u64 {
        self.exec.memory().peak.saturating_sub(self.beside)
    }

    /// One training step: its batches (ids and targets), learning rate, number of the update from 1. With
    /// `histogram` the gradients are counted too, where the scheme has that ledger; not in the last steps,
    /// where they run in fp32 (`is_final`).
    ///
    /// # Errors
    /// The device failed.
    pub fn step(
        &mut self,
        s: &Settings,
        batches: &[(Vec<u32>, Vec<u32>)],
        lr: f64,
        t: u64,
        histogram: bool,
        is_final: bool,
    ) -> Result<StepResult, Error> {
        let stage = match &self.final_fp32 {
            Some(last) if is_final => last,
            _ => &self.own,
        };
        let stage = stage.clone();
        let own = stage.train == self.own.train;
        let program = match self.ledgers {
            Some(l) if histogram && own => l.histogram,
            _ => stage.train,
        };
        let (policy, micro) = (stage.stage.policy, stage.micro);
        let train = stage.train;
        self.last = (program, stage);
        for (i, (idx, target)) in batches.iter().enumerate() {
            let each = micro.unwrap_or(program);
            self.exec.write_input(each, "idx", idx)?;
            self.exec.write_input(each, "target", target)?;
            if let Some(micro) = micro {
                let goes_on = if i == 0 { 0f32 } else { 1.0 };
                self.exec
                    .write_input(micro, "goes_on", &[goes_on.to_bits()])?;
                self.exec.run(micro)?;
            }
        }
        self.exec
            .write_input(program, "hyper", &hyper_words(s, &policy, lr, t))?;
        if program != train {
            self.exec
                .write_input(program, "edges", bytemuck::cast_slice(&edges()))?;
        }
        self.exec.run(program)?;
        let loss = self.scalar(program, "loss")?;
        let grad_norm = self.scalar(program, "grad_norm")?;
        let clips = policy.scaled && s.clip != 0.0;
        Ok(StepResult {
            loss,
            grad_norm,
            clip_factor: match clips && grad_norm.is_finite() {
                true => Some(self.scalar(program, "clip_factor")?),
                false => None,
            },
            scaled: match policy.scaled {
                true => Some(scaler::last(&mut *self.exec, grad_norm)?),
                false => None,
            },
        })
    }

    /// The times of one training step's launches, one after the other; it trains like any other step.
    /// Of the scheme's own programs, with one batch a step.
    ///
    /// # Errors
    /// The device failed.
    pub fn profile_step(
        &mut self,
        s: &Settings,
        (idx, target): &(Vec<u32>, Vec<u32>),
        lr: f64,
        t: u64,
    ) -> Result<Vec<StepTime>, Error> {
        let (program, policy) = (self.own.train, self.own.stage.policy);
        self.last = (program, self.own.clone());
        self.exec.write_input(program, "idx", idx)?;
        self.exec.write_input(program, "target", target)?;
        self.exec
            .write_input(program, "hyper", &hyper_words(s, &policy, lr, t))?;
        Ok(self.exec.profile(program)?)
    }

    /// The loss scaler's state, for a checkpoint.
    ///
    /// # Errors
    /// The device failed.
    pub fn scaler(&mut self) -> Result<Option<meta::Scaler>, Error> {
        match self.policy.scaled {
            true => scaler::read(&mut *self.exec).map(Some),
            false => Ok(None),
        }
    }

    /// Puts the loss scaler where a checkpoint left it, after so many updates. A checkpoint of another
    /// scheme has none: the scale then starts anew.
    ///
    /// # Errors
    /// The device failed.
    pub fn restore_scaler(
        &mut self,
        s: &Settings,
        saved: Option<&meta::Scaler>,
        applied: u64,
    ) -> Result<(), Error> {
        let first = scaler::first(s);
        match self.policy.scaled {
            true => scaler::restore(&mut *self.exec, saved.unwrap_or(&first), applied),
            false => Ok(()),
        }
    }

    /// Keeps a copy of the weights, for [`Session::swallowed`]. Nothing where the scheme has no ledger.
    ///
    /// # Errors
    /// The device failed.
    pub fn snapshot(&mut self) -> Result<(), Error> {
        if let Some(l) = self.ledgers {
            self.exec.run(l.snapshot)?;
        }
        Ok(())
    }

    /// The share of weights whose last update bf16 would have swallowed, where the scheme has that
    /// ledger.
    ///
    /// # Errors
    /// The device failed.
    pub fn swallowed(&mut self) -> Result<Option<f64>, Error> {
        let Some(l) = self.ledgers else {
            return Ok(None);
        };
        self.exec.run(l.swallow)?;
        let mut count = 0.0;
        for w in self.model.weights() {
            count += self.scalar(l.swallow, &w.name)? as f64;
        }
        Ok(Some(count / self.model.parameters() as f64))
    }

    /// What [`Session::swallowed`] counted last, by weight in the model's order.
    ///
    /// # Errors
    /// The device failed.
    pub fn swallowed_by_tensor(&mut self) -> Result<Vec<u64>, Error> {
        let Some(l) = self.ledgers else {
            return Ok(vec![]);
        };
        let weights = self.model.weights();
        let count = |w: &Weight| Ok(self.scalar(l.swallow, &w.name)? as u64);
        weights.iter().map(count).collect()
    }

    /// The gradient histogram of the last step, where it was counted.
    ///
    /// # Errors
    /// The device failed.
    pub fn gradient_histogram(&mut self) -> Result<Option<[u64; BINS]>, Error> {
        let Some(l) = self.ledgers.filter(|l| l.histogram == self.last.0) else {
            return Ok(None);
        };
        let mut total = [0u64; BINS];
        for w in self.model.weights() {
            let words = self
                .exec
                .read_output(l.histogram, &format!("histogram.{}", w.name))?;
            for row in words.chunks_exact(BINS) {
                total.iter_mut().zip(row).for_each(|(t, &c)| *t += c as u64);
            }
        }
        Ok(Some(total))
    }

    /// Loss of a batch under the present weights.
    ///
    /// # Errors
    /// The device failed.
    pub fn evaluate(&mut self, batch: &(Vec<u32>, Vec<u32>)) -> Result<f32, Error> {
        self.loss_under(self.eval, batch)
    }

    /// Loss of a batch under the present weights, each widened, computed in fp32.
    ///
    /// # Errors
    /// The device failed.
    pub fn evaluate_fp32(&mut self, batch: &(Vec<u32>, Vec<u32>)) -> Result<f32, Error> {
        self.loss_under(self.eval_fp32, batch)
    }

    /// Whether the scheme's own evaluation is the one in fp32.
    pub fn has_own_fp32(&self) -> bool {
        self.eval_fp32 == self.eval
    }

    fn loss_under(
        &mut self,
        program: ProgramId,
        batch: &(Vec<u32>, Vec<u32>),
    ) -> Result<f32, Error> {
        self.exec.write_input(program, "idx", &batch.0)?;
        self.exec.write_input(program, "target", &batch.1)?;
        self.exec.run(program)?;
        self.scalar(program, "loss")
    }

    fn scalar(&mut self, program: ProgramId, name: &str) -> Result<f32, Error> {
        let words = self.exec.read_output(program, name)?;
        Ok(f32::from_bits(words[0]))
    }

    /// Digest of all weights and moments.
    ///
    /// # Errors
    /// The device failed.
    pub fn digest(&mut self) -> Result<u64, Error> {
        self.exec.run(self.digest)?;
        Ok(combine(self.exec.read_state(DIGEST_STATE)?))
    }

    /// The present weights.
    ///
    /// # Errors
    /// The device failed.
    pub fn weights(&mut self) -> Result<Tensors, Error> {
        let mut out = Vec::new();
        for w in self.model.weights() {
            let words = self.exec.read_state(&w.name)?;
            let data = self.policy.storage.unpack(w.row(), &words);
            out.push((w.name, w.dims, data));
        }
        Ok(out)
    }

    /// Weights and moments as they are stored, in the order of the digest.
    ///
    /// # Errors
    /// The device failed.
    pub fn states(&mut self) -> Result<Vec<State>, Error> {
        let mut out = layout(&self.model, &self.policy);
        for state in &mut out {
            state.words = self.exec.read_state(&state.name)?;
        }
        Ok(out)
    }

    /// Replaces weights and moments.
    ///
    /// # Errors
    /// They are not this session's, or the device failed.
    pub fn restore(&mut self, states: &[State]) -> Result<(), Error> {
        for state in states {
            self.exec.write_state(&state.name, &state.words)?;
        }
        Ok(())
    }

    /// The gradients of the last step, where the program was compiled to keep them.
    ///
    /// # Errors
    /// The device failed.
    pub fn gradients(&mut self) -> Result<Tensors, Error> {
        let mut out = Vec::new();
        for w in self.model.weights() {
            let words = self
                .exec
                .read_output(self.last.0, &format!("grad.{}", w.name))?;
            let data = self.policy.storage.unpack(w.row(), &words);
            out.push((w.name, w.dims, data));
        }
        Ok(out)
    }

    /// Runs the last step again under a watch and names the first value that is no number. The optimizer
    /// leaves the weights alone when the gradient's norm is not finite, so the step repeats itself; a loss
    /// scaler is put back to where it was, and then to where it is.
    ///
    /// # Errors
    /// The device failed.
    pub fn first_non_finite(&mut self) -> Result<String, Error> {
        let place = self.first_bad_place()?;
        Ok(place.map_or_else(
            || "the loss is not finite, and a second run of the step does not show where".into(),
            |p| {
                let (kernel, place) = (p.kernel, p.label());
                format!(
                    "the first non-finite value comes from {kernel} in {place}: element {} is {}",
                    p.element, p.value
                )
            },
        ))
    }

    /// The first value of the last step that is no number, if there is one; see
    /// [`Session::first_non_finite`].
    ///
    /// # Errors
    /// The device failed.
    pub fn first_bad_place(&mut self) -> Result<Option<Place>, Error> {
        if self.last.1.micro.is_some() {
            return self.first_bad_gradient();
        }
        let now = match self.last.1.stage.policy.scaled {
            true => scaler::rewind(&mut *self.exec)?,
            false => vec![],
        };
        let found = self.find_bad_place();
        for (name, words) in now {
            self.exec.write_state(&name, &words)?;
        }
        found
    }

    /// Of a step with several micro-batches the sums of their gradients are still there. The weights'
    /// order is that of the forward pass; the backward pass reaches the last one first.
    fn first_bad_gradient(&mut self) -> Result<Option<Place>, Error> {
        for w in self.model.weights().into_iter().rev() {
            let words = self.exec.read_state(&accumulated(&w.name))?;
            let values = words.iter().map(|&w| f32::from_bits(w));
            if let Some((element, value)) = values.enumerate().find(|v| !v.1.is_finite()) {
                return Ok(Some(Place {
                    kernel: "gradient",
                    scope: w.name,
                    element,
                    value,
                }));
            }
        }
        Ok(None)
    }

    fn find_bad_place(&mut self) -> Result<Option<Place>, Error> {
        let mut found = None;
        let (plan, program) = (self.last.1.stage.train.clone(), self.last.1.train);
        self.exec.trace(program, &mut |_, step, wrote| {
            for (buf, words) in wrote {
                let ty = plan.buf(*buf).ty;
                if !ty.dtype.is_float() {
                    continue;
                }
                let values = ty.dtype.unpack(ty.shape.row(), words);
                if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                    found = Some(Place {
                        kernel: step.kernel.name,
                        scope: step.label.clone(),
                        element: i,
                        value: values[i],
                    });
                    return false;
                }
            }
            true
        })?;
        Ok(found)
    }
}

/// Where a value is that is no number.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// The kernel that wrote it.
    pub kernel: &'static str,
    /// Where in the model it stands.
    pub scope: String,
    /// The element's number.
    pub element: usize,
    /// Infinity or NaN.
    pub value: f32,
}

impl Place {
    /// Where in the model it stands, in words.
    pub fn label(&self) -> &str {
        match self.scope.as_str() {
            "" => "the step",
            scope => scope,
        }
    }
}
