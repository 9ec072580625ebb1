//! Training: schedule, weights files, the session on an executor, and the run that fills the ledger.

pub mod checkpoint;
pub mod driver;
pub mod full;
pub mod ledgers;
pub mod progress;
pub mod run;
pub mod scaler;
pub mod schedule;
pub mod session;
pub mod stages;
pub mod surrogate;
pub mod weights;
