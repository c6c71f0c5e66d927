//! The operating system, as the allocator needs it.
//!
//! Owns every system call. All calls are made directly (no libc wrapper), because wrappers set `errno`, may be
//! interposed, and `read`/`write`/`close` are cancellation points. The few facts that only libc knows (auxiliary vector,
//! thread keys, fork handlers) are asked from libc where they are used: `thread.rs`, `fork.rs`, `background.rs`.
//!
//! Memory states as the callers see them:
//!
//! | call | contents afterwards | resident | address space |
//! |---|---|---|---|
//! | [`reserve`] | zero | none until touched | ours |
//! | [`purge_lazy`] | old bytes or zero, page by page | until the kernel wants them | ours |
//! | [`purge_forced`] | zero | none | ours |
//! | [`release`] | gone | none | the kernel's |
//!
//! With `cfg(test)`, `mock` can make the next reservations fail.

#[cfg(test)]
pub(crate) mod mock;

#[cfg(target_arch = "x86_64")]
pub(crate) mod cpu;
#[cfg(target_arch = "x86_64")]
pub(crate) mod file;
#[cfg(target_arch = "x86_64")]
mod linux;
#[cfg(target_arch = "x86_64")]
pub(crate) mod stack;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("jeprobe-alloc runs on x86-64 Linux");

pub use linux::{
    advise_huge, barrier_in_all_threads, cgroup_cpu_quota, clock_monotonic_ns, clock_recent_ns, close, copy_memory_of,
    cpus_allowed, exit_group_abort, futex_wait, futex_wake, getpid, gettid, is_mapped, open_read, open_write,
    page_size, purge_forced, purge_lazy, read, read_link, release, remap_inaccessible, reserve, resident_bytes,
    sleep_ns, touch_ns, write, write_all, zero_resident,
};

/// An errno value, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);
