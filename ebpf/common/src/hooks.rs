//! Probe sites of the allocator: exported symbols, their arguments and the ELF notes that describe them.
//!
//! Each hook is an exported function whose first instruction is a one-byte `nop`; the notes name the address of that
//! nop. Never a longer nop: Linux 6.18 turns a probe on a 5-byte nop into a call through a trampoline that `fork` does
//! not copy.
//!
//! | symbol | arguments in `SysV` order | notes | semaphore |
//! |---|---|---|---|
//! | `jeprobe_hook_alloc` | ptr, usable bytes, weight bytes, context, requested bytes | `otel_memory:alloc` (first three), `jeprobe:alloc` (all) | `jeprobe_alloc_semaphore` |
//! | `jeprobe_hook_free` | ptr, usable bytes, context | `otel_memory:free` (first), `jeprobe:free` (all) | `jeprobe_free_semaphore` |
//! | `jeprobe_hook_dump` | sequence, reason, path pointer | `jeprobe:dump` | `jeprobe_dump_semaphore` |
//! | `jeprobe_hook_context` | context, depth | `jeprobe:context` | `jeprobe_ctx_semaphore` |
//! | behind `jeprobe_hook_dump` | none, never executed | `jeprobe:record` | `jeprobe_alloc_semaphore` |
//! | behind that | none, never executed | `jeprobe:unwind` | `jeprobe_ctx_semaphore` |
//!
//! `context` is the address of a [`crate::root::Context`], or 0 when the process did not unwind. The allocator unwinds
//! when profiling is active or when `jeprobe_ctx_semaphore` is raised; `jeprobe_hook_context` fires when it records
//! a stack that it had not seen before, and gives the loader a place whose probe raises that semaphore.
//!
//! While `jeprobe_alloc_semaphore` is raised the process samples into its profile table and keeps cumulative counts
//! there, also with profiling inactive and without `prof_accum`. A loader that would rather read the table than have
//! each sample trap into the kernel probes `jeprobe:record` and `jeprobe:unwind` alone.
#![forbid(unsafe_code)]

/// Provider of the notes with all arguments.
pub const PROVIDER: &str = "jeprobe";
/// Provider of the OpenTelemetry profiler's contract.
pub const PROVIDER_OTEL: &str = "otel_memory";

pub const HOOK_ALLOC: &str = "jeprobe_hook_alloc";
pub const HOOK_FREE: &str = "jeprobe_hook_free";
pub const HOOK_DUMP: &str = "jeprobe_hook_dump";
pub const HOOK_CONTEXT: &str = "jeprobe_hook_context";

pub const SEMAPHORE_ALLOC: &str = "jeprobe_alloc_semaphore";
pub const SEMAPHORE_FREE: &str = "jeprobe_free_semaphore";
pub const SEMAPHORE_DUMP: &str = "jeprobe_dump_semaphore";
pub const SEMAPHORE_CONTEXT: &str = "jeprobe_ctx_semaphore";

/// Names of the notes, `provider:name`.
pub const NOTE_ALLOC: &str = "alloc";
pub const NOTE_FREE: &str = "free";
pub const NOTE_DUMP: &str = "dump";
pub const NOTE_CONTEXT: &str = "context";
pub const NOTE_RECORD: &str = "record";
pub const NOTE_UNWIND: &str = "unwind";

/// Exported data symbol: the profile table's root, see [`crate::root::Root`].
pub const ROOT_SYMBOL: &str = "jeprobe_root";
/// Owner and type of the ELF note that gives the root's address in stripped and static programs. Its descriptor is
/// three 64-bit words: address of the root, address of the retained base section (both as in the file, so that a
/// loader can correct for prelink as with `.note.stapsdt`), and the ABI version.
pub const ROOT_NOTE_OWNER: &str = "jeprobe";
pub const ROOT_NOTE_TYPE: u32 = 1;

/// The first instruction of every hook.
pub const PROBE_BYTE: u8 = 0x90;

/// Why the process wrote a profile: second argument of the dump hook.
pub const DUMP_REASON_MALLCTL: u64 = 1;
pub const DUMP_REASON_FINAL: u64 = 2;
pub const DUMP_REASON_INTERVAL: u64 = 3;
pub const DUMP_REASON_GDUMP: u64 = 4;
pub const DUMP_REASON_REQUEST: u64 = 5;
