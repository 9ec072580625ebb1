//! A run whose steps are timed one by one.

use super::super::{Clock, ExecError, StepTime};
use super::Wgpu;
use super::submit;
use super::timer::SUBMISSIONS;
use std::ops::Range;
use std::time::Instant;

impl Wgpu {
    /// Each step is a submission of its own, waited for: its time is the device's, between two timestamps
    /// around it, or, where the device has none or they make no sense, the host's.
    pub(super) fn profile_plan(&mut self, program: usize) -> Result<Vec<StepTime>, ExecError> {
        let plan = self.programs[program].plan.clone();
        self.dispatched = 0;
        let begin = Instant::now();
        let mut out = Vec::with_capacity(plan.steps.len());
        let mut first = 0;
        while first < plan.steps.len() {
            let group = first..plan.steps.len().min(first + SUBMISSIONS as usize);
            let times = self.profile_group(program, group.clone())?;
            let launches = &self.programs[program].launches[group.clone()];
            for (launch, (clock, ms)) in launches.iter().zip(times) {
                let path = launch.file;
                out.push(StepTime { ms, clock, path });
            }
            first = group.end;
        }
        self.staging.settled();
        self.wall_ms = begin.elapsed().as_secs_f64() * 1e3;
        if let Some(timer) = &mut self.timer {
            timer.clear();
        }
        Ok(out)
    }

    /// Steps that the timer has room for.
    fn profile_group(
        &mut self,
        program: usize,
        steps: Range<usize>,
    ) -> Result<Vec<(Clock, f64)>, ExecError> {
        let plan = self.programs[program].plan.clone();
        let mut wall = Vec::with_capacity(steps.len());
        for (i, n) in steps.clone().enumerate() {
            let place = || submit::place(&plan, n..n + 1);
            self.health.check().map_err(|t| self.failed(t, &place()))?;
            let mut encoder = self.encode(program, n..n + 1, i);
            if let Some(timer) = self.timer.as_mut().filter(|_| n + 1 == steps.end) {
                timer.finish(&mut encoder, steps.len());
            }
            let commands = encoder.finish();
            let start = Instant::now();
            let index = self.queue.submit([commands]);
            let waited = self.health.wait(&self.device, Some(index));
            waited.map_err(|t| self.failed(t, &place()))?;
            wall.push((Clock::Host, start.elapsed().as_secs_f64() * 1e3));
        }
        let device = self.timer.as_ref().and_then(|t| t.each(self.link()));
        Ok(match device {
            Some(ms) => ms.into_iter().map(|ms| (Clock::Device, ms)).collect(),
            None => wall,
        })
    }
}
