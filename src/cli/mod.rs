//! The command line: one file a command.

pub mod adapters;
pub mod bench;
pub mod bench_models;
pub mod check;
pub mod checkpoints;
pub mod device;
pub mod doctor;
pub mod eval;
pub mod experiment;
pub mod explain;
pub mod export;
pub mod gemm;
pub mod growth;
pub mod inspect;
pub mod job;
pub mod lint;
pub mod live;
pub mod outputs;
pub mod places;
pub mod planned;
pub mod probe;
pub mod profile;
pub mod replay;
pub mod report;
pub mod sample;
pub mod seeds;
pub mod showers;
pub mod terminal;
pub mod train;
pub mod tune;

use crate::error::Error;
use crate::numerics::Numerics;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;

/// Exit code of every error.
const FAILED: i32 = 2;

/// Trains small transformers with the same bits on every device, and keeps a ledger of what precision
/// costs.
///
/// Without a command, `train` runs: a char-level GPT, by default on a corpus that the program makes
/// itself, so that the first run needs no file.
#[derive(Parser, Debug)]
#[command(name = "isobit", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  isobit                                     the default run: a small model on the built-in text
  isobit --data book.txt --preset small      a larger model on a text of yours
  isobit train --config run.toml --steps 50  a config file, one key overridden
  isobit --backend vulkan                    the same run, the same bits, on a GPU
  isobit adapters                            which devices there are
  isobit probe --on all                      what they do with numbers
  isobit check --on cpu,vulkan --steps 20    the same steps there, compared bit for bit
  isobit train --resume results/tiny-cpu     go on with a run that was stopped, bit for bit
  isobit inspect results/tiny-cpu/checkpoints/fp32    what a checkpoint holds
  isobit sample --from results/tiny-cpu/checkpoints/fp32     text from a trained model
  isobit eval --from results/tiny-cpu/checkpoints/mixed      its loss in fp32 and in bf16
  isobit export --from results/tiny-cpu/checkpoints/fp32 --onnx model.onnx
  isobit gemm                                what a product costs in each type, and how wrong it is
  isobit bench --preset small                where the time of a training step goes
  isobit showers --model flow                a generator of calorimeter showers, on events of its own
  isobit doctor run.toml                     common mistakes in a config file, before the run
  isobit report results/tiny-cpu             verdict and plots of a run, in one HTML file
  isobit explain --scheme mixed              what a precision scheme does to the model
  isobit experiment learning-rate            what a small learning rate does to bf16 weights
  isobit train --help                        every training flag";

/// Options of every command.
#[derive(Args, Debug, Clone)]
pub struct Global {
    /// Where to compute.
    #[arg(long, global = true, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,
    /// Which device of the backend: part of its name, or its number.
    #[arg(long, global = true, value_name = "NAME-OR-INDEX")]
    pub adapter: Option<String>,
    /// Threads of the CPU executor [default: all cores]. The number never changes a result.
    #[arg(long, global = true, value_name = "N", allow_negative_numbers = true)]
    pub threads: Option<i64>,
    /// What is promised of the bits [default: portable, or the config file's].
    #[arg(long, global = true, value_enum)]
    pub numerics: Option<Numerics>,
}

/// Where to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// A real GPU if there is one (by CUDA first, in a build that has it), else the CPU.
    Auto,
    /// The built-in CPU executor.
    Cpu,
    /// Vulkan.
    Vulkan,
    /// Metal.
    Metal,
    /// Direct3D 12.
    Dx12,
    /// OpenGL.
    Gl,
    /// CUDA, in a build with the feature `cuda`.
    Cuda,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train a model under each precision scheme and compare (the default command).
    Train(Box<train::TrainArgs>),
    /// Train a generator of calorimeter showers: flow matching, DDPM or WGAN-GP.
    Showers(Box<showers::ShowersArgs>),
    /// Write text with trained weights.
    Sample(sample::SampleArgs),
    /// Compare the loss and the logits of trained weights under several precisions.
    Eval(eval::EvalArgs),
    /// Write trained weights as safetensors or ONNX.
    Export(export::ExportArgs),
    /// Multiply matrices in each number format: speed, and the error that comes with it.
    Gemm(gemm::GemmArgs),
    /// Time the training step, kernel by kernel, beside what the device can do
    Bench(bench::BenchArgs),
    /// List the devices of this machine, and say which would be used.
    Adapters,
    /// Take the same training steps on several devices and compare every bit.
    Check(Box<check::CheckArgs>),
    /// Run a window of a certificate's run again, from a checkpoint.
    Replay(replay::ReplayArgs),
    /// Establish what a device does with numbers, and whether portable runs are allowed there.
    Probe(probe::ProbeArgs),
    /// Show what a checkpoint or any safetensors file holds.
    Inspect(inspect::InspectArgs),
    /// Look for common mistakes in a config file, a line each. Runs nothing.
    Doctor(doctor::DoctorArgs),
    /// Run a well-known experiment: several runs, their tables and reports, as one command.
    Experiment(experiment::ExperimentArgs),
    /// Write a run's report: one HTML file with verdict and plots, the plots as SVG and PNG.
    Report(report::ReportArgs),
    /// Print what a scheme makes of a model: policy, graph, plan, kernels, bytes. Runs nothing.
    Explain(explain::ExplainArgs),
}

/// Runs the program on its command line; returns the exit code.
pub fn main() -> i32 {
    end_quietly_without_a_reader();
    let cli = match Cli::try_parse_from(with_default_command(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(e) => return report_usage(&e),
    };
    let result = match cli.command {
        Command::Train(args) => train::train(&cli.global, &args),
        Command::Showers(args) => showers::showers(&cli.global, &args),
        Command::Sample(args) => sample::sample(&cli.global, &args),
        Command::Eval(args) => eval::eval(&cli.global, &args),
        Command::Export(args) => export::export(&args),
        Command::Gemm(args) => gemm::gemm(&cli.global, &args),
        Command::Bench(args) => bench::bench(&cli.global, &args),
        Command::Adapters => adapters::adapters(&cli.global),
        Command::Check(args) => check::check(&cli.global, &args),
        Command::Replay(args) => replay::replay(&cli.global, &args),
        Command::Probe(args) => probe::probe(&cli.global, &args),
        Command::Doctor(args) => doctor::doctor(&cli.global, &args),
        Command::Experiment(args) => experiment::experiment(&cli.global, &args),
        Command::Report(args) => report::report(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Explain(args) => explain::explain(&cli.global, &args),
    };
    match result {
        Ok(code) => code,
        Err(e) => fail(&e),
    }
}

/// Inserts `train` before the first argument that is neither a global option nor a command.
fn with_default_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let all = Cli::command();
    let known = |arg: &str| arg == "help" || all.find_subcommand(arg).is_some();
    let top = ["-h", "--help", "-V", "--version"];
    let valued = ["--backend", "--adapter", "--threads", "--numerics"];
    let mut i = 1;
    while let Some(arg) = args.get(i).map(|a| a.to_string_lossy().into_owned()) {
        if known(&arg) || (top.contains(&arg.as_str())) {
            return args;
        }
        let (name, inline) = arg
            .split_once('=')
            .map_or((arg.as_str(), false), |(n, _)| (n, true));
        if !valued.contains(&name) {
            break;
        }
        i += if inline { 1 } else { 2 };
    }
    args.insert(i.min(args.len()), "train".into());
    args
}

/// Help goes out as it is; a mistake becomes one line.
fn report_usage(e: &clap::Error) -> i32 {
    match e.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print(); // a closed pipe is the reader's choice
            0
        }
        _ => {
            let text = e.to_string();
            let lines = text
                .lines()
                .map(str::trim)
                .take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"));
            let line = lines
                .filter(|l| !l.is_empty())
                .collect::<Vec<_>>()
                .join(" ");
            crate::tell!("{} (see `{} --help`)", plain(&line), asked(&text));
            FAILED
        }
    }
}

/// The command that a message of clap's is about, from its line of usage: `isobit train`.
fn asked(text: &str) -> String {
    let usage = text.lines().find_map(|l| l.strip_prefix("Usage: "));
    let name = |w: &&str| {
        w.starts_with(|c: char| c.is_ascii_lowercase())
            && w.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    let words: Vec<&str> = usage.unwrap_or("").split(' ').take_while(name).collect();
    match words.is_empty() {
        true => "isobit".into(),
        false => words.join(" "),
    }
}

/// `println!` panics when standard output is gone. A closed pipe ends the program without a word, with
/// the code a shell gives for it; a full disk is one line. What was measured so far is on disk.
fn end_quietly_without_a_reader() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info
            .payload()
            .downcast_ref::<String>()
            .map_or("", |s| s.as_str());
        if !text.starts_with("failed printing to stdout") {
            return others(info);
        }
        if text.contains("Broken pipe") {
            std::process::exit(141);
        }
        crate::tell!("error: {text}");
        std::process::exit(FAILED);
    }));
}

fn fail(e: &Error) -> i32 {
    crate::tell!("error: {}", plain(&e.to_string().replace('\n', " ")));
    FAILED
}

/// Text that may come from a file, with its control characters as escapes: a file must not steer the
/// terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out
}

impl Global {
    /// The thread count, checked.
    ///
    /// # Errors
    /// Not within 1 to 1024.
    pub fn threads(&self) -> Result<Option<usize>, Error> {
        match self.threads {
            None => Ok(None),
            Some(n) if (1..=1024).contains(&n) => Ok(Some(n as usize)),
            Some(n) => Err(Error::Usage(format!(
                "--threads {n}: must be at least 1 and at most 1024"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("isobit")
            .chain(line.split_whitespace())
            .map(OsString::from)
            .collect()
    }

    #[test]
    fn train_is_the_default_command() {
        let with = |line: &str| with_default_command(words(line));
        assert_eq!(with(""), words("train"));
        assert_eq!(with("--backend cpu"), words("--backend cpu train"));
        assert_eq!(
            with("--threads=2 --steps 5"),
            words("--threads=2 train --steps 5")
        );
        assert_eq!(
            with("--backend cpu train --steps 5"),
            words("--backend cpu train --steps 5")
        );
        assert_eq!(
            with("--steps 5 --backend cpu"),
            words("train --steps 5 --backend cpu")
        );
        assert_eq!(with("--help"), words("--help"));
        assert_eq!(with("--backend"), words("--backend train"));
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = plain("a\u{1b}[2J\r\u{9b}é");
        assert_eq!(text, "a\\u{1b}[2J\\u{d}\\u{9b}é");
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
