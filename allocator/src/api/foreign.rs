//! Pointers that are not ours: handed to the allocator that comes next, if the C layer knows one, else reported.
#![forbid(unsafe_code)]

use crate::conf;
use crate::diag;
use crate::sync::once::OnceCell;
use crate::sys;

/// The next allocator in the process. Each answers `None` when there is none.
#[derive(Clone, Copy)]
pub struct Next {
    /// Frees the block.
    pub free: fn(*mut u8) -> Option<()>,
    /// Resizes the block.
    pub realloc: fn(*mut u8, usize) -> Option<*mut u8>,
    /// Usable bytes of the block.
    pub usable_size: fn(*mut u8) -> Option<usize>,
}

static NEXT: OnceCell<Next> = OnceCell::new();

/// Registers the next allocator; the first one stays.
pub fn set_next(next: Next) {
    NEXT.set(next);
}

#[cold]
#[inline(never)]
pub(super) fn free(ptr: *mut u8) {
    refuse_wild("free", ptr);
    if NEXT.get().and_then(|next| (next.free)(ptr)).is_none() {
        report("free", ptr);
    }
}

#[cold]
#[inline(never)]
pub(super) fn realloc(ptr: *mut u8, size: usize) -> *mut u8 {
    refuse_wild("realloc", ptr);
    NEXT.get().and_then(|next| (next.realloc)(ptr, size)).unwrap_or_else(|| {
        report("realloc", ptr);
        core::ptr::null_mut()
    })
}

#[cold]
#[inline(never)]
pub(super) fn usable_size(ptr: *mut u8) -> usize {
    refuse_wild("malloc_usable_size", ptr);
    NEXT.get().and_then(|next| (next.usable_size)(ptr)).unwrap_or_else(|| {
        report("malloc_usable_size", ptr);
        0
    })
}

/// Any allocator keeps something before or at its blocks. An address whose surroundings cannot be read, or that is no
/// multiple of eight, is no block of anybody: to pass it on would crash without a word.
fn refuse_wild(call: &str, ptr: *mut u8) {
    let before = ptr.addr().wrapping_sub(2 * size_of::<usize>());
    if ptr.addr().is_multiple_of(8) && sys::is_mapped(before) && sys::is_mapped(ptr.addr()) {
        return;
    }
    let line = diag::Line::new().text("invalid pointer in ").text(call).text("(): ");
    line.hex(ptr.addr()).text(" is not a block of any allocator").abort();
}

/// Reports a pointer into memory of ours that is no block.
#[cold]
#[inline(never)]
pub(super) fn misuse(call: &str, ptr: *mut u8, what: &str) {
    let line = diag::Line::new().text("invalid pointer in ").text(call).text("(): ").hex(ptr.addr()).text(what);
    if conf::options().abort { line.abort() } else { line.send() }
}

fn report(call: &str, ptr: *mut u8) {
    misuse(call, ptr, " does not belong to this allocator; ignored");
}
