//! `isobit export`.

use super::outputs::{among_checkpoints, of_run, whole};
use crate::error::{Error, usage};
use crate::infer::export::{Kind, Losses, convert, safetensors};
use crate::infer::onnx;
use crate::report::files::{check_writable, write_atomic};
use crate::train::checkpoint::locate::FOLDER;
use crate::train::checkpoint::{Checkpoint, Which, locate};
use clap::Args;
use std::path::{Path, PathBuf};

/// Flags of `export`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP)]
pub struct ExportArgs {
    /// A checkpoint: a file, a scheme's folder, or the output folder of a run.
    #[arg(long, value_name = "DIR-OR-FILE")]
    pub from: PathBuf,
    /// Take the checkpoint with the best validation loss, not the newest.
    #[arg(long)]
    pub best: bool,
    /// Write the weights as safetensors, under PyTorch's names.
    #[arg(long, value_name = "FILE")]
    pub safetensors: Option<PathBuf>,
    /// Write the model as ONNX.
    #[arg(long, value_name = "FILE")]
    pub onnx: Option<PathBuf>,
    /// Type of the weights in the file.
    #[arg(long, value_enum, default_value_t = Kind::Fp32)]
    pub precision: Kind,
}

const HELP: &str = "\
safetensors: weights alone, in PyTorch's layout. In fp32 every bit is kept, and `isobit train --init` takes
the file. The vocabulary is in the metadata.

ONNX (opset 23): input `idx`, int64 [batch, length], length from 1 to the model's block; output `logits`,
f32 [batch, length, vocab]. Batch and length are free. With bf16 or fp16 the weights are stored so and
widened in the graph, which computes in f32. The vocabulary is in the metadata: character number i stands
for token i. Another runtime sums in another order: its logits agree to about 1e-6, not bit for bit.

Examples:
  isobit export --from run/checkpoints/fp32 --safetensors weights.safetensors
  isobit export --from run/checkpoints/mixed --onnx model.onnx --precision fp16";

/// Runs the command; returns the exit code.
///
/// # Errors
/// Whatever stops it, as one line.
pub fn export(args: &ExportArgs) -> Result<i32, Error> {
    if args.safetensors.is_none() && args.onnx.is_none() {
        return usage("nothing to write: name a file with --safetensors or --onnx, or both");
    }
    let which = if args.best {
        Which::Best
    } else {
        Which::Newest
    };
    let c = Checkpoint::load(&locate(&args.from, which)?)?;
    let targets: Vec<&Path> = [&args.safetensors, &args.onnx]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    refuse_collisions(&c.path, &targets)?;
    let (model, kind) = (c.model(), args.precision);
    println!(
        "from: {} ({}, step {}), {} parameters",
        c.path.display(),
        c.scheme().name(),
        c.meta.step,
        model.parameters()
    );
    let (weights, losses) = convert(&model, &c.weights(), kind);
    tell(kind, &losses);
    if let Some(path) = &args.safetensors {
        write(path, kind, &safetensors(kind, &weights, c.vocab())?)?;
    }
    if let Some(path) = &args.onnx {
        let bytes = onnx::encode(&model, c.vocab(), kind, weights)
            .map_err(|why| Error::Usage(format!("{}: {why}", path.display())))?;
        write(path, kind, &bytes)?;
    }
    Ok(0)
}

fn write(path: &Path, kind: Kind, bytes: &[u8]) -> Result<(), Error> {
    write_atomic(path, bytes)?;
    println!(
        "written: {}, weights in {}, {} bytes",
        path.display(),
        kind.name(),
        bytes.len()
    );
    Ok(())
}

/// Says what the rounding did, and warns where it did harm.
fn tell(kind: Kind, l: &Losses) {
    if kind == Kind::Fp32 {
        return;
    }
    println!(
        "{}: {} of {} weights are rounded, {} of them to zero",
        kind.name(),
        l.changed,
        l.of,
        l.vanished
    );
    if l.overflowed > 0 {
        crate::tell!(
            "warning: {} weights are too large for {} and become infinite: the file is of no use; take bf16 or fp32",
            l.overflowed,
            kind.name()
        );
    } else if l.vanished * 100 > l.of {
        crate::tell!(
            "warning: more than one weight in a hundred is too small for {} and becomes zero; take bf16 or fp32",
            kind.name()
        );
    }
}

/// The files must not replace the checkpoint or one another, nor lie among a run's own files.
fn refuse_collisions(checkpoint: &Path, targets: &[&Path]) -> Result<(), Error> {
    let own = whole(checkpoint);
    let run = own
        .ancestors()
        .find(|d| d.file_name().is_some_and(|n| n == FOLDER))
        .and_then(Path::parent);
    for (i, path) in targets.iter().enumerate() {
        check_writable(path)?;
        let here = whole(path);
        let why = if here == own {
            "it is the checkpoint itself"
        } else if targets[..i].iter().any(|t| whole(t) == here) {
            "two files would have this name"
        } else if run.is_some_and(|d| of_run(&here, d)) || among_checkpoints(&here) {
            "a run's own files are there; take a place outside its `checkpoints`"
        } else {
            continue;
        };
        return usage(format!("cannot write {}: {why}", path.display()));
    }
    Ok(())
}
