//! Records of the ring buffer. Each opens with a [`Header`]; user space checks kind and length and copies the bytes.
#![forbid(unsafe_code)]

use crate::abi::MAX_FRAMES;

/// `Header::kind`.
pub const EVENT_ALLOC: u32 = 1;
pub const EVENT_FREE: u32 = 2;
pub const EVENT_CONTEXT: u32 = 3;
pub const EVENT_DUMP: u32 = 4;
pub const EVENT_MALLCTL: u32 = 5;
pub const EVENT_EXEC: u32 = 6;
pub const EVENT_EXIT: u32 = 7;
pub const EVENT_FORK: u32 = 8;

/// Bytes kept of a path or a mallctl name, with its NUL.
pub const PATH_BYTES: usize = 256;
pub const NAME_BYTES: usize = 64;

/// | offset | bytes | name | unit |
/// |---|---|---|---|
/// | 0 | 4 | kind | `EVENT_*` |
/// | 4 | 4 | len | bytes of the whole record |
/// | 8 | 4 | tgid | process id in the initial namespace |
/// | 12 | 4 | tid | thread id in the initial namespace |
/// | 16 | 8 | `time_ns` | `CLOCK_MONOTONIC` |
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub kind: u32,
    pub len: u32,
    pub tgid: u32,
    pub tid: u32,
    pub time_ns: u64,
}

/// A sampled allocation. `stack` identifies the frames: the context's address with `STACK_IN_PROCESS`, a hash of the
/// frames with `STACK_KERNEL`, nothing with `STACK_NONE`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocEvent {
    pub header: Header,
    pub ptr: u64,
    pub usable_bytes: u64,
    /// Estimated bytes that the sample stands for, unbiased; 0 when the target did not say.
    pub weight_bytes: u64,
    pub requested_bytes: u64,
    pub stack: u64,
    pub stack_kind: u32,
    pub _pad: u32,
}

/// `AllocEvent::stack_kind`, `ContextEvent::stack_kind`.
pub const STACK_NONE: u32 = 0;
pub const STACK_IN_PROCESS: u32 = 1;
pub const STACK_KERNEL: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeEvent {
    pub header: Header,
    pub ptr: u64,
    pub usable_bytes: u64,
}

/// Frames of a stack, sent before the first event that names it.
/// `frames`: shape [u64; 127], valid ..depth, leaf first; unit avma; 0 never valid. Where `packed_words` is not 0, these are
/// so many words of packed frames ([`crate::pack`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextEvent {
    pub header: Header,
    pub stack: u64,
    pub stack_kind: u32,
    pub depth: u32,
    pub frames: [u64; MAX_FRAMES],
    pub packed_words: u64,
}

/// The process wrote a profile.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpEvent {
    pub header: Header,
    pub sequence: u64,
    /// `hooks::DUMP_REASON_*`.
    pub reason: u64,
    /// NUL-terminated, cut at [`PATH_BYTES`].
    pub path: [u8; PATH_BYTES],
}

/// `MallctlEvent::new_len` when the kernel could not read the name: `name` is empty then, `new_value` its address.
pub const NAME_UNREAD: u64 = u64::MAX;

/// The process called `mallctl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MallctlEvent {
    pub header: Header,
    /// NUL-terminated, cut at [`NAME_BYTES`].
    pub name: [u8; NAME_BYTES],
    /// First eight bytes of the new value, zero-extended; 0 when none was given. The address of the name with [`NAME_UNREAD`].
    pub new_value: u64,
    /// Bytes of the new value, 0 when none was given, [`NAME_UNREAD`].
    pub new_len: u64,
}

/// exec, exit or fork. `other` is the child's tgid for fork, 0 else.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifecycleEvent {
    pub header: Header,
    pub other: u32,
    pub _pad: u32,
}
