//! The flags of tuning: which variant of a kernel a GPU runs.

use crate::exec::DeviceInfo;
use crate::exec::Numerics;
use crate::exec::wgpu::tune::{Measures, Tuner};
use crate::measure::choices::Kept;
use clap::Args;
use std::time::Duration;

/// Time for the measurements of a load.
const USUAL: Duration = Duration::from_secs(2);
/// The same where they were asked for.
const ASKED: Duration = Duration::from_secs(20);

/// Flags of tuning.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Tuning (GPUs; never changes a bit)")]
pub struct TuneArgs {
    /// Take each kernel's usual variant: measure none, and use no measurement of an earlier run. Without
    /// this flag, a run that is long enough to gain by it (over a minute, by an estimate) first measures
    /// the variants of its kernels for at most 2 s, and later runs on the same device and driver find the
    /// choice in the user's cache folder.
    #[arg(long)]
    pub no_tune: bool,
    /// Measure all variants afresh, in runs of any length, for at most 20 s.
    #[arg(long, conflicts_with = "no_tune")]
    pub retune: bool,
}

/// How a device's executors choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tune {
    measures: Measures,
    kept: bool,
    time: Duration,
}

impl Tune {
    /// Choices of earlier runs, and none made.
    pub const KEPT: Tune = Tune {
        measures: Measures::Never,
        kept: true,
        time: USUAL,
    };

    /// The usual variants.
    pub const OFF: Tune = Tune {
        kept: false,
        ..Tune::KEPT
    };

    /// A tuner for an executor; none where nothing is to be chosen.
    pub fn tuner(self, device: DeviceInfo, grade: Numerics) -> Option<Tuner> {
        (self != Tune::OFF).then(|| Tuner {
            book: Box::new(Kept::open(device, grade, super::terminal::interrupted)),
            measures: self.measures,
            kept: self.kept,
            left: self.time,
        })
    }
}

impl TuneArgs {
    /// For a run of so many steps.
    pub fn of_run(&self, steps: usize) -> Tune {
        self.with(Measures::Runs(steps as u64))
    }

    /// For measurements: they want the fastest variant, however short they are.
    pub fn always(&self) -> Tune {
        self.with(Measures::Always)
    }

    fn with(&self, measures: Measures) -> Tune {
        match (self.no_tune, self.retune) {
            (true, _) => Tune::OFF,
            (_, true) => Tune {
                measures: Measures::Always,
                kept: false,
                time: ASKED,
            },
            _ => Tune {
                measures,
                ..Tune::KEPT
            },
        }
    }
}
