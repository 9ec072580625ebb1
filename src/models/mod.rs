//! Model definitions and the programs that train and judge them.

pub mod char_gpt;
pub mod generation;
