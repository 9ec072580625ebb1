//! Use of trained weights: text generation, comparison of precisions, export to other programs.

pub mod compare;
pub mod draw;
pub mod export;
pub mod generate;
pub mod onnx;
