//! Keys and values of the kernel maps.
#![forbid(unsafe_code)]

/// A stack that was already sent to the loader.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackKey {
    pub stack: u64,
    pub tgid: u32,
    pub stack_kind: u32,
}
