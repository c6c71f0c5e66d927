//! Settings written into the kernel object before it is loaded.
#![forbid(unsafe_code)]

/// Read-only data of the kernel object, set by the loader.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Only this process when not 0.
    pub tgid: u32,
    /// `STACKS_*`.
    pub stacks: u32,
}

/// Use the context that the process recorded; walk frame pointers when there is none.
pub const STACKS_AUTO: u32 = 0;
/// Only contexts of the process.
pub const STACKS_CONTEXT: u32 = 1;
/// Only the kernel's frame-pointer walk.
pub const STACKS_KERNEL: u32 = 2;
