//! A course: the training steps that devices are compared on, and a runner that takes them on one device.

use crate::config::{Scheme, Settings};
use crate::data::batches::{Batches, gather};
use crate::error::Error;
use crate::exec::{ExecError, Executor, ProgramId, Watch};
use crate::kernels::digest::{self, BLOCK};
use crate::models::char_gpt::{CharGpt, DIGEST_STATE, TrainOptions};
use crate::passes::scaling::SCALER_COUNTS;
use crate::plan::Plan;
use crate::train::run::Data;
use crate::train::scaler;
use crate::train::schedule::{hyper_words, lr_at};
use crate::train::stages::{self, Stages};
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::Arc;

/// Inputs of one program.
pub type Inputs = Vec<(&'static str, Vec<u32>)>;

/// The steps of one scheme's run.
pub struct Course<'a> {
    settings: &'a Settings,
    data: &'a Data,
    weights: &'a [(String, Vec<f32>)],
    /// The scheme.
    pub scheme: Scheme,
    model: CharGpt,
    /// States that the first step finds besides weights and moments.
    start: Vec<(String, Vec<u32>)>,
    /// The training program, digests included.
    pub plan: Arc<Plan>,
    /// The programs of all steps.
    stages: Stages,
    batches: Batches,
    /// Offsets of the batches drawn so far.
    drawn: Vec<Vec<u32>>,
}

impl<'a> Course<'a> {
    /// The course of a run's first steps.
    ///
    /// # Errors
    /// A violated invariant of the program itself.
    pub fn new(
        settings: &'a Settings,
        data: &'a Data,
        weights: &'a [(String, Vec<f32>)],
        scheme: Scheme,
    ) -> Result<Course<'a>, Error> {
        let model = settings.model(data.text.vocab.len());
        let options = TrainOptions {
            digest: true,
            ..stages::plain(settings, settings.policy_of(scheme)?)
        };
        let stages = Stages::compile(&model, settings, scheme, &options)?;
        Ok(Course {
            settings,
            data,
            weights,
            scheme,
            model,
            start: scaler::start(settings, &scheme.policy())?,
            plan: stages.own.train.clone(),
            stages,
            batches: data.batches(settings),
            drawn: vec![],
        })
    }

    /// Offsets of the batches of a step, one after the other.
    fn offsets(&mut self, step: usize) -> &[u32] {
        while self.drawn.len() < step {
            let n = self.settings.accumulate;
            let batches = (0..n).flat_map(|_| self.batches.next_offsets());
            self.drawn.push(batches.collect());
        }
        &self.drawn[step - 1]
    }

    /// The plan that step `n` of all plans of a training step, from 1, belongs to, and its number there.
    pub fn locate(&self, step: usize, n: usize) -> (Arc<Plan>, usize) {
        let stage = self.stages.at(self.settings, step);
        let (before, each) = (self.before(step), stage.micro.as_ref());
        match each.filter(|_| n < before) {
            Some(micro) => (micro.clone(), n % micro.steps.len()),
            None => (stage.train.clone(), n - before),
        }
    }

    /// Steps of the plans of a training step's micro-batches.
    fn before(&self, step: usize) -> usize {
        let micro = &self.stages.at(self.settings, step).micro;
        let each = micro.as_ref().map_or(0, |m| m.steps.len());
        each * self.settings.accumulate
    }

    /// What the programs of a step, from 1, read: those of its micro-batches, where it has several, then
    /// the training program.
    /// `update` is the update's number where the training program counts none itself.
    pub fn inputs(&mut self, step: usize, update: u64) -> Vec<Inputs> {
        let (block, s) = (self.settings.block, self.settings);
        let stage = self.stages.at(s, step);
        let (policy, micro) = (stage.policy, stage.micro.is_some());
        let text = &self.data.text.train;
        let mut out = Vec::new();
        let offsets = self.offsets(step).to_vec();
        for (i, part) in offsets.chunks(offsets.len() / s.accumulate).enumerate() {
            let (idx, target) = gather(text, part, block);
            let mut inputs = vec![("idx", idx), ("target", target)];
            if micro {
                let goes_on = if i == 0 { 0f32 } else { 1.0 };
                inputs.push(("goes_on", vec![goes_on.to_bits()]));
            }
            out.push(inputs);
        }
        let lr = lr_at(s, step - 1);
        let hyper = ("hyper", hyper_words(s, &policy, lr, update));
        match out.last_mut().filter(|_| !micro) {
            Some(last) => last.push(hyper),
            None => out.push(vec![hyper]),
        }
        out
    }

    /// SHA-256 of the places of the first `steps` batches in the text.
    pub fn batches_hash(&mut self, steps: usize) -> String {
        let mut sha = Sha256::new();
        for step in 1..=steps {
            let offsets = self.offsets(step);
            sha.update((offsets.len() as u64).to_le_bytes());
            offsets.iter().for_each(|o| sha.update(o.to_le_bytes()));
        }
        hex(&sha.finalize())
    }

    /// Names of the states that digests cover, in their order.
    pub fn tensors(&self) -> Vec<String> {
        let weights = self.model.weights();
        let policy = self.scheme.policy();
        weights.iter().flat_map(|w| w.states(&policy)).collect()
    }

    /// The words of each tensor's digest in the digest state.
    fn ranges(&self) -> Vec<Range<usize>> {
        let policy = self.scheme.policy();
        let mut at = 0;
        let weights = self.model.weights();
        let each = weights.iter().flat_map(|w| {
            let words = crate::shape::Shape::new(&w.dims).words(policy.storage);
            vec![2 * words.div_ceil(BLOCK); w.states(&policy).len()]
        });
        each.map(|n| {
            at += n;
            at - n..at
        })
        .collect()
    }
}

/// SHA-256 of initial weights: names and bits.
pub fn weights_hash(weights: &[(String, Vec<f32>)]) -> String {
    let mut sha = Sha256::new();
    for (name, data) in weights {
        for n in [name.len(), data.len()] {
            sha.update((n as u64).to_le_bytes());
        }
        sha.update(name);
        data.iter()
            .for_each(|x| sha.update(x.to_bits().to_le_bytes()));
    }
    hex(&sha.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Weights and moments at one point of a course.
#[derive(Clone)]
pub struct Snapshot {
    /// Steps taken.
    pub at: usize,
    states: Vec<(String, Vec<u32>)>,
}

impl Snapshot {
    /// From named words.
    pub fn new(at: usize, states: Vec<(String, Vec<u32>)>) -> Snapshot {
        Snapshot { at, states }
    }
}

/// The training program, and that of a micro-batch.
type Programs = (ProgramId, Option<ProgramId>);

/// A device on its way along a course.
pub struct Runner {
    exec: Box<dyn Executor>,
    /// The training program and a micro-batch's: the scheme's own, and those of the last steps.
    own: Programs,
    last: Option<Programs>,
    /// Steps taken.
    pub at: usize,
    /// Loss of the last step.
    pub loss: f32,
}

impl Runner {
    /// Loads the program and writes the initial weights; moments start at zero.
    ///
    /// # Errors
    /// The device cannot hold it.
    pub fn start(mut exec: Box<dyn Executor>, course: &Course) -> Result<Runner, Error> {
        let own = course.stages.own.load(&mut *exec)?;
        let last = match &course.stages.last {
            Some(stage) => Some(stage.load(&mut *exec)?),
            None => None,
        };
        let policy = course.scheme.policy();
        stages::begin(
            &mut *exec,
            &course.model,
            &policy,
            &course.start,
            course.weights,
        )?;
        Ok(Runner {
            exec,
            own,
            last,
            at: 0,
            loss: f32::NAN,
        })
    }

    /// Feeds and runs the micro-batches of the next step, then feeds the training program; returns it.
    fn feed(
        &mut self,
        course: &mut Course,
        watch: Option<&mut Watch>,
    ) -> Result<ProgramId, ExecError> {
        let (train, micro) = match self.last {
            Some(last) if course.settings.is_final(self.at + 1) => last,
            _ => self.own,
        };
        let mut watch = watch;
        let update = self.update(course)?;
        let mut inputs = course.inputs(self.at + 1, update);
        let last = inputs.pop().unwrap_or_default();
        let mut taken = 0;
        let program = micro.unwrap_or(train);
        for part in inputs {
            self.write(program, part)?;
            let Some(watch) = watch.as_deref_mut() else {
                self.exec.run(program)?;
                continue;
            };
            let first = taken;
            self.exec.trace(program, &mut |n, step, wrote| {
                taken = first + n + 1;
                watch(first + n, step, wrote)
            })?;
        }
        self.write(train, last)?;
        Ok(train)
    }

    /// Number of the next update: that of the step, but in last steps in fp32 after skipped ones.
    fn update(&mut self, course: &Course) -> Result<u64, ExecError> {
        let (s, next) = (course.settings, self.at + 1);
        if !course.scheme.policy().scaled || !s.is_final(next) {
            return Ok(next as u64);
        }
        let first = s.steps.saturating_sub(s.final_fp32);
        let applied = u64::from(self.exec.read_state(SCALER_COUNTS)?[2]);
        Ok(applied + (next - first) as u64)
    }

    fn write(&mut self, program: ProgramId, inputs: Inputs) -> Result<(), ExecError> {
        for (name, words) in inputs {
            self.exec.write_input(program, name, &words)?;
        }
        Ok(())
    }

    /// Takes the next step.
    ///
    /// # Errors
    /// The device failed, or the loss is no number.
    pub fn step(&mut self, course: &mut Course) -> Result<(), Error> {
        let program = self.feed(course, None)?;
        self.exec.run(program)?;
        self.at += 1;
        let words = self.exec.read_output(program, "loss")?;
        self.loss = f32::from_bits(words[0]);
        if self.loss.is_finite() {
            return Ok(());
        }
        Err(Error::NonFinite {
            scheme: course.scheme.name().into(),
            step: self.at,
            what: "the loss is no finite number, and such values are outside what devices agree on"
                .into(),
        })
    }

    /// Takes the next step under a watch.
    ///
    /// # Errors
    /// The device failed.
    pub fn trace(&mut self, course: &mut Course, watch: &mut Watch) -> Result<(), Error> {
        let program = self.feed(course, Some(watch))?;
        let before = course.before(self.at + 1);
        self.exec.trace(program, &mut |n, step, wrote| {
            watch(before + n, step, wrote)
        })?;
        self.at += 1;
        Ok(())
    }

    /// Digests of all tensors after the last step, in the order of [`Course::tensors`].
    ///
    /// # Errors
    /// The device failed.
    pub fn digests(&mut self, course: &Course) -> Result<Vec<u64>, Error> {
        let words = self.exec.read_state(DIGEST_STATE)?;
        let each = course.ranges().into_iter();
        Ok(each
            .map(|r| digest::combine(words[r].iter().copied()))
            .collect())
    }

    /// The weights and moments.
    ///
    /// # Errors
    /// The device failed.
    pub fn snapshot(&mut self, course: &Course) -> Result<Snapshot, Error> {
        let mut states = Vec::new();
        let others = course.start.iter().map(|s| s.0.clone());
        for name in course.tensors().into_iter().chain(others) {
            let words = self.exec.read_state(&name)?;
            states.push((name, words));
        }
        Ok(Snapshot::new(self.at, states))
    }

    /// Goes to a snapshot's point.
    ///
    /// # Errors
    /// The device failed, or the snapshot is of another model.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        for (name, words) in &snapshot.states {
            self.exec.write_state(name, words)?;
        }
        self.at = snapshot.at;
        Ok(())
    }
}

/// One digest of all tensors from theirs: what `train` prints.
pub fn whole(digests: &[u64]) -> u64 {
    digest::combine(digests.iter().flat_map(|d| [(d >> 32) as u32, *d as u32]))
}
