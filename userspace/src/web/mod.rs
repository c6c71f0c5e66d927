//! A profile as a page in the browser, served to this machine only.
//!
//! ```text
//!  profile ─► Dataset ─┬─► tree (JSON)    flame graph, table, callers and callees in the page
//!                      ├─► drawn (SVG)    call graph, growth
//!                      └─► source, code (JSON)   lines and instructions with numbers
//!  live: readings of a process ─► datasets            app: paths ─► answers   guard ─► server: HTTP
//! ```
//!
//! The page is in `page/`: HTML, one style sheet, scripts as modules, all embedded in this program.
#![forbid(unsafe_code)]

pub mod app;
mod code;
pub mod dataset;
pub mod drawn;
mod guard;
pub mod live;
mod query;
pub mod series;
pub mod server;
mod source;
mod tree;
