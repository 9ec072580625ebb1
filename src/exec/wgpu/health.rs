//! Waiting for a device, and what it says when it fails.
//!
//! wgpu tells of failures in four ways: error scopes (while loading), the uncaptured-error handler, the
//! device-lost callback, and a panic inside `Device::poll` on a loss that the wait itself finds. All of
//! them end here as a [`Trouble`], so that no failure of a device is a panic of the program.

pub(super) use super::super::one_line;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

/// How long a device may be silent before it is given up. Work per submit is bounded to about a second
/// on the slowest devices; the rest is for a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(180);

/// What went wrong, without where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// The device is gone.
    Lost(String),
    /// It did not answer in time.
    Silent,
    /// A call was refused.
    Fault(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Trouble::Lost(why) => write!(f, "the device was lost ({why})"),
            Trouble::Silent => write!(
                f,
                "the device did not answer within {} s",
                PATIENCE.as_secs()
            ),
            Trouble::Fault(why) => write!(f, "the device refused a call ({why})"),
        }
    }
}

/// What the callbacks of a device have said so far. The first message of a kind is kept: later ones
/// are consequences.
#[derive(Clone, Default)]
pub(super) struct Health {
    trouble: Arc<Mutex<Option<Trouble>>>,
    /// Waits so far.
    waits: Arc<AtomicU64>,
}

impl Health {
    /// Listens to a device.
    pub fn watch(device: &wgpu::Device) -> Health {
        let health = Health::default();
        let heard = health.clone();
        device.set_device_lost_callback(move |reason, message| {
            let why = match reason {
                wgpu::DeviceLostReason::Destroyed => "it was destroyed".to_string(),
                _ => one_line(&message),
            };
            heard.tell(Trouble::Lost(why));
        });
        let heard = health.clone();
        device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| heard.tell(fault(&e))));
        health
    }

    fn tell(&self, t: Trouble) {
        // The lock is held for an assignment only, so poisoning cannot happen; a loss outranks a
        // refused call.
        let mut known = self.trouble.lock().unwrap_or_else(|p| p.into_inner());
        let lost = matches!(t, Trouble::Lost(_));
        if known.is_none() || lost && !matches!(*known, Some(Trouble::Lost(_))) {
            *known = Some(t);
        }
    }

    /// Fails if the device has failed.
    pub fn check(&self) -> Result<(), Trouble> {
        let known = self.trouble.lock().unwrap_or_else(|p| p.into_inner());
        known.clone().map_or(Ok(()), Err)
    }

    /// Fails if the device has refused a call.
    pub fn check_faults(&self) -> Result<(), Trouble> {
        match self.check() {
            Err(t @ Trouble::Fault(_)) => Err(t),
            _ => Ok(()),
        }
    }

    /// How often the host waited.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Waits for a submission, or for all of them, and runs the callbacks that are due. A submission
    /// that was done before the device was lost is no failure: the next wait tells of the loss.
    pub fn wait(
        &self,
        device: &wgpu::Device,
        submission: Option<wgpu::SubmissionIndex>,
    ) -> Result<(), Trouble> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait = wgpu::PollType::Wait {
                submission_index: submission.clone(),
                timeout: Some(left),
            };
            match quietly(|| device.poll(wait)) {
                Ok(Ok(_)) if submission.is_some() => return self.check_faults(),
                Ok(Ok(_)) => return self.check(),
                // Some drivers (GL) cut waits short, so the clock decides.
                Ok(Err(wgpu::PollError::Timeout)) if !left.is_zero() => self.check()?,
                Ok(Err(wgpu::PollError::Timeout)) => {
                    self.tell(Trouble::Silent);
                    return self.check();
                }
                // The submission was never accepted: the device was gone before it.
                Ok(Err(wgpu::PollError::WrongSubmissionIndex(..))) => {
                    // A last poll lets the loss callback speak.
                    let _ = quietly(|| device.poll(wgpu::PollType::Poll));
                    self.check()?;
                    self.tell(Trouble::Lost("it takes no more work".into()));
                    return self.check();
                }
                Err(panic) => {
                    self.tell(Trouble::Lost(panic));
                    return self.check();
                }
            }
        }
    }
}

/// An error of wgpu as a [`Trouble`].
pub(super) fn fault(e: &wgpu::Error) -> Trouble {
    Trouble::Fault(match e {
        wgpu::Error::OutOfMemory { .. } => "it is out of memory".into(),
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            one_line(description)
        }
    })
}

thread_local! {
    /// Set while a poll runs, whose panics are caught and told in one line.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a poll; a panic in it becomes its message and is not printed.
fn quietly<T>(poll: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    // Nothing of ours is behind the reference: the device is given up after a panic.
    let result = catch_unwind(AssertUnwindSafe(poll));
    QUIET.set(false);
    result.map_err(|p| {
        let text = p
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| p.downcast_ref::<&str>().copied());
        one_line(text.unwrap_or("the driver failed"))
    })
}

/// Runs `work` under error scopes; what wgpu refuses in it becomes an error. Out of memory is told apart.
pub(super) fn scoped<T>(device: &wgpu::Device, work: impl FnOnce() -> T) -> Result<T, Refused> {
    // Scopes belong to a thread, and so does `work`.
    let filters = [
        wgpu::ErrorFilter::Internal,
        wgpu::ErrorFilter::OutOfMemory,
        wgpu::ErrorFilter::Validation,
    ];
    let guards = filters.map(|f| device.push_error_scope(f));
    let value = work();
    // All are popped, the innermost first, before any is looked at.
    let errors: Vec<Option<wgpu::Error>> = guards
        .into_iter()
        .rev()
        .map(|g| pollster::block_on(g.pop()))
        .collect();
    match errors.into_iter().flatten().next() {
        None => Ok(value),
        Some(wgpu::Error::OutOfMemory { .. }) => Err(Refused::Memory),
        Some(e) => Err(Refused::Call(match fault(&e) {
            Trouble::Fault(why) => why,
            other => other.to_string(),
        })),
    }
}

/// What an error scope caught.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// Out of memory.
    Memory,
    /// Anything else.
    Call(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_of_a_poll_are_messages() {
        let text = quietly(|| -> u32 { panic!("Error in Device::poll: lost\n") });
        assert_eq!(text, Err("Error in Device::poll: lost".into()));
        assert_eq!(quietly(|| 3), Ok(3));
    }

    #[test]
    fn the_first_trouble_stays_and_a_loss_outranks_a_fault() {
        let h = Health::default();
        assert_eq!(h.check(), Ok(()));
        h.tell(Trouble::Fault("a".into()));
        h.tell(Trouble::Fault("b".into()));
        assert_eq!(h.check(), Err(Trouble::Fault("a".into())));
        h.tell(Trouble::Lost("c".into()));
        h.tell(Trouble::Lost("d".into()));
        assert_eq!(h.check(), Err(Trouble::Lost("c".into())));
    }
}
