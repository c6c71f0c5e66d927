//! Writers: a [`crate::model::Profile`] to bytes. No symbol is looked up here; what shows names is given them.
//!
//! - `select`: which value, stacks and names are shown.
//! - `heap_v2`: the text format that jeprof and pprof read.
//! - `view`: addresses become frames; `unmatched`: patterns that find nothing; `table`, `paths`: rows, and distinct stacks by name.
//! - `text`: jeprof's table; `tree`, `peek`, `csv`, `json`: other forms of it.
//! - `folded`: stacks as lines; `graph`: which functions and calls a call graph holds.
//! - `style`: looks on a terminal; `whole`: rounding that keeps sums.
//! - `parts`, `tags`: numbers by thread, process, host.
//! - `diff`: two profiles side by side.
//! - `callgrind`, `speedscope`, `pprof`, `otlp`: for other tools; `symbolized`: a heap file with its names.
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod csv;
pub mod diff;
pub mod dot;
pub mod folded;
pub mod graph;
pub mod heap_v2;
pub mod json;
pub mod otlp;
pub mod parts;
pub mod paths;
pub mod peek;
pub mod pprof;
pub mod select;
pub mod speedscope;
pub mod style;
pub mod symbolized;
pub mod table;
pub mod tags;
pub mod text;
pub mod tree;
pub mod unmatched;
pub mod view;
pub mod whole;

pub use select::{Granularity, Numbers, Options, Selection, Sort, Value};
pub use style::{Style, is_ascii_locale};
