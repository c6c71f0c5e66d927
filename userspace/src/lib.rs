//! The loader and analyser of jeprobe. `README.md` beside `src/` is the architecture page; its layer list is checked.

pub mod addr;
pub mod cli;
pub mod digits;
pub mod error;
pub mod estimate;
pub mod fsuser;
pub mod image;
pub mod input;
pub mod jeprof;
pub mod member;
pub mod memory;
pub mod model;
#[cfg(test)]
mod mutated;
pub mod outfile;
pub mod output;
pub mod picture;
pub mod preload;
pub mod probe;
pub mod proc;
pub mod progress;
pub mod proto;
pub mod remote;
pub mod session;
pub mod symbolize;
pub mod track;
pub mod units;
pub mod wait;
pub mod web;
