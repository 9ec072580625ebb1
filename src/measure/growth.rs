//! How the time of a training step grows: against width, depth, block and batch, beside the operations and
//! bytes that its plan counts.
//!
//! All sizes take their steps in turn, round by round, so that a machine that slows down slows all of them.

use super::median;
use crate::config::{Scheme, Settings};
use crate::data::batches::{Batches, gather};
use crate::error::Error;
use crate::exec::Executor;
use crate::exec::cpu::free_memory;
use crate::plan::account::{step_bytes, step_flops};
use crate::train::run::Data;
use crate::train::session::{Programs, Session, check_memory};
use std::time::Instant;

/// Steps of a size before the clock counts.
const WARMUP: usize = 2;
/// A step that takes less is small: what a launch costs and what fits the caches decide then.
pub const SMALL_MS: f64 = 10.0;

/// One size of a sweep.
pub struct Size {
    /// What differs from the middle: `width`, `depth`, `block`, `batch`, or nothing.
    pub axis: &'static str,
    /// The settings.
    pub s: Settings,
}

/// Changes an extent by a factor (times, by), where that gives a whole number.
type Change<'a> = &'a dyn Fn(&mut Settings, (usize, usize)) -> Option<()>;

/// The sizes: the settings, and each extent at a quarter, a half, twice and four times, where that is a
/// whole number. Heads keep their width.
pub fn sizes(middle: &Settings) -> Vec<Size> {
    let head = middle.n_embd / middle.n_head;
    let scaled = |n: usize, (times, by): (usize, usize), unit: usize| {
        let n = n * times;
        (n.is_multiple_of(by * unit)).then(|| n / by)
    };
    let mut out = vec![Size {
        axis: "middle",
        s: middle.clone(),
    }];
    let mut add = |axis, change: Change| {
        for factor in [(1, 4), (1, 2), (2, 1), (4, 1)] {
            let mut s = middle.clone();
            if change(&mut s, factor).is_some() && s.validate().is_ok() {
                out.push(Size { axis, s });
            }
        }
    };
    add("width", &|s, f| {
        s.n_embd = scaled(s.n_embd, f, head)?;
        s.n_head = s.n_embd / head;
        Some(())
    });
    add("depth", &|s, f| {
        s.n_layer = scaled(s.n_layer, f, 1)?;
        Some(())
    });
    add("block", &|s, f| {
        s.block = scaled(s.block, f, 8)?;
        Some(())
    });
    add("batch", &|s, f| {
        s.batch = scaled(s.batch, f, 1)?;
        Some(())
    });
    out
}

/// A size and what its step took.
#[derive(Clone, Debug)]
pub struct Point {
    /// What differs from the middle.
    pub axis: &'static str,
    /// Layers, width, block, batch.
    pub extents: [usize; 4],
    /// Operations of matrix products.
    pub products: f64,
    /// Operations of attention.
    pub attention: f64,
    /// All operations, as [`step_flops`] counts them.
    pub flops: f64,
    /// Bytes of all buffers that launches read or write.
    pub bytes: f64,
    /// Median milliseconds of a step.
    pub ms: f64,
}

/// A size on its way.
struct Running {
    point: Point,
    s: Settings,
    data: Data,
    batches: Batches,
    session: Session,
    times: Vec<f64>,
}

impl Running {
    fn start(size: Size, scheme: Scheme, exec: Box<dyn Executor>) -> Result<Running, Error> {
        let (axis, s) = (size.axis, size.s);
        let data = Data::load(&s)?;
        let model = s.model(data.text.vocab.len());
        check_memory(&model, s.batch, free_memory())?;
        let programs = Programs::compile(&model, &s, scheme, false)?;
        let plan = programs.train();
        let of = |kernels: &[&str]| -> f64 {
            let wanted = |k: &&str| kernels.is_empty() || kernels.contains(k);
            let steps = plan.steps.iter().filter(|x| wanted(&x.kernel.name));
            steps.map(|x| step_flops(plan, x) as f64).sum()
        };
        let point = Point {
            axis,
            extents: [s.n_layer, s.n_embd, s.block, s.batch],
            products: of(&["gemm", "gemm_tree"]),
            attention: of(&["attention", "attention_grad"]),
            flops: of(&[]),
            bytes: plan.steps.iter().map(|x| step_bytes(plan, x) as f64).sum(),
            ms: f64::NAN,
        };
        Ok(Running {
            point,
            batches: data.batches(&s),
            session: Session::new(exec, model, &programs, &model.initial(s.seed))?,
            times: vec![],
            data,
            s,
        })
    }

    /// Milliseconds of the next step, reading of the loss included.
    fn step(&mut self, t: usize) -> Result<f64, Error> {
        let offsets = self.batches.next_offsets();
        let batch = [gather(&self.data.text.train, &offsets, self.s.block)];
        let start = Instant::now();
        self.session
            .step(&self.s, &batch, self.s.min_lr, t as u64, false, false)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

/// Measures the sizes in `rounds` rounds; none where `going`, told of each step done and of all, says stop.
///
/// # Errors
/// A size that does not fit, or a device that fails.
pub fn measure(
    sizes: Vec<Size>,
    scheme: Scheme,
    rounds: usize,
    open: &dyn Fn() -> Result<Box<dyn Executor>, Error>,
    going: &mut dyn FnMut(usize, usize) -> bool,
) -> Result<Option<Vec<Point>>, Error> {
    let all = sizes.len() * (WARMUP + rounds);
    let mut running = Vec::with_capacity(sizes.len());
    for size in sizes {
        if !going(0, all) {
            return Ok(None);
        }
        running.push(Running::start(size, scheme, open()?)?);
    }
    let mut done = 0;
    for round in 0..WARMUP + rounds {
        for r in &mut running {
            let ms = r.step(round + 1)?;
            if round >= WARMUP {
                r.times.push(ms);
            }
            done += 1;
            if !going(done, all) {
                return Ok(None);
            }
        }
    }
    let point = |r: Running| Point {
        ms: median(r.times),
        ..r.point
    };
    Ok(Some(running.into_iter().map(point).collect()))
}

/// What a step's time is fitted with: its name, and the amount at a size.
pub type Term = (&'static str, fn(&Point) -> f64);

/// A fixed time and all operations: the FLOP model.
pub const BY_FLOPS: &[Term] = &[("ms", |_| 1.0), ("ms a GFLOP", |p| p.flops / 1e9)];

/// A fixed time, and apart what runs at rates of its own.
pub const BY_KINDS: &[Term] = &[
    ("ms", |_| 1.0),
    ("ms a GFLOP of products", |p| p.products / 1e9),
    ("ms a GFLOP of attention", |p| p.attention / 1e9),
    ("ms a GB moved", |p| p.bytes / 1e9),
];

/// A fitted model.
#[derive(Clone, Debug)]
pub struct Fit {
    terms: &'static [Term],
    /// One for each term; none is negative.
    pub factors: Vec<f64>,
}

impl Fit {
    /// Fits the points whose steps are not small, or all where fewer than twice the terms are left: least
    /// squares of the relative residuals. A term that would have a negative factor is left out.
    pub fn of(points: &[Point], terms: &'static [Term]) -> Fit {
        let large: Vec<&Point> = points.iter().filter(|p| p.ms >= SMALL_MS).collect();
        let used = match large.len() >= 2 * terms.len() {
            true => large,
            false => points.iter().collect(),
        };
        let mut kept: Vec<usize> = (0..terms.len()).collect();
        loop {
            let amount = |p: &Point, i: usize| terms[kept[i]].1(p) / p.ms;
            let found = least_squares(&used, kept.len(), &amount);
            let negative = (0..kept.len()).filter(|&i| found[i] < 0.0);
            match negative.min_by(|&a, &b| found[a].total_cmp(&found[b])) {
                Some(i) => {
                    kept.remove(i);
                }
                None => {
                    let mut factors = vec![0.0; terms.len()];
                    kept.iter().zip(found).for_each(|(&k, f)| factors[k] = f);
                    return Fit { terms, factors };
                }
            }
        }
    }

    /// Milliseconds that it gives a size.
    pub fn ms(&self, p: &Point) -> f64 {
        let terms = self.terms.iter().zip(&self.factors);
        terms.map(|((_, amount), f)| amount(p) * f).sum()
    }

    /// How far a measured time is from it, as a share of the measured time.
    pub fn residual(&self, p: &Point) -> f64 {
        (p.ms - self.ms(p)) / p.ms
    }

    /// It, in words.
    pub fn text(&self) -> String {
        let terms = self.terms.iter().zip(&self.factors);
        let used = terms.filter(|(_, f)| **f > 0.0);
        let each: Vec<String> = used
            .map(|((name, _), f)| format!("{f:.3} {name}"))
            .collect();
        each.join(" + ")
    }
}

/// The x that minimise the sum over points of (sum of amount x - 1)^2, by the normal equations.
fn least_squares(points: &[&Point], n: usize, amount: &dyn Fn(&Point, usize) -> f64) -> Vec<f64> {
    let mut rows: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let product = |j: usize| points.iter().map(|p| amount(p, i) * amount(p, j)).sum();
            let mut row: Vec<f64> = (0..n).map(product).collect();
            row.push(points.iter().map(|p| amount(p, i)).sum());
            row
        })
        .collect();
    // The matrix is symmetric and has no negative eigenvalue: its diagonal is pivot enough. A term that is
    // never there, or that others make up, leaves nothing of its own pivot, and gets nothing.
    let least: Vec<f64> = (0..n).map(|i| 1e-12 * rows[i][i]).collect();
    for i in 0..n {
        if rows[i][i] <= least[i] {
            rows[i].fill(0.0);
            continue;
        }
        let row = rows[i].clone();
        for j in (0..n).filter(|&j| j != i) {
            let factor = rows[j][i] / row[i];
            rows[j]
                .iter_mut()
                .zip(&row)
                .for_each(|(x, y)| *x -= factor * y);
        }
    }
    let solved = |i: usize| match rows[i][i] {
        0.0 => 0.0,
        p => rows[i][n] / p,
    };
    (0..n).map(solved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Preset;

    fn point(products: f64, bytes: f64, ms: f64) -> Point {
        Point {
            axis: "width",
            extents: [1, 1, 1, 1],
            products,
            attention: 0.0,
            flops: products,
            bytes,
            ms,
        }
    }

    #[test]
    fn a_fit_finds_what_made_the_times() {
        let points: Vec<Point> = (1..12)
            .map(|i| {
                let (f, b) = (i as f64 * 1e9, (i % 4) as f64 * 1e9);
                point(f, b, 30.0 + 7.0 * f / 1e9 + 2.0 * b / 1e9)
            })
            .collect();
        let fit = Fit::of(&points, BY_KINDS);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(
            near(fit.factors[0], 30.0) && near(fit.factors[1], 7.0),
            "{fit:?}"
        );
        assert!(
            near(fit.factors[2], 0.0) && near(fit.factors[3], 2.0),
            "{fit:?}"
        );
        assert!(points.iter().all(|p| near(fit.residual(p), 0.0)));
        // One term less does not explain them all.
        let fit = Fit::of(&points, BY_FLOPS);
        assert!(points.iter().any(|p| fit.residual(p).abs() > 1e-3));
        // Time that falls with work has no negative rate.
        let falling: Vec<Point> = (1..8)
            .map(|i| point(i as f64 * 1e9, 0.0, 100.0 / i as f64))
            .collect();
        let fit = Fit::of(&falling, BY_FLOPS);
        assert!(fit.factors.iter().all(|f| *f >= 0.0), "{fit:?}");
    }

    #[test]
    fn sizes_change_one_extent_each() {
        let middle = Settings::preset(Preset::Small);
        let all = sizes(&middle);
        assert!(all.len() > 12, "{}", all.len());
        for size in &all[1..] {
            let s = &size.s;
            let differ = [
                s.n_embd != middle.n_embd,
                s.n_layer != middle.n_layer,
                s.block != middle.block,
                s.batch != middle.batch,
            ];
            assert_eq!(differ.iter().filter(|d| **d).count(), 1, "{}", size.axis);
            assert_eq!(s.n_embd / s.n_head, middle.n_embd / middle.n_head);
        }
    }
}
