//! What a run leaves on disk.

pub mod env;
pub mod files;
pub mod ledger;
