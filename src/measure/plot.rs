//! `gemm.svg`: throughput and error by type, side by side. Plain SVG text, no library.

use super::Row;
use super::table::figures;
use crate::report::plot::svg::escape;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const BAR: f64 = 26.0;
const TOP: f64 = 84.0;
/// Left ends and widths of the two fields of bars.
const FIELDS: [(f64, f64); 2] = [(150.0, 270.0), (590.0, 270.0)];
const NATIVE: &str = "#2b6cb0";
const EMULATED: &str = "#90b4d8";

/// The picture of some rows, which come from one device.
pub fn svg(rows: &[Row]) -> String {
    let height = TOP + BAR * rows.len() as f64 + 66.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    if let Some(r) = rows.first() {
        let title = format!(
            "{n} x {n} x {n} product on {d} ({b}, {g})",
            n = r.n,
            d = r.device,
            b = r.backend,
            g = r.grade
        );
        text(&mut out, WIDTH / 2.0, 26.0, "middle", 17.0, &title);
    }
    throughput(&mut out, rows);
    error(&mut out, rows);
    let y = height - 16.0;
    for (x, fill, what) in [
        (150.0, NATIVE, "native"),
        (
            240.0,
            EMULATED,
            "emulated: operands rounded, multiplied by the kernel named in the table",
        ),
    ] {
        rect(&mut out, x, y - 11.0, 12.0, 12.0, fill);
        text(&mut out, x + 18.0, y, "start", 12.0, what);
    }
    out.push_str("</svg>\n");
    out
}

fn throughput(out: &mut String, rows: &[Row]) {
    let (x, width) = FIELDS[0];
    text(
        out,
        x,
        TOP - 22.0,
        "start",
        14.0,
        "TFLOP a second (share of the measured ceiling)",
    );
    let most = rows
        .iter()
        .map(|r| r.tflops)
        .fold(f64::MIN_POSITIVE, f64::max);
    for (i, r) in rows.iter().enumerate() {
        let share = format!("{} ({:.0}%)", figures(r.tflops), 100.0 * r.ceiling_fraction);
        bar(
            out,
            i,
            FIELDS[0],
            r,
            r.tflops / most * (width - 90.0),
            &share,
        );
    }
}

/// On a logarithmic axis from the power of ten below the smallest error to that above the largest.
fn error(out: &mut String, rows: &[Row]) {
    let (x, width) = FIELDS[1];
    text(
        out,
        x,
        TOP - 22.0,
        "start",
        14.0,
        "error against f64, ‖C - C64‖ / ‖C64‖",
    );
    let logs: Vec<f64> = rows.iter().map(|r| r.error.max(1e-12).log10()).collect();
    let low = logs.iter().copied().fold(0.0, f64::min).floor() - 0.5;
    let high = logs.iter().copied().fold(low + 1.0, f64::max).ceil();
    let room = width - 70.0;
    let bottom = TOP + BAR * rows.len() as f64;
    for power in (low.ceil() as i32)..=(high as i32) {
        let at = x + (f64::from(power) - low) / (high - low) * room;
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>"
        );
        text(
            out,
            at,
            bottom + 16.0,
            "middle",
            11.0,
            &format!("1e{power}"),
        );
    }
    for (i, r) in rows.iter().enumerate() {
        let length = (logs[i] - low) / (high - low) * room;
        bar(out, i, FIELDS[1], r, length, &format!("{:.1e}", r.error));
    }
}

fn bar(out: &mut String, i: usize, (x, _): (f64, f64), r: &Row, length: f64, label: &str) {
    let y = TOP + BAR * i as f64;
    let fill = if r.emulated { EMULATED } else { NATIVE };
    let length = length.max(1.0);
    text(out, x - 8.0, y + 18.0, "end", 13.0, r.format.name());
    rect(out, x, y + 4.0, length, BAR - 8.0, fill);
    text(out, x + length + 6.0, y + 18.0, "start", 12.0, label);
}

fn rect(out: &mut String, x: f64, y: f64, width: f64, height: f64, fill: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, size: f64, what: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
        escape(what)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{Clock, Numerics};
    use crate::measure::format::Format;

    #[test]
    fn a_hostile_name_stays_text() {
        let row = Row {
            format: Format::Bf16,
            n: 64,
            ms: 1.0,
            clock: Clock::Host,
            tflops: 0.5,
            device: "<script>&\u{1b}".into(),
            backend: "vulkan".into(),
            path: "gemm".into(),
            grade: Numerics::Portable,
            emulated: true,
            ceiling_fraction: 0.25,
            error: 2.5e-3,
        };
        let text = svg(&[row]);
        assert!(text.contains("&lt;script&gt;&amp;\u{fffd}"));
        assert!(!text.contains("<script") && !text.contains('\u{1b}'));
        assert!(text.contains("0.5000 (25%)") && text.contains("2.5e-3"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert!(svg(&[]).ends_with("</svg>\n"));
    }
}
