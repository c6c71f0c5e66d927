//! The probe sites: exported functions that do nothing, the ELF notes that describe them, and the semaphores by which
//! an attached tracer asks for them.
//!
//! The contract (names, argument order, note format) is `jeprobe_abi::hooks`. Here it becomes bytes:
//!
//! ```text
//!  .text   jeprobe_hook_alloc:  nop            ◄── probed address, one byte
//!                               ret
//!                               .quad base     keeps .stapsdt.base when sections are collected
//!  .note.stapsdt                owner "stapsdt", type 3: address of the nop, of the base, of the semaphore,
//!                               provider, name, argument text
//!  .probes                      four u16 semaphores, raised and lowered by the kernel while a probe is attached
//!  .note.jeprobe                address of jeprobe_root
//!
//!  jeprobe_hook_dump:           nop            probed
//!                               ret
//!                               nop            never executed: `jeprobe:record`
//!                               nop            never executed: `jeprobe:unwind`
//! ```
//!
//! I-HOOK-1: the first instruction is the one-byte nop. A probe on a longer one becomes a call through memory that a
//! forked child does not have. I-HOOK-2: the semaphores lie in initialised, writable data outside RELRO: the kernel
//! finds them by file offset and writes to them. I-HOOK-3: the notes are made inside the functions' own assembly, so
//! that whatever keeps a function keeps its notes.
//!
//! Callers pay for a hook only after they saw its semaphore raised.

use core::arch::naked_asm;
use core::sync::atomic::AtomicU16;

macro_rules! semaphore {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".probes")]
        #[used]
        pub static $name: AtomicU16 = AtomicU16::new(0);
    };
}

semaphore!(jeprobe_alloc_semaphore);
semaphore!(jeprobe_free_semaphore);
semaphore!(jeprobe_dump_semaphore);
semaphore!(jeprobe_ctx_semaphore);

/// True while a tracer is attached to the hook of `semaphore`.
#[inline]
fn raised(semaphore: &AtomicU16) -> bool {
    // SAFETY: a live static. Volatile, because the kernel writes it and the compiler sees no store.
    unsafe { semaphore.as_ptr().read_volatile() != 0 }
}

#[inline]
pub(crate) fn alloc_wanted() -> bool {
    raised(&jeprobe_alloc_semaphore)
}

#[inline]
pub(crate) fn free_wanted() -> bool {
    raised(&jeprobe_free_semaphore)
}

#[inline]
pub(crate) fn dump_wanted() -> bool {
    raised(&jeprobe_dump_semaphore)
}

/// True while someone wants the process to unwind for him.
#[inline]
pub(crate) fn context_wanted() -> bool {
    raised(&jeprobe_ctx_semaphore)
}

/// One `SystemTap` note for the nop at local label 990.
macro_rules! note {
    ($provider:literal, $name:literal, $semaphore:literal, $arguments:literal) => {
        concat!(
            ".pushsection .note.stapsdt,\"\",@note\n",
            ".balign 4\n",
            ".4byte 992f-991f, 994f-993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .8byte 990b\n",
            ".8byte _.stapsdt.base\n",
            ".8byte ",
            $semaphore,
            "\n",
            ".asciz \"",
            $provider,
            "\"\n",
            ".asciz \"",
            $name,
            "\"\n",
            ".asciz \"",
            $arguments,
            "\"\n",
            "994: .balign 4\n",
            ".popsection",
        )
    };
}

/// A sampled allocation.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn jeprobe_hook_alloc(
    ptr: usize,
    usable_bytes: u64,
    weight_bytes: u64,
    context: usize,
    requested_bytes: u64,
) {
    naked_asm!(
        "990: nop",
        "ret",
        ".8byte _.stapsdt.base - .",
        ".pushsection .stapsdt.base,\"aGR\",@progbits,.stapsdt.base,comdat",
        ".weak _.stapsdt.base",
        ".hidden _.stapsdt.base",
        "_.stapsdt.base: .space 1",
        ".size _.stapsdt.base, 1",
        ".popsection",
        note!("otel_memory", "alloc", "jeprobe_alloc_semaphore", "8@%rdi 8@%rsi 8@%rdx"),
        note!("jeprobe", "alloc", "jeprobe_alloc_semaphore", "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8"),
        ".pushsection .note.jeprobe,\"\",@note",
        ".balign 4",
        ".4byte 8, 24, 1",
        ".asciz \"jeprobe\"",
        ".8byte jeprobe_root",
        ".8byte _.stapsdt.base",
        ".8byte {version}",
        ".popsection",
        version = const jeprobe_abi::abi::ABI_VERSION,
    )
}

/// Fires [`jeprobe_hook_alloc`] without a context, as if the place after the program's call to the allocator had called
/// it: a walk by frame pointers, such as the kernel's, goes from the hook to `ip`, then to the frames from `bp` on. The
/// allocator itself has none.
///
/// ```text
///  rbp ─► bp | ip | caller's rbp | return address
/// ```
#[unsafe(naked)]
pub(crate) extern "C" fn alloc_from(
    ptr: usize,
    usable_bytes: u64,
    weight_bytes: u64,
    ip: u64,
    requested_bytes: u64,
    bp: u64,
) {
    // Three words after the return address: the stack is aligned at the call. The arguments of the hook are in place but
    // for its context, whose register brought `ip`.
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        "mov rbp, rsp",
        "xor ecx, ecx",
        "call {hook}",
        "add rsp, 16",
        ".cfi_adjust_cfa_offset -16",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
        hook = sym jeprobe_hook_alloc,
    )
}

/// A sampled object is freed.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn jeprobe_hook_free(ptr: usize, usable_bytes: u64, context: usize) {
    naked_asm!(
        "990: nop",
        "ret",
        note!("otel_memory", "free", "jeprobe_free_semaphore", "8@%rdi"),
        note!("jeprobe", "free", "jeprobe_free_semaphore", "8@%rdi 8@%rsi 8@%rdx"),
    )
}

/// The process wrote a profile. Behind it, the two places that are never executed: a probe there raises its semaphore and
/// costs the process nothing.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn jeprobe_hook_dump(sequence: u64, reason: u64, path: *const u8) {
    naked_asm!(
        "990: nop",
        "ret",
        note!("jeprobe", "dump", "jeprobe_dump_semaphore", "8@%rdi 8@%rsi 8@%rdx"),
        "990: nop",
        note!("jeprobe", "record", "jeprobe_alloc_semaphore", ""),
        "990: nop",
        note!("jeprobe", "unwind", "jeprobe_ctx_semaphore", ""),
    )
}

/// The process met a stack that it had not seen before.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn jeprobe_hook_context(context: usize, depth: u64) {
    naked_asm!("990: nop", "ret", note!("jeprobe", "context", "jeprobe_ctx_semaphore", "8@%rdi 8@%rsi"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_byte(hook: *const u8) -> u8 {
        // SAFETY: code is readable, and the function has at least one byte.
        unsafe { hook.read() }
    }

    #[test]
    fn every_hook_begins_with_a_one_byte_nop_and_returns() {
        for hook in [
            jeprobe_hook_alloc as *const u8,
            jeprobe_hook_free as *const u8,
            jeprobe_hook_dump as *const u8,
            jeprobe_hook_context as *const u8,
        ] {
            assert_eq!(first_byte(hook), jeprobe_abi::hooks::PROBE_BYTE);
            assert_eq!(first_byte(hook.wrapping_add(1)), 0xc3);
        }
        jeprobe_hook_alloc(1, 2, 3, 4, 5);
        jeprobe_hook_dump(1, 2, core::ptr::null());
        alloc_from(1, 2, 3, 4, 5, 6);
    }

    #[test]
    fn a_semaphore_is_seen_when_raised() {
        assert!(!dump_wanted());
        jeprobe_dump_semaphore.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        assert!(dump_wanted());
        jeprobe_dump_semaphore.fetch_sub(1, core::sync::atomic::Ordering::Relaxed);
    }
}
