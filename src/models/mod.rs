//! Model definitions and the programs that train and judge them.

pub mod char_gpt;
pub mod generation;
pub mod net;
pub mod showers;
pub mod step;
pub mod trunk;
pub mod weight;
pub mod wgan;
