//! Writers: a [`crate::model::Profile`] to bytes. No symbol is looked up here; what shows names is given them.
//!
//! - `select`: which value, stacks and names are shown.
//! - `heap_v2`: the text format that jeprof and pprof read.
//! - `text`: jeprof's table.
//! - `graph`: which functions and calls a call graph holds.
//! - `folded`: stacks as lines.
#![forbid(unsafe_code)]

pub mod folded;
pub mod graph;
pub mod heap_v2;
pub mod select;
pub mod text;

pub use select::{Granularity, Options, Selection, Value};
