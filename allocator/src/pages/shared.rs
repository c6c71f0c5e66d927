//! Chunks that small arenas share, so that they share huge pages.
//!
//! ```text
//!   chunk   │ arena 0 │ 1 │ 0 │ 2 │ 1 │ 0 │ …  pieces in the order they were taken │ untouched
//!           └──── huge page ────┴──── huge page ────┴────
//! ```
//!
//! A huge page costs a fifth of the faults that it saves, but up to 2 MiB where little of it is used. An arena of a few MiB that
//! has one to itself wastes a large part of what it holds; of the pages here, all are in use but the last, and the rest of each
//! arena's last piece. A piece belongs to its arena for ever.
//!
//! There are two such chunks: one for memory that is likely to be written all over, one for zeroed blocks that may stay
//! as they are, which keeps small pages.
#![forbid(unsafe_code)]

use core::ptr::NonNull;

use super::HUGE_PAGE_BYTES;
use super::huge::{self, Density, Fresh};
use crate::conf::{self, Thp};
use crate::emap;
use crate::prim::{AtomicPtr, Ordering};
use crate::ptr;
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;
use crate::sys;

/// Address space reserved at a time.
const CHUNK_BYTES: usize = 8 * HUGE_PAGE_BYTES;

/// What is left of a chunk.
struct Rest {
    next: AtomicPtr<u8>,
    bytes: usize,
}

/// What small arenas share, and what is known of how densely memory is used in all.
pub(super) struct Shared {
    dense: Rest,
    sparse: Rest,
    pub(super) density: Density,
    /// Bytes in use in all arenas, as of the last time that each took fresh memory.
    in_use_bytes: usize,
    /// Arenas that took any.
    arenas: u32,
}

#[cfg(not(test))]
static SHARED: Mutex<Shared> = Mutex::new(Rank::Chunks, Shared::new());

/// The one of the process.
#[cfg(not(test))]
pub(super) fn of_process() -> &'static Mutex<Shared> {
    &SHARED
}

/// One for each test, which runs on a thread of its own: what one does is not to change what another sees.
#[cfg(test)]
pub(super) fn of_process() -> &'static Mutex<Shared> {
    std::thread_local! {
        static SHARED: &'static Mutex<Shared> =
            std::boxed::Box::leak(std::boxed::Box::new(Mutex::new(Rank::Chunks, Shared::new())));
    }
    SHARED.with(|shared| *shared)
}

impl Shared {
    pub(super) const fn new() -> Shared {
        Shared { dense: Rest::none(), sparse: Rest::none(), density: Density::new(), in_use_bytes: 0, arenas: 0 }
    }

    /// True while the process is too small for huge pages once it uses `more`. It uses `bytes` in the arena that asks, which was
    /// `counted` with as many before.
    pub(super) fn is_small(&mut self, counted: &mut Option<usize>, bytes: usize, more: usize) -> bool {
        self.arenas += u32::from(counted.is_none());
        self.in_use_bytes = self.in_use_bytes.wrapping_sub(counted.unwrap_or(0)).wrapping_add(bytes);
        *counted = Some(bytes);
        huge::is_small(self.in_use_bytes + more, self.arenas)
    }

    /// As [`Density::advise`].
    pub(super) fn advise_range(&mut self, start: usize, end: usize, limit: usize, fresh: Fresh) {
        self.density.advise(start, end, limit, fresh, self.in_use_bytes);
    }

    /// `wanted` bytes of the chunk for sparse or dense memory, or what is left of it; where `need` bytes are not left, these come
    /// first. `None` when the system gives no chunk.
    pub(super) fn take(
        &mut self,
        need: usize,
        wanted: usize,
        sparse: bool,
        fresh: Fresh,
    ) -> Option<(NonNull<u8>, usize)> {
        let rest = if sparse { &mut self.sparse } else { &mut self.dense };
        if rest.bytes == 0 {
            *rest = Rest::reserve()?;
        }
        let bytes = if rest.bytes < need { rest.bytes } else { wanted.min(rest.bytes) };
        let (piece, limit) = rest.cut(bytes)?;
        if !sparse {
            self.advise(piece, bytes, limit, fresh);
        }
        Some((piece, bytes))
    }

    /// `bytes` of the chunk for dense memory, if they begin at `start`.
    pub(super) fn take_at(&mut self, start: usize, bytes: usize, fresh: Fresh) -> Option<(NonNull<u8>, usize)> {
        if self.dense.start() != start || self.dense.bytes < bytes {
            return None;
        }
        let (piece, limit) = self.dense.cut(bytes)?;
        self.advise(piece, bytes, limit, fresh);
        Some((piece, bytes))
    }

    fn advise(&mut self, piece: NonNull<u8>, bytes: usize, limit: usize, fresh: Fresh) {
        if conf::options().thp == Thp::Default {
            let start = piece.as_ptr().addr();
            self.advise_range(start, start + bytes, limit, fresh);
        }
    }
}

impl Rest {
    const fn none() -> Rest {
        Rest { next: AtomicPtr::new(core::ptr::null_mut()), bytes: 0 }
    }

    fn start(&self) -> usize {
        // Relaxed, here and below: under the lock.
        self.next.load(Ordering::Relaxed).addr()
    }

    /// Takes the next `bytes` away; where what there was ends, too. `None` when there was nothing.
    fn cut(&mut self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let piece = NonNull::new(self.next.load(Ordering::Relaxed))?;
        let limit = piece.as_ptr().addr() + self.bytes;
        self.next.store(ptr::forward(piece.as_ptr(), bytes), Ordering::Relaxed);
        self.bytes -= bytes;
        Some((piece, limit))
    }

    fn reserve() -> Option<Rest> {
        let chunk = sys::reserve(CHUNK_BYTES, HUGE_PAGE_BYTES)?;
        match conf::options().thp {
            Thp::Always => emap::advise_huge(chunk.as_ptr(), CHUNK_BYTES, true),
            Thp::Never => emap::advise_huge(chunk.as_ptr(), CHUNK_BYTES, false),
            Thp::Default => {}
        }
        // Without words the chunk cannot be used; it stays reserved, untouched, and is lost.
        emap::ensure(chunk.as_ptr().addr(), CHUNK_BYTES).ok()?;
        Some(Rest { next: AtomicPtr::new(chunk.as_ptr()), bytes: CHUNK_BYTES })
    }
}

pub(crate) fn prefork() {
    of_process().lock_for_fork();
}

pub(crate) fn postfork_parent() {
    of_process().unlock_for_fork();
}

pub(crate) fn postfork_child() {
    of_process().reset_in_child();
}
