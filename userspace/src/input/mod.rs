//! Readers: bytes of a file to a [`crate::model::Profile`].
//!
//! - `tail`: what jeprobe adds after the list of mappings.
//! - `heap_v2`: text profiles of jemalloc, gperftools and jeprobe.
#![forbid(unsafe_code)]

pub mod heap_v2;
mod tail;
