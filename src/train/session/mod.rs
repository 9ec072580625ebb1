//! A session: the programs of one training run, loaded on one executor over shared states.

mod fault;
mod looks;
mod programs;

pub use fault::Place;
pub use looks::{Looked, Watcher};
pub use programs::Programs;

use super::checkpoint::meta;
use super::checkpoint::{State, layout};
use super::ledgers::edges;
use super::scaler::{self, Scaled};
use super::schedule::hyper_words;
use super::stages::{self, Stage, Stages};
use super::weights::Tensors;
use crate::config::Settings;
use crate::error::Error;
use crate::exec::{Begun, Executor, ProgramId, StepTime, bytes};
use crate::kernels::digest::combine;
use crate::models::char_gpt::{CharGpt, DIGEST_STATE};
use crate::passes::autocast::Policy;
use crate::plan::Plan;

/// A batch: ids and targets.
pub type Batch = (Vec<u32>, Vec<u32>);

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
    /// Bytes that the evaluation in fp32 and the full ledger added.
    beside: u64,
    digest: ProgramId,
    ledgers: Option<LedgerIds>,
    /// The programs of a step that the full ledger looks at, and of the last steps.
    full: Option<(Loaded, Option<Loaded>)>,
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
        let full = match &programs.full {
            Some(Stages { own, last }) => {
                let last = last.as_ref().map(|x| Loaded::load(&mut *exec, x));
                Some((Loaded::load(&mut *exec, own)?, last.transpose()?))
            }
            None => None,
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
            full,
        })
    }

    /// The executor.
    pub fn exec(&self) -> &dyn Executor {
        &*self.exec
    }

    /// Peak of the executor's allocations for the scheme's own programs: the evaluation in fp32 and
    /// the full ledger, which measure and are no part of the scheme, are not counted.
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
        batches: &[Batch],
        lr: f64,
        t: u64,
        histogram: bool,
        is_final: bool,
    ) -> Result<StepResult, Error> {
        let stage = match &self.final_fp32 {
            Some(last) if is_final => last.clone(),
            _ => self.own.clone(),
        };
        let own = stage.train == self.own.train;
        let program = match self.ledgers {
            Some(l) if histogram && own => l.histogram,
            _ => stage.train,
        };
        let counts = program != stage.train;
        self.last = (program, stage);
        self.run_step(s, batches, (lr, t), counts, None)
    }

    /// Runs the programs in `self.last` on a step's batches.
    fn run_step(
        &mut self,
        s: &Settings,
        batches: &[Batch],
        (lr, t): (f64, u64),
        counts: bool,
        mut watch: Option<&mut Watcher>,
    ) -> Result<StepResult, Error> {
        let (program, stage) = self.last.clone();
        let (policy, micro) = (stage.stage.policy, stage.micro);
        for (i, (idx, target)) in batches.iter().enumerate() {
            let each = micro.unwrap_or(program);
            self.exec.write_input(each, "idx", idx)?;
            self.exec.write_input(each, "target", target)?;
            if let Some(micro) = micro {
                let goes_on = if i == 0 { 0f32 } else { 1.0 };
                self.exec
                    .write_input(micro, "goes_on", &[goes_on.to_bits()])?;
                let seen = watch.as_deref_mut().filter(|_| i + 1 == batches.len());
                match (seen, &stage.stage.micro) {
                    (Some(watch), Some(plan)) => self.trace(micro, plan, watch)?,
                    _ => self.exec.run(micro)?,
                }
            }
        }
        self.exec
            .write_input(program, "hyper", &hyper_words(s, &policy, lr, t))?;
        if counts {
            self.exec
                .write_input(program, "edges", bytemuck::cast_slice(&edges()))?;
        }
        let clips = policy.scaled && s.clip != 0.0;
        let outputs = &["loss", "grad_norm", "clip_factor"][..if clips { 3 } else { 2 }];
        let read = match watch {
            Some(watch) => {
                self.trace(program, &stage.stage.train, watch)?;
                let read = outputs.iter().map(|o| self.exec.read_output(program, o));
                read.collect::<Result<_, _>>()?
            }
            None => {
                let begun = self.exec.begin(program, outputs)?;
                self.exec.end(begun)?
            }
        };
        let scalar = |i: usize| f32::from_bits(read[i][0]);
        let (loss, grad_norm) = (scalar(0), scalar(1));
        Ok(StepResult {
            loss,
            grad_norm,
            clip_factor: (clips && grad_norm.is_finite()).then(|| scalar(2)),
            scaled: match policy.scaled {
                true => Some(scaler::last(&mut *self.exec, grad_norm)?),
                false => None,
            },
        })
    }

    fn trace(&mut self, program: ProgramId, plan: &Plan, watch: &mut Watcher) -> Result<(), Error> {
        self.exec.trace(program, &mut |_, step, wrote| {
            watch(plan, step, wrote);
            true
        })?;
        Ok(())
    }

    /// The times of one training step's launches, one after the other; it trains like any other step.
    /// Of the scheme's own programs, with one batch a step.
    ///
    /// # Errors
    /// The device failed.
    pub fn profile_step(
        &mut self,
        s: &Settings,
        (idx, target): &Batch,
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

    /// Losses of batches under the present weights. One is computed while the host prepares the next.
    ///
    /// # Errors
    /// The device failed.
    pub fn evaluate(&mut self, batches: impl Iterator<Item = Batch>) -> Result<Vec<f32>, Error> {
        self.losses_under(self.eval, batches)
    }

    /// Losses of batches under the present weights, each widened, computed in fp32.
    ///
    /// # Errors
    /// The device failed.
    pub fn evaluate_fp32(
        &mut self,
        batches: impl Iterator<Item = Batch>,
    ) -> Result<Vec<f32>, Error> {
        self.losses_under(self.eval_fp32, batches)
    }

    /// Whether the scheme's own evaluation is the one in fp32.
    pub fn has_own_fp32(&self) -> bool {
        self.eval_fp32 == self.eval
    }

    fn losses_under(
        &mut self,
        program: ProgramId,
        batches: impl Iterator<Item = Batch>,
    ) -> Result<Vec<f32>, Error> {
        let mut losses = Vec::new();
        let mut take = |exec: &mut dyn Executor, begun| -> Result<(), Error> {
            let read = exec.end(begun)?;
            losses.push(f32::from_bits(read[0][0]));
            Ok(())
        };
        let mut before: Option<Begun> = None;
        for (idx, target) in batches {
            self.exec.write_input(program, "idx", &idx)?;
            self.exec.write_input(program, "target", &target)?;
            let begun = self.exec.begin(program, &["loss"])?;
            if let Some(begun) = before.replace(begun) {
                take(&mut *self.exec, begun)?;
            }
        }
        if let Some(begun) = before {
            take(&mut *self.exec, begun)?;
        }
        Ok(losses)
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
        let mut out = self.layout();
        for state in &mut out {
            state.words = self.state(&state.name)?;
        }
        Ok(out)
    }

    /// What [`Session::states`] gives, without the words.
    pub fn layout(&self) -> Vec<State> {
        layout(&self.model, &self.policy)
    }

    /// The words of one state.
    ///
    /// # Errors
    /// No such state, or the device failed.
    pub fn state(&mut self, name: &str) -> Result<Vec<u32>, Error> {
        Ok(self.exec.read_state(name)?)
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
}
