//! Data sets and the order in which batches are drawn.

pub mod batches;
pub mod corpus;
pub mod named;
pub mod showers;
pub mod text;
