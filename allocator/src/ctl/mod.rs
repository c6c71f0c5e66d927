//! The control tree: `mallctl` and its two companions.
//!
//! ```text
//!  name ──lookup──► mib ──run──► handler(mib, args) ──► read.rs   report a fact
//!        node.rs         node.rs       tree.rs      └─► write.rs  change something
//!                                                          │
//!                                       caller's memory ◄─ args.rs
//! ```
//!
//! A name exists only when what it controls exists; every other name is ENOENT. The answer is the errno value itself,
//! `errno` is never set. Any thread may call at any time after the first allocation; handlers take the locks of what
//! they control, one at a time. The values below `stats` stand still until `epoch` is written.
mod args;
mod node;
mod read;
mod tree;
mod write;

use core::ffi::CStr;

pub use args::Args;

use crate::boot;
use crate::error::CtlError;

/// Reads or writes what `name` names.
pub fn by_name(name: &CStr, args: &Args<'_>) -> Result<(), CtlError> {
    let mut mib = [0; node::MAX_DEPTH];
    let depth = node::lookup(tree::ROOT, name.to_bytes(), &mut mib)?;
    by_mib(mib.get(..depth).unwrap_or(&[]), args)
}

/// Stores the numbers that stand for `name`; how many were stored.
pub fn name_to_mib(name: &CStr, mib: &mut [usize]) -> Result<usize, CtlError> {
    node::lookup(tree::ROOT, name.to_bytes(), mib)
}

/// Reads or writes what `mib` stands for.
pub fn by_mib(mib: &[usize], args: &Args<'_>) -> Result<(), CtlError> {
    // Figures and settings are those of an allocator that is up, even if nothing was allocated yet.
    let _ = boot::current();
    node::run(tree::ROOT, mib, args)
}
