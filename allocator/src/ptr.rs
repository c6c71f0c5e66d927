//! Pointer types that say how far they are trusted, and the only address arithmetic outside the page map.
//!
//! | type | what is known |
//! |---|---|
//! | [`UserPtr`] | nothing: a value that came from outside; may be wild, interior, freed or another allocator's |
//! | [`BlockPtr`] | the page map knows the page it lies in as part of an active extent of ours |
//!
//! A `UserPtr` becomes a `BlockPtr` only through `emap` (I-PTR-1). Neither is ever dereferenced as a Rust reference:
//! blocks belong to the client.
#![forbid(unsafe_code)]

/// A pointer handed in by the client, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserPtr(pub(crate) *mut u8);

impl UserPtr {
    /// Its address, for lookups.
    #[inline(always)]
    pub(crate) fn addr(self) -> usize {
        self.0.addr()
    }
}

/// A pointer to a block of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPtr(pub(crate) *mut u8);

impl BlockPtr {
    /// Its address.
    #[inline(always)]
    pub(crate) fn addr(self) -> usize {
        self.0.addr()
    }
}

/// `ptr` moved forward by `bytes`; stays inside what `ptr` may reach by the caller's arithmetic, and is not accessed
/// here.
#[inline(always)]
pub(crate) fn forward(ptr: *mut u8, bytes: usize) -> *mut u8 {
    ptr.wrapping_add(bytes)
}
