//! The tables of the full ledger: rows as text, as they stand in the files and in checkpoints.

use super::files::write_atomic;
use crate::error::Error;
use std::path::Path;

/// Stands for all tensors together in the column `tensor`.
pub const WHOLE: &str = "*";

/// Longest field of a row.
const LONGEST: usize = 200;

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sheet {
    /// What an update did to each tensor.
    Updates,
    /// Sizes of updates in units of the last place.
    UpdateUlps,
    /// What other ways of storing would have made of it.
    Counterfactual,
    /// What the values of every operation look like to narrower types.
    Ranges,
    /// Which loss scale would suit the gradients.
    LossScale,
}

/// All of them, in the order in which a checkpoint holds them.
pub const SHEETS: [Sheet; 5] = [
    Sheet::Updates,
    Sheet::UpdateUlps,
    Sheet::Counterfactual,
    Sheet::Ranges,
    Sheet::LossScale,
];

impl Sheet {
    /// What its file's name begins with.
    pub fn name(self) -> &'static str {
        match self {
            Sheet::Updates => "updates",
            Sheet::UpdateUlps => "update_ulps",
            Sheet::Counterfactual => "counterfactual",
            Sheet::Ranges => "ranges",
            Sheet::LossScale => "loss_scale",
        }
    }

    /// Its columns. The first is the step.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Sheet::Updates => &[
                "step",
                "tensor",
                "elements",
                "swallow_frac",
                "zero_frac",
                "below_half_ulp_frac",
                "rounded_away_frac",
                "swallowed_norm_share",
                "update_to_weight",
                "still_frac",
                "unmoved_frac",
                "still_steps_median",
                "cosine",
            ],
            Sheet::UpdateUlps => &["step", "tensor", "log2_ulps_lo", "count"],
            Sheet::Counterfactual => &[
                "step",
                "tensor",
                "stored_as",
                "swallow_frac",
                "cosine",
                "norm_ratio",
            ],
            Sheet::Ranges => &[
                "step",
                "pass",
                "place",
                "op",
                "tensor",
                "type",
                "elements",
                "zero_frac",
                "below_fp16_normal_frac",
                "below_fp16_least_frac",
                "above_fp16_frac",
                "below_floor_frac",
                "nonfinite_frac",
                "max_abs",
                "bf16_snr_db",
                "fp16_snr_db",
                "fp8_e4m3_snr_db",
                "bf16_bits",
                "fp16_bits",
            ],
            Sheet::LossScale => &[
                "step",
                "loss_scale",
                "largest",
                "op",
                "place",
                "tensor",
                "lost_unscaled_frac",
                "lost_frac",
                "lost_recommended_frac",
                "recommended_scale",
            ],
        }
    }
}

/// The rows of all tables of one scheme's run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sheets {
    rows: [String; SHEETS.len()],
}

impl Sheets {
    /// Appends a row. Fields are numbers and plain names: none needs quotes.
    pub fn push(&mut self, sheet: Sheet, row: &[String]) {
        debug_assert_eq!(row.len(), sheet.columns().len());
        debug_assert!(row.iter().all(|f| plain(f)), "{row:?}");
        let text = &mut self.rows[sheet as usize];
        *text += &row.join(",");
        text.push('\n');
    }

    /// The rows of a table, without its header.
    pub fn rows(&self, sheet: Sheet) -> &str {
        &self.rows[sheet as usize]
    }

    /// Takes the rows of a table from a file.
    ///
    /// # Errors
    /// They are not rows of that table with steps that ascend from `first` to `last`.
    pub fn restore(
        &mut self,
        sheet: Sheet,
        text: &str,
        (first, last): (u64, u64),
    ) -> Result<(), String> {
        let torn = || format!("has a table {} that is torn", sheet.name());
        if !text.is_empty() && !text.ends_with('\n') {
            return Err(torn());
        }
        let mut before = first;
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let step: Option<u64> = fields[0].parse().ok();
            let fits = fields.len() == sheet.columns().len() && fields.iter().all(|f| plain(f));
            match step {
                Some(step) if fits && (before..=last).contains(&step) => before = step,
                _ => return Err(torn()),
            }
        }
        self.rows[sheet as usize] = text.to_string();
        Ok(())
    }

    /// Writes the tables that have rows.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn flush(&self, dir: &Path, scheme: &str, tag: &str) -> Result<(), Error> {
        for sheet in SHEETS {
            let rows = self.rows(sheet);
            if !rows.is_empty() {
                let text = format!("{}\n{rows}", sheet.columns().join(","));
                let file = dir.join(format!("{}_{scheme}{tag}.csv", sheet.name()));
                write_atomic(&file, text.as_bytes())?;
            }
        }
        Ok(())
    }
}

fn plain(field: &str) -> bool {
    let odd = |c: char| c.is_control() || matches!(c, ',' | '"');
    field.len() <= LONGEST && !field.contains(odd)
}

/// A share or a cosine.
pub fn fraction(x: f64) -> String {
    format!("{x:.6}")
}

/// A value that may not be there.
pub fn maybe<T>(x: Option<T>, f: impl Fn(T) -> String) -> String {
    x.map_or(String::new(), f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_torn_ones_do_not() {
        let mut a = Sheets::default();
        let row = |step: &str| {
            ["w", "-3", "17"]
                .map(String::from)
                .iter()
                .fold(vec![step.to_string()], |mut r, f| {
                    r.push(f.clone());
                    r
                })
        };
        a.push(Sheet::UpdateUlps, &row("2"));
        a.push(Sheet::UpdateUlps, &row("4"));
        let text = a.rows(Sheet::UpdateUlps).to_string();
        assert_eq!(text, "2,w,-3,17\n4,w,-3,17\n");
        let back = |text: &str| {
            let mut b = Sheets::default();
            b.restore(Sheet::UpdateUlps, text, (1, 4)).map(|()| b)
        };
        assert_eq!(back(&text), Ok(a));
        for bad in [
            "2,w,-3,17",
            "2,w,-3\n",
            "2,w,-3,17,9\n",
            "5,w,-3,17\n",
            "0,w,-3,17\n",
            "4,w,-3,17\n2,w,-3,17\n",
            "x,w,-3,17\n",
            "2,\"w\",-3,17\n",
            "\n",
        ] {
            assert!(back(bad).is_err(), "{bad:?}");
        }
        assert!(back(&format!("2,{},-3,17\n", "w".repeat(300))).is_err());
    }
}
