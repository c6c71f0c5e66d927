//! A jemalloc-compatible arena allocator with a byte-interval heap sampler.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod conf;
