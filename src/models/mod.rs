//! Model definitions and the programs that train and judge them.

pub mod char_gpt;
