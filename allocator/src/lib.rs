//! A jemalloc-compatible arena allocator with a byte-interval heap sampler.
//!
//! The layers, each using only those above it, are listed in the folder's `README.md`; `cargo xtask check layers`
//! holds the code to that list. Under `cfg(loom)` only the parts without statics are built, for their models.
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(not(loom))]
pub mod base;
pub(crate) mod bits;
#[cfg(not(loom))]
pub mod conf;
#[cfg(not(loom))]
pub mod diag;
pub mod error;
#[cfg(not(loom))]
pub mod linked;
pub(crate) mod prim;
#[cfg(not(loom))]
pub mod prof;
#[cfg(not(loom))]
pub(crate) mod ptr;
pub mod sync;
#[cfg(not(loom))]
pub mod sys;
#[cfg(not(loom))]
pub(crate) mod tls;
