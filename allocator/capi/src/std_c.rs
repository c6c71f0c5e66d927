//! `malloc` and its family: C rules, errno, and the way on to the next allocator for pointers that are not ours.
//!
//! | call | failure |
//! |---|---|
//! | `malloc calloc realloc` | null, ENOMEM |
//! | `aligned_alloc` | null, EINVAL or ENOMEM |
//! | `posix_memalign` | returns EINVAL or ENOMEM, errno untouched |
//! | `memalign valloc pvalloc` | null, errno untouched |
//!
//! No successful call changes errno, and `free` never does.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;

use jeprobe_alloc::api::{self, Outlook, foreign};
use jeprobe_alloc::conf::{self, ZeroRealloc};
use jeprobe_alloc::diag::Line;
use jeprobe_alloc::prof::Caller;
use jeprobe_alloc::{stats, sys};

#[cold]
#[inline(never)]
fn set_errno(value: c_int) {
    // SAFETY: the location is the calling thread's own errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.write(value) };
}

fn errno() -> c_int {
    // SAFETY: the location is the calling thread's own errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { place.read() }
}

/// Null with ENOMEM, or the end with `xmalloc`.
#[cold]
#[inline(never)]
fn out_of_memory(call: &str) -> *mut c_void {
    if conf::options().xmalloc {
        Line::new().text("Error in ").text(call).text("(): out of memory").abort();
    }
    set_errno(libc::ENOMEM);
    core::ptr::null_mut()
}

#[cold]
fn out_of_aligned_memory() {
    if conf::options().xmalloc {
        Line::new().text("Error allocating aligned memory: out of memory").abort();
    }
}

#[cold]
fn bad_alignment() {
    if conf::options().xmalloc {
        Line::new().text("Error allocating aligned memory: invalid alignment").abort();
    }
}

/// What is left of an entry point, which jumps here: the stack is as its caller left it. So who that is need not be walked for
/// when the block is sampled, but goes on in the three registers that come behind those of the arguments.
macro_rules! hand_on {
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty, $pc:literal, $sp:literal, $bp:literal, $further:ident) => {
        #[cold]
        #[unsafe(naked)]
        extern "C" fn $name($($arg: $type),*) -> $result {
            core::arch::naked_asm!(
                concat!("mov ", $pc, ", [rsp]"),
                concat!("lea ", $sp, ", [rsp + 8]"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {further}",
                further = sym $further
            )
        }
    };
}
pub(crate) use hand_on;

/// `malloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    match api::malloc_cached(size) {
        Some(block) => block.as_ptr().cast(),
        None => malloc_slow(size),
    }
}

hand_on!(malloc_slow(size: usize) -> *mut c_void, "rsi", "rdx", "rcx", malloc_for);

/// `pc`, `sp`, `bp`: as for `Caller::new`.
#[cold]
extern "C" fn malloc_for(size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    match api::malloc_sampled(size, Caller::new(pc, sp, bp)) {
        Some(block) => block.cast(),
        None => malloc_rest(size, pc, sp, bp),
    }
}

#[cold]
#[inline(never)]
extern "C" fn malloc_rest(size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    let block = api::malloc_rest(size, Caller::new(pc, sp, bp));
    if block.is_null() { out_of_memory("malloc") } else { block.cast() }
}

/// `calloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match api::calloc_cached(count, size) {
        Some(block) => block.as_ptr().cast(),
        None => calloc_slow(count, size),
    }
}

hand_on!(calloc_slow(count: usize, size: usize) -> *mut c_void, "rdx", "rcx", "r8", calloc_for);

#[cold]
extern "C" fn calloc_for(count: usize, size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    match api::calloc_sampled(count, size, Caller::new(pc, sp, bp)) {
        Some(block) => block.cast(),
        None => calloc_rest(count, size, pc, sp, bp),
    }
}

#[cold]
#[inline(never)]
extern "C" fn calloc_rest(count: usize, size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    let block = api::calloc_rest(count, size, Caller::new(pc, sp, bp));
    if block.is_null() { out_of_memory("calloc") } else { block.cast() }
}

/// `realloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    if ptr.is_null() {
        return match api::malloc_cached(size) {
            Some(block) => block.as_ptr().cast(),
            None => realloc_slow(ptr, size),
        };
    }
    if size == 0 {
        return realloc_slow(ptr, size);
    }
    match api::outlook(ptr.cast(), size) {
        Outlook::Stays => ptr,
        Outlook::Moves(bytes) => realloc_moving(ptr, size, bytes),
        Outlook::Rest => realloc_slow(ptr, size),
    }
}

/// `realloc` jumps here: it keeps no frame of its own for what most calls do not need.
#[inline(never)]
extern "C" fn realloc_moving(ptr: *mut c_void, size: usize, bytes: usize) -> *mut c_void {
    // SAFETY: S1 by the contract of the C function, S2 as it was looked at.
    match unsafe { api::realloc_moving(ptr.cast(), size, bytes) } {
        Some(moved) => moved.as_ptr().cast(),
        None => realloc_slow(ptr, size),
    }
}

hand_on!(realloc_slow(ptr: *mut c_void, size: usize) -> *mut c_void, "rdx", "rcx", "r8", realloc_for);

#[cold]
extern "C" fn realloc_for(ptr: *mut c_void, size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    let caller = Caller::new(pc, sp, bp);
    let block = if ptr.is_null() {
        api::malloc_slow_for(size, caller)
    } else if size == 0 {
        return realloc_to_zero(ptr);
    } else {
        // SAFETY: S1 by the contract of the C function; the fast path left the block as it was.
        unsafe { api::realloc_rest(ptr.cast(), size, caller) }
    };
    if block.is_null() { out_of_memory("realloc") } else { block.cast() }
}

#[cold]
fn realloc_to_zero(ptr: *mut c_void) -> *mut c_void {
    stats::count_zero_realloc();
    match conf::options().zero_realloc {
        ZeroRealloc::Free => {
            // SAFETY: S1 by the contract of the C function.
            unsafe { api::free(ptr.cast()) };
            core::ptr::null_mut()
        }
        ZeroRealloc::Alloc => {
            // SAFETY: S1 by the contract of the C function.
            let block = unsafe { api::realloc(ptr.cast(), 0) };
            if block.is_null() { out_of_memory("realloc") } else { block.cast() }
        }
        ZeroRealloc::Abort => Line::new().text("Called realloc(non-null-ptr, 0) with zero_realloc:abort set").abort(),
    }
}

/// `free(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn free(ptr: *mut c_void) {
    // SAFETY: S1 by the contract of the C function.
    unsafe { api::free(ptr.cast()) };
}

/// `free_sized(3)` of C23.
#[unsafe(no_mangle)]
pub extern "C" fn free_sized(ptr: *mut c_void, _size: usize) {
    // SAFETY: S1 by the contract of the C function.
    unsafe { api::free(ptr.cast()) };
}

/// `free_aligned_sized(3)` of C23.
#[unsafe(no_mangle)]
pub extern "C" fn free_aligned_sized(ptr: *mut c_void, _align: usize, _size: usize) {
    // SAFETY: S1 by the contract of the C function.
    unsafe { api::free(ptr.cast()) };
}

/// `posix_memalign(3)`.
///
/// # Safety
/// S1: `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if align >= size_of::<*mut c_void>()
        && let Some(block) = aligned_cached(align, size)
    {
        // SAFETY: S1.
        unsafe { out.write(block.as_ptr().cast()) };
        return 0;
    }
    posix_memalign_slow(out, align, size)
}

hand_on!(
    posix_memalign_slow(out: *mut *mut c_void, align: usize, size: usize) -> c_int,
    "rcx", "r8", "r9", posix_memalign_for
);

/// # Safety
/// S1: as for [`posix_memalign`].
#[cold]
unsafe extern "C" fn posix_memalign_for(
    out: *mut *mut c_void,
    align: usize,
    size: usize,
    pc: u64,
    sp: u64,
    bp: u64,
) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        bad_alignment();
        return libc::EINVAL;
    }
    let block = aligned_for(align, size, pc, sp, bp);
    if block.is_null() {
        out_of_aligned_memory();
        return libc::ENOMEM;
    }
    // SAFETY: S1.
    unsafe { out.write(block) };
    0
}

/// `aligned_alloc(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if let Some(block) = aligned_cached(align, size) {
        return block.as_ptr().cast();
    }
    aligned_alloc_slow(align, size)
}

hand_on!(aligned_alloc_slow(align: usize, size: usize) -> *mut c_void, "rdx", "rcx", "r8", aligned_alloc_for);

#[cold]
extern "C" fn aligned_alloc_for(align: usize, size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    if !align.is_power_of_two() {
        bad_alignment();
        set_errno(libc::EINVAL);
        return core::ptr::null_mut();
    }
    let block = aligned_for(align, size, pc, sp, bp);
    if block.is_null() {
        out_of_aligned_memory();
        set_errno(libc::ENOMEM);
    }
    block
}

/// `memalign(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    if let Some(block) = aligned_cached(align, size) {
        return block.as_ptr().cast();
    }
    memalign_slow(align, size)
}

hand_on!(memalign_slow(align: usize, size: usize) -> *mut c_void, "rdx", "rcx", "r8", memalign_for);

#[cold]
extern "C" fn memalign_for(align: usize, size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    if !align.is_power_of_two() {
        bad_alignment();
        return core::ptr::null_mut();
    }
    let block = aligned_for(align, size, pc, sp, bp);
    if block.is_null() {
        out_of_aligned_memory();
    }
    block
}

/// What most aligned allocations are; `None` is for the slow path, a wrong alignment included.
#[inline(always)]
fn aligned_cached(align: usize, size: usize) -> Option<NonNull<u8>> {
    if align.is_power_of_two() { api::memalign_cached(size, align) } else { None }
}

/// What is left of an aligned allocation; `align` is a power of two.
#[inline(always)]
fn aligned_for(align: usize, size: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    api::memalign_slow_for(size, align, Caller::new(pc, sp, bp)).cast()
}

/// `valloc(3)`; size 0 gives a block of the smallest class without alignment, as with jemalloc.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    if size == 0 {
        return api::malloc(0).cast();
    }
    memalign(sys::page_size(), size)
}

/// `pvalloc(3)`: as `valloc`, the size rounded up to the page; null when that overflows.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    if size == 0 {
        return api::malloc(0).cast();
    }
    let page = sys::page_size();
    match size.checked_next_multiple_of(page) {
        Some(rounded) => memalign(page, rounded),
        None => core::ptr::null_mut(),
    }
}

/// `malloc_usable_size(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    api::usable_size(ptr.cast())
}

/// The next definition of a symbol behind this library, unless it is this library's own.
pub(crate) fn next_symbol(name: &CStr, own: *const c_void) -> Option<*mut c_void> {
    let before = errno();
    // SAFETY: the name is NUL-terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    set_errno(before);
    (!found.is_null() && !core::ptr::eq(found, own)).then_some(found)
}

fn next_free(ptr: *mut u8) -> Option<()> {
    let found = next_symbol(c"free", free as *const c_void)?;
    // SAFETY: a symbol named `free` of another library has the C signature of `free`.
    let call: extern "C" fn(*mut c_void) = unsafe { core::mem::transmute(found) };
    call(ptr.cast());
    Some(())
}

fn next_realloc(ptr: *mut u8, size: usize) -> Option<*mut u8> {
    let found = next_symbol(c"realloc", realloc as *const c_void)?;
    // SAFETY: as in `next_free`.
    let call: extern "C" fn(*mut c_void, usize) -> *mut c_void = unsafe { core::mem::transmute(found) };
    Some(call(ptr.cast(), size).cast())
}

fn next_usable_size(ptr: *mut u8) -> Option<usize> {
    let found = next_symbol(c"malloc_usable_size", malloc_usable_size as *const c_void)?;
    // SAFETY: as in `next_free`.
    let call: extern "C" fn(*mut c_void) -> usize = unsafe { core::mem::transmute(found) };
    Some(call(ptr.cast()))
}

/// Tells the allocator about the next one.
pub(crate) fn register() {
    foreign::set_next(foreign::Next { free: next_free, realloc: next_realloc, usable_size: next_usable_size });
}
