//! The 20 C++ allocation operators.
//!
//! ```text
//!  operator new ──► cached? ──► block                                          as short as malloc
//!                     └ no ──► jeprobe_new_throwing / jeprobe_new_quiet         assembly, tail-jumped to
//!                                 loop: attempt ──► block
//!                                         └ none ──► new_handler? ──► call it, again
//!                                                       └ none ──► std::__throw_bad_alloc   tail-jumped to, or null
//! ```
//!
//! A handler and the throw unwind through the caller of the operator. No Rust frame may lie on that way (this library is
//! built to abort on panic, and Rust lets no foreign exception through), so the slow paths are assembly with their own
//! unwind tables, and call Rust only for steps that cannot throw. The quiet one has a landing pad, because
//! `operator new(size, std::nothrow)` turns an exception of the handler into null.
//!
//! The library is not linked to a C++ runtime. Its three functions are weak references; for a runtime that a plugin
//! brought in later they are asked from the loaded libraries at the time of failure. Without any runtime there is
//! nothing that could catch: one line, then abort.
//!
//! Unlike jemalloc, a retry after the handler keeps the alignment that was asked for.
use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char, c_int, c_void};

use jeprobe_alloc::api;
use jeprobe_alloc::prof::Caller;
use jeprobe_alloc::{conf, diag};

unsafe extern "C" {
    /// Allocates `size` bytes at `align` (0 = the usual), calls new handlers, throws `std::bad_alloc` at the end.
    fn jeprobe_new_throwing(size: usize, align: usize) -> *mut c_void;
    /// The same, null at the end.
    fn jeprobe_new_quiet(size: usize, align: usize) -> *mut c_void;
}

// Both functions are jumped to with the stack as the caller of the operator left it: its registers are the last three arguments
// of the first attempt. They keep size in rbx and alignment in r12, 16-byte stack alignment at calls, and CFI that is right at each
// call, since any of the handler's frames may unwind through here.
global_asm!(
    ".pushsection .text.jeprobe_new_throwing,\"ax\",@progbits",
    ".p2align 4",
    ".globl jeprobe_new_throwing",
    ".hidden jeprobe_new_throwing",
    ".type jeprobe_new_throwing,@function",
    "jeprobe_new_throwing:",
    ".cfi_startproc",
    "mov rdx, [rsp]",
    "lea rcx, [rsp + 8]",
    "mov r8, rbp",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2:",
    "mov rdi, rbx",
    "mov rsi, r12",
    "call {attempt}",
    "test rax, rax",
    "jne 3f",
    "call {new_handler}",
    "test rax, rax",
    "je 4f",
    "call rax",
    "xor edx, edx",
    "jmp 2b",
    "4:",
    "mov rdi, rbx",
    "call {thrower}",
    ".cfi_remember_state",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "jmp rax",
    ".cfi_restore_state",
    "3:",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".size jeprobe_new_throwing, . - jeprobe_new_throwing",
    ".popsection",
    attempt = sym attempt,
    new_handler = sym new_handler,
    thrower = sym thrower,
);

// The table of the landing pad (Itanium C++ ABI, exception tables): one call site, one action, type 0 = catch all.
global_asm!(
    ".weak __gxx_personality_v0",
    ".weak __cxa_begin_catch",
    ".weak __cxa_end_catch",
    ".pushsection .data.rel.ro.jeprobe_new_personality,\"aw\",@progbits",
    ".p2align 3",
    ".Ljeprobe_new_personality:",
    ".quad __gxx_personality_v0",
    ".popsection",
    ".pushsection .gcc_except_table.jeprobe_new_quiet,\"a\",@progbits",
    ".p2align 2",
    ".Ljeprobe_new_table:",
    ".byte 0xff",
    ".byte 0x00",
    ".uleb128 .Ljeprobe_new_types - .Ljeprobe_new_types_from",
    ".Ljeprobe_new_types_from:",
    ".byte 0x01",
    ".uleb128 .Ljeprobe_new_sites_end - .Ljeprobe_new_sites",
    ".Ljeprobe_new_sites:",
    ".uleb128 .Ljeprobe_new_try - jeprobe_new_quiet",
    ".uleb128 .Ljeprobe_new_try_end - .Ljeprobe_new_try",
    ".uleb128 .Ljeprobe_new_catch - jeprobe_new_quiet",
    ".uleb128 1",
    ".Ljeprobe_new_sites_end:",
    ".byte 1",
    ".byte 0",
    ".quad 0",
    ".Ljeprobe_new_types:",
    ".popsection",
    ".pushsection .text.jeprobe_new_quiet,\"ax\",@progbits",
    ".p2align 4",
    ".globl jeprobe_new_quiet",
    ".hidden jeprobe_new_quiet",
    ".type jeprobe_new_quiet,@function",
    "jeprobe_new_quiet:",
    ".cfi_startproc",
    ".cfi_personality 0x9b, .Ljeprobe_new_personality",
    ".cfi_lsda 0x1b, .Ljeprobe_new_table",
    "mov rdx, [rsp]",
    "lea rcx, [rsp + 8]",
    "mov r8, rbp",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2:",
    "mov rdi, rbx",
    "mov rsi, r12",
    "call {attempt}",
    "test rax, rax",
    "jne 3f",
    "call {new_handler}",
    "test rax, rax",
    "je 3f",
    ".Ljeprobe_new_try:",
    "call rax",
    ".Ljeprobe_new_try_end:",
    "xor edx, edx",
    "jmp 2b",
    // The unwinder enters here with the exception in rax and the registers of this frame restored.
    ".Ljeprobe_new_catch:",
    "mov rdi, rax",
    "call qword ptr [rip + __cxa_begin_catch@GOTPCREL]",
    "call qword ptr [rip + __cxa_end_catch@GOTPCREL]",
    "xor eax, eax",
    "3:",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".size jeprobe_new_quiet, . - jeprobe_new_quiet",
    ".popsection",
    attempt = sym attempt,
    new_handler = sym new_handler,
);

/// One try to allocate; null when there is no memory. `pc`, `sp`, `bp`: as for `Caller::new`; `pc` 0 when unknown. With `experimental_infallible_new` it does not return then.
extern "C" fn attempt(size: usize, align: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    let caller = Caller::new(pc, sp, bp);
    let at_hand =
        if align == 0 { api::malloc_sampled(size, caller) } else { api::memalign_sampled(size, align, caller) };
    match at_hand {
        Some(block) => block.cast(),
        None => attempt_rest(size, align, pc, sp, bp),
    }
}

#[cold]
#[inline(never)]
extern "C" fn attempt_rest(size: usize, align: usize, pc: u64, sp: u64, bp: u64) -> *mut c_void {
    let caller = Caller::new(pc, sp, bp);
    let block = if align == 0 { api::malloc_rest(size, caller) } else { api::memalign_rest(size, align, caller) };
    if block.is_null() && conf::options().experimental_infallible_new {
        give_up(size);
    }
    block.cast()
}

/// A function of its own, so that the line does not lie on the stack of each attempt.
#[cold]
#[inline(never)]
fn give_up(size: usize) -> ! {
    diag::Line::new()
        .text("Allocation of size ")
        .dec(size as u64)
        .text(" failed. opt.experimental_infallible_new is true. Aborting.")
        .abort()
}

/// A function of the C++ runtime, 0 when there is none.
type Address = *const c_void;

/// Address of a symbol that some library may define; null without one.
macro_rules! weak {
    ($name:literal) => {{
        let address: Address;
        // SAFETY: loads one entry of the global offset table.
        unsafe {
            asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        address
    }};
}

/// The handler that the program installed; null when it installed none or has no C++ runtime.
extern "C" fn new_handler() -> Address {
    let get = runtime(weak!("_ZSt15get_new_handlerv"), c"_ZSt15get_new_handlerv");
    if get.is_null() {
        return get;
    }
    // SAFETY: the symbol is `std::get_new_handler`, which takes nothing and returns a function pointer.
    let get = unsafe { core::mem::transmute::<Address, extern "C" fn() -> Address>(get) };
    get()
}

/// `std::__throw_bad_alloc`. Does not return without it.
extern "C" fn thrower(size: usize) -> Address {
    let throw = runtime(weak!("_ZSt17__throw_bad_allocv"), c"_ZSt17__throw_bad_allocv");
    if throw.is_null() {
        diag::Line::new()
            .text("operator new: no memory for ")
            .dec(size as u64)
            .text(" bytes, and no C++ runtime is loaded that could throw std::bad_alloc. Aborting.")
            .abort();
    }
    throw
}

/// `linked`, or the same symbol of a C++ runtime that was loaded after this library.
#[cold]
fn runtime(linked: Address, name: &CStr) -> Address {
    const RUNTIMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"];
    if !linked.is_null() {
        return linked;
    }
    let find = weak!("dlsym");
    if find.is_null() {
        return core::ptr::null();
    }
    // SAFETY: the symbol is libc's `dlsym`.
    let find = unsafe { core::mem::transmute::<Address, extern "C" fn(*mut c_void, *const c_char) -> Address>(find) };
    // Not by a reference of its own: linking a static program against `dlopen` makes the linker warn.
    let open = find(libc::RTLD_DEFAULT, c"dlopen".as_ptr());
    if open.is_null() {
        return core::ptr::null();
    }
    // SAFETY: the symbol is libc's `dlopen`.
    let open = unsafe { core::mem::transmute::<Address, extern "C" fn(*const c_char, c_int) -> *mut c_void>(open) };
    for library in RUNTIMES {
        let handle = open(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            continue;
        }
        // The handle stays open: the runtime must not go while its exception is under way.
        let found = find(handle, name.as_ptr());
        if !found.is_null() {
            return found;
        }
    }
    core::ptr::null()
}

/// Defines exported operators of one shape.
macro_rules! operators {
    ($($(#[$doc:meta])* $symbol:literal = $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(export_name = $symbol)]
        extern "C" fn $name($($arg: $type),*) $(-> $result)? $body
    )*};
}

/// `const std::nothrow_t &`: only its presence counts.
type Nothrow = *const c_void;

operators! {
    /// `new(size)`. The slow path is the last thing done, so that the compiler jumps to it: no frame of this function
    /// may stay on the stack when an exception passes.
    "_Znwm" = new(size: usize) -> *mut c_void {
        match api::malloc_cached(size) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: no requirements; unwinds, but this function has nothing left to do.
            None => unsafe { jeprobe_new_throwing(size, 0) },
        }
    }
    /// `new[](size)`.
    "_Znam" = new_array(size: usize) -> *mut c_void {
        match api::malloc_cached(size) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: as in `new`.
            None => unsafe { jeprobe_new_throwing(size, 0) },
        }
    }
    /// `new(size, nothrow)`.
    "_ZnwmRKSt9nothrow_t" = new_quiet(size: usize, _quiet: Nothrow) -> *mut c_void {
        match api::malloc_cached(size) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: no requirements.
            None => unsafe { jeprobe_new_quiet(size, 0) },
        }
    }
    /// `new[](size, nothrow)`.
    "_ZnamRKSt9nothrow_t" = new_array_quiet(size: usize, _quiet: Nothrow) -> *mut c_void {
        match api::malloc_cached(size) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: no requirements.
            None => unsafe { jeprobe_new_quiet(size, 0) },
        }
    }
    /// `new(size, align)`.
    "_ZnwmSt11align_val_t" = new_aligned(size: usize, align: usize) -> *mut c_void {
        match api::memalign_cached(size, align) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: as in `new`.
            None => unsafe { jeprobe_new_throwing(size, align) },
        }
    }
    /// `new[](size, align)`.
    "_ZnamSt11align_val_t" = new_array_aligned(size: usize, align: usize) -> *mut c_void {
        match api::memalign_cached(size, align) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: as in `new`.
            None => unsafe { jeprobe_new_throwing(size, align) },
        }
    }
    /// `new(size, align, nothrow)`.
    "_ZnwmSt11align_val_tRKSt9nothrow_t" = new_aligned_quiet(size: usize, align: usize, _quiet: Nothrow) -> *mut c_void {
        match api::memalign_cached(size, align) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: no requirements.
            None => unsafe { jeprobe_new_quiet(size, align) },
        }
    }
    /// `new[](size, align, nothrow)`.
    "_ZnamSt11align_val_tRKSt9nothrow_t" = new_array_aligned_quiet(size: usize, align: usize, _quiet: Nothrow) -> *mut c_void {
        match api::memalign_cached(size, align) {
            Some(block) => block.as_ptr().cast(),
            // SAFETY: no requirements.
            None => unsafe { jeprobe_new_quiet(size, align) },
        }
    }
}

// The page map knows the size and alignment of every block, so the sized forms need nothing but the pointer.
operators! {
    /// `delete(ptr)`.
    "_ZdlPv" = delete(ptr: *mut c_void) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete[](ptr)`.
    "_ZdaPv" = delete_array(ptr: *mut c_void) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete(ptr, nothrow)`, called when a constructor throws.
    "_ZdlPvRKSt9nothrow_t" = delete_quiet(ptr: *mut c_void, _quiet: Nothrow) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete[](ptr, nothrow)`.
    "_ZdaPvRKSt9nothrow_t" = delete_array_quiet(ptr: *mut c_void, _quiet: Nothrow) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete(ptr, size)`.
    "_ZdlPvm" = delete_sized(ptr: *mut c_void, _size: usize) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete[](ptr, size)`.
    "_ZdaPvm" = delete_array_sized(ptr: *mut c_void, _size: usize) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete(ptr, align)`.
    "_ZdlPvSt11align_val_t" = delete_aligned(ptr: *mut c_void, _align: usize) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete[](ptr, align)`.
    "_ZdaPvSt11align_val_t" = delete_array_aligned(ptr: *mut c_void, _align: usize) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete(ptr, align, nothrow)`.
    "_ZdlPvSt11align_val_tRKSt9nothrow_t" = delete_aligned_quiet(ptr: *mut c_void, _align: usize, _quiet: Nothrow) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete[](ptr, align, nothrow)`.
    "_ZdaPvSt11align_val_tRKSt9nothrow_t" = delete_array_aligned_quiet(ptr: *mut c_void, _align: usize, _quiet: Nothrow) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete(ptr, size, align)`.
    "_ZdlPvmSt11align_val_t" = delete_sized_aligned(ptr: *mut c_void, _size: usize, _align: usize) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
    /// `delete[](ptr, size, align)`.
    "_ZdaPvmSt11align_val_t" = delete_array_sized_aligned(ptr: *mut c_void, _size: usize, _align: usize) {
        // SAFETY: S1 by the contract of operator delete.
        unsafe { api::free(ptr.cast()) };
    }
}
