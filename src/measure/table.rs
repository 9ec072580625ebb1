//! The table of a measurement: `gemm.csv`, and lines for people.

use super::Row;
use crate::error::Error;
use crate::report::files::csv_bytes;

/// The columns of `gemm.csv`. The first three are those of the script that this program answers to.
pub const COLUMNS: [&str; 10] = [
    "dtype",
    "ms",
    "tflops",
    "device",
    "backend",
    "path",
    "grade",
    "emulation",
    "ceiling_fraction",
    "error",
];

fn emulation(r: &Row) -> &'static str {
    if r.emulated { "emulated" } else { "native" }
}

/// The file's bytes.
///
/// # Errors
/// A fault of the program itself.
pub fn csv(rows: &[Row]) -> Result<Vec<u8>, Error> {
    let row = |r: &Row| {
        [
            r.format.name().to_string(),
            format!("{:.4}", r.ms),
            figures(r.tflops),
            r.device.clone(),
            r.backend.clone(),
            r.path.clone(),
            r.grade.name().to_string(),
            emulation(r).to_string(),
            format!("{:.4}", r.ceiling_fraction),
            format!("{:.4e}", r.error),
        ]
    };
    csv_bytes(COLUMNS, rows.iter().map(row))
}

/// Four significant figures, without an exponent.
pub fn figures(x: f64) -> String {
    let digits = 3 - x.abs().max(1e-9).log10().floor() as i32;
    format!("{x:.*}", digits.clamp(0, 9) as usize)
}

/// The head of [`line`].
pub fn head() -> String {
    format!(
        "{:<9} {:>10} {:>9} {:>11} {:>9}  {:<8} {:<8} kernel",
        "dtype", "ms", "TFLOP/s", "of ceiling", "error", "grade", "done as"
    )
}

/// A row for the terminal.
pub fn line(r: &Row) -> String {
    format!(
        "{:<9} {:>10.3} {:>9} {:>10.1}% {:>9.2e}  {:<8} {:<8} {}",
        r.format.name(),
        r.ms,
        figures(r.tflops),
        100.0 * r.ceiling_fraction,
        r.error,
        r.grade.name(),
        emulation(r),
        r.path
    )
}

#[cfg(test)]
mod tests {
    use super::figures;

    #[test]
    fn four_figures() {
        let texts = [0.012_345_6, 1.0, 98.765, 989.44, 12345.6].map(figures);
        assert_eq!(texts, ["0.01235", "1.000", "98.77", "989.4", "12346"]);
        assert_eq!(figures(0.0), "0.000000000");
    }
}
