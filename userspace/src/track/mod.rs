//! The sampled heap of each followed process, from what it had recorded and what its hooks tell.

pub mod lifecycle;
pub mod live;
pub mod pace;
pub mod seed;
