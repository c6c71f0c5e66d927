//! Which losses make a result wrong.
#![forbid(unsafe_code)]

use jeprobe_abi::drops::Reason;

/// True for losses that make the numbers wrong, as opposed to stacks shorter or frees older than one would like.
pub fn is_lost(reason: Reason) -> bool {
    match reason {
        Reason::NoMemory
        | Reason::RingFull
        | Reason::MapFull
        | Reason::BadArgs
        | Reason::ContextUnread
        | Reason::UnknownRecord => true,
        // A few at thread ends and inside the recorder belong to its way of working; a torn entry is off by one sample.
        Reason::Reentrant
        | Reason::ThreadExiting
        | Reason::NoStack
        | Reason::TruncatedStack
        | Reason::UnknownFree
        | Reason::UserStackFault
        | Reason::TornRead => false,
    }
}
