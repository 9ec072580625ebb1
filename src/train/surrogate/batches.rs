//! What the host computes for these trainers, in f64 with one rounding: encoded events, batches of them,
//! noise, times and schedules.

use super::settings::Kind;
use crate::data::showers::{Part, Shower, showers};
use crate::kernels::rng::Stream;
use crate::models::net::TIME;
use crate::models::showers::{conditions, encode};

/// Streams of a run's seed.
const BATCHES: u32 = 0x3100_0000;
/// Noise of the training steps.
const NOISE: u32 = 0x3100_0001;
/// Noise of the validation loss and of draws: of a seed of its own, the same in every run.
const FIXED: u64 = 4242;

/// Events as networks see them, row after row.
#[derive(Clone, Default)]
pub struct Events {
    /// Layers of an event.
    pub layers: usize,
    /// Conditions, 3 a row.
    pub conditions: Vec<f32>,
    /// Coordinate of the total, 1 a row.
    pub total: Vec<f32>,
    /// Coordinates of the shares, layers - 1 a row.
    pub shares: Vec<f32>,
    /// Each layer's energy over the event's, a row of layers.
    pub fractions: Vec<f32>,
    /// Energies of the events, GeV.
    pub energy: Vec<f64>,
    /// Energies of the layers, GeV, a row of layers.
    pub deposits: Vec<f64>,
}

impl Events {
    /// The first `n` events of a part.
    pub fn load(seed: u64, part: Part, n: usize, layers: usize) -> Events {
        let mut out = Events {
            layers,
            ..Events::default()
        };
        showers(seed, part, n, layers)
            .iter()
            .for_each(|e| out.push(e));
        out
    }

    fn push(&mut self, e: &Shower) {
        let (total, shares) = encode(e);
        self.conditions.extend(conditions(e.energy, e.angle));
        self.total.push(total);
        self.shares.extend(shares);
        let over = e.layers.iter().map(|x| (x / e.energy) as f32);
        self.fractions.extend(over);
        self.energy.push(e.energy);
        self.deposits.extend(&e.layers);
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.energy.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.energy.is_empty()
    }

    /// Some rows of one of the arrays of `width` numbers a row.
    fn rows(array: &[f32], width: usize, rows: &[usize]) -> Vec<f32> {
        let each = rows.iter().flat_map(|&i| &array[i * width..][..width]);
        each.copied().collect()
    }

    /// Some of the events; what only judges need is left out.
    pub fn batch(&self, rows: &[usize]) -> Events {
        let layers = self.layers;
        Events {
            layers,
            conditions: Self::rows(&self.conditions, 3, rows),
            total: Self::rows(&self.total, 1, rows),
            shares: Self::rows(&self.shares, layers - 1, rows),
            fractions: Self::rows(&self.fractions, layers, rows),
            ..Events::default()
        }
    }
}

/// The streams that a run draws from.
pub struct Draws {
    batches: Stream,
    /// Noise.
    pub noise: Stream,
}

impl Draws {
    /// Of training.
    pub fn training(seed: u64) -> Draws {
        Draws {
            batches: Stream::new(seed, BATCHES),
            noise: Stream::new(seed, NOISE),
        }
    }

    /// Of what judges: the same in every run, `number` for each use.
    pub fn fixed(number: u32) -> Draws {
        Draws {
            batches: Stream::new(FIXED, BATCHES + 2 * number),
            noise: Stream::new(FIXED, NOISE + 2 * number),
        }
    }

    /// A batch of events, drawn with replacement.
    pub fn batch(&mut self, events: &Events, n: usize) -> Events {
        let rows: Vec<usize> = (0..n)
            .map(|_| self.batches.below(events.len() as u64) as usize)
            .collect();
        events.batch(&rows)
    }

    /// Normal deviates.
    pub fn normal(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.noise.normal() as f32).collect()
    }
}

/// The embedding of a time in 0..1: cosines and sines of frequencies from 1 to 1000, a geometric row.
pub fn embed(t: f64) -> [f32; TIME] {
    let half = TIME / 2;
    std::array::from_fn(|i| {
        let k = (i % half) as f64 / (half - 1) as f64;
        let x = t * libm::pow(1000.0, k);
        (if i < half { libm::cos(x) } else { libm::sin(x) }) as f32
    })
}

/// DDPM's schedule of `steps` steps, discretised from the variance-preserving process of Song et al.
/// (arXiv:2011.13456): beta grows linearly from 0.1 to 20 over unit time.
pub struct Schedule {
    betas: Vec<f64>,
    kept: Vec<f64>,
}

impl Schedule {
    /// Of so many steps, at least 21.
    pub fn new(steps: usize) -> Schedule {
        let n = steps as f64;
        let beta = |k: usize| (0.1 + 19.9 * k as f64 / (n - 1.0)) / n;
        let betas: Vec<f64> = (0..steps).map(beta).collect();
        let mut left = 1.0;
        let kept = betas.iter().map(|b| {
            left *= 1.0 - b;
            left
        });
        let kept = kept.collect();
        Schedule { betas, kept }
    }

    /// Its steps.
    pub fn steps(&self) -> usize {
        self.betas.len()
    }

    /// What is left of an event's variance after step k (from 1).
    pub fn kept(&self, k: usize) -> f64 {
        self.kept[k - 1]
    }

    /// The step back from k (Ho et al., arXiv:2006.11239, eqs. 7 and 15): `event = p x + q noise` with the
    /// noise that the network sees in x, and, the event clipped, `x = a x + b event + c z`.
    pub fn back(&self, k: usize) -> Back {
        let (beta, kept) = (self.betas[k - 1], self.kept(k));
        let before = if k == 1 { 1.0 } else { self.kept(k - 1) };
        let root = libm::sqrt(kept);
        Back {
            event: [1.0 / root, -libm::sqrt(1.0 - kept) / root],
            step: [
                libm::sqrt(1.0 - beta) * (1.0 - before) / (1.0 - kept),
                libm::sqrt(before) * beta / (1.0 - kept),
                libm::sqrt(beta * (1.0 - before) / (1.0 - kept)),
            ],
        }
    }
}

/// The factors of a step back.
pub struct Back {
    /// Of x and of the noise in it, in the event that they stand for.
    pub event: [f64; 2],
    /// Of x, of the clipped event and of new noise, in the next x.
    pub step: [f64; 3],
}

/// The smallest and the largest value of each of `width` columns.
pub fn bounds(array: &[f32], width: usize) -> [Vec<f32>; 2] {
    let column = |i: usize| array.iter().skip(i).step_by(width).copied();
    [
        (0..width)
            .map(|i| column(i).fold(f32::INFINITY, f32::min))
            .collect(),
        (0..width)
            .map(|i| column(i).fold(f32::NEG_INFINITY, f32::max))
            .collect(),
    ]
}

/// Events with noise at random times, and what a network is to say of them.
pub struct Noised {
    /// Embedded times, 32 a row.
    pub time: Vec<f32>,
    /// Totals between noise and event.
    pub total: [Vec<f32>; 2],
    /// Shares between noise and event; then the target.
    pub shares: [Vec<f32>; 2],
}

/// Noises a batch. Flow matching: x = (1 - t) z + t event, target event - z. DDPM: x = sqrt(kept) event +
/// sqrt(1 - kept) z, target z.
pub fn noised(kind: Kind, schedule: &Schedule, events: &Events, draws: &mut Draws) -> Noised {
    let n = events.total.len();
    let d = events.layers - 1;
    let mut out = Noised {
        time: Vec::with_capacity(n * TIME),
        total: [vec![], vec![]],
        shares: [vec![], vec![]],
    };
    for i in 0..n {
        let steps = schedule.steps();
        let (t, of_event, of_noise) = match kind {
            Kind::Ddpm => {
                let k = 1 + draws.noise.below(steps as u64) as usize;
                let kept = schedule.kept(k);
                let t = k as f64 / steps as f64;
                (t, libm::sqrt(kept), libm::sqrt(1.0 - kept))
            }
            _ => {
                let t = draws.noise.unit();
                (t, t, 1.0 - t)
            }
        };
        out.time.extend(embed(t));
        let mut one = |x: f32, to: &mut [Vec<f32>; 2]| {
            let (x, z) = (f64::from(x), draws.noise.normal());
            to[0].push((of_event * x + of_noise * z) as f32);
            let target = if kind == Kind::Ddpm { z } else { x - z };
            to[1].push(target as f32);
        };
        one(events.total[i], &mut out.total);
        for &x in &events.shares[i * d..][..d] {
            one(x, &mut out.shares);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_ends_in_noise_and_steps_back_to_the_event() {
        let s = Schedule::new(50);
        assert!(s.kept(50) < 1e-4 && s.kept(1) > 0.99);
        // With the true noise every step back stays on the way: x_k = sqrt(kept) x + sqrt(1 - kept) z.
        let (x, z) = (0.7, -1.3);
        let at = |k: usize| libm::sqrt(s.kept(k)) * x + libm::sqrt(1.0 - s.kept(k)) * z;
        for k in 1..=50 {
            let [p, q] = s.back(k).event;
            assert!((p * at(k) + q * z - x).abs() < 1e-12, "step {k}");
        }
        let [a, b, c] = s.back(1).step;
        assert!(a == 0.0 && (b - 1.0).abs() < 1e-12 && c == 0.0);
        // Mean and variance of x at step k - 1, given the event and x at step k drawn around it.
        for k in 2..=50 {
            let [a, b, c] = s.back(k).step;
            let mean = a * libm::sqrt(s.kept(k)) + b;
            assert!((mean - libm::sqrt(s.kept(k - 1))).abs() < 1e-12, "step {k}");
            let variance = a * a * (1.0 - s.kept(k)) + c * c;
            assert!((variance - (1.0 - s.kept(k - 1))).abs() < 1e-12, "step {k}");
        }
    }

    #[test]
    fn bounds_are_those_of_each_column() {
        let [low, high] = bounds(&[1.0, -2.0, 0.5, 7.0, 3.0, 0.0], 2);
        assert_eq!((low, high), (vec![0.5, -2.0], vec![3.0, 7.0]));
    }

    #[test]
    fn noise_is_a_function_of_the_seed() {
        let events = Events::load(3, Part::Train, 40, 5);
        let schedule = Schedule::new(30);
        for kind in [Kind::Flow, Kind::Ddpm] {
            let one = |seed| {
                let mut d = Draws::training(seed);
                let batch = d.batch(&events, 9);
                noised(kind, &schedule, &batch, &mut d).shares
            };
            assert_eq!(one(1), one(1));
            assert_ne!(one(1), one(2));
        }
    }
}
