//! `mallocx` and its family: jemalloc's extended calls. Failure is null or 0; errno is never set.

use core::ffi::{c_int, c_void};

use jeprobe_alloc::api::{self, CacheChoice, Flags, Outlook, Place};
use jeprobe_alloc::prof::Caller;
use jeprobe_alloc::sizeclass;

use super::std_c::hand_on;

/// Allocates at least `size` bytes as `flags` say.
#[unsafe(no_mangle)]
pub extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    if flags == 0
        && let Some(block) = api::malloc_cached(size)
    {
        return block.as_ptr().cast();
    }
    mallocx_slow(size, flags)
}

hand_on!(mallocx_slow(size: usize, flags: c_int) -> *mut c_void, "rdx", "rcx", "r8", mallocx_for);

extern "C" fn mallocx_for(size: usize, flags: c_int, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    let (flags, caller) = (Flags(flags), Caller::new(pc, sp, bp));
    let block = match (flags.align(), flags.zero(), flags.place()) {
        (1, false, DEFAULT) => api::malloc_slow_for(size, caller),
        (1, true, DEFAULT) => match api::calloc_cached(1, size) {
            Some(block) => block.as_ptr(),
            None => api::calloc_slow_for(1, size, caller),
        },
        (align, false, DEFAULT) => match api::memalign_cached(size, align) {
            Some(block) => block.as_ptr(),
            None => api::memalign_slow_for(size, align, caller),
        },
        (align, zero, place) => api::allocate_for(size, align, zero, place, caller),
    };
    block.cast()
}

/// Nothing said of cache and arena.
const DEFAULT: Place = Place { cache: CacheChoice::Automatic, arena: None };

/// Resizes a block, moving it if need be.
#[unsafe(no_mangle)]
pub extern "C" fn rallocx(ptr: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    rallocx_slow(ptr, size, flags)
}

hand_on!(
    rallocx_slow(ptr: *mut c_void, size: usize, flags: c_int) -> *mut c_void,
    "rcx", "r8", "r9", rallocx_for
);

extern "C" fn rallocx_for(ptr: *mut c_void, size: usize, flags: c_int, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    if flags == 0 {
        match api::outlook(ptr.cast(), size) {
            Outlook::Stays => return ptr,
            Outlook::Moves(bytes) => {
                // SAFETY: S1 by the contract of the C function, S2 as it was looked at.
                if let Some(moved) = unsafe { api::realloc_moving(ptr.cast(), size, bytes) } {
                    return moved.as_ptr().cast();
                }
            }
            Outlook::Rest => {}
        }
    }
    let (flags, caller) = (Flags(flags), Caller::new(pc, sp, bp));
    // SAFETY: S1 by the contract of the C function.
    unsafe { api::realloc_for(ptr.cast(), size, flags.align(), flags.zero(), flags.place(), caller) }.cast()
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
