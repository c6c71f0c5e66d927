//! Keys and values of the kernel maps.
#![forbid(unsafe_code)]

/// A stack that was already sent to the loader.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackKey {
    /// As in `AllocEvent::stack`.
    pub stack: u64,
    pub tgid: u32,
    /// Bits 0..8: `STACK_*`. Bits 8..32: how often the process exec'ed, so that no address outlives its image.
    pub kind_generation: u32,
}

/// Where one argument of a probe of another program lies, parsed from its note (`-4@8(%rbp)`, `8@%rdi`, `4@$3`).
///
/// | offset | bytes | name | unit |
/// |---|---|---|---|
/// | 0 | 8 | value | constant, or displacement in bytes from the register |
/// | 8 | 4 | kind | `ARG_*` |
/// | 12 | 4 | register | byte offset in the kernel's `pt_regs`, below 256 |
/// | 16 | 4 | bits | width of the argument: 8, 16, 32 or 64 |
/// | 20 | 4 | signed | 1 = extend the sign |
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arg {
    pub value: i64,
    pub kind: u32,
    pub register: u32,
    pub bits: u32,
    pub signed: u32,
}

/// The note has no such argument; it reads as 0.
pub const ARG_NONE: u32 = 0;
pub const ARG_CONSTANT: u32 = 1;
pub const ARG_REGISTER: u32 = 2;
pub const ARG_MEMORY: u32 = 3;

/// Arguments that are read of another program's probe: pointer, size, weight.
pub const SITE_ARGS: usize = 3;

/// Entries of the map of sites: distinct argument layouts in one attachment.
pub const MAX_SITES: u32 = 64;

/// Argument places of one probe, by attach cookie.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    pub args: [Arg; SITE_ARGS],
}
