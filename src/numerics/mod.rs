//! Same bits on every device, as a feature: [`probe`] establishes what a device does and whether it may
//! run in portable mode, [`check`] runs the same steps on several devices and finds the first difference
//! ([`diverge`]), and a [`certificate`] carries a run's digests to another machine.

pub mod certificate;
pub mod check;
pub mod course;
pub mod diverge;
pub mod passport;
pub mod probe;

pub use crate::exec::Numerics;
