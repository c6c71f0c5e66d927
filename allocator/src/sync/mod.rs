//! Locks that sleep in the kernel and never allocate, and cells that are set once.

pub mod mutex;
pub mod once;
pub mod rank;
