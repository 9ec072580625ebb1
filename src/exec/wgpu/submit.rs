//! Recorded steps, cut into submissions of bounded work.
//!
//! Drivers reset a device whose work takes seconds (2 s on Windows), so a submission holds a bounded
//! number of launches and a bounded estimate of work; and only a few submissions wait at a time, so that
//! a run's memory on the host's side is bounded too.

use super::super::grid;
pub(super) use super::super::steps_place as place;
use crate::plan::{Plan, Step};
use std::ops::Range;

/// Launches in a submission.
const LAUNCHES: usize = 512;
/// Estimated operations in a submission on a real GPU: 0.1 s at 200 G operations a second.
const WORK: u64 = 20_000_000_000;
/// The same on a software GPU: 0.2 s to 1 s on one core.
const WORK_SOFTWARE: u64 = 1_000_000_000;
/// Submissions that may be under way at a time.
pub(super) const UNDER_WAY: usize = 3;

/// One recorded launch.
pub(super) struct Launch {
    /// Its pipeline.
    pub pipeline: wgpu::ComputePipeline,
    /// Its buffers.
    pub group: wgpu::BindGroup,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Estimated operations.
    pub work: u64,
    /// The shader file.
    pub file: &'static str,
}

impl Launch {
    /// Records a launch of `workgroups` workgroups.
    pub fn new(
        pipeline: wgpu::ComputePipeline,
        group: wgpu::BindGroup,
        workgroups: u64,
        most: u32,
        work: u64,
        file: &'static str,
    ) -> Launch {
        Launch {
            pipeline,
            group,
            grid: grid(workgroups, most),
            work,
            file,
        }
    }

    /// Encodes it.
    pub fn encode(&self, pass: &mut wgpu::ComputePass) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        let [x, y, z] = self.grid;
        pass.dispatch_workgroups(x, y, z);
    }
}

/// Estimated operations of a step; a bound on time needs no more than the order of magnitude.
pub(super) fn work(step: &Step, plan: &Plan) -> u64 {
    let p = |i: usize| step.params.words.get(i + 1).copied().unwrap_or(1).max(1) as u64;
    let elements: u64 = step
        .reads
        .iter()
        .chain(&step.writes)
        .map(|&b| plan.buf(b).ty.shape.elems() as u64)
        .sum();
    // A pointwise expression or a row of a norm is some ten operations an element.
    let each = 16 * elements;
    let inner = match step.kernel.name {
        // m, n, k, chunk, batch
        "gemm" => 2 * p(0) * p(1) * p(2) * p(4),
        // b, t, heads, width
        "attention" => 4 * p(0) * p(1) * p(1) * p(2) * p(3),
        "attention_grad" => 16 * p(0) * p(1) * p(1) * p(2) * p(3),
        _ => 0,
    };
    each.saturating_add(inner)
}

/// Seconds of some work, by order of magnitude: what [`WORK`] and [`WORK_SOFTWARE`] say of devices.
pub(super) fn seconds(work: f64, software: bool) -> f64 {
    match software {
        true => 0.4 * work / WORK_SOFTWARE as f64,
        false => 0.1 * work / WORK as f64,
    }
}

/// Cuts launches into submissions. A submission begins at `cut` too, where one is given.
pub(super) fn submissions(
    work: impl Iterator<Item = u64>,
    software: bool,
    cut: Option<usize>,
) -> Vec<Range<usize>> {
    let most = if software { WORK_SOFTWARE } else { WORK };
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut sum = 0u64;
    for (i, w) in work.enumerate() {
        sum = sum.saturating_add(w);
        match out.last_mut() {
            Some(r) if r.len() < LAUNCHES && sum <= most && cut != Some(i) => r.end = i + 1,
            _ => {
                out.push(i..i + 1);
                sum = w;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submissions_are_bounded() {
        let cut = |w: &[u64], at| -> Vec<(usize, usize)> {
            let parts = submissions(w.iter().copied(), true, at);
            parts.into_iter().map(|r| (r.start, r.end)).collect()
        };
        assert_eq!(cut(&[1, 2, 3], None), [(0, 3)]);
        assert_eq!(cut(&[1, 2, 3], Some(2)), [(0, 2), (2, 3)]);
        assert_eq!(cut(&[1, 2, 3], Some(0)), [(0, 3)]);
        // One launch that is too large stands alone.
        assert_eq!(cut(&[1, u64::MAX, 3], None), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(cut(&[WORK_SOFTWARE / 2; 5], None), [(0, 2), (2, 4), (4, 5)]);
        let many = vec![1; LAUNCHES * 2 + 1];
        let parts = cut(&many, None);
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2], (2 * LAUNCHES, 2 * LAUNCHES + 1));
        assert!(cut(&[], None).is_empty());
    }
}
