//! Regions for sampled blocks that a thread keeps, so that a sample and its end seldom take the lock of a bin.
//!
//! ```text
//!   Shelf, two cache lines each ┌ count, idle │ blocks[0 .. count], oldest first │ … ┐
//! ```
//!
//! The regions lie in slabs of sampled blocks only. An empty shelf takes half of what it holds at most from the bin, a
//! full one gives its older half back; of one that goes unused for a while, half goes back ([`Shelves::collect`]). Only
//! the owner thread calls anything here. Fields: all `owner`; atomics with Relaxed order because the struct is shared by reference.
#![forbid(unsafe_code)]

use crate::arena::Arena;
use crate::arenas;
use crate::base;
use crate::bin::extent_of;
use crate::ds::link::Slice;
use crate::prim::{AtomicPtr, AtomicU32, Ordering};
use crate::ptr::BlockPtr;
use crate::sizeclass::{NBINS, size_of_index};

/// Regions that fit beside their count into two cache lines.
const PLACES: usize = 15;
/// Bytes of a class that are kept at most, if that is more than one region.
const MOST_BYTES: usize = 4096;

/// The shelves of all small classes; none before the first sample of a thread.
pub(super) struct Shelves(Slice<Shelf>);

#[repr(align(64))]
struct Shelf {
    count: AtomicU32,
    /// Visits of [`Shelves::collect`] since the shelf was used.
    idle: AtomicU32,
    blocks: [AtomicPtr<u8>; PLACES],
}

/// Visits without use after which half of a shelf goes back: a thread that samples every 512 KiB comes back to a class
/// after tens of MiB, and makes a visit every 5 MiB.
const IDLE_VISITS: u32 = 16;

fn most(class: usize) -> usize {
    (MOST_BYTES / size_of_index(class)).clamp(1, PLACES)
}

impl Shelves {
    pub(super) const fn none() -> Shelves {
        Shelves(Slice::empty())
    }

    fn row(&self, class: usize) -> Option<&'static Shelf> {
        self.0.get().get(class)
    }

    /// A region of a small class from the shelf.
    #[inline(always)]
    pub(super) fn kept(&self, class: usize) -> Option<*mut u8> {
        self.row(class)?.pop()
    }

    /// A region of a small class, from the shelf or from the arena.
    #[inline]
    pub(super) fn take(&self, class: usize, arena: &Arena) -> Option<*mut u8> {
        let Some(row) = self.row(class) else { return self.make(class, arena) };
        if row.len() == 0 {
            row.fill(class, arena);
        }
        row.pop()
    }

    /// Makes the shelves; a region for now.
    #[cold]
    #[inline(never)]
    fn make(&self, class: usize, arena: &Arena) -> Option<*mut u8> {
        let row = |_| Shelf {
            count: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            blocks: [const { AtomicPtr::new(core::ptr::null_mut()) }; PLACES],
        };
        if let Some(shelves) = base::alloc_slice(NBINS, row) {
            self.0.set(shelves);
        }
        arena.alloc_sampled(class)
    }

    /// Keeps a region of a small class; false when there are no shelves. `arena`: the thread's.
    #[inline(always)]
    pub(super) fn put(&self, class: usize, block: BlockPtr, arena: &Arena) -> bool {
        let Some(row) = self.row(class) else { return false };
        if row.len() >= most(class) {
            row.give_back(class, most(class).div_ceil(2), arena);
        }
        row.push(block);
        true
    }

    /// Visits a class: gives half of its regions back if they go unused.
    pub(super) fn collect(&self, class: usize, arena: &Arena) {
        let Some(row) = self.row(class) else { return };
        let idle = row.idle.load(Ordering::Relaxed) + 1;
        row.idle.store(idle % IDLE_VISITS, Ordering::Relaxed);
        if idle == IDLE_VISITS {
            row.give_back(class, row.len().div_ceil(2), arena);
        }
    }

    /// Gives every region back.
    pub(super) fn flush(&self, arena: &Arena) {
        for (class, row) in self.0.get().iter().enumerate() {
            row.give_back(class, row.len(), arena);
        }
    }

    /// Forgets every region.
    pub(super) fn abandon(&self) {
        self.0.get().iter().for_each(|row| row.set_len(0));
    }
}

impl Shelf {
    #[inline]
    fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn set_len(&self, len: usize) {
        self.count.store(len as u32, Ordering::Relaxed);
    }

    #[inline]
    fn pop(&self) -> Option<*mut u8> {
        let left = self.len().checked_sub(1)?;
        let block = self.blocks.get(left)?.load(Ordering::Relaxed);
        self.set_len(left);
        self.idle.store(0, Ordering::Relaxed);
        Some(block)
    }

    #[inline]
    fn push(&self, block: BlockPtr) {
        if let Some(place) = self.blocks.get(self.len()) {
            place.store(block.0, Ordering::Relaxed);
            self.set_len(self.len() + 1);
            self.idle.store(0, Ordering::Relaxed);
        }
    }

    /// Fills half of the shelf, which is empty; less when the system has no memory.
    #[cold]
    #[inline(never)]
    fn fill(&self, class: usize, arena: &Arena) {
        let want = self.blocks.get(..most(class).div_ceil(2)).unwrap_or(&[]);
        // Filled from the top down.
        let missing = arena.take_sampled(class, want);
        self.set_len(want.len());
        self.drop_oldest(missing);
    }

    /// Gives the oldest regions back.
    #[cold]
    #[inline(never)]
    fn give_back(&self, class: usize, count: usize, arena: &Arena) {
        let count = count.min(self.len());
        if count != 0 {
            let foreign = arena.put_sampled(class, self.blocks.get(..count).unwrap_or(&[]));
            // Of other arenas: other threads allocated them, or this one when it was bound to another.
            for place in self.blocks.iter().take(foreign) {
                let block = place.load(Ordering::Relaxed);
                if let Some(slab) = extent_of(class, block)
                    && let Some(owner) = arenas::get(slab.arena())
                {
                    owner.free_small(slab, BlockPtr(block));
                }
            }
            self.drop_oldest(count);
        }
    }

    fn drop_oldest(&self, count: usize) {
        let left = self.len().saturating_sub(count);
        for (to, from) in self.blocks.iter().zip(self.blocks.iter().skip(count)).take(left) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.set_len(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn regions_are_handed_out_once_and_come_back() {
        let arena = arenas::create().expect("arena");
        let shelves = Shelves::none();
        for class in [0, 8, 20, NBINS - 1] {
            let blocks: Vec<_> = (0..100).map(|_| shelves.take(class, arena).expect("memory")).collect();
            let distinct: BTreeSet<_> = blocks.iter().map(|block| block.addr()).collect();
            assert_eq!(distinct.len(), blocks.len());
            for block in blocks {
                assert!(shelves.put(class, BlockPtr(block), arena));
            }
            let kept = shelves.0.get()[class].len();
            assert!((1..=most(class)).contains(&kept));
            assert_eq!(arena.bin_stats(class).live, kept as u64);
            let newest = shelves.0.get()[class].blocks[kept - 1].load(Ordering::Relaxed);
            assert_eq!(shelves.take(class, arena), Some(newest));
            assert!(shelves.put(class, BlockPtr(newest), arena));
            for visit in 0..IDLE_VISITS {
                assert_eq!(shelves.0.get()[class].len(), kept, "{visit}");
                shelves.collect(class, arena);
            }
            assert_eq!(shelves.0.get()[class].len(), kept / 2);
        }
        shelves.flush(arena);
        assert!((0..NBINS).all(|class| arena.bin_stats(class).live == 0));
    }

    #[test]
    fn regions_of_another_arena_go_back_to_it() {
        let (old, new) = (arenas::create().expect("arena"), arenas::create().expect("arena"));
        let shelves = Shelves::none();
        let blocks: Vec<_> = (0..3).map(|_| shelves.take(5, old).expect("memory")).collect();
        for block in blocks {
            assert!(shelves.put(5, BlockPtr(block), old));
        }
        assert!(old.bin_stats(5).live > 0);
        shelves.flush(new);
        assert_eq!((old.bin_stats(5).live, new.bin_stats(5).live), (0, 0));
    }

    #[test]
    fn forgotten_regions_stay_taken() {
        let arena = arenas::create().expect("arena");
        let shelves = Shelves::none();
        let block = shelves.take(3, arena).expect("memory");
        let before = arena.bin_stats(3).live;
        assert!(shelves.put(3, BlockPtr(block), arena));
        shelves.abandon();
        shelves.flush(arena);
        assert_eq!(arena.bin_stats(3).live, before);
        assert_ne!(shelves.take(3, arena), Some(block));
    }
}
