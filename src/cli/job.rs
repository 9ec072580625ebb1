//! A prepared training run: one scheme after the other, each from its first step or its checkpoint.

use super::device::Device;
use super::terminal::{Terminal, conclude, interrupted};
use crate::config::{Scheme, Settings};
use crate::error::Error;
use crate::exec::Executor;
use crate::exec::cpu::free_memory;
use crate::models::char_gpt::CharGpt;
use crate::report::cost::{Cost, write_cost};
use crate::report::ledger::{SchemeLedger, SummaryRow, other_rows, write_summary};
use crate::train::checkpoint::Checkpoint;
use crate::train::checkpoint::keeper::{Keeper, Schedule, restore_ledger, template};
use crate::train::checkpoint::locate::scheme_folder;
use crate::train::progress::Progress;
use crate::train::run::{Data, Extras, Run, summary};
use crate::train::session::{Programs, Session, check_memory};
use crate::train::weights;
use std::path::Path;

/// What settings name: the data, the model over its characters, and the initial weights.
///
/// # Errors
/// A file that cannot be used, or a model that this machine cannot hold.
pub fn materials(s: &Settings) -> Result<(Data, CharGpt, Weights), Error> {
    let data = Data::load(s)?;
    let model = s.model(data.text.vocab.len());
    check_memory(&model, s.batch, free_memory())?;
    let weights = first_weights(s, &model)?;
    Ok((data, model, weights))
}

/// The weights of a file, or drawn from the seed.
///
/// # Errors
/// A file that is not of this model.
pub fn first_weights(s: &Settings, model: &CharGpt) -> Result<Weights, Error> {
    match &s.init {
        Some(path) => weights::load(path, model),
        None => Ok(model.initial(s.seed)),
    }
}

/// Weights by name, in the model's order.
pub type Weights = Vec<(String, Vec<f32>)>;

/// What a run works on, checked.
pub struct Job<'a> {
    /// The settings.
    pub s: &'a Settings,
    /// Appended to the names of the files.
    pub tag: &'a str,
    /// Where they go.
    pub outdir: &'a Path,
    /// Makes an executor for each scheme.
    pub device: &'a Device,
    /// The data.
    pub data: &'a Data,
    /// The model.
    pub model: CharGpt,
    /// The programs of each scheme.
    pub programs: &'a [Programs],
    /// Initial weights, for the schemes without a checkpoint.
    pub weights: Weights,
    /// Files besides the ledger, of each scheme.
    pub files: &'a [Extras],
    /// When checkpoints are written, if they are.
    pub schedule: Option<Schedule>,
    /// Step after which each scheme stops.
    pub stop_after: Option<usize>,
    /// Digest of the initial weights.
    pub init: String,
    /// Whether plain lines are wanted on a terminal too.
    pub quiet: bool,
    /// Checkpoints to go on from.
    pub points: Vec<Checkpoint>,
}

/// How one scheme ended.
struct Ended {
    cost: Cost,
    row: SummaryRow,
    stopped: bool,
    saved: bool,
    unsaved: Option<Error>,
}

impl Job<'_> {
    /// Whether a checkpoint is at the end of what is to be done.
    fn over(&self, c: &Checkpoint) -> bool {
        let end = self
            .stop_after
            .map_or(self.s.steps, |n| n.min(self.s.steps));
        c.meta.step as usize >= end
    }

    fn point(&self, scheme: Scheme) -> Option<&Checkpoint> {
        self.points.iter().find(|p| p.scheme() == scheme)
    }

    /// A session at a scheme's checkpoint, or at the initial weights.
    fn session(&self, exec: Box<dyn Executor>, i: usize) -> Result<Session, Error> {
        let programs = &self.programs[i];
        let Some(point) = self.point(self.s.schemes[i]) else {
            return Session::new(exec, self.model, programs, &self.weights);
        };
        let mut session = Session::new(exec, self.model, programs, &point.weights())?;
        session.restore(&point.states)?;
        session.restore_scaler(self.s, point.meta.scaler.as_ref(), point.meta.updates)?;
        Ok(session)
    }

    /// The session of the first scheme that has steps to do; none if no scheme has.
    ///
    /// # Errors
    /// The device cannot hold it.
    pub fn first_session(&self, exec: Box<dyn Executor>) -> Result<Option<Session>, Error> {
        let open = |i: &usize| {
            let point = self.point(self.s.schemes[*i]);
            point.is_none_or(|p| !self.over(p))
        };
        match (0..self.s.schemes.len()).find(open) {
            Some(i) => self.session(exec, i).map(Some),
            None => Ok(None),
        }
    }

    /// Runs every scheme; returns the exit code.
    ///
    /// # Errors
    /// Whatever stops it, or a last checkpoint that could not be written.
    pub fn run(mut self, mut ready: Option<Session>) -> Result<i32, Error> {
        let mut rows: Vec<SummaryRow> = Vec::new();
        // Where one scheme of a run goes on, the others stay in its summary.
        let own: Vec<&str> = self.s.schemes.iter().map(|s| s.name()).collect();
        let kept = match self.points.is_empty() {
            true => vec![],
            false => other_rows(self.outdir, self.tag, &own),
        };
        let mut costs = Vec::new();
        let resumed = !self.points.is_empty();
        let (mut stopped, mut saved, mut unsaved) = (false, false, None);
        for i in 0..self.s.schemes.len() {
            let ended = self.scheme(i, &mut ready)?;
            stopped |= ended.stopped;
            saved |= ended.saved;
            unsaved = ended.unsaved.or(unsaved);
            rows.push(ended.row);
            write_summary(self.outdir, self.tag, &rows, &kept)?;
            costs.push((self.s.schemes[i].name(), ended.cost));
            write_cost(self.outdir, self.tag, &costs, &own, resumed)?;
            if interrupted() {
                break;
            }
        }
        conclude(self.s, self.tag, &rows, self.outdir);
        if stopped && saved {
            println!("to go on: isobit train --resume {}", self.outdir.display());
        }
        super::report::after_training(self.outdir);
        match unsaved {
            Some(e) => Err(e),
            None => Ok(if stopped && interrupted() { 130 } else { 0 }),
        }
    }

    fn scheme(&mut self, i: usize, ready: &mut Option<Session>) -> Result<Ended, Error> {
        let (s, scheme) = (self.s, self.s.schemes[i]);
        let mut ledger = SchemeLedger::new(self.outdir, scheme.name(), self.tag);
        ledger.tensors = (self.model.weights().iter())
            .map(|w| (w.name.clone(), w.dims.iter().product::<usize>() as u64))
            .collect();
        let progress = match self.point(scheme) {
            Some(c) => {
                restore_ledger(c, &mut ledger);
                Progress::at(c, s, self.data)?
            }
            None => Progress::start(s, self.data),
        };
        if let Some(c) = self.point(scheme).filter(|c| self.over(c)) {
            ledger.flush()?;
            if let Some(path) = &self.files[i].save {
                weights::save(path, &c.tensors())?;
            }
            return Ok(Ended {
                cost: progress.cost,
                row: summary(
                    scheme,
                    &ledger,
                    progress.step_ms(),
                    progress.peak_bytes,
                    self.s.numerics,
                ),
                stopped: false,
                saved: false,
                unsaved: None,
            });
        }
        // A new executor for each scheme, so that peak memory is counted anew.
        let mut session = match ready.take() {
            Some(session) => session,
            None => self.session(self.device.open(self.s.numerics)?, i)?,
        };
        // Their memory is wanted.
        self.points.retain(|p| p.scheme() != scheme);
        if s.schemes[i + 1..].iter().all(|&x| self.point(x).is_some()) {
            self.weights = vec![];
        }
        let keeper = self.schedule.map(|schedule| {
            let id = self.data.id(self.init.clone());
            let (vocab, plan) = (&self.data.text.vocab, self.programs[i].hash());
            let fixed = template(&self.model, scheme, s, self.tag, vocab, id, plan);
            let folder = scheme_folder(self.outdir, scheme.name(), self.tag);
            Keeper::new(&folder, schedule, fixed)
        });
        let mut view = {
            let memory = (!self.quiet).then(|| self.programs[i].bytes());
            Terminal::new(scheme, s.steps, progress.step, self.stop_after, memory)
        };
        let run = Run {
            session: &mut session,
            scheme,
            s,
            data: self.data,
            ledger: &mut ledger,
            extras: &self.files[i],
            observer: &mut view,
            keeper,
            progress,
        };
        let outcome = run.go();
        view.finish();
        let outcome = outcome?;
        view.close(&outcome);
        Ok(Ended {
            cost: outcome.cost,
            row: outcome.summary,
            stopped: outcome.stopped,
            saved: outcome.checkpoint.is_some(),
            unsaved: outcome.unsaved,
        })
    }
}
