//! The large blocks of one cache: a few of each length above the stacks' sizes, up to 256 KiB.
//!
//! ```text
//!   heads[0..24]   36, 40, 44 … 64, 72 … 256 KiB   each ─► newest ─► … ─► oldest, chained through the extents
//! ```
//!
//! The stacks end at `tcache_max`; without this, each block between it and the sizes that are used for long would cost
//! two locks. Blocks are kept as whole extents of their length, so any request of the length takes one, whatever its
//! usable bytes. All lists together keep at most `limit` bytes, one of them half of it. The limit is [`CACHE_BYTES`]; a
//! cache that is full after it was found empty may have more, while that is at most the thread's share of a sixteenth
//! of what its arena has in use: it is too small for how the live blocks of a length come and go. With a `tcache_max` below
//! the default the limit is 0. Collection: one list an event; what lay unused since the last visit goes back to its
//! arena, and the limit sinks by as much. An idle thread collects nothing, so others take its blocks away
//! ([`LargeCache::surrender`]).
//!
//! The owner and who takes its blocks away exclude each other without a fence of the owner's, which would wait for all that
//! the program wrote just before:
//!
//! ```text
//!   owner   busy := true;  claimed?  ── no ──► a turn ──► busy := false       (yes: the cache counts as empty and full)
//!   thief   claimed := true;  a barrier in all threads (`membarrier`);  busy?  ── no ──► takes the lists ──► claimed := false
//! ```
//!
//! An owner whose turn began before the barrier is seen to be busy behind it; one that begins later sees the claim. Where the
//! kernel has no such barrier, idle threads keep their blocks.
//!
//! | field | synchronization |
//! |---|---|
//! | `busy`, `claimed` | as above; their Release stores pair with the other side's Acquire loads |
//! | `heads`, `counts`, `bytes`, `floors` | in a turn, or claimed: Relaxed |
//! | the rest | owner, Relaxed |
//!
//! I-LARGECACHE-1: an extent here has state Cached, the exact length of its step, and is off the fast path.
#![forbid(unsafe_code)]

use crate::arena::Arena;
use crate::arenas;
use crate::ds::link::Link;
use crate::ds::list::ListNode;
use crate::extent::{Extent, State};
use crate::prim::{AtomicBool, AtomicU8, AtomicUsize, Ordering, compiler_fence};
use crate::quick::LG_STEPS;
use crate::sizeclass::{CACHED_MAX, GRANULE, LG_GRANULE, index_of};
use crate::steps;
use crate::sys;

/// Step of the first length above the stacks.
const FIRST: usize = steps::floor::<LG_STEPS>(CACHED_MAX) + 1;
const CLASSES: usize = steps::floor::<LG_STEPS>(256 << 10) + 1 - FIRST;
/// Bytes that all lists may keep at first: a thread uses few lengths at a time.
const CACHE_BYTES: usize = 1 << 20;
/// Pages of the longest length.
const PAGES: usize = (256 << 10) >> LG_GRANULE;

/// shape [u8; 65], by pages: the list that serves them; for lengths below the first and above the last, [`CLASSES`] and more.
static CLASS_OF_PAGES: [u8; PAGES + 1] = {
    let mut table = [u8::MAX; PAGES + 1];
    let mut pages = (CACHED_MAX >> LG_GRANULE) + 1;
    while pages <= PAGES {
        table[pages] = (steps::ceil::<LG_STEPS>(pages << LG_GRANULE) - FIRST) as u8;
        pages += 1;
    }
    table
};

/// shape [usize; 24], by class: bytes of its blocks.
static LENGTHS: [usize; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = steps::bytes::<LG_STEPS>(class + FIRST);
        class += 1;
    }
    table
};
/// Most blocks in a list.
const COUNT_MAX: usize = u8::MAX as usize;
/// How long an owner waits before it looks again whether its lists have been taken away.
const CLAIM_NS: u64 = 50_000;
/// Part of what the arena has in use, for each of its threads, that a cache may keep.
const SHARE: usize = 16;

#[inline]
fn class_of(bytes: usize) -> usize {
    CLASS_OF_PAGES.get(bytes.div_ceil(GRANULE)).map_or(CLASSES, |class| usize::from(*class))
}

/// Lists of one cache.
pub(crate) struct LargeCache {
    /// The owner is at work on the lists.
    busy: AtomicBool,
    /// Another thread takes the lists away.
    claimed: AtomicBool,
    heads: [Link<Extent>; CLASSES],
    counts: [AtomicU8; CLASSES],
    bytes: AtomicUsize,
    /// Fewest blocks since the last visit: so many were not needed.
    floors: [AtomicU8; CLASSES],
    /// Next class to collect.
    cursor: AtomicU8,
    /// A list was found empty since the limit was last reached.
    missed: AtomicBool,
    /// Bytes that the lists may keep; 0 = closed.
    limit: AtomicUsize,
}

impl LargeCache {
    pub(crate) const fn new() -> LargeCache {
        LargeCache {
            busy: AtomicBool::new(false),
            claimed: AtomicBool::new(false),
            heads: [const { Link::null() }; CLASSES],
            counts: [const { AtomicU8::new(0) }; CLASSES],
            bytes: AtomicUsize::new(0),
            floors: [const { AtomicU8::new(0) }; CLASSES],
            cursor: AtomicU8::new(0),
            missed: AtomicBool::new(false),
            limit: AtomicUsize::new(0),
        }
    }

    /// Lets the cache keep blocks, or not: a smaller `tcache_max` than the default asks for less.
    pub(crate) fn open(&self, wanted: bool) {
        self.limit.store(if wanted { CACHE_BYTES } else { 0 }, Ordering::Relaxed);
    }

    /// A block of `usable` bytes (page multiple) at a page; not zero.
    #[inline]
    pub(crate) fn take(&self, usable: usize) -> Option<&'static Extent> {
        let extent = self.pop(class_of(usable))?;
        extent.set_state(State::Active);
        if extent.usable() != usable {
            extent.set_use(index_of(usable), false);
            extent.set_usable(usable);
        }
        Some(extent)
    }

    /// Keeps a freed block of the thread's arena; false when its length is not kept, or there are enough of it.
    #[inline]
    pub(crate) fn put(&self, extent: &'static Extent, arena: &Arena) -> bool {
        let bytes = extent.bytes();
        let class = class_of(bytes);
        let (Some(head), Some(count)) = (self.heads.get(class), self.counts.get(class)) else { return false };
        // Whoever makes an extent of this length makes it a step long; others are not kept.
        if bytes != LENGTHS.get(class).copied().unwrap_or(0) {
            return false;
        }
        let Some(_turn) = self.turn() else { return false };
        let (have, all) = (usize::from(count.load(Ordering::Relaxed)), self.bytes.load(Ordering::Relaxed));
        let limit = self.limit.load(Ordering::Relaxed);
        let full = all + bytes > limit || (have + 1) * bytes > limit / 2 || have >= COUNT_MAX;
        if full && !self.make_room(class, bytes, arena) {
            return false;
        }
        extent.set_state(State::Cached);
        extent.next().set(head.get());
        head.set(Some(extent));
        count.store(have as u8 + 1, Ordering::Relaxed);
        self.bytes.store(all + bytes, Ordering::Relaxed);
        true
    }

    /// Begins a turn of the owner; `None` while another thread takes the lists away.
    #[inline]
    fn turn(&self) -> Option<Turn<'_>> {
        // Relaxed, and no fence of the processor before the load: the other side makes one for both.
        self.busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let turn = Turn(self);
        // Acquire: what was taken away is seen to be gone.
        if self.claimed.load(Ordering::Acquire) { None } else { Some(turn) }
    }

    /// Tries to make room for one more block of a class where there was none: true when there is.
    #[cold]
    fn make_room(&self, class: usize, bytes: usize, arena: &Arena) -> bool {
        let have = self.counts.get(class).map_or(0, |count| usize::from(count.load(Ordering::Relaxed)));
        let (limit, all) = (self.limit.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let fits = |limit| all + bytes <= limit && (have + 1) * bytes <= limit / 2 && have < COUNT_MAX;
        let more = (limit + limit / 2).min(arena.share_bytes() / SHARE);
        if limit == 0 || !fits(more) || !self.missed.load(Ordering::Relaxed) {
            return false;
        }
        self.missed.store(false, Ordering::Relaxed);
        self.limit.store(more, Ordering::Relaxed);
        true
    }

    /// Visits one class: gives back what went unused since the last visit.
    pub(crate) fn collect_step(&self) {
        let class = usize::from(self.cursor.load(Ordering::Relaxed)) % CLASSES;
        self.cursor.store(class as u8 + 1, Ordering::Relaxed);
        let (Some(floor), Some(count)) = (self.floors.get(class), self.counts.get(class)) else { return };
        let unused = floor.load(Ordering::Relaxed);
        for _ in 0..unused {
            self.give_back_one(class);
        }
        let limit = self.limit.load(Ordering::Relaxed);
        if limit > CACHE_BYTES {
            // What was not needed was room too much.
            let less = limit.saturating_sub(usize::from(unused) * LENGTHS.get(class).copied().unwrap_or(0));
            self.limit.store(less.max(CACHE_BYTES), Ordering::Relaxed);
        }
        floor.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Gives every block back.
    pub(crate) fn flush_all(&self) {
        // Whoever takes the lists away does so at once, and gives back what it took.
        while self.turn().is_none() {
            sys::sleep_ns(CLAIM_NS);
        }
        for class in 0..CLASSES {
            while self.give_back_one(class) {}
        }
    }

    /// Gives every block back, on behalf of an owner that is idle: for any thread but the owner.
    pub(crate) fn surrender(&self) {
        if self.heads.iter().all(|head| head.get().is_none()) || self.claimed.swap(true, Ordering::Acquire) {
            return;
        }
        // Acquire: what the owner's last turn wrote is seen.
        let mine = sys::barrier_in_all_threads() && !self.busy.load(Ordering::Acquire);
        let lists = mine.then(|| {
            for (count, floor) in self.counts.iter().zip(&self.floors) {
                count.store(0, Ordering::Relaxed);
                floor.store(0, Ordering::Relaxed);
            }
            self.bytes.store(0, Ordering::Relaxed);
            self.heads.each_ref().map(|head| {
                let first = head.get();
                head.set(None);
                first
            })
        });
        // Release: pairs with the Acquire in `turn`.
        self.claimed.store(false, Ordering::Release);
        for mut next in lists.into_iter().flatten() {
            while let Some(extent) = next {
                next = extent.next().get();
                give_back(extent);
            }
        }
    }

    /// Forgets the blocks.
    pub(crate) fn abandon(&self) {
        self.open(false);
        self.busy.store(false, Ordering::Relaxed);
        self.claimed.store(false, Ordering::Relaxed);
        for ((head, count), floor) in self.heads.iter().zip(&self.counts).zip(&self.floors) {
            head.set(None);
            count.store(0, Ordering::Relaxed);
            floor.store(0, Ordering::Relaxed);
        }
        self.bytes.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn pop(&self, class: usize) -> Option<&'static Extent> {
        let head = self.heads.get(class)?;
        // A look first: nothing is written to a cache that is closed, which threads share.
        if head.get().is_none() {
            self.missed.store(true, Ordering::Relaxed);
            return None;
        }
        let _turn = self.turn()?;
        let extent = head.get()?;
        head.set(extent.next().get());
        self.count_out(class, extent.bytes());
        Some(extent)
    }

    /// Counts a block of `bytes` out.
    #[inline]
    fn count_out(&self, class: usize, bytes: usize) {
        let (Some(count), Some(floor)) = (self.counts.get(class), self.floors.get(class)) else { return };
        let now = count.load(Ordering::Relaxed).saturating_sub(1);
        count.store(now, Ordering::Relaxed);
        if now < floor.load(Ordering::Relaxed) {
            floor.store(now, Ordering::Relaxed);
        }
        self.bytes.store(self.bytes.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Bytes of the blocks in the cache, as the owner counts them.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn give_back_one(&self, class: usize) -> bool {
        let Some(extent) = self.pop(class) else { return false };
        give_back(extent);
        true
    }
}

/// A turn of the owner, which ends with it.
struct Turn<'a>(&'a LargeCache);

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `surrender`.
        self.0.busy.store(false, Ordering::Release);
    }
}

fn give_back(extent: &'static Extent) {
    if let Some(owner) = arenas::get(extent.arena()) {
        owner.free_large(extent);
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
        assert!(cache.put(a, arena) && cache.put(b, arena));
        assert_eq!((a.bytes(), a.state()), (20 * GRANULE, State::Cached));
        let again = cache.take(19 * GRANULE).expect("cached");
        assert!(same(again, b) && again.usable() == 19 * GRANULE && again.state() == State::Active);
        assert!(
            cache.take(16 * GRANULE).is_none() && cache.take(65 * GRANULE).is_none() && cache.take(GRANULE).is_none()
        );
        assert!(cache.put(again, arena));
        let (small, long) = (block(8 * GRANULE), block(65 * GRANULE));
        assert!(!cache.put(small, arena) && !cache.put(long, arena));
        arena.free_large(small);
        arena.free_large(long);
        assert_eq!(cache.bytes(), 40 * GRANULE);
        // The first round marks, the second gives back.
        for _ in 0..2 * CLASSES {
            cache.collect_step();
        }
        assert!(cache.take(20 * GRANULE).is_none() && cache.bytes() == 0);
        assert_eq!((put_many(arena, &cache, 64, 20), put_many(arena, &cache, 40, 20)), (2, 3));
        cache.flush_all();
        assert_eq!((arena.large_stats().live_bytes, arena.page_stats().active_bytes, cache.bytes()), (0, 0, 0));
    }

    /// How many of `count` blocks of `pages` pages the cache keeps.
    fn put_many(arena: &crate::arena::Arena, cache: &LargeCache, pages: usize, count: usize) -> usize {
        let blocks = (0..count).map(|_| arena.alloc_large(pages * GRANULE, GRANULE, Fit::Tight).expect("pages"));
        let blocks: std::vec::Vec<_> = blocks.collect();
        let kept = |extent: &&&'static Extent| {
            cache.put(extent, arena) || {
                arena.free_large(extent);
                false
            }
        };
        blocks.iter().filter(kept).count()
    }

    #[test]
    fn a_list_that_was_taken_away_is_found_empty_and_filled_again() {
        let arena = arenas::create().expect("arena");
        let cache = LargeCache::new();
        cache.open(true);
        assert_eq!(put_many(arena, &cache, 64, 5), 2);
        cache.surrender();
        assert_eq!((arena.large_stats().live_bytes, cache.bytes()), (0, 0));
        assert!(cache.take(64 * GRANULE).is_none());
        assert_eq!(put_many(arena, &cache, 64, 5), 2);
        assert_eq!(cache.bytes(), 512 << 10);
        cache.surrender();
        assert_eq!(put_many(arena, &cache, 20, 3), 3);
        assert!(cache.take(20 * GRANULE).is_some());
        cache.flush_all();
        assert_eq!(arena.large_stats().live_bytes, 80 << 10);
    }

    #[test]
    fn a_cache_that_runs_empty_and_full_grows_with_its_arena_and_shrinks_when_idle() {
        let arena = arenas::create().expect("arena");
        let cache = LargeCache::new();
        cache.open(true);
        let blocks = |count: usize| -> std::vec::Vec<&'static Extent> {
            let fresh = || arena.alloc_large(20 * GRANULE, GRANULE, Fit::Tight).expect("pages");
            (0..count).map(|_| cache.take(20 * GRANULE).unwrap_or_else(fresh)).collect()
        };
        let give = |held: std::vec::Vec<&'static Extent>| {
            for extent in held {
                if !cache.put(extent, arena) {
                    arena.free_large(extent);
                }
            }
        };
        // Small arena: it may not grow, however often it runs empty.
        for _ in 0..5 {
            give(blocks(40));
        }
        assert!(cache.bytes() <= CACHE_BYTES / 2);
        let live = blocks(1000);
        for _ in 0..5 {
            give(blocks(30));
        }
        assert_eq!(cache.bytes(), 30 * 20 * GRANULE);
        let limit = cache.limit.load(Ordering::Relaxed);
        assert!(limit <= arena.share_bytes() / SHARE);
        for _ in 0..2 * CLASSES {
            cache.collect_step();
        }
        assert_eq!((cache.bytes(), cache.limit.load(Ordering::Relaxed)), (0, limit - 30 * 20 * GRANULE));
        for extent in live {
            arena.free_large(extent);
        }
    }

    #[test]
    fn every_length_has_its_list() {
        for pages in 1..=PAGES + 8 {
            let (bytes, class) = (pages * GRANULE, class_of(pages * GRANULE));
            if bytes > CACHED_MAX && pages <= PAGES {
                assert!(
                    LENGTHS[class] >= bytes
                        && LENGTHS[class] - bytes <= bytes / 8
                        && (class == 0 || LENGTHS[class - 1] < bytes)
                );
            } else {
                assert!(class >= CLASSES, "{pages} pages");
            }
        }
    }

    #[test]
    fn neither_side_enters_while_the_other_is_at_work() {
        let arena = arenas::create().expect("arena");
        let cache = LargeCache::new();
        cache.open(true);
        assert_eq!(put_many(arena, &cache, 64, 1), 1);
        let turn = cache.turn();
        cache.surrender();
        assert_eq!((turn.is_some(), cache.bytes()), (true, 256 << 10));
        drop(turn);
        cache.claimed.store(true, Ordering::Relaxed);
        assert!(cache.take(64 * GRANULE).is_none());
        assert_eq!(put_many(arena, &cache, 64, 1), 0);
        cache.surrender();
        assert_eq!(cache.bytes(), 256 << 10, "one at a time takes away");
        cache.claimed.store(false, Ordering::Relaxed);
        assert!(!cache.busy.load(Ordering::Relaxed));
        cache.surrender();
        assert_eq!((arena.large_stats().live_bytes, cache.bytes()), (0, 0));
    }

    /// The owner and a thief at work on one cache: no block is lost, none is handed out twice.
    #[test]
    fn blocks_change_hands_while_their_owner_works() {
        let arena = arenas::create().expect("arena");
        let cache: &'static LargeCache = std::boxed::Box::leak(std::boxed::Box::new(LargeCache::new()));
        cache.open(true);
        let done: &'static AtomicBool = std::boxed::Box::leak(std::boxed::Box::new(AtomicBool::new(false)));
        let thief = std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                cache.surrender();
                std::thread::yield_now();
            }
        });
        let mut held: std::vec::Vec<&'static Extent> = std::vec::Vec::new();
        for i in 0..50_000usize {
            let pages = [10, 20, 64][i % 3];
            if held.len() < 8 && i % 5 != 0 {
                let extent = cache.take(pages * GRANULE);
                let extent = extent.or_else(|| arena.alloc_large(pages * GRANULE, GRANULE, Fit::Tight).ok());
                let extent = extent.expect("pages");
                assert!(extent.state() == State::Active && held.iter().all(|other| !same(*other, extent)));
                held.push(extent);
            } else if let Some(extent) = held.pop()
                && !cache.put(extent, arena)
            {
                arena.free_large(extent);
            }
        }
        done.store(true, Ordering::Relaxed);
        thief.join().expect("thief");
        held.drain(..).for_each(|extent| arena.free_large(extent));
        cache.flush_all();
        assert_eq!((arena.large_stats().live_bytes, arena.page_stats().active_bytes), (0, 0));
    }
}
