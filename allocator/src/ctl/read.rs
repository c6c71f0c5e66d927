//! Handlers that report, and what the others share: which indexes exist, option values as words, the statistics.
#![forbid(unsafe_code)]

use core::ffi::{CStr, c_void};

use super::args::{Answer, Args};
use crate::conf::{Junk, Thp, ZeroRealloc, options};
use crate::prim::{AtomicU64, Ordering};
use crate::sizeclass::{self, SlabShape};
use crate::{arenas, boot};

/// `version`: the interface that is followed, and who provides it. The header has the same text.
pub(super) const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!("5.3.1-jeprobe-", env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version without NUL"),
    };

/// Index that means every arena.
pub(super) const ALL: usize = 4096;
/// Index that means the destroyed arenas, merged. Arenas are never destroyed, so nothing is behind it.
const DESTROYED: usize = 4097;

/// Bytes of a transparent huge page, whatever the page size of the system: fixed by the interface.
pub(super) const HUGEPAGE_BYTES: usize = 2 << 20;

/// `i` of `arena.<i>`. The count itself is an old name for [`ALL`].
pub(super) fn is_arena(index: usize) -> bool {
    index <= arenas::count() as usize || index == ALL || index == DESTROYED
}

/// The arenas that `arena.<i>` means.
pub(super) enum Arenas {
    One(u32),
    All,
    /// The destroyed ones: none.
    None,
}

/// Reads the index of `arena.<i>.…`.
pub(super) fn arena_index(mib: &[usize]) -> Arenas {
    match mib.get(1).copied().unwrap_or(DESTROYED) {
        DESTROYED => Arenas::None,
        ALL => Arenas::All,
        index if index == arenas::count() as usize => Arenas::All,
        index => Arenas::One(index as u32),
    }
}

/// `i` of `arenas.bin.<i>`.
pub(super) fn is_bin(index: usize) -> bool {
    index < sizeclass::NBINS
}

/// The bin of `arenas.bin.<i>.…`.
pub(super) fn arenas_bin(mib: &[usize]) -> SlabShape {
    sizeclass::slab_shape(mib.get(2).copied().unwrap_or(0))
}

/// `i` of `arenas.lextent.<i>`.
pub(super) fn is_lextent(index: usize) -> bool {
    index < sizeclass::NSIZES - sizeclass::NBINS
}

/// Bytes of the class of `arenas.lextent.<i>.…`.
pub(super) fn arenas_lextent(mib: &[usize]) -> usize {
    sizeclass::size_of_index(sizeclass::NBINS + mib.get(2).copied().unwrap_or(0))
}

/// Largest size that thread caches hold: the class that the option reaches.
pub(super) fn tcache_max() -> usize {
    sizeclass::size_of_index((nhbins() as usize).saturating_sub(1))
}

/// Classes that thread caches hold.
pub(super) fn nhbins() -> u32 {
    let largest = options().tcache_max.clamp(1, sizeclass::CACHED_MAX);
    sizeclass::index_of(largest) as u32 + 1
}

/// `junk` as a word of its option.
pub(super) fn junk(junk: Junk) -> &'static CStr {
    match junk {
        Junk::None => c"false",
        Junk::Alloc => c"alloc",
        Junk::Free => c"free",
        Junk::Both => c"true",
    }
}

/// `thp` as a word of its option.
pub(super) fn thp(what: Thp) -> &'static CStr {
    match what {
        Thp::Default => c"default",
        Thp::Always => c"always",
        Thp::Never => c"never",
    }
}

/// `zero_realloc` as a word of its option.
pub(super) fn zero_realloc(what: ZeroRealloc) -> &'static CStr {
    match what {
        ZeroRealloc::Alloc => c"alloc",
        ZeroRealloc::Free => c"free",
        ZeroRealloc::Abort => c"abort",
    }
}

/// `prof_prefix` as configured.
pub(super) fn prof_prefix() -> &'static CStr {
    CStr::from_bytes_until_nul(&options().prof_prefix).unwrap_or(c"")
}

/// `arena.<i>.initialized`.
pub(super) fn arena_initialized(mib: &[usize], args: &Args<'_>) -> Answer {
    args.readonly()?;
    args.read(match arena_index(mib) {
        Arenas::One(index) => arenas::get(index).is_some(),
        Arenas::All => true,
        Arenas::None => false,
    })
}

/// A counter's value.
fn count(counter: &AtomicU64) -> u64 {
    // Relaxed: the calling thread's own.
    counter.load(Ordering::Relaxed)
}

/// Where a counter lies: as long as the thread lives, its owner may read it there.
fn place(counter: &'static AtomicU64) -> *const c_void {
    core::ptr::from_ref(counter).cast()
}

/// `thread.allocated`.
pub(super) fn thread_allocated(_: &[usize], args: &Args<'_>) -> Answer {
    args.fact(count(boot::current().allocated()))
}

/// `thread.deallocated`.
pub(super) fn thread_deallocated(_: &[usize], args: &Args<'_>) -> Answer {
    args.fact(count(boot::current().deallocated()))
}

/// `thread.allocatedp`.
pub(super) fn thread_allocatedp(_: &[usize], args: &Args<'_>) -> Answer {
    args.fact(place(boot::current().allocated()))
}

/// `thread.deallocatedp`.
pub(super) fn thread_deallocatedp(_: &[usize], args: &Args<'_>) -> Answer {
    args.fact(place(boot::current().deallocated()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_version() {
        assert_eq!(VERSION.to_str(), Ok(concat!("5.3.1-jeprobe-", env!("CARGO_PKG_VERSION"))));
        assert_eq!(prof_prefix(), c"jeprof");
        assert_eq!(junk(Junk::Both), c"true");
    }

    #[test]
    fn arena_indexes() {
        let count = arenas::count() as usize;
        for (index, is) in
            [(0, true), (count, true), (count + 1, false), (4095, false), (4096, true), (4097, true), (4098, false)]
        {
            assert_eq!(is_arena(index), is, "{index}");
        }
    }
}
