//! isobit
pub mod cli;
pub mod config;
pub mod data;
pub mod dtype;
pub mod error;
pub mod exec;
pub mod graph;
pub mod kernels;
pub mod models;
pub mod ops;
pub mod passes;
pub mod plan;
pub mod report;
pub mod shape;
pub mod train;
