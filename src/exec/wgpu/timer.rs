//! The device's own clock, where it has one.

use super::buffers::{Link, mapped};

/// Submissions of a run that are timed; a longer run is timed by the wall clock.
pub(super) const SUBMISSIONS: u32 = 256;

/// Timestamps around each submission of a run.
pub(super) struct Timer {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    back: wgpu::Buffer,
    /// Nanoseconds of a tick.
    period: f64,
    /// Submissions of the last run; none if they were too many.
    timed: Option<u32>,
}

impl Timer {
    /// A timer, where the device has timestamps.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Option<Timer> {
        if !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return None;
        }
        let count = 2 * SUBMISSIONS;
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 8 * count as u64,
                usage,
                mapped_at_creation: false,
            })
        };
        Some(Timer {
            set: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count,
            }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            back: buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ),
            period: queue.get_timestamp_period() as f64,
            timed: None,
        })
    }

    /// What submission `i` of a run writes.
    pub fn writes(&self, i: usize) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let i = u32::try_from(i).ok().filter(|i| *i < SUBMISSIONS)?;
        Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: Some(2 * i),
            end_of_pass_write_index: Some(2 * i + 1),
        })
    }

    /// Ends a run of `n` submissions; goes into the last one.
    pub fn finish(&mut self, encoder: &mut wgpu::CommandEncoder, n: usize) {
        self.timed = u32::try_from(n).ok().filter(|n| *n <= SUBMISSIONS);
        if let Some(n) = self.timed {
            encoder.resolve_query_set(&self.set, 0..2 * n, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.back, 0, 16 * n as u64);
        }
    }

    /// Forgets the last run.
    pub fn clear(&mut self) {
        self.timed = None;
    }

    /// Milliseconds that the device worked on the last run, if its clock makes sense: some drivers
    /// return zeros.
    pub fn ms(&self, link: Link) -> Option<f64> {
        self.each(link).map(|ms| ms.iter().sum())
    }

    /// Milliseconds that the device worked on each submission of the last run, if its clock makes sense.
    pub fn each(&self, link: Link) -> Option<Vec<f64>> {
        let n = self.timed.filter(|n| *n > 0)?;
        let ticks = mapped(link, &self.back, 16 * n as u64, None, |words| {
            words
                .chunks_exact(4)
                .map(|w| {
                    let at = |i: usize| w[i] as u64 | (w[i + 1] as u64) << 32;
                    at(2).checked_sub(at(0))
                })
                .collect::<Option<Vec<u64>>>()
        });
        let ticks = ticks.ok()??;
        let ms = |t: &u64| *t as f64 * self.period / 1e6;
        (ticks.iter().any(|t| *t > 0) && self.period > 0.0).then(|| ticks.iter().map(ms).collect())
    }
}
