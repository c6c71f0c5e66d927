//! Handles into the tables of a profile, and what a frame's address means.
//!
//! A stack is a slice of `u64`, leaf first, each an address in the profiled process (avma) as the unwinder gave it:
//! the leaf is the address after the call into the recorder, every other frame a return address. The instruction that
//! made the call therefore lies one byte before: [`call_site`] is what symbols are looked up for, in the reader's
//! convention of all heap profile tools (the leaf as it is, the others minus 1).
#![forbid(unsafe_code)]

/// A stack in the interner of one profile. Handles of one profile mean nothing in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub(crate) u32);

impl StackId {
    /// Position in the order in which stacks were first seen.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a thread: the `tN` of heap files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadUid(pub u32);

/// The address to look up for the frame at `depth` (0 = leaf).
pub fn call_site(depth: usize, avma: u64) -> u64 {
    if depth == 0 { avma } else { avma.wrapping_sub(1) }
}
