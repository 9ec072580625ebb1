//! Buffers of a device, and the way of data to and from the host.

use super::health::{Health, Trouble};
use std::sync::{Arc, Mutex};

/// Sentinel words behind a buffer in guard mode.
pub(super) const GUARD: u64 = 64;
/// A sentinel: as f32 it is near the largest finite number, so that reading one is not missed either.
pub(super) const SENTINEL: u32 = 0x7f7f_dead;
/// Most bytes that wait on the host's side for a transfer at one time.
const WINDOW: u64 = 64 << 20;

/// Bytes of an allocation for `words` words. A multiple of 16, so that a shader may read whole
/// four-word vectors up to the end.
pub(super) fn bytes_for(words: u64, guards: bool) -> u64 {
    let words = words.max(1) + if guards { GUARD } else { 0 };
    (4 * words).next_multiple_of(16)
}

/// One allocation: a slot of a plan, or a state.
pub(super) struct Slab {
    /// The buffer.
    pub buffer: wgpu::Buffer,
    /// Words of the largest value it holds.
    pub words: u64,
    /// What it is for.
    pub label: String,
}

impl Slab {
    /// Allocates; the contents are zero. Runs under the caller's error scopes.
    pub fn new(device: &wgpu::Device, label: String, words: u64, guards: bool) -> Slab {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes_for(words, guards),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Slab {
            buffer,
            words,
            label,
        }
    }

    /// Writes the sentinels.
    pub fn arm(&self, queue: &wgpu::Queue) {
        let all = self.buffer.size() / 4 - self.words;
        let words = vec![SENTINEL; all as usize];
        queue.write_buffer(&self.buffer, 4 * self.words, bytemuck::cast_slice(&words));
    }

    /// How a value of `words` words is bound: with its own size, or, in guard mode, whole, so that an
    /// overrun lands on a sentinel and not in a driver's bounds check.
    pub fn binding(&self, words: u64, guards: bool) -> wgpu::BindingResource<'_> {
        if guards {
            return self.buffer.as_entire_binding();
        }
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &self.buffer,
            offset: 0,
            size: wgpu::BufferSize::new(bytes_for(words, false)),
        })
    }
}

/// The ends of a transfer.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    /// The device.
    pub device: &'a wgpu::Device,
    /// Its queue.
    pub queue: &'a wgpu::Queue,
    /// Its state.
    pub health: &'a Health,
}

/// The host's side of transfers.
#[derive(Default)]
pub(super) struct Staging {
    back: Option<wgpu::Buffer>,
    /// Bytes written that the device may not have taken yet.
    waiting: u64,
}

impl Staging {
    /// Bytes allocated.
    pub fn bytes(&self) -> u64 {
        self.back.as_ref().map_or(0, |b| b.size())
    }

    /// Writes a buffer from its start, ordered before all later submissions.
    pub fn write(
        &mut self,
        link: Link,
        buffer: &wgpu::Buffer,
        words: &[u32],
    ) -> Result<(), Trouble> {
        let mut at = 0;
        for part in words.chunks((WINDOW / 4) as usize) {
            link.queue
                .write_buffer(buffer, at, bytemuck::cast_slice(part));
            at += part.len() as u64 * 4;
            self.waiting += part.len() as u64 * 4;
            // wgpu keeps a copy of what is written until the device has taken it.
            if self.waiting >= WINDOW {
                let index = link.queue.submit([]);
                link.health.wait(link.device, Some(index))?;
                self.waiting = 0;
            }
        }
        link.health.check()
    }

    /// Notes that a run has been waited for, and with it everything written before.
    pub fn settled(&mut self) {
        self.waiting = 0;
    }

    /// Reads the first words of buffers, after what `before` holds.
    pub fn read(
        &mut self,
        link: Link,
        mut before: Option<wgpu::CommandEncoder>,
        sources: &[(&wgpu::Buffer, u64)],
    ) -> Result<Vec<Vec<u32>>, Trouble> {
        let mut out: Vec<Vec<u32>> = sources
            .iter()
            .map(|&(_, words)| Vec::with_capacity(words as usize))
            .collect();
        for window in windows(sources) {
            let bytes: u64 = window.iter().map(|p| 4 * p.words).sum();
            let back = self.back(link.device, bytes);
            let mut encoder = before
                .take()
                .unwrap_or_else(|| link.device.create_command_encoder(&Default::default()));
            let mut at = 0;
            for p in &window {
                let (from, length) = (sources[p.source].0, 4 * p.words);
                encoder.copy_buffer_to_buffer(from, 4 * p.first, back, at, length);
                at += length;
            }
            let index = link.queue.submit([encoder.finish()]);
            let words = mapped(link, back, bytes, Some(index), <[u32]>::to_vec)?;
            let mut at = 0;
            for p in &window {
                let n = p.words as usize;
                out[p.source].extend_from_slice(&words[at..at + n]);
                at += n;
            }
        }
        if let Some(encoder) = before {
            let index = link.queue.submit([encoder.finish()]);
            link.health.wait(link.device, Some(index))?;
        }
        self.settled();
        Ok(out)
    }

    fn back(&mut self, device: &wgpu::Device, bytes: u64) -> &wgpu::Buffer {
        let fits = self.back.as_ref().is_some_and(|b| b.size() >= bytes);
        if !fits {
            // The old one goes before the new one comes.
            self.back = None;
        }
        self.back
            .get_or_insert_with(|| Staging::new_back(device, bytes))
    }

    /// A buffer for data on its way to the host.
    pub fn new_back(device: &wgpu::Device, bytes: u64) -> wgpu::Buffer {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.next_power_of_two().max(4096),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }
}

/// A part of a source that is read at once.
struct Piece {
    source: usize,
    first: u64,
    words: u64,
}

/// Cuts sources into pieces and packs them into transfers of at most [`WINDOW`] bytes.
fn windows(sources: &[(&wgpu::Buffer, u64)]) -> Vec<Vec<Piece>> {
    let lengths: Vec<u64> = sources.iter().map(|s| s.1).collect();
    cut(&lengths, WINDOW / 4)
}

fn cut(lengths: &[u64], most: u64) -> Vec<Vec<Piece>> {
    let mut out: Vec<Vec<Piece>> = vec![];
    let mut room = 0;
    for (source, &length) in lengths.iter().enumerate() {
        let mut first = 0;
        while first < length {
            if room == 0 {
                out.push(vec![]);
                room = most;
            }
            let words = room.min(length - first);
            if let Some(window) = out.last_mut() {
                window.push(Piece {
                    source,
                    first,
                    words,
                });
            }
            first += words;
            room -= words;
        }
    }
    out
}

/// Maps the first bytes of a readable buffer once a submission is done, and looks at them.
pub(super) fn mapped<T>(
    link: Link,
    buffer: &wgpu::Buffer,
    bytes: u64,
    after: Option<wgpu::SubmissionIndex>,
    look: impl FnOnce(&[u32]) -> T,
) -> Result<T, Trouble> {
    let answer = Arc::new(Mutex::new(None));
    let told = answer.clone();
    buffer
        .slice(..bytes)
        .map_async(wgpu::MapMode::Read, move |r| {
            *told.lock().unwrap_or_else(|p| p.into_inner()) = Some(r);
        });
    link.health.wait(link.device, after)?;
    let done = answer.lock().unwrap_or_else(|p| p.into_inner()).take();
    match done {
        Some(Ok(())) => {}
        Some(Err(e)) => {
            // A lost device is the reason, not the refusal that comes of it.
            link.health.check()?;
            return Err(Trouble::Fault(e.to_string()));
        }
        None => return Err(Trouble::Silent),
    }
    let view = buffer
        .slice(..bytes)
        .get_mapped_range()
        .map_err(|e| Trouble::Fault(e.to_string()))?;
    let value = look(bytemuck::cast_slice(&view));
    drop(view);
    buffer.unmap();
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_vectors() {
        assert_eq!(bytes_for(0, false), 16);
        assert_eq!(bytes_for(4, false), 16);
        assert_eq!(bytes_for(5, false), 32);
        assert_eq!(bytes_for(5, true), 288);
    }

    #[test]
    fn transfers_are_cut_and_packed() {
        let parts: Vec<Vec<(usize, u64, u64)>> = cut(&[3, 0, 10, 2], 8)
            .into_iter()
            .map(|w| {
                w.into_iter()
                    .map(|p| (p.source, p.first, p.words))
                    .collect()
            })
            .collect();
        assert_eq!(
            parts,
            [vec![(0, 0, 3), (2, 0, 5)], vec![(2, 5, 5), (3, 0, 2)]]
        );
        assert!(cut(&[0, 0], 8).is_empty());
    }
}
