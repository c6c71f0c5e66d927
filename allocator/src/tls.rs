//! The thread's own words: initial-exec thread-local storage on stable Rust.
//!
//! | word | bytes | holds | written by |
//! |---|---|---|---|
//! | slot | 8 | pointer to the thread's [`crate::thread::Slot`]; defined there, with its initial value | the owning thread |
//! | held | 8, debug builds only | bit set of the lock ranks held | `sync::rank` |
//!
//! Initial-exec costs 8 bytes of the static TLS reserve, so a late `dlopen` of the library finds room, and reaches the
//! word with one load through the GOT and one `fs`-relative load: no `__tls_get_addr`, no call.
//!
//! States of a thread, and what the slot word holds:
//!
//! | state | word | small allocation and free |
//! |---|---|---|
//! | Unset | the unset slot | slow path starts the thread |
//! | Starting | the closed slot | slow path: arena 0 under its locks |
//! | Ready | the thread's slot | cache |
//! | Exiting | the closed slot | slow path: arena 0 under its locks |
//!
//! The unset and the closed slot are shared, immutable slots whose stacks are empty and full at once, so that the fast
//! path needs no state check. The word is never null: its initial value is part of the TLS image, which the dynamic linker
//! relocates before it copies it.

use core::arch::asm;

#[cfg(debug_assertions)]
core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".hidden jeprobe_tls_held",
    ".globl jeprobe_tls_held",
    ".type jeprobe_tls_held, @object",
    ".size jeprobe_tls_held, 8",
    "jeprobe_tls_held:",
    ".zero 8",
    ".popsection",
);

/// The slot word.
#[inline(always)]
pub(crate) fn slot<T>() -> *mut T {
    let ptr: *mut T;
    // SAFETY: reads the calling thread's own word, which exists as long as the thread. Not `pure`: the word changes.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + jeprobe_tls_slot@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) ptr,
            options(nostack, preserves_flags, readonly)
        );
    }
    ptr
}

/// Sets the slot word.
#[inline]
pub(crate) fn set_slot<T>(ptr: *mut T) {
    // SAFETY: writes the calling thread's own word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + jeprobe_tls_slot@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) ptr,
            options(nostack, preserves_flags)
        );
    }
}

/// Ranks of the locks this thread holds, as a bit set.
#[cfg(debug_assertions)]
pub(crate) fn held() -> u64 {
    let word: u64;
    // SAFETY: as in `slot`.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + jeprobe_tls_held@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) word,
            options(nostack, preserves_flags, readonly)
        );
    }
    word
}

/// Replaces the bit set of held ranks.
#[cfg(debug_assertions)]
pub(crate) fn set_held(word: u64) {
    // SAFETY: as in `set_slot`.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + jeprobe_tls_held@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) word,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_belong_to_the_thread() {
        let mut mine = 5u64;
        let before = slot::<u64>();
        let (first, second) = std::thread::spawn(|| {
            let mut theirs = 6u64;
            let unset = slot::<u64>();
            let first = !slot::<u64>().is_null() && slot::<u64>() != &raw mut theirs;
            set_slot(&raw mut theirs);
            let second = slot::<u64>() == &raw mut theirs;
            set_slot::<u64>(unset);
            (first, second)
        })
        .join()
        .expect("joined");
        assert!(first && second);
        assert_eq!(slot::<u64>(), before);
        set_slot(&raw mut mine);
        assert_eq!(slot::<u64>(), &raw mut mine);
        set_slot(before);
    }
}
