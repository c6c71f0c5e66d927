//! The lock order. A thread takes locks only in increasing rank; equal ranks never nest, except in `fork`, which takes
//! every lock of a rank in index order.
//!
//! Debug builds keep the set of held ranks in a thread-local word and abort, naming both ranks, on a violation. Release
//! builds compile the checks away.
#![forbid(unsafe_code)]

/// Ranks, outermost first. The order here is the order in which `fork` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// Serialises `mallctl` operations that touch several parts.
    Ctl,
    /// State of the background thread.
    Background,
    /// Creation of arenas.
    Arenas,
    /// One dump at a time.
    ProfDump,
    /// Modules known to the unwinder.
    ProfModules,
    /// One unwinder cache.
    ProfUnwind,
    /// Options of the profiler that change at run time (prefix, thread names).
    ProfConfig,
    /// Threads known to the profiler.
    ProfThreads,
    /// Contexts of the profile table.
    ProfContexts,
    /// Counts per context and thread.
    ProfTctxs,
    /// Live samples.
    ProfLives,
    /// List of thread slots.
    Threads,
    /// Explicit thread caches made through `tcache.create`.
    Tcaches,
    /// Slabs of one size class in one arena.
    Bin,
    /// Extents of one arena.
    Pages,
    /// Chunks that small arenas share.
    Chunks,
    /// Maps of sampled blocks that wait for a slab.
    SampleMaps,
    /// Metadata allocator.
    Base,
    /// Free lists of the crate-internal Rust allocator (`rust_lists.rs`); takes no other lock but `Base`'s work done.
    Rust,
}

#[cfg(all(debug_assertions, not(loom)))]
mod checked {
    use super::Rank;
    use crate::{diag, tls};

    /// Notes that `rank` is being taken; aborts when a rank at or above it is held.
    pub(crate) fn acquire(rank: Rank) {
        let held = tls::held();
        let bit = 1u64 << rank as u8;
        if held >= bit {
            violated(rank, held);
        }
        tls::set_held(held | bit);
    }

    /// Apart from its caller, which runs on stacks that have no room for a message.
    #[cold]
    #[inline(never)]
    fn violated(rank: Rank, held: u64) -> ! {
        let highest = u64::from(held.ilog2());
        diag::Line::new()
            .text("lock order violated: rank ")
            .dec(rank as u64)
            .text(" wanted while rank ")
            .dec(highest)
            .text(" is held")
            .abort()
    }

    /// Notes a lock taken by `try_lock`: allowed in any order, since it cannot wait.
    pub(crate) fn acquired_without_waiting(rank: Rank) -> bool {
        let held = tls::held();
        let bit = 1u64 << rank as u8;
        tls::set_held(held | bit);
        held & bit == 0
    }

    /// Notes that `rank` was released.
    pub(crate) fn release(rank: Rank) {
        tls::set_held(tls::held() & !(1u64 << rank as u8));
    }

    /// True when the calling thread holds no ranked lock.
    pub fn none_held() -> bool {
        tls::held() == 0
    }
}

#[cfg(any(not(debug_assertions), loom))]
mod checked {
    use super::Rank;

    #[inline(always)]
    pub(crate) fn acquire(_: Rank) {}

    #[inline(always)]
    pub(crate) fn acquired_without_waiting(_: Rank) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn release(_: Rank) {}

    /// Always true: only debug builds know.
    #[inline(always)]
    pub fn none_held() -> bool {
        true
    }
}

pub use checked::none_held;
pub(crate) use checked::{acquire, acquired_without_waiting, release};
