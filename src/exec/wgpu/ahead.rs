//! Runs that go on while the host prepares the next one: their outputs are copied, on the device, into
//! memory that the host can map, and are fetched when they are asked for.

use super::buffers::{Staging, mapped};
use super::health::Trouble;
use super::submit;
use super::{Begun, Class, ExecError, Executor, ProgramId, UnderWay, Wgpu};
use std::collections::VecDeque;
use std::ops::Range;

/// Runs that may be under way at a time: one that computes, one that waits for it.
const RUNS: usize = 2;

/// A copy of a buffer's first words.
pub(super) struct Copy {
    from: wgpu::Buffer,
    to: wgpu::Buffer,
    /// Where it goes, in bytes.
    at: u64,
    /// Its bytes.
    bytes: u64,
}

impl Copy {
    /// Encodes it.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.copy_buffer_to_buffer(&self.from, 0, &self.to, self.at, self.bytes);
    }
}

/// A run that is under way.
struct Run {
    number: u64,
    program: usize,
    submissions: UnderWay,
    /// Where its outputs will be.
    back: wgpu::Buffer,
    /// Words of each output.
    words: Vec<u64>,
}

/// The runs that are under way, the first begun first.
#[derive(Default)]
pub(super) struct Ahead {
    runs: VecDeque<Run>,
    begun: u64,
    /// Buffers for outputs, which take turns.
    backs: [Option<wgpu::Buffer>; RUNS],
}

impl Wgpu {
    pub(super) fn begin_run(
        &mut self,
        program: ProgramId,
        outputs: &[&str],
    ) -> Result<Begun, ExecError> {
        if self.guards || self.ahead.runs.len() >= RUNS {
            // Guards look at every step. A caller that takes no outputs waits.
            self.run(program)?;
            let read = outputs.iter().map(|name| self.read_output(program, name));
            return Ok(Begun::Done(read.collect::<Result<_, _>>()?));
        }
        let p = program.0;
        let plan = self.programs[p].plan.clone();
        let bufs = outputs.iter().map(|n| self.find(program, Class::Output, n));
        let bufs = bufs.collect::<Result<Vec<_>, _>>()?;
        let words: Vec<u64> = bufs.iter().map(|&b| plan.buf(b).words() as u64).collect();
        let back = self.back(4 * words.iter().sum::<u64>());
        let mut at = 0;
        let mut copies = Vec::with_capacity(bufs.len());
        for (&b, &n) in bufs.iter().zip(&words) {
            let from = self.slab(p, b).buffer.clone();
            let (to, bytes) = (back.clone(), 4 * n);
            copies.push(Copy {
                from,
                to,
                at,
                bytes,
            });
            at += bytes;
        }
        self.dispatched = 0;
        if let Some(timer) = &mut self.timer {
            timer.clear();
        }
        let submitted = match self.health.check() {
            Ok(()) => self.submit_all(p, &copies),
            Err(t) => Err((t, 0..0)),
        };
        let submissions = submitted.map_err(|(t, steps)| self.failed_in(p, t, steps))?;
        self.ahead.begun += 1;
        let number = self.ahead.begun;
        self.ahead.runs.push_back(Run {
            number,
            program: p,
            submissions,
            back,
            words,
        });
        Ok(Begun::UnderWay(number))
    }

    pub(super) fn end_run(&mut self, number: u64) -> Result<Vec<Vec<u32>>, ExecError> {
        let Some(mut run) = self.ahead.runs.pop_front() else {
            return Err(ExecError::Device("no run is under way".into()));
        };
        if run.number != number {
            self.ahead.runs.clear();
            return Err(ExecError::Device(
                "runs end in the order in which they began".into(),
            ));
        }
        let last = run.submissions.back().cloned();
        while run.submissions.len() > 1 {
            self.wait_first(&mut run.submissions)
                .map_err(|(t, steps)| self.failed_in(run.program, t, steps))?;
        }
        let (index, steps) = last.unzip();
        let bytes = 4 * run.words.iter().sum::<u64>();
        let cut = |all: &[u32]| {
            let mut rest = all;
            let mut take = |n: &u64| {
                let (own, others) = rest.split_at(*n as usize);
                rest = others;
                own.to_vec()
            };
            run.words.iter().map(&mut take).collect()
        };
        let read = mapped(self.link(), &run.back, bytes, index, cut);
        self.staging.settled();
        read.map_err(|t| self.failed_in(run.program, t, steps.unwrap_or(0..0)))
    }

    /// A failure of a run, and at which of its steps.
    pub(super) fn failed_in(&self, program: usize, t: Trouble, steps: Range<usize>) -> ExecError {
        let plan = &self.programs[program].plan;
        match steps.is_empty() {
            true => self.failed(t, &format!("before program {} ran", plan.name)),
            false => self.failed(t, &submit::place(plan, steps)),
        }
    }

    /// The buffer for the outputs of the next run.
    fn back(&mut self, bytes: u64) -> wgpu::Buffer {
        let turn = self.ahead.begun as usize % RUNS;
        let old = self.ahead.backs[turn].take();
        let before = old.as_ref().map_or(0, wgpu::Buffer::size);
        let fits = old.filter(|b| b.size() >= bytes);
        let buffer = fits.unwrap_or_else(|| {
            self.created.buffers += 1;
            Staging::new_back(&self.device, bytes)
        });
        self.memory.allocated = self.memory.allocated - before + buffer.size();
        self.memory.peak = self.memory.peak.max(self.memory.allocated);
        self.ahead.backs[turn] = Some(buffer.clone());
        buffer
    }
}
