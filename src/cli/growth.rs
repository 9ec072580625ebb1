//! `isobit bench --growth`: how the time of a training step grows with the model.

use super::device::Device;
use super::terminal::{clear, interrupted};
use crate::config::{Scheme, Settings};
use crate::error::Error;
use crate::exec::Numerics;
use crate::measure::growth::{BY_FLOPS, BY_KINDS, Fit, Point, SMALL_MS, measure, sizes};
use crate::report::files;
use indicatif::ProgressBar;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// What is measured.
pub struct Growth<'a> {
    /// Where.
    pub device: &'a Device,
    /// In which grade.
    pub numerics: Numerics,
    /// The size in the middle.
    pub s: &'a Settings,
    /// Steps of each size that count.
    pub rounds: usize,
}

impl Growth<'_> {
    /// Measures each scheme, prints it, and writes it to the file that `file` names. Returns whether it
    /// came to its end.
    ///
    /// # Errors
    /// The device failed, or a file cannot be written.
    pub fn go(&self, schemes: &[Scheme], file: &dyn Fn(Scheme) -> PathBuf) -> Result<bool, Error> {
        for &scheme in schemes {
            let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(1));
            let mut going = |done: usize, of: usize| {
                if let Some(bar) = &bar {
                    bar.set_length(of as u64);
                    bar.set_position(done as u64);
                    bar.tick();
                }
                !interrupted()
            };
            let open = || self.device.open(self.numerics);
            let points = measure(sizes(self.s), scheme, self.rounds, &open, &mut going);
            clear(bar.as_ref());
            let Some(points) = points? else {
                println!("stopped; the schemes done by then are in the files");
                return Ok(false);
            };
            let fits = [Fit::of(&points, BY_FLOPS), Fit::of(&points, BY_KINDS)];
            self.show(scheme, &points, &fits);
            write(&file(scheme), &points, &fits)?;
        }
        Ok(true)
    }

    fn show(&self, scheme: Scheme, points: &[Point], [flops, kinds]: &[Fit; 2]) {
        println!(
            "\ngrowth around {}, {}: medians of {} steps, all sizes in turn",
            self.s.name,
            scheme.name(),
            self.rounds
        );
        println!(
            "{:<7} {:>6} {:>6} {:>6} {:>6} {:>9} {:>9} {:>9} {:>8} {:>9} {:>8}",
            "axis",
            "layers",
            "width",
            "block",
            "batch",
            "GFLOP",
            "ms",
            "by FLOP",
            "off",
            "by kind",
            "off"
        );
        for p in points {
            let [layers, width, block, batch] = p.extents;
            println!(
                "{:<7} {layers:>6} {width:>6} {block:>6} {batch:>6} {:>9.3} {:>9.2} {:>9.2} {:>7.1}% {:>9.2} {:>7.1}%",
                p.axis,
                p.flops / 1e9,
                p.ms,
                flops.ms(p),
                100.0 * flops.residual(p),
                kinds.ms(p),
                100.0 * kinds.residual(p)
            );
        }
        for (name, fit) in [("by FLOP", flops), ("by kind", kinds)] {
            println!("{name}: {}", fit.text());
            println!("  {}", verdict(fit, points));
        }
    }
}

/// How well a fit does past small sizes.
fn verdict(fit: &Fit, points: &[Point]) -> String {
    let large = points.iter().filter(|p| p.ms >= SMALL_MS);
    let worst = large.max_by(|a, b| {
        let off = |p: &Point| fit.residual(p).abs();
        off(a).total_cmp(&off(b))
    });
    let Some(worst) = worst else {
        return format!("all steps take less than {SMALL_MS} ms: take a larger preset");
    };
    let [layers, width, block, batch] = worst.extents;
    format!(
        "steps of {SMALL_MS} ms and more are within {:.1}% of it; the farthest: {layers} layers, width {width}, block {block}, batch {batch}",
        100.0 * fit.residual(worst).abs()
    )
}

fn write(path: &Path, points: &[Point], [flops, kinds]: &[Fit; 2]) -> Result<(), Error> {
    let header = [
        "axis",
        "n_layer",
        "n_embd",
        "block",
        "batch",
        "flop",
        "flop_products",
        "flop_attention",
        "bytes",
        "ms",
        "fit_flop_ms",
        "fit_kinds_ms",
    ];
    let rows = points.iter().map(|p| {
        let mut row = vec![p.axis.to_string()];
        row.extend(p.extents.iter().map(usize::to_string));
        let counts = [p.flops, p.products, p.attention, p.bytes];
        row.extend(counts.iter().map(|x| format!("{x:.0}")));
        let times = [p.ms, flops.ms(p), kinds.ms(p)];
        row.extend(times.iter().map(|x| format!("{x:.4}")));
        row
    });
    files::write_atomic(path, &files::csv_bytes(header, rows)?)
}
