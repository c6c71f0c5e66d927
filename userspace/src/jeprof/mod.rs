//! The command `jeprof`: what the perl script of that name does, without perl and without other programs.
//!
//! ```text
//! profile/*  ─►  stacks  ─►  images, symbols  ─►  filter  ─►  reduce  ─►  text, list, disasm, dot, ...
//!   files        ids and      what is at an       stacks      rows        one file per kind of output
//!                values       address             and frames
//! ```
//!
//! Standard output is the original's byte for byte, where that is not a matter of chance (the order of a hash table) or
//! a defect; the package's README lists both. Everything is computed in the original's number type, in its order of
//! steps. No step calls another program, except viewers that the user asked for.
#![forbid(unsafe_code)]

pub mod address;
pub mod callgrind;
pub mod code;
pub mod collapsed;
pub mod disasm;
pub mod dot;
pub mod filter;
pub mod getopt;
pub mod images;
pub mod interactive;
pub mod lines;
pub mod list;
pub mod listing;
pub mod options;
pub mod pattern;
pub mod profile;
pub mod raw;
pub mod reduce;
pub mod remote;
mod run;
pub mod selftest;
pub mod show;
pub mod stacks;
pub mod stop;
pub mod streams;
pub mod symbols;
pub mod symbols_mode;
pub mod temp;
pub mod text;
pub mod url;
pub mod usage;
pub mod values;
pub mod viewers;
pub mod weblist;

pub use run::run;
