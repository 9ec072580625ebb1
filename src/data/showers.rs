//! Synthetic calorimeter showers: a documented parametric model with known distributions, so that what a
//! generator learnt can be measured. Event `i` is a function of seed and `i` alone.
//!
//! A particle of energy E (log-uniform in 10 to 100 GeV) enters at an angle (uniform in 0 to 60 degrees)
//! into layers of [`THICKNESS`] radiation lengths. The mean longitudinal profile is Longo and Sestili's
//! gamma distribution (Nucl. Instr. Meth. 128 (1975) 283; Review of Particle Physics, "Passage of
//! particles through matter", eq. 34.36):
//!
//! ```text
//! dE/dt = E b (b t)^(a-1) exp(-b t) / Gamma(a),   a = 1 + b t_max,   t_max = ln(E / 10 MeV) - 0.5
//! ```
//!
//! * the shape fluctuates from event to event: t_max by 0.4 radiation lengths (normal), b = 0.5 by 10%
//!   (log-normal);
//! * the angle tilts the axis: a layer is 1/cos(angle) times as thick along it;
//! * what passes the last layer is lost, so that the sum of the layers varies too;
//! * sampling: a layer sees a Poisson number of quanta, [`QUANTA`] for each GeV, spread over the width of
//!   a quantum: energies are positive and have the 10% / sqrt(E) of a sampling calorimeter.

use crate::kernels::rng::{Stream, threefry};

/// Radiation lengths of a layer at normal incidence.
pub const THICKNESS: f64 = 3.0;
/// Sampled quanta for each GeV.
pub const QUANTA: f64 = 100.0;
/// Range of the energies, GeV.
pub const ENERGIES: [f64; 2] = [10.0, 100.0];
/// Largest angle, degrees.
pub const STEEPEST: f64 = 60.0;

/// Number under which the events of a seed get a key of their own.
const EVENTS: u32 = 0x3000_0000;

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub struct Shower {
    /// Energy of the particle, GeV.
    pub energy: f64,
    /// Angle to the normal, degrees.
    pub angle: f64,
    /// Energy in each layer, GeV; positive.
    pub layers: Vec<f64>,
}

/// Which events of a seed: training, validation and reference events never meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// To train on.
    Train = 0,
    /// For the validation loss.
    Validation = 1,
    /// The known distribution that generated events are compared with.
    Reference = 2,
}

/// The first `n` events of a part, with so many layers.
pub fn showers(seed: u64, part: Part, n: usize, layers: usize) -> Vec<Shower> {
    let key = threefry([seed as u32, (seed >> 32) as u32], [part as u32, EVENTS]);
    let key = u64::from(key[1]) << 32 | u64::from(key[0]);
    let one = |i: usize| shower(&mut Stream::new(key, i as u32), layers);
    (0..n).map(one).collect()
}

fn shower(s: &mut Stream, layers: usize) -> Shower {
    let [low, high] = ENERGIES.map(libm::log);
    let energy = libm::exp(low + (high - low) * s.unit());
    let angle = STEEPEST * s.unit();
    let t_max = libm::log(energy / 0.01) - 0.5 + 0.4 * s.normal();
    let b = 0.5 * libm::exp(0.1 * s.normal());
    let a = 1.0 + b * t_max;
    let along = THICKNESS / libm::cos(angle.to_radians());
    let mut before = 0.0;
    let mut layer = |i: usize| {
        let upto = gamma_p(a, b * along * (i + 1) as f64);
        let mean = energy * (upto - before);
        before = upto;
        (poisson(s, mean * QUANTA) + s.unit()) / QUANTA
    };
    Shower {
        energy,
        angle,
        layers: (0..layers).map(&mut layer).collect(),
    }
}

/// A Poisson deviate: Knuth's product of uniforms below a mean of 30, above it the normal approximation,
/// rounded.
fn poisson(s: &mut Stream, mean: f64) -> f64 {
    if mean >= 30.0 {
        let x = mean + libm::sqrt(mean) * s.normal();
        return libm::round(x).max(0.0);
    }
    let end = libm::exp(-mean);
    let (mut n, mut product) = (0.0, s.unit());
    while product > end {
        n += 1.0;
        product *= s.unit();
    }
    n
}

/// The regularised lower incomplete gamma function P(a, x): its series below a + 1, Lentz's continued
/// fraction of 1 - P above (Abramowitz and Stegun 6.5.29, 6.5.31).
fn gamma_p(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let scale = libm::exp(a * libm::log(x) - x - libm::lgamma(a));
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return sum * scale;
    }
    let mut b = x + 1.0 - a;
    let mut c = 1e300;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..500 {
        let an = -(i as f64) * (i as f64 - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    1.0 - scale * h
}

/// The Wasserstein-1 distance of two samples of equal size: the mean distance of their order statistics.
pub fn wasserstein(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "samples of equal size");
    let sorted = |x: &[f64]| {
        let mut x = x.to_vec();
        x.sort_by(f64::total_cmp);
        x
    };
    let pairs = sorted(a).into_iter().zip(sorted(b));
    pairs.map(|(x, y)| (x - y).abs()).sum::<f64>() / a.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incomplete_gamma_function_has_its_known_values() {
        // P(1, x) = 1 - exp(-x); P(1/2, x) = erf(sqrt(x)); both branches.
        for x in [0.1, 0.9, 1.9, 2.1, 7.0, 30.0] {
            assert!((gamma_p(1.0, x) - (1.0 - libm::exp(-x))).abs() < 1e-14);
            assert!((gamma_p(0.5, x) - libm::erf(libm::sqrt(x))).abs() < 1e-13);
        }
        assert_eq!(gamma_p(3.0, 0.0), 0.0);
    }

    #[test]
    fn an_event_is_a_function_of_seed_and_number() {
        let few = showers(7, Part::Train, 3, 8);
        let many = showers(7, Part::Train, 50, 8);
        assert_eq!(few, many[..3]);
        assert_ne!(few, showers(8, Part::Train, 3, 8));
        assert_ne!(few, showers(7, Part::Reference, 3, 8));
    }

    #[test]
    fn the_mean_is_that_of_the_profile_and_the_noise_that_of_sampling() {
        let events = showers(1, Part::Train, 4000, 8);
        assert!(events.iter().all(|e| e.layers.iter().all(|&x| x > 0.0)));
        let share = |e: &Shower| e.layers.iter().sum::<f64>() / e.energy;
        let mean = events.iter().map(share).sum::<f64>() / 4000.0;
        assert!(mean > 0.9 && mean < 1.02, "mean response {mean}");
        // Poisson: variance equal to the mean, below and above the change of method.
        for wanted in [3.0, 80.0] {
            let mut s = Stream::new(5, 5);
            let x: Vec<f64> = (0..20000).map(|_| poisson(&mut s, wanted)).collect();
            let mean = x.iter().sum::<f64>() / 20000.0;
            let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 20000.0;
            assert!((mean - wanted).abs() < 0.02 * wanted, "{mean}");
            assert!((var - wanted).abs() < 0.05 * wanted, "{var}");
        }
    }

    #[test]
    fn the_distance_of_samples() {
        assert_eq!(wasserstein(&[1.0, 2.0, 3.0], &[3.0, 1.0, 2.0]), 0.0);
        assert_eq!(wasserstein(&[0.0, 1.0], &[2.0, 1.5]), 1.25);
    }
}
