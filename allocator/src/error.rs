//! Errors inside the allocator: one byte, `Copy`, no text. The C layer turns them into null, errno and return codes.
#![forbid(unsafe_code)]

/// Why an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// The size is above the largest class, or size and alignment together overflow.
    TooLarge,
    /// The system gave no memory.
    NoMemory,
}

/// Why a control operation failed, as the errno that `mallctl` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtlError(pub i32);
