//! Caches of free blocks: bounded stacks that need no lock.

pub(crate) mod cache;
pub(crate) mod explicit;
pub(crate) mod large;
pub(crate) mod shelves;

pub use explicit::{create, destroy, flush};
