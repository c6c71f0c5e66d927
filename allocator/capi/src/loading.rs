//! `dlopen` without `RTLD_DEEPBIND`.
//!
//! A library loaded with that flag takes `free` from the C library, whatever was preloaded, and hands it blocks of ours: PHP
//! loads its extensions so, and crashes under every preloaded allocator. The way back (its blocks in our `free`) is
//! passed on, but this one cannot be caught in the C library's `free`, so the flag is taken off before it does harm.
//!
//! What is lost: such a library no longer prefers its own definitions of other names that the program has too.
//!
//! Only in the shared library: the archive keeps the name to itself (`cargo xtask build-alloc`), since a static program has
//! one `free`.
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::std_c::next_symbol;

/// The loader's `dlopen`; null until it is first needed.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// `dlopen(3)`.
///
/// Jumps on instead of calling: the loader takes search paths and namespace from the library that its return address lies in.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {next}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "and esi, {kept}",
        "jmp rax",
        ".cfi_endproc",
        next = sym next,
        kept = const !libc::RTLD_DEEPBIND,
    )
}

extern "C" fn next() -> *mut c_void {
    // Relaxed: whoever finds it finds the same address.
    let known = NEXT.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = next_symbol(c"dlopen", dlopen as *const c_void).unwrap_or(absent as *mut c_void);
    NEXT.store(found, Ordering::Relaxed);
    found
}

/// Stands for the loader's where there is none.
extern "C" fn absent(_path: *const c_char, _flags: c_int) -> *mut c_void {
    core::ptr::null_mut()
}
