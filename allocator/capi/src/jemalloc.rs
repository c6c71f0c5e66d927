//! `mallocx` and its family: jemalloc's extended calls. Failure is null or 0; errno is never set.

use core::ffi::{c_int, c_void};

use jeprobe_alloc::api::{self, Flags};
use jeprobe_alloc::sizeclass;

/// Allocates at least `size` bytes as `flags` say.
#[unsafe(no_mangle)]
pub extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    if flags == 0 {
        return api::malloc(size).cast();
    }
    let flags = Flags(flags);
    api::allocate(size, flags.align(), flags.zero(), flags.place()).cast()
}

/// Resizes a block, moving it if need be.
#[unsafe(no_mangle)]
pub extern "C" fn rallocx(ptr: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    let flags = Flags(flags);
    // SAFETY: S1 by the contract of the C function.
    unsafe { api::realloc_placed(ptr.cast(), size, flags.align(), flags.zero(), flags.place()) }.cast()
}

/// Resizes a block in place, as far as it goes; its usable size afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn xallocx(ptr: *mut c_void, size: usize, extra: usize, flags: c_int) -> usize {
    let flags = Flags(flags);
    // SAFETY: S1 by the contract of the C function.
    unsafe { api::resize_in_place(ptr.cast(), size, extra, flags.align(), flags.zero()) }
}

/// Usable size of a block.
#[unsafe(no_mangle)]
pub extern "C" fn sallocx(ptr: *const c_void, _flags: c_int) -> usize {
    api::usable_size(ptr.cast_mut().cast())
}

/// Frees a block as `flags` say.
#[unsafe(no_mangle)]
pub extern "C" fn dallocx(ptr: *mut c_void, flags: c_int) {
    if flags == 0 {
        // SAFETY: S1 by the contract of the C function.
        unsafe { api::free(ptr.cast()) };
    } else {
        // SAFETY: S1 by the contract of the C function.
        unsafe { api::free_placed(ptr.cast(), Flags(flags).place()) };
    }
}

/// Frees a block whose size the caller knows.
#[unsafe(no_mangle)]
pub extern "C" fn sdallocx(ptr: *mut c_void, _size: usize, flags: c_int) {
    dallocx(ptr, flags);
}

/// Usable size that `mallocx(size, flags)` would give; 0 when it is too large.
#[unsafe(no_mangle)]
pub extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    let align = Flags(flags).align();
    let usable = if align <= 1 { sizeclass::usable(size) } else { sizeclass::usable_aligned(size, align) };
    usable.unwrap_or(0)
}
