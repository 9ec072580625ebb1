//! isobit
#![forbid(clippy::undocumented_unsafe_blocks)]
pub mod data;
pub mod dtype;
pub mod exec;
pub mod graph;
pub mod kernels;
pub mod models;
pub mod ops;
pub mod passes;
pub mod plan;
pub mod shape;
