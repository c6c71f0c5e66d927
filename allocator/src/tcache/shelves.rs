//! Regions for sampled blocks that a thread keeps, so that a sample and its end seldom take the lock of a bin.
//!
//! ```text
//!   Shelf, four cache lines each ┌ count, idle, fill │ records[0 .. count], oldest first │ … ┐     LiveCell ─► block
//! ```
//!
//! The regions lie in slabs of sampled blocks only, and have their records (`prof/lives.rs`). An empty shelf takes one region
//! from the bin, then two, up to half of what it holds at most; a full one gives its older half back; of one that goes unused
//! for a while, half goes back ([`Shelves::collect`]). Only the owner thread calls anything here. Fields: all `owner`; atomics
//! with Relaxed order because the struct is shared by reference.
#![forbid(unsafe_code)]

use crate::arena::Arena;
use crate::arenas;
use crate::base;
use crate::bin::extent_of;
use crate::ds::link::Slice;
use crate::prim::{AtomicPtr, AtomicU16, Ordering};
use crate::prof::lives::{self, Binder, Live, Record};
use crate::ptr::BlockPtr;
use crate::sizeclass::{NBINS, size_of_index};
use core::ops::Deref;

/// Regions whose records fit beside the count into four cache lines.
const PLACES: usize = 31;
/// Regions that are fetched at once at most.
const BATCH: usize = PLACES.div_ceil(2);
/// Bytes of a class that are kept at most, if that is more than [`LEAST`] regions.
const MOST_BYTES: usize = 24576;
/// Regions that every shelf may keep.
const LEAST: usize = 8;

/// The shelves of all small classes; none before the first sample of a thread.
pub(super) struct Shelves(Slice<Shelf>);

#[repr(align(64))]
struct Shelf {
    count: AtomicU16,
    /// Regions that are kept at most; init-only.
    most: u16,
    /// Visits of [`Shelves::collect`] since the shelf was used.
    idle: AtomicU16,
    /// Regions fetched last, when it was empty.
    fill: AtomicU16,
    records: [Record; PLACES],
}

const _: () = assert!(size_of::<Shelf>() == 256);

/// Visits without use after which half of a shelf goes back: a thread that samples every 512 KiB comes back to a class
/// after tens of MiB, and makes a visit every 5 MiB.
const IDLE_VISITS: u16 = 16;

fn most(class: usize) -> usize {
    (MOST_BYTES / size_of_index(class)).clamp(LEAST, PLACES)
}

/// A region that lies on a shelf, and may be taken as long as nobody else is at the shelf.
pub(crate) struct Hand {
    shelf: &'static Shelf,
    /// Regions that lie there without it.
    rest: usize,
    live: Live,
}

impl Hand {
    #[inline(always)]
    pub(crate) fn take(self) -> Live {
        self.shelf.set_len(self.rest);
        self.shelf.idle.store(0, Ordering::Relaxed);
        self.live
    }
}

/// Room on a shelf, as long as nobody else is at the shelf.
pub(crate) struct Room {
    shelf: &'static Shelf,
    len: usize,
    place: &'static Record,
}

impl Room {
    #[inline(always)]
    pub(crate) fn put(self, live: Live) {
        self.place.set(live);
        self.shelf.set_len(self.len + 1);
        self.shelf.idle.store(0, Ordering::Relaxed);
    }
}

impl Deref for Hand {
    type Target = Live;

    #[inline(always)]
    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Shelves {
    pub(super) const fn none() -> Shelves {
        Shelves(Slice::empty())
    }

    #[inline(always)]
    fn row(&self, class: usize) -> Option<&'static Shelf> {
        self.0.at(class)
    }

    /// A region of a small class from the shelf.
    #[inline(always)]
    pub(super) fn kept(&self, class: usize) -> Option<Live> {
        self.row(class)?.pop()
    }

    /// The region that [`Shelves::kept`] would give.
    #[inline(always)]
    pub(super) fn last(&self, class: usize) -> Option<Hand> {
        self.row(class)?.last()
    }

    /// Room for one more region.
    #[inline(always)]
    pub(super) fn room(&self, class: usize) -> Option<Room> {
        self.row(class)?.room()
    }

    /// A region of a small class, from the shelf or from the arena.
    #[inline]
    pub(super) fn take(&self, class: usize, arena: &Arena) -> Option<Live> {
        let Some(row) = self.row(class) else { return self.make(class, arena) };
        if row.len() == 0 {
            row.fill(class, arena);
        }
        row.pop()
    }

    /// Fetches regions for a shelf that is empty; false when it was not, or there is none, or no memory.
    pub(super) fn fetch(&self, class: usize, arena: &Arena) -> bool {
        self.row(class).filter(|row| row.len() == 0).is_some_and(|row| {
            row.fill(class, arena);
            row.len() != 0
        })
    }

    /// Makes the shelves; a region for now.
    #[cold]
    #[inline(never)]
    fn make(&self, class: usize, arena: &Arena) -> Option<Live> {
        let row = |class| Shelf {
            count: AtomicU16::new(0),
            most: most(class) as u16,
            idle: AtomicU16::new(0),
            fill: AtomicU16::new(0),
            records: [const { Record::none() }; PLACES],
        };
        if let Some(shelves) = base::alloc_slice(NBINS, row) {
            self.0.set(shelves);
        }
        alloc_one(class, arena)
    }

    /// Keeps a region of a small class that is not in use any more; false when there is no room.
    #[inline(always)]
    pub(super) fn put(&self, class: usize, live: Live) -> bool {
        self.row(class).is_some_and(|row| row.push(live))
    }

    /// Gives the older half of a full shelf back. `arena`: the thread's.
    pub(super) fn make_room(&self, class: usize, arena: &Arena) {
        if let Some(row) = self.row(class).filter(|row| row.len() >= usize::from(row.most)) {
            row.give_back(class, usize::from(row.most).div_ceil(2), arena);
        }
    }

    /// Visits a class: gives half of its regions back if they go unused.
    pub(super) fn collect(&self, class: usize, arena: &Arena) {
        let Some(row) = self.row(class) else { return };
        let idle = row.idle.load(Ordering::Relaxed) + 1;
        row.idle.store(idle % IDLE_VISITS, Ordering::Relaxed);
        if idle == IDLE_VISITS {
            row.fill.store(0, Ordering::Relaxed);
            row.give_back(class, row.len().div_ceil(2), arena);
        }
    }

    /// Gives every region back.
    pub(super) fn flush(&self, arena: &Arena) {
        for (class, row) in self.0.get().iter().enumerate() {
            while row.len() != 0 {
                row.give_back(class, BATCH, arena);
            }
        }
    }

    /// Forgets every region.
    pub(super) fn abandon(&self) {
        self.0.get().iter().for_each(|row| row.set_len(0));
    }
}

/// A region with its record, of no shelf; `None` without memory.
pub(crate) fn alloc_one(class: usize, arena: &Arena) -> Option<Live> {
    let block = arena.alloc_sampled(class)?;
    let live = lives::bind(block);
    if live.is_none() {
        free_region(class, block);
    }
    live
}

/// Frees a region that has no record.
fn free_region(class: usize, block: *mut u8) {
    if let Some(slab) = extent_of(class, block)
        && let Some(owner) = arenas::get(slab.arena())
    {
        owner.free_small(slab, BlockPtr(block));
    }
}

impl Shelf {
    #[inline(always)]
    fn len(&self) -> usize {
        usize::from(self.count.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn set_len(&self, len: usize) {
        self.count.store(len as u16, Ordering::Relaxed);
    }

    #[inline(always)]
    fn pop(&'static self) -> Option<Live> {
        self.last().map(Hand::take)
    }

    #[inline(always)]
    fn last(&'static self) -> Option<Hand> {
        let rest = self.len().wrapping_sub(1);
        Some(Hand { shelf: self, rest, live: self.records.get(rest)?.get()? })
    }

    #[inline(always)]
    fn push(&'static self, live: Live) -> bool {
        self.room().map(|room| room.put(live)).is_some()
    }

    #[inline(always)]
    fn room(&'static self) -> Option<Room> {
        let len = self.len();
        if len >= usize::from(self.most) {
            return None;
        }
        Some(Room { shelf: self, len, place: self.records.get(len)? })
    }

    /// Fetches regions for the shelf, which is empty; fewer when the system has no memory.
    #[cold]
    #[inline(never)]
    fn fill(&'static self, class: usize, arena: &Arena) {
        let half = usize::from(self.most).div_ceil(2);
        let want = (2 * usize::from(self.fill.load(Ordering::Relaxed))).clamp(1, half);
        self.fill.store(want as u16, Ordering::Relaxed);
        let batch = [const { AtomicPtr::new(core::ptr::null_mut()) }; BATCH];
        let batch = batch.get(..want).unwrap_or(&batch);
        // Filled from the top down.
        let missing = arena.take_sampled(class, batch);
        let mut binder = Binder::new();
        for place in batch.get(missing..).unwrap_or(&[]) {
            let block = place.load(Ordering::Relaxed);
            // It was empty, and half of it was fetched.
            if let Some(live) = binder.bind(block) {
                self.push(live);
                place.store(core::ptr::null_mut(), Ordering::Relaxed);
            }
        }
        drop(binder);
        for place in batch.get(missing..).unwrap_or(&[]) {
            let block = place.load(Ordering::Relaxed);
            if !block.is_null() {
                free_region(class, block);
            }
        }
    }

    /// Gives the oldest regions back, at most [`BATCH`].
    #[cold]
    #[inline(never)]
    fn give_back(&self, class: usize, count: usize, arena: &Arena) {
        let count = count.min(self.len()).min(BATCH);
        if count == 0 {
            return;
        }
        let batch = [const { AtomicPtr::new(core::ptr::null_mut()) }; BATCH];
        let batch = batch.get(..count).unwrap_or(&batch);
        for (place, live) in batch.iter().zip(self.records.iter().filter_map(Record::get)) {
            place.store(live.block(), Ordering::Relaxed);
        }
        let foreign = arena.put_sampled(class, batch);
        // Of other arenas: other threads allocated them, or this one when it was bound to another.
        for place in batch.iter().take(foreign) {
            free_region(class, place.load(Ordering::Relaxed));
        }
        self.drop_oldest(count);
    }

    fn drop_oldest(&self, count: usize) {
        let left = self.len().saturating_sub(count);
        for (to, from) in self.records.iter().zip(self.records.iter().skip(count)).take(left) {
            to.copy(from);
        }
        self.set_len(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn put(shelves: &Shelves, class: usize, live: Live, arena: &Arena) {
        if !shelves.put(class, live) {
            shelves.make_room(class, arena);
            assert!(shelves.put(class, live));
        }
    }

    #[test]
    fn regions_are_handed_out_once_and_come_back() {
        let arena = arenas::create().expect("arena");
        let shelves = Shelves::none();
        for class in [0, 8, 20, NBINS - 1] {
            let blocks: Vec<_> = (0..100).map(|_| shelves.take(class, arena).expect("memory")).collect();
            let distinct: BTreeSet<_> = blocks.iter().map(|live| live.block().addr()).collect();
            assert_eq!(distinct.len(), blocks.len());
            for live in blocks {
                put(&shelves, class, live, arena);
            }
            let kept = shelves.0.get()[class].len();
            assert!((1..=most(class)).contains(&kept));
            assert_eq!(arena.bin_stats(class).live, kept as u64);
            let newest = shelves.0.get()[class].records[kept - 1].get().expect("a record");
            assert_eq!(shelves.take(class, arena).map(Live::block), Some(newest.block()));
            put(&shelves, class, newest, arena);
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
    fn an_empty_shelf_is_filled_ahead_of_a_sample() {
        let arena = arenas::create().expect("arena");
        let shelves = Shelves::none();
        assert!(!shelves.fetch(3, arena), "there is no shelf yet");
        let first = shelves.take(3, arena).expect("memory");
        assert!(shelves.fetch(3, arena) && !shelves.fetch(3, arena));
        assert!(shelves.kept(3).is_some_and(|live| live.block() != first.block()));
        put(&shelves, 3, first, arena);
    }

    #[test]
    fn regions_of_another_arena_go_back_to_it() {
        let (old, new) = (arenas::create().expect("arena"), arenas::create().expect("arena"));
        let shelves = Shelves::none();
        let blocks: Vec<_> = (0..3).map(|_| shelves.take(5, old).expect("memory")).collect();
        for live in blocks {
            put(&shelves, 5, live, old);
        }
        assert!(old.bin_stats(5).live > 0);
        shelves.flush(new);
        assert_eq!((old.bin_stats(5).live, new.bin_stats(5).live), (0, 0));
    }

    #[test]
    fn forgotten_regions_stay_taken() {
        let arena = arenas::create().expect("arena");
        let shelves = Shelves::none();
        let live = shelves.take(3, arena).expect("memory");
        let before = arena.bin_stats(3).live;
        put(&shelves, 3, live, arena);
        shelves.abandon();
        shelves.flush(arena);
        assert_eq!(arena.bin_stats(3).live, before);
        assert_ne!(shelves.take(3, arena).map(Live::block), Some(live.block()));
    }
}
