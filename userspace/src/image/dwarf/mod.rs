//! Debug information of one file, asked by address.
//!
//! ```text
//!  address ──► unit (first entries of all units, read once) ──► line table, functions (decoded per unit, on demand)
//! ```
//!
//! - `slice`, `sections`: types of the reader; a file's sections.
//! - `intervals`: overlapping ranges.
//! - `lines`: the line table of a unit.
//! - `functions`: functions and inlined calls of a unit.
//! - `units`: which unit.
//! - `split`: units in other files.
//! - `debug`: what was decoded.
//! - `session`: answers.
//!
//! Memory: the index of all units, and the decoded tables of the [`debug::KEPT_UNITS`] units used last; a unit's tables hold 24 bytes
//! a line row and 64 a function. Compressed sections are inflated as a whole.
#![forbid(unsafe_code)]

mod debug;
mod functions;
mod intervals;
mod lines;
mod sections;
mod session;
mod slice;
mod split;
mod units;

pub(super) use debug::{Debug, Found, Link};
pub(super) use lines::Line;
pub(super) use session::Session;
pub use slice::Reading;
