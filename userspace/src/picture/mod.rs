//! Pictures of a profile, as files that need nothing else.
//!
//! ```text
//!  output::graph::Graph ─► callgraph (places: layered) ─┐
//!  values over a series ─► area                         ├─► Scene ─► svg, pdf, postscript, raster ─► gif
//!                                                       ┘
//!  folded lines ─► flame ─► SVG
//! ```
//!
//! No symbol is looked up and no profile is read here.
#![forbid(unsafe_code)]

pub mod area;
pub mod callgraph;
pub mod flame;
mod font;
mod gif;
mod layered;
mod letters;
mod pdf;
mod postscript;
mod ranks;
mod raster;
pub mod scene;
pub mod svg;

pub use callgraph::{Labels, call_graph};
pub use scene::Scene;
