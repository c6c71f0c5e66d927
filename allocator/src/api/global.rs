//! `#[global_allocator]` for Rust programs.

use core::alloc::{GlobalAlloc, Layout};

use super::flags::Place;
use super::{alloc, free, realloc};

/// The allocator as a Rust global allocator: `#[global_allocator] static A: Jeprobe = Jeprobe;`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jeprobe;

/// Every block above 8 bytes has this alignment without asking.
const FREE_ALIGN: usize = crate::sizeclass::QUANTUM;

fn align_of(layout: Layout) -> usize {
    let align = layout.align();
    if align <= 8 || (align <= FREE_ALIGN && layout.size() > 8) { 1 } else { align }
}

// SAFETY: blocks are disjoint, have the size and alignment asked for, stay valid until freed, and no call unwinds.
unsafe impl GlobalAlloc for Jeprobe {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match align_of(layout) {
            1 => alloc::malloc(layout.size()),
            align => alloc::memalign(layout.size(), align),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: S1 by the contract of `dealloc`.
        unsafe { free::free(ptr) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match align_of(layout) {
            1 => alloc::calloc(1, layout.size()),
            align => alloc::allocate(layout.size(), align, true, Place::default()),
        }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let new = Layout::from_size_align(new_size, layout.align()).unwrap_or(layout);
        match align_of(new) {
            // SAFETY: S1 by the contract of `realloc`.
            1 => unsafe { realloc::realloc(ptr, new_size) },
            // SAFETY: S1 by the contract of `realloc`.
            align => unsafe { realloc::realloc_placed(ptr, new_size, align, false, Place::default()) },
        }
    }
}
