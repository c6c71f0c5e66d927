//! A jemalloc-compatible arena allocator with a byte-interval heap sampler.
//!
//! The layers, each using only those above it, are listed in the folder's `README.md`; `cargo xtask check layers`
//! holds the code to that list. Under `cfg(loom)` only the parts without statics are built, for their models.
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(not(loom))]
pub mod api;
#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod arenas;
#[cfg(not(loom))]
pub mod background;
#[cfg(not(loom))]
pub mod base;
#[cfg(not(loom))]
pub mod bin;
pub(crate) mod bits;
#[cfg(not(loom))]
pub mod boot;
#[cfg(not(loom))]
pub mod conf;
#[cfg(not(loom))]
pub mod ctl;
#[cfg(not(loom))]
pub(crate) mod decay;
#[cfg(not(loom))]
pub mod diag;
pub(crate) mod ds;
#[cfg(not(loom))]
pub(crate) mod ecache;
#[cfg(not(loom))]
pub(crate) mod emap;
#[cfg(not(loom))]
pub(crate) mod epoch;
pub mod error;
#[cfg(not(loom))]
pub(crate) mod extent;
#[cfg(not(loom))]
pub(crate) mod fork;
#[cfg(not(loom))]
pub mod linked;
#[cfg(not(loom))]
pub mod pages;
pub(crate) mod prim;
#[cfg(not(loom))]
pub mod prof;
#[cfg(not(loom))]
pub(crate) mod ptr;
#[cfg(not(loom))]
pub(crate) mod quick;
#[cfg(not(loom))]
pub mod rust_lists;
#[cfg(not(loom))]
pub(crate) mod samplemap;
#[cfg(not(loom))]
pub mod sizeclass;
#[cfg(not(loom))]
mod slab;
#[cfg(not(loom))]
pub mod stats;
#[cfg(not(loom))]
pub(crate) mod steps;
pub mod sync;
#[cfg(not(loom))]
pub mod sys;
#[cfg(not(loom))]
pub mod tcache;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub(crate) mod tls;

#[cfg(not(loom))]
pub use api::global::Jeprobe;
