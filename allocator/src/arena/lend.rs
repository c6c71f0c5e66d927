//! Arenas that lend each other idle memory.
//!
//! ```text
//!   FIRST ──► newest ──next──► … ──► first made        those that threads are bound to by themselves
//! ```
//!
//! A thread that needs pages takes those that lie idle in another arena sooner than fresh ones: what was freed under one arena
//! would else stay there until it decays, while a fault costs more than all this. Arenas without threads come first, and give
//! up their spare slabs as well; one with threads lends what it has above a MiB. Arenas that the program made itself take no part.
//!
//! Fields: `next` init-only, published by `FIRST`; `lender` atomic (published); `idle` a hint.
#![forbid(unsafe_code)]

use super::Arena;
use crate::bin::Bin;
use crate::ds::link::{Link, same};
use crate::extent::Extent;
use crate::pages::{Pages, Which};
use crate::prim::Ordering;

/// Arenas that are looked at for one that lends.
const LOOKS: usize = 16;
/// An arena with threads keeps so much for them.
const KEPT_BYTES: usize = 1 << 20;

#[cfg(not(test))]
static FIRST: Link<Arena> = Link::null();

#[cfg(not(test))]
fn first() -> &'static Link<Arena> {
    &FIRST
}

/// One for each test, which runs on a thread of its own: what one leaves idle is not to be used by another.
#[cfg(test)]
fn first() -> &'static Link<Arena> {
    std::thread_local! {
        static FIRST: &'static Link<Arena> = std::boxed::Box::leak(std::boxed::Box::new(Link::null()));
    }
    FIRST.with(|first| *first)
}

/// Has an arena lend and borrow, from now on. The caller holds the registry's lock; each arena is given once.
pub(crate) fn join(arena: &'static Arena) {
    arena.next.set(first().get());
    first().publish(Some(arena));
}

impl Arena {
    /// Notes how much lies idle.
    pub(super) fn note_idle(&self, pages: &Pages) {
        // Relaxed: a hint.
        self.idle.store(pages.idle_bytes(Which::Dirty), Ordering::Relaxed);
    }

    /// Takes over a run of idle memory, of `need` bytes at least and `wanted` at most, from another arena, if one has it to spare.
    #[cold]
    #[inline(never)]
    pub(super) fn borrow(&self, need: usize, wanted: usize) {
        if let Some(lender) = self.find_lender(need)
            && let Some(run) = lender.lend(need, wanted)
        {
            self.lender.publish(Some(lender));
            self.pages.lock().take_in(run);
        }
    }

    /// Of the next few arenas the one that lends most, if that is as much as is needed; one without threads before others.
    fn find_lender(&self, need: usize) -> Option<&'static Arena> {
        let mut best = None;
        let mut most = need.saturating_sub(1);
        let mut at = self.lender.get_published();
        for _ in 0..LOOKS {
            let arena = at.or_else(|| first().get_published())?;
            at = arena.next.get();
            let has = if same(arena, self) { 0 } else { arena.has_to_spare() };
            if has > most {
                if arena.is_left() {
                    return Some(arena);
                }
                (best, most) = (Some(arena), has);
            }
        }
        best
    }

    fn is_left(&self) -> bool {
        self.thread_count() == 0
    }

    /// About how much this arena would lend.
    fn has_to_spare(&self) -> usize {
        let idle = self.idle.load(Ordering::Relaxed);
        if self.is_left() { idle + self.spare_bytes() } else { idle.saturating_sub(KEPT_BYTES) }
    }

    fn spare_bytes(&self) -> usize {
        self.bins.iter().map(Bin::spare_bytes).sum()
    }

    fn lend(&self, need: usize, wanted: usize) -> Option<&'static Extent> {
        let lend = || {
            let mut pages = self.pages.lock();
            let run = pages.lend(need, wanted);
            self.note_idle(&pages);
            run
        };
        lend().or_else(|| {
            let mut giving = self.bins.iter().filter(|bin| self.is_left() && bin.try_end_spares(self, u32::MAX));
            giving.find_map(|_| lend())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base;
    use crate::pages::Fit;
    use crate::prim::AtomicPtr;
    use crate::sizeclass::GRANULE;

    const MIB: usize = 1 << 20;

    fn member(ind: u32) -> &'static Arena {
        let arena = base::alloc_value(Arena::new(ind, true, 10_000, 0).expect("arena")).expect("memory");
        join(arena);
        arena
    }

    /// Large blocks and slabs of one arena come out of what lies idle in another, spare slabs included when it has no threads.
    #[test]
    fn what_lies_idle_elsewhere_is_used_before_fresh_memory() {
        let (lender, borrower) = (member(4000), member(4001));
        lender.bind_thread();
        borrower.bind_thread();
        let block = lender.alloc_large(4 * MIB, GRANULE, Fit::Tight).expect("pages");
        let range = block.addr().addr()..block.end();
        lender.free_large(block);
        let large = borrower.alloc_large(MIB, GRANULE, Fit::Tight).expect("pages");
        assert!(range.contains(&large.addr().addr()) && large.arena() == borrower.ind());
        assert_eq!((lender.page_stats().dirty_bytes, borrower.page_stats().active_bytes), (3 * MIB, MIB));
        borrower.free_large(large);

        // Slabs without live regions: kept as spares while there are threads, lent when there are none.
        let places: std::vec::Vec<AtomicPtr<u8>> = (0..100_000).map(|_| AtomicPtr::default()).collect();
        let bin = lender.bin(4).expect("bin");
        assert_eq!(bin.take(lender, &places), 0);
        assert_eq!(bin.put_batch(lender, &places), 0);
        lender.purge_to(Which::Dirty, 0);
        let spares = lender.spare_bytes();
        assert!(spares > MIB);
        assert!(lender.lend(MIB / 2, MIB).is_none());
        lender.unbind_thread();
        assert!(lender.lend(MIB / 2, MIB).is_some_and(|run| run.bytes() >= MIB / 2));
        assert!(lender.spare_bytes() < spares);
    }
}
