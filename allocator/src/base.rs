//! Memory for the allocator's own descriptors and tables: a bump allocator that never frees.
//!
//! ```text
//!   chunk (CHUNK_BYTES, or one of its own for a large request)
//!   ┌──────────────┬───────────────────────────┐   low → high address
//!   │ handed out   │ free: cur .. end, zero    │
//!   └──────────────┴───────────────────────────┘
//! ```
//!
//! I-BASE-1: every byte handed out is zero and belongs to the caller for ever. I-BASE-2: `cur..end` was never touched.
//! Any thread may call this, holding any lock below rank `Base`. It does not take memory back; owners keep free lists
//! of their own.

use core::ptr::NonNull;

use crate::bits::{align_down, align_up};
use crate::prim::{AtomicPtr, AtomicUsize, Ordering};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;
use crate::sys;

/// 1 MiB of address space at a time: one mapping holds the metadata of about 256 MiB of small blocks, and only touched
/// pages are resident.
const CHUNK_BYTES: usize = 1 << 20;

struct Bump {
    cur: *mut u8,
    left_bytes: usize,
}

// SAFETY: the pointer refers to memory that only the holder of the lock hands out.
unsafe impl Send for Bump {}

static BUMP: Mutex<Bump> = Mutex::new(Rank::Base, Bump { cur: core::ptr::null_mut(), left_bytes: 0 });
static USED_BYTES: AtomicUsize = AtomicUsize::new(0);
static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Zeroed memory that is never freed, at a multiple of `align` (a power of two). Cost: a lock; a system call for each
/// MiB.
pub fn alloc(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let mut bump = BUMP.lock();
    let ptr = bump.take(bytes, align.max(8))?;
    // Relaxed: a statistic.
    USED_BYTES.fetch_add(bytes, Ordering::Relaxed);
    Some(ptr)
}

/// A place for `value` that is never freed.
pub(crate) fn alloc_value<T: Sync>(value: T) -> Option<&'static T> {
    let place = alloc(size_of::<T>(), align_of::<T>())?.cast::<T>();
    // SAFETY: I-BASE-1: the memory has the size and alignment of `T` and nobody else refers to it.
    unsafe { place.write(value) };
    // SAFETY: just written, and never freed.
    Some(unsafe { place.as_ref() })
}

/// Places for `count` values that are never freed.
pub(crate) fn alloc_slice<T: Sync>(count: usize, make: impl Fn(usize) -> T) -> Option<&'static [T]> {
    let first = alloc(size_of::<T>().checked_mul(count)?, align_of::<T>())?.cast::<T>();
    for i in 0..count {
        // SAFETY: I-BASE-1: the memory holds `count` values of `T` and nobody else refers to it; `i < count`.
        let place = unsafe { first.add(i) };
        // SAFETY: as above.
        unsafe { place.write(make(i)) };
    }
    // SAFETY: all `count` values were just written, and are never freed.
    Some(unsafe { core::slice::from_raw_parts(first.as_ptr(), count) })
}

/// Places for `count` pointers that are never freed, all null. None is touched, so what is not used takes no memory.
pub(crate) fn alloc_nulls(count: usize) -> Option<&'static [AtomicPtr<u8>]> {
    let bytes = size_of::<AtomicPtr<u8>>().checked_mul(count)?;
    let first = alloc(bytes, align_of::<AtomicPtr<u8>>())?.cast::<AtomicPtr<u8>>();
    // SAFETY: I-BASE-1: the memory has the size and alignment of the pointers, is zero, which is null, and never freed.
    Some(unsafe { core::slice::from_raw_parts(first.as_ptr(), count) })
}

/// Bytes handed out so far.
pub fn used_bytes() -> usize {
    USED_BYTES.load(Ordering::Relaxed)
}

/// Bytes of address space taken so far.
pub fn mapped_bytes() -> usize {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

/// Counts metadata that lives outside the chunks (page-map leaves).
pub(crate) fn count_outside(bytes: usize) {
    USED_BYTES.fetch_add(bytes, Ordering::Relaxed);
    MAPPED_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Takes zeroed pages that an arena gives up, when the system has no more address space. What is left of the current
/// chunk is dropped.
pub(crate) fn donate(pages: *mut u8, bytes: usize) {
    let mut bump = BUMP.lock();
    if bytes > bump.left_bytes {
        bump.cur = pages;
        bump.left_bytes = bytes;
    }
    MAPPED_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

pub(crate) fn prefork() {
    BUMP.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    BUMP.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    BUMP.reset_in_child();
}

impl Bump {
    fn take(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if let Some(ptr) = self.take_from_chunk(bytes, align) {
            return Some(ptr);
        }
        let page = sys::page_size();
        let whole = align_up(bytes, page)?;
        if whole > CHUNK_BYTES / 4 || align > page {
            let ptr = sys::reserve(whole, align.max(page))?;
            MAPPED_BYTES.fetch_add(whole, Ordering::Relaxed);
            return Some(ptr);
        }
        let chunk = sys::reserve(CHUNK_BYTES, page)?;
        MAPPED_BYTES.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
        self.cur = chunk.as_ptr();
        self.left_bytes = CHUNK_BYTES;
        self.take_from_chunk(bytes, align)
    }

    fn take_from_chunk(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let addr = self.cur.addr();
        let lead = align_up(addr, align)? - addr;
        let need = lead.checked_add(bytes)?;
        if need > self.left_bytes {
            return None;
        }
        let ptr = self.cur.wrapping_add(lead);
        self.cur = self.cur.wrapping_add(need);
        self.left_bytes -= need;
        debug_assert_eq!(align_down(ptr.addr(), align), ptr.addr());
        NonNull::new(ptr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_zero_aligned_and_distinct() {
        let mut last = 0;
        for (bytes, align) in [(1, 1), (100, 64), (4096, 4096), (3 << 20, 1 << 21), (24, 8)] {
            let before = used_bytes();
            let ptr = alloc(bytes, align).expect("memory").as_ptr();
            assert!(used_bytes() >= before + bytes);
            assert_eq!(ptr.addr() % align, 0);
            assert_ne!(ptr.addr(), last);
            last = ptr.addr();
            for i in 0..bytes.min(5000) {
                // SAFETY: the range was handed out above.
                assert_eq!(unsafe { ptr.wrapping_add(i).read() }, 0);
            }
            // SAFETY: as above.
            unsafe { ptr.write_bytes(0xff, bytes) };
        }
    }

    #[test]
    fn refusal_of_the_system_is_reported() {
        sys::mock::fail_after(Some(0));
        assert!(alloc(2 << 20, 8).is_none());
        sys::mock::fail_after(None);
        assert!(alloc(usize::MAX - 10, 64).is_none());
    }
}
