//! The contracts between the allocator, the kernel object and the loader, in one place.
//!
//! Layers, each using only those above it:
//!
//! - `abi`: version and magic numbers.
//! - `drops`: why a sample or an event was lost; ids, names, meanings, what the user can do.
//! - `hooks`: probe symbols, argument order, notes, semaphores.
//! - `root`: the profile table, as it lies in the target's memory.
//! - `event`: records of the ring buffer, kernel to loader.
//! - `keys`: keys and values of the kernel maps.
//! - `config`: settings written into the kernel object before it is loaded.
//! - `logic`: decisions that need no kernel helper, tested on the host.
//! - `decode`: records of the table out of copied bytes (feature `heap`).
//! - `reader`: walks the profile table of any address space (feature `heap`).
//! - `pack`: frames of a stack in few bytes.
//! - `unbias`: weights of samples, and the numbers of a heap file (feature `heap`).
//! - `heap_v2`: writes heap files, from a table or line by line (feature `heap`).
//! - `layout`: const assertions over all of these.
//!
//! Every type that crosses a boundary is `repr(C)`, built of fixed-width integers and arrays of them, without padding
//! and without invalid bit patterns, so that any bytes can be read as one.
#![cfg_attr(not(test), no_std)]

pub mod abi;
pub mod config;
#[cfg(feature = "heap")]
mod decode;
pub mod drops;
pub mod event;
#[cfg(feature = "heap")]
pub mod heap_v2;
pub mod hooks;
pub mod keys;
mod layout;
pub mod logic;
pub mod pack;
#[cfg(feature = "heap")]
pub mod reader;
pub mod root;
#[cfg(feature = "heap")]
pub mod unbias;
