//! `isobit gemm`.

use super::Global;
use super::device::Device;
use super::outputs::whole;
use super::terminal::{catch_signals, clear, interrupted, say};
use super::tune::TuneArgs;
use crate::error::{Error, usage};
use crate::exec::wgpu::adapter::Found;
use crate::exec::wgpu::cooperative::{Cooperative, Shape};
use crate::exec::{Numerics, cpu::free_memory};
use crate::measure::format::Format;
use crate::measure::plans::Plans;
use crate::measure::size::{Load, Room, auto};
use crate::measure::{Engine, Order, Row, Watch, measure, plot, rate, table};
use crate::report::files;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Flags of `gemm`.
#[derive(Args, Debug, Clone)]
#[command(after_help = NOTES)]
pub struct GemmArgs {
    /// Rows and columns of the square matrices, or `auto`: what fits the device, its limits and its speed,
    /// at most 8192.
    #[arg(
        long,
        value_name = "N",
        default_value = "auto",
        allow_negative_numbers = true
    )]
    pub n: String,
    /// Types, comma-separated; `fp8` is both kinds, fp8_e4m3 and fp8_e5m2.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "fp32,tf32,bf16,fp16,int8,fp8"
    )]
    pub dtypes: String,
    /// Products before the clock counts.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        allow_negative_numbers = true
    )]
    pub warmup: i64,
    /// Products that count; the time is their median.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        allow_negative_numbers = true
    )]
    pub steps: i64,
    /// The table; the plot goes beside it, with the ending .svg.
    #[arg(long, value_name = "FILE", default_value = "results/gemm.csv")]
    pub out: PathBuf,
    /// fp16 on cooperative matrices too: tensor cores through Vulkan or Metal, with --numerics fast, where the
    /// device has them. Experimental.
    #[arg(long)]
    pub cooperative: bool,
    /// Tuning.
    #[command(flatten)]
    pub tune: TuneArgs,
}

const NOTES: &str = "\
One product of square matrices of normal random numbers; only the type changes. The table:
  dtype, ms, tflops      median time of a product; 2 n^3 operations in that time
  device, backend, path  where, and by which kernel
  grade                  portable, or fast with --numerics fast
  emulation              native, or emulated: operands rounded to the type beforehand and
                         multiplied in f32 (bf16: packed, unpacked by the kernel). The error
                         is then the type's own, the time is not
  ceiling_fraction       of the rate of multiply-adds in registers, measured in the same run
  error                  |C - C64| / |C64| on sampled rows; C64 is the f64 product of the
                         unrounded f32 operands
With --cooperative fp16 has a second row, native: f16 operands and f32 sums on matrices that a
subgroup holds together, a kernel of its own. wgpu calls this experimental, and we have seen it
run on a software device alone. A device without is refused, with the reason.
Ends with 0, with 130 after Ctrl-C (the types done by then are in the files), or with 2 on an
error.";

/// Runs the command; returns the exit code.
///
/// # Errors
/// A flag, a device that is not there or fails, a file that cannot be written.
pub fn gemm(global: &Global, args: &GemmArgs) -> Result<i32, Error> {
    let formats = Format::list(&args.dtypes)?;
    let warmup = count("warmup", args.warmup, 0)?;
    let steps = count("steps", args.steps, 1)?;
    let n = match args.n.trim() {
        "auto" => None,
        text => Some(extent(text)?),
    };
    let plot = picture(&args.out)?;
    let job = Job {
        n,
        formats,
        warmup,
        steps,
        out: &args.out,
        plot: &plot,
    };
    let mut device = Device::choose(global)?;
    device.set_tune(args.tune.always());
    let numerics = global.numerics.unwrap_or_default();
    let matrices = match args.cooperative {
        true => Some(matrices(&device, numerics, &job.formats)?),
        false => None,
    };
    #[cfg(feature = "cuda")]
    if global.numerics != Some(Numerics::Portable) && device.nvidia().is_some() {
        return on_cuda(&device, global.adapter.as_deref(), &job);
    }
    let mut room = room(&device)?;
    if let Some((_, shape)) = matrices {
        room.granule = shape.granule();
        room.halves = true;
    }
    let open = |grade: Numerics| device.open(grade);
    let engine = || {
        let opened = matrices.map(|(found, _)| Cooperative::open(found));
        let plans = Plans::new(&open, numerics, room.clone())?;
        Ok(plans.with_cooperative(opened.transpose()?))
    };
    let admit = || device.admit(numerics).map(|_| ());
    job.go(&room, &admit, device.why(), &engine)
}

/// The device and its cooperative matrices, asked for.
fn matrices<'a>(
    device: &'a Device,
    numerics: Numerics,
    formats: &[Format],
) -> Result<(&'a Found, Shape), Error> {
    if numerics != Numerics::Fast {
        return usage(
            "--cooperative: the order of sums in cooperative matrices is the device's own, so they are for --numerics fast",
        );
    }
    if !formats.contains(&Format::Fp16) {
        return usage("--cooperative: multiplies fp16, which --dtypes leaves out");
    }
    let Some(found) = device.graphics() else {
        return usage(match device.backend() {
            "cuda" => {
                "--cooperative: is for Vulkan and Metal; through CUDA every type but fp32 runs on tensor cores as it is"
            }
            _ => {
                "--cooperative: the CPU executor has no cooperative matrices; name a GPU with --backend vulkan or metal"
            }
        });
    };
    let shape = Shape::of(found).map_err(|why| Error::Usage(format!("--cooperative: {why}")))?;
    Ok((found, shape))
}

/// The run on CUDA, by cuBLASLt and the project's tensor-core kernels. With `--numerics portable` the
/// emitted kernels run instead, as any plan.
#[cfg(feature = "cuda")]
fn on_cuda(device: &Device, adapter: Option<&str>, job: &Job) -> Result<i32, Error> {
    use crate::measure::cuda::Cuda;
    let open = || Cuda::open(adapter).map_err(Error::Usage);
    // Its memory is free again before the measurement.
    let room = open()?.room().clone();
    job.go(&room, &|| Ok(()), device.why(), &open)
}

/// What is to be done, on whatever device.
struct Job<'a> {
    /// None: chosen by the device and its speed.
    n: Option<usize>,
    formats: Vec<Format>,
    warmup: usize,
    steps: usize,
    out: &'a Path,
    plot: &'a Path,
}

impl Job<'_> {
    /// Refuses what does not fit, then measures.
    fn go<E: Engine>(
        &self,
        room: &Room,
        admit: &dyn Fn() -> Result<(), Error>,
        why: &str,
        engine: &dyn Fn() -> Result<E, Error>,
    ) -> Result<i32, Error> {
        if let Some(n) = self.n {
            room.check(n, &self.formats)?;
        }
        let parents = folders(self.out)?;
        let run = || {
            admit()?;
            catch_signals()?;
            println!("device: {}", super::plain(why));
            self.run(engine)
        };
        let done = run();
        parents.undo();
        done
    }

    /// The size to measure at.
    fn extent<E: Engine>(
        &self,
        view: &mut View,
        engine: &dyn Fn() -> Result<E, Error>,
    ) -> Result<usize, Error> {
        if let Some(n) = self.n {
            return Ok(n);
        }
        view.doing("choosing a size");
        // Of its own, so that its memory is free again afterwards.
        let mut engine = engine()?;
        let kernels: usize = self.formats.iter().map(|f| engine.kernels(*f)).sum();
        let products = (self.warmup + self.steps) * kernels;
        let rate = rate(&mut engine, &self.formats)?;
        Ok(auto(engine.room(), &self.formats, Load { products, rate }))
    }

    /// Chooses the size, measures, writes.
    fn run<E: Engine>(&self, engine: &dyn Fn() -> Result<E, Error>) -> Result<i32, Error> {
        let mut view = View::new();
        let order = Order {
            n: self.extent(&mut view, engine)?,
            formats: self.formats.clone(),
            warmup: self.warmup,
            steps: self.steps,
        };
        let mut engine = engine()?;
        engine.room().check(order.n, &order.formats)?;
        view.say(&format!(
            "product: {n} x {n} x {n}, {} to warm up, the median of {}\n\n{}",
            order.warmup,
            order.steps,
            table::head(),
            n = order.n
        ));
        let result = measure(&mut engine, &order, &mut view);
        view.finish();
        // What was measured stays, however the rest ended.
        if let Some(r) = view.rows.first() {
            files::write_atomic(self.out, &table::csv(&view.rows)?)?;
            files::write_atomic(self.plot, plot::svg(&view.rows).as_bytes())?;
            println!(
                "\ntimes by {}; written to {} and {}",
                r.clock.name(),
                self.out.display(),
                self.plot.display()
            );
        }
        result?;
        if interrupted() {
            let done = match view.rows.len() {
                0 => "nothing is done, and nothing written".to_string(),
                n => format!("{n} rows are done"),
            };
            crate::tell!("stopped: {done}");
            return Ok(130);
        }
        Ok(0)
    }
}

/// A count within reason.
fn count(flag: &str, value: i64, least: i64) -> Result<usize, Error> {
    if (least..=1_000_000).contains(&value) {
        return Ok(value as usize);
    }
    usage(format!(
        "--{flag} {value}: must be at least {least} and at most 1000000"
    ))
}

fn extent(text: &str) -> Result<usize, Error> {
    match text.parse::<usize>() {
        Ok(n) if n > 0 => Ok(n),
        _ => usage(format!(
            "--n {text}: must be auto or a whole number from 1 on"
        )),
    }
}

/// Where the plot goes.
fn picture(out: &Path) -> Result<PathBuf, Error> {
    let plot = out.with_extension("svg");
    let folder = out.is_dir() || out.as_os_str().to_string_lossy().ends_with(['/', '\\']);
    if folder {
        return usage(format!(
            "--out {}: is a folder; name the table's file in it, such as {}",
            out.display(),
            out.join("gemm.csv").display()
        ));
    }
    if out.file_name().is_none() || whole(&plot) == whole(out) {
        return usage(format!(
            "--out {}: must name the table's file, which does not end in .svg",
            out.display()
        ));
    }
    Ok(plot)
}

/// Folders that were made for the output.
struct Parents(Vec<PathBuf>);

impl Parents {
    /// Takes away those that are still empty.
    fn undo(&self) {
        for dir in self.0.iter().rev() {
            let _ = std::fs::remove_dir(dir); // one that holds something stays
        }
    }
}

/// Makes the output's folder and makes sure that both files can be written.
fn folders(out: &Path) -> Result<Parents, Error> {
    let dir = out.parent().unwrap_or(Path::new(""));
    let missing = |d: &&Path| !d.as_os_str().is_empty() && !d.exists();
    let mut new: Vec<PathBuf> = dir.ancestors().filter(missing).map(PathBuf::from).collect();
    new.reverse();
    if !new.is_empty() {
        std::fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    }
    let parents = Parents(new);
    for file in [out.to_path_buf(), out.with_extension("svg")] {
        if let Err(e) = files::check_writable(&file) {
            parents.undo();
            return Err(e);
        }
    }
    Ok(parents)
}

/// What fits a device.
fn room(device: &Device) -> Result<Room, Error> {
    let limits = device.limits();
    Ok(Room {
        device: device.info()?.name,
        buffer: limits.map(|l| l.binding.min(l.buffer)),
        memory: None, // graphics interfaces do not tell; the allocation itself answers
        host: free_memory(),
        shared: !device.is_real_gpu(),
        // More than the last caches of GPUs and of most processors hold.
        rotation: if device.is_real_gpu() {
            256 << 20
        } else {
            64 << 20
        },
        int8_in_f32: true,
        granule: 1,
        halves: false,
    })
}

/// A progress bar on a terminal; the rows as they come.
struct View {
    bar: Option<ProgressBar>,
    rows: Vec<Row>,
}

impl View {
    fn new() -> View {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix:9} {wide_bar} {pos}/{len} {msg}");
            let bar = ProgressBar::new(1);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        View { bar, rows: vec![] }
    }

    fn say(&self, text: &str) {
        say(self.bar.as_ref(), text);
    }

    fn finish(&self) {
        clear(self.bar.as_ref());
    }
}

impl Watch for View {
    fn doing(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_string());
            bar.tick();
        }
    }

    fn products(&mut self, format: Format, done: usize, of: usize) {
        if let Some(bar) = &self.bar {
            bar.set_length(of as u64);
            bar.set_prefix(format.name());
            bar.set_message("products");
            bar.set_position(done as u64);
        }
    }

    fn row(&mut self, row: &Row) {
        self.say(&super::plain(&table::line(row)));
        self.rows.push(row.clone());
    }

    fn stopped(&self) -> bool {
        interrupted()
    }
}
