//! What several integration tests share.
#![allow(dead_code)] // each test uses a part of it

pub mod cases;
pub mod folders;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The built program, in a folder of its own.
pub fn isobit(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(args)
        .current_dir(dir)
        // Passports are kept among the tests' own files.
        .env(
            "XDG_CACHE_HOME",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"),
        )
        .output()
        .expect("the program starts")
}

/// Standard error as text.
pub fn stderr(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Standard output as text.
pub fn stdout(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

/// A fresh empty folder for one test.
pub fn fresh(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir); // absent on the first run
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    dir
}

/// A file of this repository.
pub fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Whether NVIDIA's compiler of CUDA is there. It comes with the CUDA toolkit, or as PyPI's
/// `nvidia-cuda-nvrtc-cu12`, whose folder `nvidia/cuda_nvrtc/lib` then goes into `LD_LIBRARY_PATH`. Where it
/// is absent its tests say so and are skipped, unless `ISOBIT_REQUIRE_NVRTC` is set.
#[cfg(feature = "cuda")]
pub fn nvrtc() -> bool {
    let there = isobit::exec::cuda::nvrtc::present();
    let how = "no libnvrtc (pip install nvidia-cuda-nvrtc-cu12, and set LD_LIBRARY_PATH)";
    if !there && std::env::var_os("ISOBIT_REQUIRE_NVRTC").is_some() {
        panic!("{how}");
    }
    if !there {
        println!("skipped: {how}");
    }
    there
}

/// A CSV file: header, then rows.
pub struct Csv {
    header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Csv {
    pub fn read(path: &Path) -> Csv {
        let mut r =
            csv::Reader::from_path(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let header = r
            .headers()
            .expect("a header")
            .iter()
            .map(String::from)
            .collect();
        let rows = r
            .records()
            .map(|r| r.expect("a row").iter().map(String::from).collect())
            .collect();
        Csv { header, rows }
    }

    pub fn text(&self, row: usize, column: &str) -> &str {
        let c = self
            .header
            .iter()
            .position(|h| h == column)
            .unwrap_or_else(|| panic!("no column {column}"));
        &self.rows[row][c]
    }

    pub fn number(&self, row: usize, column: &str) -> f64 {
        let t = self.text(row, column);
        t.parse()
            .unwrap_or_else(|_| panic!("{column} of row {row} is {t:?}"))
    }
}

/// All tensors of a safetensors file, as f32.
pub fn tensors(path: &Path) -> HashMap<String, Vec<f32>> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let st = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
    st.iter()
        .map(|(name, t)| {
            let data = t
                .data()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            (name.to_string(), data)
        })
        .collect()
}

/// Relative Frobenius distance.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let d: f64 = a
        .iter()
        .zip(b)
        .map(|(x, y)| (*x as f64 - *y as f64).powi(2))
        .sum();
    let n: f64 = b.iter().map(|y| (*y as f64).powi(2)).sum();
    (d / n).sqrt()
}
