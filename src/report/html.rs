//! Writes a report: `report.html`, and every plot as SVG and PNG under `plots/`.

use super::charts::{chapters, gemm};
use super::files::{sweep, write_atomic};
use super::page::page;
use super::plot::chart::Chart;
use super::plot::{draw_alone, png, svg};
use super::read::{Folder, folder};
use crate::error::{Error, usage};
use std::path::{Path, PathBuf};

/// The page's name in the run's folder.
pub const PAGE: &str = "report.html";
/// The folder of the plots.
pub const PLOTS: &str = "plots";

/// What was written.
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// Plots in it.
    pub plots: usize,
    /// The folder that was read.
    pub folder: Folder,
}

/// Reads a run's folder and writes its report. Nothing is written where a file is refused.
///
/// # Errors
/// As [`folder`], or a file cannot be written.
pub fn write(dir: &Path) -> Result<Written, Error> {
    let f = folder(dir)?;
    let charts = all(&f);
    let plots = dir.join(PLOTS);
    sweep(dir, |n| n == PAGE);
    sweep(&plots, |n| n.ends_with(".svg") || n.ends_with(".png"));
    if !charts.is_empty() {
        std::fs::create_dir_all(&plots).map_err(Error::io("create", &plots))?;
    }
    for c in &charts {
        let scene = draw_alone(c);
        let file = |end: &str| plots.join(format!("{}.{end}", c.id));
        replace(
            &file("svg"),
            svg::file(&scene, &c.title, &c.says).as_bytes(),
        )?;
        replace(&file("png"), &png::png(&scene)?)?;
    }
    let to = dir.join(PAGE);
    replace(&to, page(&f).as_bytes())?;
    Ok(Written {
        page: to,
        plots: charts.len(),
        folder: f,
    })
}

/// Every plot of a folder.
pub fn all(f: &Folder) -> Vec<Chart> {
    let groups = f.groups.iter().flat_map(chapters).flat_map(|c| c.charts);
    groups.chain(gemm(f)).collect()
}

/// Writes a file where none is, or a regular one; one with the same bytes is left alone.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    match std::fs::symlink_metadata(path) {
        Ok(m) if !m.is_file() => {
            return usage(format!(
                "cannot write {}: it is there and is no regular file",
                path.display()
            ));
        }
        Ok(m) if m.len() == bytes.len() as u64 && std::fs::read(path).is_ok_and(|b| b == bytes) => {
            return Ok(());
        }
        _ => {}
    }
    write_atomic(path, bytes)
}
