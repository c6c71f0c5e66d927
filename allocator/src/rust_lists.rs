//! Free lists of the library's own Rust allocator (`capi/src/meta.rs`), which says what is on them: here, since `fork` takes
//! their lock. A program without that allocator leaves them empty.
#![forbid(unsafe_code)]

use core::ptr::null_mut;

use crate::prim::AtomicPtr;
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

/// Lengths of blocks, each twice the one before.
pub const CLASSES: usize = 12;

/// shape [*mut u8; 12]: the first free block of each length; null = none.
pub static LISTS: Mutex<[AtomicPtr<u8>; CLASSES]> =
    Mutex::new(Rank::Rust, [const { AtomicPtr::new(null_mut()) }; CLASSES]);

pub(crate) fn prefork() {
    LISTS.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    LISTS.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    LISTS.reset_in_child();
}
