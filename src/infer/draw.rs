//! From logits to a token. All of it is integers and pure-Rust f64 on the host, and the random number is
//! a function of seed and position alone: the same logits give the same token on every system.

use crate::kernels::rng::threefry;

/// Stream number of the draws, in the second word of the counter.
const STREAM: u32 = 0x2000_0000;

/// How tokens are drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drawing {
    /// Logits are divided by it; 0 takes the likeliest token, the first one of equals.
    pub temperature: f64,
    /// Only that many likeliest tokens are drawn from, the first ones of equals; `None`: all.
    pub top_k: Option<usize>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Draws the token number `position` of a text.
///
/// # Errors
/// A logit is not finite: its number.
pub fn draw(logits: &[f32], how: &Drawing, position: u32) -> Result<u32, usize> {
    if let Some(i) = logits.iter().position(|x| !x.is_finite()) {
        return Err(i);
    }
    // Descending by logit, ascending by token among equals.
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let larger_first = |a: &u32, b: &u32| {
        let (x, y) = (logits[*a as usize], logits[*b as usize]);
        y.partial_cmp(&x).expect("finite").then(a.cmp(b))
    };
    order.sort_by(larger_first);
    let best = order[0];
    if how.temperature == 0.0 {
        return Ok(best);
    }
    order.truncate(how.top_k.unwrap_or(usize::MAX).max(1));
    let top = logits[best as usize] as f64;
    let weight = |t: &u32| libm::exp((logits[*t as usize] as f64 - top) / how.temperature);
    let weights: Vec<f64> = order.iter().map(weight).collect();
    let mut rest = unit(how.seed, position) * weights.iter().sum::<f64>();
    for (&token, w) in order.iter().zip(&weights) {
        rest -= w;
        if rest < 0.0 {
            return Ok(token);
        }
    }
    // Rounding left a little: the last token that has any weight.
    let last = weights.iter().rposition(|&w| w > 0.0).unwrap_or(0);
    Ok(order[last])
}

/// Uniform in [0, 1), 53 bits.
fn unit(seed: u64, position: u32) -> f64 {
    let [a, b] = threefry([seed as u32, (seed >> 32) as u32], [position, STREAM]);
    (((a as u64) << 32 | b as u64) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(temperature: f64, top_k: Option<usize>, seed: u64) -> Drawing {
        Drawing {
            temperature,
            top_k,
            seed,
        }
    }

    #[test]
    fn ties_go_to_the_first() {
        let logits = [0.0, 2.0, -1.0, 2.0];
        for position in 0..50 {
            assert_eq!(draw(&logits, &how(0.0, None, 7), position), Ok(1));
            assert_eq!(draw(&logits, &how(5.0, Some(1), 7), position), Ok(1));
        }
        assert_eq!(
            draw(&[0.0, f32::NAN], &how(0.0, None, 7), 0),
            Err(1),
            "named, not drawn"
        );
    }

    #[test]
    fn frequencies_follow_the_weights() {
        let logits = [0.0, 3f32.ln(), -40.0, 6f32.ln()];
        let n = 20_000;
        let count = |how: Drawing| {
            let mut counts = [0usize; 4];
            for position in 0..n {
                counts[draw(&logits, &how, position).expect("finite") as usize] += 1;
            }
            counts.map(|c| c as f64 / n as f64)
        };
        let near = |a: [f64; 4], b: [f64; 4]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 0.012);
        let all = count(how(1.0, None, 1));
        assert!(near(all, [0.1, 0.3, 0.0, 0.6]), "{all:?}");
        let two = count(how(1.0, Some(2), 1));
        assert!(near(two, [0.0, 1.0 / 3.0, 0.0, 2.0 / 3.0]), "{two:?}");
        let hot = count(how(2.0, None, 2));
        let w = [1.0, 3f64.sqrt(), 0.0, 6f64.sqrt()];
        let sum: f64 = w.iter().sum();
        assert!(near(hot, w.map(|x| x / sum)), "{hot:?}");
    }

    #[test]
    fn a_draw_is_a_function_of_seed_and_position() {
        let logits = vec![0.0; 1000];
        let text = |seed| -> Vec<u32> {
            (0..40)
                .map(|p| draw(&logits, &how(1.0, None, seed), p).expect("finite"))
                .collect()
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
        assert_eq!(text(3)[..4], KNOWN);
    }

    /// Kept from the first version: a change of these changes every sampled text.
    const KNOWN: [u32; 4] = [137, 763, 229, 482];
}
