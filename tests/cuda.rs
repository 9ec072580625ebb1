//! `--backend cuda`: what every command says where it cannot run, and, with the feature `cuda`, that every CUDA source
//! compiles and, where there is an NVIDIA GPU, that its products are right.

mod common;

use common::{fresh, isobit, stderr, stdout};

/// Runs, and expects code 2, one line that holds all of `says`, and no file.
fn refused(name: &str, args: &[&str], says: &[&str]) {
    let dir = fresh(name);
    let o = isobit(&dir, args);
    let text = stderr(&o);
    assert_eq!(o.status.code(), Some(2), "{args:?}: {text}{}", stdout(&o));
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    assert_eq!(stdout(&o), "", "{args:?}");
    assert!(!text.contains("panicked"), "{text}");
    for s in says {
        assert!(text.contains(s), "{args:?}: {text}");
    }
    assert_eq!(std::fs::read_dir(&dir).expect("the folder").count(), 0);
}

/// The commands that compute, asked for CUDA.
const COMMANDS: [&[&str]; 6] = [
    &["train", "--steps", "1", "--backend", "cuda"],
    &["gemm", "--backend", "cuda"],
    &["probe", "--backend", "cuda"],
    &["check", "--steps", "1", "--on", "cuda"],
    &["bench", "--steps", "1", "--backend", "cuda"],
    &["adapters", "--backend", "cuda"],
];

#[cfg(not(feature = "cuda"))]
#[test]
fn a_build_without_cuda_says_so() {
    for args in COMMANDS {
        let name = format!("cuda-absent-{}", args[0]);
        refused(&name, args, &["not in this build", "--features cuda"]);
    }
}

#[cfg(feature = "cuda")]
mod built {
    use super::*;
    use isobit::exec::cuda::nvrtc;
    use isobit::measure::cuda::{Cuda, GRANULE};
    use isobit::measure::format::Format;
    use isobit::measure::{Order, Row, Watch, measure};

    /// Every `.cu` for Ampere and for Hopper. The library comes with the CUDA toolkit, or as PyPI's
    /// `nvidia-cuda-nvrtc-cu12`, whose folder `nvidia/cuda_nvrtc/lib` then goes into `LD_LIBRARY_PATH`.
    #[test]
    fn every_source_compiles_to_machine_code() {
        if !common::nvrtc() {
            return;
        }
        let holds =
            |image: &[u8], name: &str| image.windows(name.len()).any(|w| w == name.as_bytes());
        for (name, _) in nvrtc::SOURCES {
            for arch in ["sm_80", "sm_90a"] {
                let image = nvrtc::compile(name, arch).unwrap_or_else(|e| panic!("{e}"));
                assert!(image.starts_with(b"\x7fELF"), "{name} for {arch}");
                let entries: &[&str] = match *name {
                    "ceiling.cu" => &["fma_f32", "mma_tf32", "mma_bf16", "mma_f16", "mma_s8"],
                    "gemm_mma.cu" => &["gemm_mma"],
                    _ if arch == "sm_90a" => &["gemm_wgmma"],
                    _ => &[],
                };
                assert!(
                    entries.iter().all(|e| holds(&image, e)),
                    "{name} for {arch}"
                );
                println!("{name} for {arch}: {} bytes", image.len());
            }
        }
        let wgmma = nvrtc::compile("gemm_wgmma.cu", "sm_80").expect("compiles");
        assert!(
            !holds(&wgmma, "gemm_wgmma_"),
            "Hopper's instructions are not for sm_80"
        );
        let e = nvrtc::compile("gemm_mma.cu", "sm_50").expect_err("too old");
        assert!(
            e.contains("gemm_mma.cu for sm_50") && e.lines().count() == 1,
            "{e}"
        );
        assert!(nvrtc::compile("none.cu", "sm_80").is_err());
    }

    fn opened() -> Option<Cuda> {
        match Cuda::open(None) {
            Ok(cuda) => Some(cuda),
            Err(why) => {
                assert_eq!(why.lines().count(), 1);
                println!("skipped: {why}");
                None
            }
        }
    }

    /// Where it cannot be, `--backend cuda` ends with one line, and `auto` goes on with a reason.
    #[test]
    fn without_a_driver_one_line_says_so() {
        let Err(why) = Cuda::open(None) else {
            println!("skipped: there is a CUDA device here");
            return;
        };
        for args in COMMANDS {
            let name = format!("cuda-none-{}", args[0]);
            refused(&name, args, &["--backend cuda", &why]);
        }
        let dir = fresh("cuda-auto");
        let o = isobit(
            &dir,
            &["gemm", "--n", "64", "--steps", "1", "--dtypes", "fp32"],
        );
        assert!(o.status.success(), "{}", stderr(&o));
        let text = stdout(&o);
        assert!(
            text.contains(&format!("no CUDA: {why}")) && text.contains("device: chose"),
            "{text}"
        );
    }

    struct Quiet;

    impl Watch for Quiet {
        fn doing(&mut self, _: &str) {}
        fn products(&mut self, _: Format, _: usize, _: usize) {}
        fn row(&mut self, _: &Row) {}
        fn stopped(&self) -> bool {
            false
        }
    }

    #[test]
    fn products_on_a_gpu_have_the_errors_of_their_formats() {
        let Some(mut cuda) = opened() else { return };
        for n in [GRANULE, 5 * GRANULE] {
            let order = Order {
                n,
                formats: Format::ALL.to_vec(),
                warmup: 1,
                steps: 3,
            };
            for r in measure(&mut cuda, &order, &mut Quiet).expect("runs") {
                println!("{n}: {} by {}: {:.3e}", r.format.name(), r.path, r.error);
                let usual = match r.format {
                    Format::Fp32 => 1e-8..1e-6,
                    // The device may cut where the emulation rounds: up to twice the error.
                    Format::Tf32 => 2.5e-4..7e-4,
                    Format::Fp16 => 2.5e-4..3.5e-4,
                    Format::Bf16 => 2e-3..5e-3,
                    Format::Int8 => 1e-2..2.5e-2,
                    Format::E4m3 => 3e-2..4.5e-2,
                    Format::E5m2 => 6e-2..9e-2,
                };
                assert!(usual.contains(&r.error), "{n}, {}: {}", r.path, r.error);
            }
        }
    }
}
