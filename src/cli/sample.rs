//! `isobit sample`.

use super::Global;
use super::device::Device;
use super::terminal::{catch_signals, interrupted};
use crate::data::text::encode;
use crate::error::{Error, usage};
use crate::infer::draw::{Drawing, draw};
use crate::infer::generate::Generator;
use crate::train::checkpoint::{Checkpoint, Which, locate};
use clap::Args;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags of `sample`.
#[derive(Args, Debug, Clone)]
#[command(after_help = HELP)]
pub struct SampleArgs {
    /// A checkpoint: a file, a scheme's folder, or the output folder of a run.
    #[arg(long, value_name = "DIR-OR-FILE")]
    pub from: PathBuf,
    /// Take the checkpoint with the best validation loss, not the newest.
    #[arg(long)]
    pub best: bool,
    /// The text to go on from [default: a line's end, or the vocabulary's first character].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Characters to write.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 256,
        allow_negative_numbers = true
    )]
    pub tokens: i64,
    /// Logits are divided by it: below 1 for likelier text, 0 for the likeliest character each time.
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.8,
        allow_negative_numbers = true
    )]
    pub temperature: f64,
    /// Draw from the K likeliest characters only [default: from all].
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub top_k: Option<i64>,
    /// Seed of the draws.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1337,
        allow_negative_numbers = true
    )]
    pub seed: i64,
    /// Compute every character from the whole context, to compare: the same text, slower.
    #[arg(long)]
    pub no_cache: bool,
}

const HELP: &str = "\
The text goes to standard output, all else to standard error. The same checkpoint, prompt and flags give
the same text on every device, at any number of threads, with the cache and without.

The model runs under the checkpoint's own precision scheme. It sees at most `block` characters: when they
are used up, it goes on from the newer half of them. Of a longer prompt it sees the last `block`.

Examples:
  isobit sample --from results/tiny-cpu/checkpoints/fp32
  isobit sample --from run --prompt \"ROMEO:\" --temperature 0.7 --top-k 20 --seed 3
  isobit sample --from run --backend vulkan --tokens 1000 > text.txt";

impl SampleArgs {
    fn drawing(&self) -> Result<Drawing, Error> {
        let t = self.temperature;
        if !(0.0..=100.0).contains(&t) || (t != 0.0 && t < 1e-3) {
            return usage(format!(
                "--temperature {t}: must be 0, or at least 0.001 and at most 100"
            ));
        }
        let top_k = match self.top_k {
            None => None,
            Some(k) if k >= 1 => Some(k as usize),
            Some(k) => return usage(format!("--top-k {k}: must be at least 1")),
        };
        let negative = |_| Error::Usage(format!("--seed {}: must not be negative", self.seed));
        Ok(Drawing {
            temperature: t,
            top_k,
            seed: u64::try_from(self.seed).map_err(negative)?,
        })
    }
}

/// Runs the command; returns the exit code.
///
/// # Errors
/// Whatever stops it, as one line.
pub fn sample(global: &Global, args: &SampleArgs) -> Result<i32, Error> {
    let drawing = args.drawing()?;
    if !(1..=10_000_000).contains(&args.tokens) {
        let n = args.tokens;
        return usage(format!(
            "--tokens {n}: must be at least 1 and at most 10000000"
        ));
    }
    let which = if args.best {
        Which::Best
    } else {
        Which::Newest
    };
    let c = Checkpoint::load(&locate(&args.from, which)?)?;
    let vocab = c.vocab();
    let prompt = match &args.prompt {
        Some(p) if p.is_empty() => {
            return usage("--prompt: is empty; give at least one character, or leave it out");
        }
        Some(p) => p.clone(),
        None if vocab.contains(&'\n') => "\n".into(),
        None => vocab[0].to_string(),
    };
    let tokens = encode(vocab, &c.meta.data.name, &prompt)?;
    let device = Device::choose(global)?;
    let exec = device.admitted(global)?;
    let policy = c.meta.settings.policy_of(c.scheme())?;
    let mut g = Generator::new(exec, c.model(), policy, &c.weights(), !args.no_cache)?;
    crate::tell!(
        "from: {} ({}, step {})\ndevice: {}",
        c.path.display(),
        policy.name,
        c.meta.step,
        device.why()
    );
    catch_signals()?;
    let start = Instant::now();
    if args.prompt.is_some() {
        show(&prompt)?;
    }
    g.start(&tokens);
    let mut written = 0;
    while written < args.tokens && !interrupted() {
        let token = draw(&g.logits()?, &drawing, written as u32).map_err(|i| {
            Error::Usage(format!(
                "{}: the logit of {:?} after {written} characters is not a number; take an older checkpoint",
                c.path.display(),
                vocab[i]
            ))
        })?;
        show(vocab[token as usize].encode_utf8(&mut [0; 4]))?;
        g.push(token);
        written += 1;
    }
    show("\n")?;
    let seconds = start.elapsed().as_secs_f64();
    crate::tell!(
        "{written} characters in {seconds:.2} s, {:.0} a second, {}",
        written as f64 / seconds.max(1e-9),
        if args.no_cache {
            "without the cache"
        } else {
            "with the cache"
        }
    );
    Ok(if written < args.tokens { 130 } else { 0 })
}

/// Writes text at once. A closed pipe ends the program, as it does everywhere.
fn show(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(141),
        other => other.map_err(Error::io("write", Path::new("standard output"))),
    }
}
