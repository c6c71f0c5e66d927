//! The Rust allocator of the library's own code: unwind tables' indexes, module lists. Never the client's memory.
//!
//! Blocks are powers of two. Small ones come from base memory and go to a free list of their class; large ones are
//! mappings of their own. Nothing here enters the allocator that the library implements, so it may be used wherever the
//! library's locks allow rank `Rust`.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use jeprobe_alloc::rust_lists::{CLASSES, LISTS};
use jeprobe_alloc::{base, sys};

/// 16 bytes: the smallest block, room for a link.
const LG_SMALLEST: u32 = 4;
/// 32 KiB: larger blocks are mappings, which go back to the kernel.
const LG_LARGEST: u32 = 15;
const _: () = assert!((LG_LARGEST - LG_SMALLEST + 1) as usize == CLASSES);

struct Meta;

#[global_allocator]
static META: Meta = Meta;

/// Class of a request, or `None` when it is a mapping. The alignment of a block is its size.
fn class(layout: Layout) -> Option<usize> {
    let lg = layout.size().max(layout.align()).max(1 << LG_SMALLEST).checked_next_power_of_two()?.trailing_zeros();
    (lg <= LG_LARGEST).then_some((lg - LG_SMALLEST) as usize)
}

fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(sys::page_size())
}

// SAFETY: blocks are distinct, large and aligned enough by `class` and `whole_pages`, and stay until they are freed.
unsafe impl GlobalAlloc for Meta {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(layout) else {
            let mapping = whole_pages(layout.size()).and_then(|bytes| sys::reserve(bytes, layout.align().max(4096)));
            return mapping.map_or(core::ptr::null_mut(), NonNull::as_ptr);
        };
        let lists = LISTS.lock();
        // Relaxed, here and below: under the lock.
        if let Some(head) = lists.get(class)
            && let Some(block) = NonNull::new(head.load(Ordering::Relaxed))
        {
            // SAFETY: a block on the list holds its successor in its first word, written by `dealloc`.
            head.store(unsafe { block.cast::<*mut u8>().read() }, Ordering::Relaxed);
            return block.as_ptr();
        }
        drop(lists);
        let bytes = 1 << (class as u32 + LG_SMALLEST);
        base::alloc(bytes, bytes.min(4096)).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let Some(class) = class(layout) else {
            if let Some(bytes) = whole_pages(layout.size()) {
                // SAFETY: S1: the whole mapping made in `alloc` for the same layout, no longer used.
                unsafe { sys::release(ptr, bytes) };
            }
            return;
        };
        let Some(block) = NonNull::new(ptr) else { return };
        let lists = LISTS.lock();
        if let Some(head) = lists.get(class) {
            // SAFETY: the caller gives the block back; it has room for a link and is aligned for one.
            unsafe { block.cast::<*mut u8>().write(head.load(Ordering::Relaxed)) };
            head.store(block.as_ptr(), Ordering::Relaxed);
        }
    }
}
