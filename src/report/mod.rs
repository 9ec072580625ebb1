//! What a run leaves on disk, and the report that is made from it: [`read`] takes the files back in,
//! [`charts`] and [`verdict`] say what they show, [`plot`] draws it, [`page`] puts it together.

pub mod charts;
pub mod cost;
pub mod env;
pub mod experiment;
pub mod files;
pub mod html;
pub mod ledger;
pub mod page;
pub mod plot;
pub mod read;
pub mod sheets;
pub mod verdict;
