//! Settings written into the kernel object before it is loaded.
#![forbid(unsafe_code)]

/// Read-only data of the kernel object, set by the loader.
///
/// | offset | bytes | name | unit |
/// |---|---|---|---|
/// | 0 | 4 | tgid | process id, 0 = every process |
/// | 4 | 4 | stacks | `STACKS_*` |
/// | 8 | 4 | `fork_pid_offset` | bytes into the record of the tracepoint `task:task_newtask` |
/// | 12 | 4 | `fork_flags_offset` | as before |
/// | 16 | 8 | `wakeup_bytes` | bytes waiting in the ring from which a sample wakes the loader |
/// | 24 | 8 | `pidns_dev` | device of the loader's pid namespace |
/// | 32 | 8 | `pidns_ino` | its inode; 0 = number tasks as the first namespace does |
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Only this process when not 0.
    pub tgid: u32,
    /// `STACKS_*`.
    pub stacks: u32,
    pub fork_pid_offset: u32,
    pub fork_flags_offset: u32,
    pub wakeup_bytes: u64,
    pub pidns_dev: u64,
    pub pidns_ino: u64,
}

impl Config {
    /// Every process, any stack, the layout of `task_newtask` since Linux 3.4, a wake-up at 1 MiB.
    pub const DEFAULT: Config = Config {
        tgid: 0,
        stacks: STACKS_AUTO,
        fork_pid_offset: 8,
        fork_flags_offset: 32,
        wakeup_bytes: 1 << 20,
        pidns_dev: 0,
        pidns_ino: 0,
    };
}

/// Use the context that the process recorded; walk frame pointers when there is none.
pub const STACKS_AUTO: u32 = 0;
/// Only contexts of the process.
pub const STACKS_CONTEXT: u32 = 1;
/// Only the kernel's frame-pointer walk.
pub const STACKS_KERNEL: u32 = 2;
