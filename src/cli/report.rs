//! `isobit report`.

use crate::error::{Error, usage};
use crate::report::html;
use crate::report::read::is_run;
use crate::report::verdict::verdict;
use clap::Args;
use std::path::{Path, PathBuf};

/// Flags of `report`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP)]
pub struct ReportArgs {
    /// A run's output folder, or a folder of such folders.
    #[arg(default_value = "results", value_name = "DIR")]
    pub dir: PathBuf,
}

const HELP: &str = "\
Reads the CSV files and env.json of a run and writes, beside them,

  report.html        one file that needs no network: verdict, plots, tables, environment
  plots/NAME.svg     every plot for itself; light or dark as the reader's system is
  plots/NAME.png     the same on white

A file that is missing leaves out what it would show; one that is torn is an error. Runs with a tag
(`--tag _lowlr`) are a part of their own. `train` writes the same at its end.

Examples:
  isobit report                       every run below results/
  isobit report results/tiny-cpu";

/// Runs the command; returns the exit code.
///
/// # Errors
/// Whatever stops it, as one line.
pub fn report(args: &ReportArgs) -> Result<i32, Error> {
    let dirs = runs(&args.dir)?;
    for dir in &dirs {
        let w = html::write(dir)?;
        conclude(&w);
    }
    Ok(0)
}

/// The folder itself where it is a run's, else those below it.
fn runs(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    if is_run(dir)? {
        return Ok(vec![dir.to_path_buf()]);
    }
    let mut out = vec![];
    for entry in std::fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let path = entry.map_err(Error::io("read", dir))?.path();
        if path.is_dir() && is_run(&path)? {
            out.push(path);
        }
    }
    out.sort();
    match out.is_empty() {
        false => Ok(out),
        true => usage(format!(
            "{}: neither it nor a folder in it has a run's CSV files; `isobit train` writes them",
            dir.display()
        )),
    }
}

/// Says what was written, and the verdict in short.
fn conclude(w: &html::Written) {
    for g in &w.folder.groups {
        let name = if g.tag.is_empty() {
            String::new()
        } else {
            format!(" ({})", g.tag)
        };
        println!("verdict{name}");
        for s in verdict(g) {
            println!("  {} {}", s.question, s.answer);
        }
    }
    println!(
        "written: {} and {} plots (SVG, PNG) in {}",
        w.page.display(),
        w.plots,
        w.page.with_file_name(html::PLOTS).display()
    );
}

/// The report at the end of a run: one that cannot be made costs a line, not the run.
pub fn after_training(dir: &Path) {
    match html::write(dir) {
        Ok(w) => println!("report: {}", w.page.display()),
        Err(e) => crate::tell!("warning: no report: {}", super::plain(&e.to_string())),
    }
}
