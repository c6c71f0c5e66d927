//! Version and magic numbers. A change to any record or to the profile table raises the version in the same commit.
#![forbid(unsafe_code)]

/// Version of everything in this crate. The loader refuses a kernel object or a profile table of another version.
pub const ABI_VERSION: u32 = 3;

/// First eight bytes of the profile table, "JEPROBE1" in memory order.
pub const ROOT_MAGIC: u64 = u64::from_le_bytes(*b"JEPROBE1");

/// Frames kept of one stack. 127, so that a context record with its header stays below 1.2 KiB in the ring.
pub const MAX_FRAMES: usize = 127;
