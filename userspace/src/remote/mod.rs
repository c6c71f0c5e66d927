//! A target without its cooperation: its memory, the profile table in it, the two control words.

pub mod image;
pub mod locate;
pub mod memory;
pub mod sandbox;
pub mod switch;
pub mod table;
pub mod target;
pub mod unsampled;
