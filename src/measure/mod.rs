//! What a matrix product costs and what it is worth in each number format: one product, the same random
//! operands, only the format changes.
//!
//! Speed never comes without accuracy: every row holds the error of the timed product against the f64
//! product of the unrounded operands. What a device cannot do is emulated and labelled so: operands are
//! rounded to the format beforehand, on the host, and multiplied in f32 (bf16: packed, unpacked by the
//! kernel). An emulated row's time is that of the kernel that did it, and says nothing of hardware for
//! the format; its error is the format's own, but for the order of the sums.
//!
//! Times are medians over single products, on the device's clock where it has one. Copies of the
//! operands take turns where they would fit a cache.

pub mod choices;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod format;
pub mod growth;
pub mod operands;
pub mod plans;
pub mod plot;
pub mod size;
pub mod steps;
pub mod table;

use crate::error::Error;
use crate::exec::{Clock, DeviceInfo, Numerics};
use format::Format;
use operands::{Operands, Rounded};
use size::{Load, Room};

/// One timed product.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Milliseconds.
    pub ms: f64,
    /// Whose.
    pub clock: Clock,
    /// Which code ran it.
    pub path: &'static str,
}

/// A device that multiplies square matrices.
pub trait Engine {
    /// What it is.
    fn info(&self) -> DeviceInfo;
    /// What fits.
    fn room(&self) -> &Room;
    /// The grade of a kernel's products.
    fn grade(&self, format: Format, kernel: usize) -> Numerics;
    /// Whether a kernel emulates its format.
    fn emulated(&self, format: Format, kernel: usize) -> bool;
    /// The format that operands are rounded to before they are given to [`Engine::prepare`]: another one
    /// where the device itself rounds them.
    fn given(&self, format: Format) -> Format {
        format
    }
    /// How many kernels there are for a format; a row of the table each.
    fn kernels(&self, format: Format) -> usize;
    /// TFLOP a second that the device's multiply-adds for a kernel of a format reach in registers, measured
    /// now.
    ///
    /// # Errors
    /// The device failed.
    fn ceiling(&mut self, format: Format, kernel: usize) -> Result<f64, Error>;
    /// Whether two kernels of formats run on the same units, so that their ceiling is one.
    fn same_ceiling(&self, _: (Format, usize), _: (Format, usize)) -> bool {
        true
    }
    /// Takes operands of extent `n` for one of a format's kernels.
    ///
    /// # Errors
    /// They do not fit, or the device failed.
    fn prepare(
        &mut self,
        n: usize,
        format: Format,
        kernel: usize,
        a: &Rounded,
        b: &Rounded,
    ) -> Result<(), Error>;
    /// Multiplies what was prepared; `i` counts the products.
    ///
    /// # Errors
    /// The device failed.
    fn once(&mut self, i: usize) -> Result<Timed, Error>;
    /// What the column `path` says, given what [`Engine::once`] told of itself.
    fn path(&self, format: Format, kernel: usize, ran: &str) -> String;
    /// The last product, row-major, without the operands' scales.
    ///
    /// # Errors
    /// The device failed.
    fn product(&mut self) -> Result<Vec<f32>, Error>;
}

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Order {
    /// Extent of the square matrices.
    pub n: usize,
    /// Formats, in this order.
    pub formats: Vec<Format>,
    /// Products before the clock counts.
    pub warmup: usize,
    /// Products that count.
    pub steps: usize,
}

/// One row of the table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The format.
    pub format: Format,
    /// Extent of the matrices.
    pub n: usize,
    /// Median milliseconds of a product.
    pub ms: f64,
    /// Whose clock.
    pub clock: Clock,
    /// 2 n^3 operations in that time, in 10^12 a second.
    pub tflops: f64,
    /// The device's own name.
    pub device: String,
    /// Its backend.
    pub backend: String,
    /// The kernel.
    pub path: String,
    /// What is promised of the bits.
    pub grade: Numerics,
    /// Whether the format is emulated.
    pub emulated: bool,
    /// `tflops` over [`Engine::ceiling`].
    pub ceiling_fraction: f64,
    /// ‖C - C64‖ / ‖C64‖ on sampled rows.
    pub error: f64,
}

/// Whoever looks on.
pub trait Watch {
    /// What is done now, in a few words.
    fn doing(&mut self, what: &str);
    /// Products done so far, of all.
    fn products(&mut self, format: Format, done: usize, of: usize);
    /// A row is there.
    fn row(&mut self, row: &Row);
    /// Whether to stop.
    fn stopped(&self) -> bool;
}

/// The middle of some times; of an even number, the mean of the middle two.
pub fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    match x.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => x[n / 2],
        n => (x[n / 2 - 1] + x[n / 2]) / 2.0,
    }
}

/// Operations a millisecond of fp32 products: timed at growing sizes, while that takes no time to speak
/// of.
///
/// # Errors
/// The device failed.
pub fn rate(engine: &mut dyn Engine, formats: &[Format]) -> Result<f64, Error> {
    let mut load: Option<Load> = None;
    for n in [256, 512, 1024, 2048] {
        let quick = load.is_none_or(|l| l.ms(n) < 100.0);
        if !quick || engine.room().fits(n, formats).is_err() {
            break;
        }
        let values = [0, 1].map(|s| operands::normal(n * n, s));
        let [a, b] = values.map(|values| Rounded { values, scale: 1.0 });
        engine.prepare(n, Format::Fp32, 0, &a, &b)?;
        let times: Result<Vec<f64>, Error> = (0..5).map(|i| engine.once(i).map(|t| t.ms)).collect();
        let rate = 2.0 * (n as f64).powi(3) / median(times?[2..].to_vec());
        load = Some(Load { products: 1, rate });
    }
    // Without a measurement: slow enough for the smallest size.
    Ok(load.map_or(1.0, |l| l.rate))
}

/// Measures every format; returns the rows, fewer if it was stopped. Each goes to the watch as soon as it
/// is there.
///
/// # Errors
/// The device failed.
pub fn measure(
    engine: &mut dyn Engine,
    order: &Order,
    watch: &mut dyn Watch,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let each = order.warmup + order.steps;
    let kernels = |f: &Format| engine.kernels(*f);
    let all: usize = each * order.formats.iter().map(kernels).sum::<usize>();
    watch.doing("drawing operands");
    let operands = Operands::draw(order.n);
    let mut ceilings: Vec<((Format, usize), f64)> = Vec::new();
    for &format in &order.formats {
        watch.doing("rounding operands");
        let (a, b) = (
            Rounded::new(engine.given(format), &operands.a),
            Rounded::new(engine.given(format), &operands.b),
        );
        for kernel in 0..engine.kernels(format) {
            if watch.stopped() {
                return Ok(rows);
            }
            let this = (format, kernel);
            let ceiling = match ceilings.iter().find(|c| engine.same_ceiling(c.0, this)) {
                Some(c) => c.1,
                None => {
                    watch.doing("measuring the ceiling");
                    let ceiling = engine.ceiling(format, kernel)?;
                    ceilings.push((this, ceiling));
                    ceiling
                }
            };
            watch.doing("loading operands");
            engine.prepare(order.n, format, kernel, &a, &b)?;
            let mut times = Vec::with_capacity(order.steps);
            let mut last = None;
            for i in 0..each {
                if watch.stopped() {
                    return Ok(rows);
                }
                let t = engine.once(i)?;
                if i >= order.warmup {
                    times.push(t.ms);
                    last = Some(t);
                }
                watch.products(format, rows.len() * each + i + 1, all);
            }
            let Some(last) = last else { break };
            watch.doing("comparing with the f64 product");
            let scale = f64::from(a.scale) * f64::from(b.scale);
            let error = operands.error(&engine.product()?, scale);
            let ms = median(times);
            let tflops = 2.0 * (order.n as f64).powi(3) / ms / 1e9;
            let info = engine.info();
            let row = Row {
                format,
                n: order.n,
                ms,
                clock: last.clock,
                tflops,
                device: info.name,
                backend: info.backend,
                path: engine.path(format, kernel, last.path),
                grade: engine.grade(format, kernel),
                emulated: engine.emulated(format, kernel),
                ceiling_fraction: tflops / ceiling,
                error,
            };
            watch.row(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}
