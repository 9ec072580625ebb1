//! `isobit doctor`.

use super::Global;
use super::job::materials;
use super::lint::{Finding, Level, lint};
use crate::config::{Preset, SCHEMES, Scheme, Settings};
use crate::error::Error;
use clap::Args;
use std::path::PathBuf;

/// Flags of `doctor`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP)]
pub struct DoctorArgs {
    /// TOML file with the run's settings.
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Precision schemes to look at, comma-separated [default: the config's].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub schemes: Option<Vec<String>>,
}

const HELP: &str = "\
Looks for common mistakes of mixed precision, a line each, and runs nothing:

  warning   probably not what is wanted; `train` shows these too
  note      worth knowing
  fine      a mistake that cannot be made here

The predicted share of swallowed updates takes the initial weights, and an AdamW update as normal with
a standard deviation of 0.2 learning rates; the ledger of a mixed run measures it.

Exit codes: 0 no warning, 1 warnings, 2 an error.

Example:
  isobit doctor run.toml --schemes bf16";

/// Runs the command; returns the exit code.
///
/// # Errors
/// Settings or files that cannot be used.
pub fn doctor(global: &Global, args: &DoctorArgs) -> Result<i32, Error> {
    let mut s = Settings::preset(Preset::Tiny);
    s.apply_file(&args.config)?;
    if let Some(list) = &args.schemes {
        let parsed = list.iter().map(|n| Scheme::parse(n));
        s.schemes = parsed.collect::<Result<Vec<_>, _>>()?;
        s.schemes
            .sort_by_key(|x| SCHEMES.iter().position(|y| x == y));
        s.schemes.dedup();
    }
    s.numerics = global.numerics.unwrap_or(s.numerics);
    s.validate()?;
    let (_, model, weights) = materials(&s)?;
    let found = lint(&s, model.vocab, &weights);
    for Finding { level, text } in &found {
        println!("{:<8} {text}", level.name());
    }
    let warnings = found.iter().filter(|f| f.level == Level::Warning).count();
    let names: Vec<&str> = s.schemes.iter().map(|x| x.name()).collect();
    println!(
        "{}: {} {} ({})",
        args.config.display(),
        warnings,
        if warnings == 1 { "warning" } else { "warnings" },
        names.join(", ")
    );
    Ok(i32::from(warnings > 0))
}
