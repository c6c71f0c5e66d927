//! Containers over memory that someone else owns. No allocation, no system calls.
//!
//! The intrusive containers link `&'static` nodes: descriptors come from `base` and are never freed, so a shared
//! reference to one stays valid for ever; their fields are atomics, used with Relaxed order under the owner's lock
//! (a plain move on every CPU we run on). That keeps all list surgery in safe code.

#[cfg(not(loom))]
pub(crate) mod bitmap;
#[cfg(not(loom))]
pub(crate) mod heap;
#[cfg(not(loom))]
pub(crate) mod link;
#[cfg(not(loom))]
pub(crate) mod list;
#[cfg(not(loom))]
pub(crate) mod regions;
pub(crate) mod remote;
#[cfg(not(loom))]
pub(crate) mod stack;
