//! The large blocks of one cache: a few of each length above the stacks' sizes, up to 256 KiB.
//!
//! ```text
//!   heads[0..24]   36, 40, 44 … 64, 72 … 256 KiB   each ─► newest ─► … ─► oldest, chained through the extents
//! ```
//!
//! The stacks end at `tcache_max`; without this, each block between it and the sizes that are used for long would cost
//! two locks. Blocks are kept as whole extents of their page class, so any request of the class takes one, whatever its
//! usable bytes. Each class keeps at most [`CLASS_BYTES`]; with a `tcache_max` below the default there are none. Collection: one class a step, as for the stacks; what lay
//! unused since the last visit goes back to its arena.
//!
//! Fields: all `owner`; atomics with Relaxed order because the struct is shared by reference. I-LARGECACHE-1: an extent
//! here has state Cached, the exact length of its class, and is off the fast path.
#![forbid(unsafe_code)]

use crate::arenas;
use crate::ds::link::Link;
use crate::ds::list::ListNode;
use crate::extent::{Extent, State};
use crate::prim::{AtomicBool, AtomicU8, Ordering};
use crate::quick::{self, LG_STEPS};
use crate::sizeclass::{CACHED_MAX, index_of};
use crate::steps;

/// Step of the first length above the stacks.
const FIRST: usize = steps::floor::<LG_STEPS>(CACHED_MAX) + 1;
const CLASSES: usize = steps::floor::<LG_STEPS>(256 << 10) + 1 - FIRST;
/// Bytes that one class may keep: 12 blocks of 40 KiB, 2 of 256 KiB.
const CLASS_BYTES: usize = 512 << 10;

#[inline]
fn class_of(bytes: usize) -> usize {
    steps::ceil::<LG_STEPS>(bytes).wrapping_sub(FIRST)
}

/// Lists of one cache.
pub(crate) struct LargeCache {
    heads: [Link<Extent>; CLASSES],
    counts: [AtomicU8; CLASSES],
    /// Fewest blocks since the last visit: so many were not needed.
    floors: [AtomicU8; CLASSES],
    /// Next class to collect.
    cursor: AtomicU8,
    open: AtomicBool,
}

impl LargeCache {
    pub(crate) const fn new() -> LargeCache {
        LargeCache {
            heads: [const { Link::null() }; CLASSES],
            counts: [const { AtomicU8::new(0) }; CLASSES],
            floors: [const { AtomicU8::new(0) }; CLASSES],
            cursor: AtomicU8::new(0),
            open: AtomicBool::new(false),
        }
    }

    /// Lets the cache keep blocks, or not: a smaller `tcache_max` than the default asks for less.
    pub(crate) fn open(&self, wanted: bool) {
        self.open.store(wanted, Ordering::Relaxed);
    }

    /// A block of `usable` bytes (page multiple) at a page; not zero.
    #[inline]
    pub(crate) fn take(&self, usable: usize) -> Option<&'static Extent> {
        let extent = self.pop(class_of(usable))?;
        extent.set_state(State::Active);
        extent.set_use(index_of(usable), false);
        extent.set_usable(usable);
        Some(extent)
    }

    /// Keeps a freed block; false when its length is not kept, or there are enough of it.
    #[inline]
    pub(crate) fn put(&self, extent: &'static Extent) -> bool {
        let bytes = extent.bytes();
        let class = class_of(bytes);
        let (Some(head), Some(count)) = (self.heads.get(class), self.counts.get(class)) else { return false };
        let have = count.load(Ordering::Relaxed);
        if !self.open.load(Ordering::Relaxed)
            || usize::from(have) >= CLASS_BYTES / bytes
            || quick::rounded(bytes) != bytes
        {
            return false;
        }
        extent.set_state(State::Cached);
        extent.next().set(head.get());
        head.set(Some(extent));
        count.store(have + 1, Ordering::Relaxed);
        true
    }

    /// Visits one class: gives back what went unused since the last visit.
    pub(crate) fn collect_step(&self) {
        let class = usize::from(self.cursor.load(Ordering::Relaxed)) % CLASSES;
        self.cursor.store(class as u8 + 1, Ordering::Relaxed);
        let (Some(floor), Some(count)) = (self.floors.get(class), self.counts.get(class)) else { return };
        for _ in 0..floor.load(Ordering::Relaxed) {
            self.give_back_one(class);
        }
        floor.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Gives every block back.
    pub(crate) fn flush_all(&self) {
        for class in 0..CLASSES {
            while self.give_back_one(class) {}
        }
    }

    /// Forgets the blocks.
    pub(crate) fn abandon(&self) {
        self.open(false);
        for (head, count) in self.heads.iter().zip(&self.counts) {
            head.set(None);
            count.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn pop(&self, class: usize) -> Option<&'static Extent> {
        let head = self.heads.get(class)?;
        let extent = head.get()?;
        head.set(extent.next().get());
        if let (Some(count), Some(floor)) = (self.counts.get(class), self.floors.get(class)) {
            let left = count.load(Ordering::Relaxed) - 1;
            count.store(left, Ordering::Relaxed);
            if left < floor.load(Ordering::Relaxed) {
                floor.store(left, Ordering::Relaxed);
            }
        }
        Some(extent)
    }

    fn give_back_one(&self, class: usize) -> bool {
        let Some(extent) = self.pop(class) else { return false };
        if let Some(owner) = arenas::get(extent.arena()) {
            owner.free_large(extent);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ds::link::same;
    use crate::pages::Fit;
    use crate::sizeclass::GRANULE;

    #[test]
    fn blocks_of_a_class_come_back_and_idle_ones_go() {
        let arena = arenas::create().expect("arena");
        let cache = LargeCache::new();
        cache.open(true);
        let block = |usable| arena.alloc_large(usable, GRANULE, Fit::Tight).expect("pages");
        let (a, b) = (block(19 * GRANULE), block(20 * GRANULE));
        assert!(cache.put(a) && cache.put(b));
        assert_eq!((a.bytes(), a.state()), (20 * GRANULE, State::Cached));
        let again = cache.take(19 * GRANULE).expect("cached");
        assert!(same(again, b) && again.usable() == 19 * GRANULE && again.state() == State::Active);
        assert!(
            cache.take(16 * GRANULE).is_none() && cache.take(65 * GRANULE).is_none() && cache.take(GRANULE).is_none()
        );
        assert!(cache.put(again));
        let (small, long) = (block(8 * GRANULE), block(65 * GRANULE));
        assert!(!cache.put(small) && !cache.put(long));
        arena.free_large(small);
        arena.free_large(long);
        // The first round marks, the second gives back.
        for _ in 0..2 * CLASSES {
            cache.collect_step();
        }
        assert!(cache.take(20 * GRANULE).is_none());
        let many: std::vec::Vec<_> = (0..20).map(|_| block(64 * GRANULE)).collect();
        let kept = many
            .iter()
            .filter(|extent| {
                cache.put(extent) || {
                    arena.free_large(extent);
                    false
                }
            })
            .count();
        assert_eq!(kept, 2);
        cache.flush_all();
        assert_eq!((arena.large_stats().live_bytes, arena.page_stats().active_bytes), (0, 0));
    }
}
