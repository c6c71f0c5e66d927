//! One cache: a stack of blocks for each cached class; filling, flushing and giving back what goes unused.
//!
//! ```text
//!   Cache ┌ stacks[0..41]  the hot part: 32 bytes a class, reached from the page map's word
//!         ├ tuning[0..41]  of each class: the array of its stack, batch size, limit
//!         └ …
//! ```
//!
//! Fill: an empty stack takes a batch from the bin; batches start at [`FIRST_FILL`] and double with each miss, up to half
//! of the limit. Flush: a full stack gives its older half back, a [`LONG`] one three quarters. Growth: a stack that fills
//! up after it had run empty is too small for what its thread does, and its limit doubles instead, up to [`most_slots`].
//! One way: a thread that takes blocks and frees none, or frees blocks and takes none, only pays for each batch; so a stack that runs
//! empty [`MISSES_IN_A_ROW`] times without being full, or fills up again with nothing taken of what the last flush left (below the
//! floor, which rises to the top then), doubles up to [`most_slots_one_way`], and gives nearly all back after that. While none of what
//! comes is taken, the stack says that it is full, and blocks are pushed beyond that by the slow path ([`Cache::push_one_way`]), which
//! leaves them where they are: `free` fetches a block because it is soon written again, and here it would be by another thread.
//! Collection: one class a step: blocks below the stack's floor went unused since the last visit; three quarters of them
//! are flushed, and the limit sinks by as much, or to the half if nothing was used; then the floor rises to the top. So an
//! idle class loses its blocks within a few rounds.
//!
//! A flush goes by owner: blocks of the cache's own arena, if there are any, are put back under one lock of the bin; of the others,
//! each arena's blocks become one chain on that bin's remote list, one exchange a chain.
//!
//! Only the owner thread (or, for an explicit cache, the thread that the client says) calls anything here. Fields:
//! all `owner`; atomics with Relaxed order because the struct is shared by reference.
#![forbid(unsafe_code)]

use crate::arena::Arena;
use crate::arenas;
use crate::base;
use crate::bin::{Chains, extent_of};
use crate::ds::link::Slice;
use crate::ds::stack::{Beyond, Stack};
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use crate::prof::lives::Live;
use crate::ptr::BlockPtr;
use crate::sizeclass::{CACHED_MAX, NBINS, NCACHED, size_of_index};
use crate::tcache::large::LargeCache;
use crate::tcache::shelves::{Hand, Room, Shelves};

/// Slots of a small class: twice the regions of a slab, within these bounds.
const SLOTS_SMALL_MIN: usize = 20;
const SLOTS_SMALL_MAX: usize = 200;
const SLOTS_LARGE: usize = 20;
/// First batch of a class: a thread that uses a class once should not take a page of it, but a cache line, so that threads
/// of one arena do not share it.
const FIRST_FILL: u32 = 4;
const CACHE_LINE: usize = 64;

/// Slots that a small stack may grow to, and bytes of blocks in it.
const GROWN_SLOTS_MAX: usize = 2048;
const GROWN_BYTES_MAX: usize = 128 << 10;
/// Bytes of blocks in a stack of a thread that only takes, or only frees.
const ONE_WAY_BYTES_MAX: usize = 32 << 10;
/// A stack that ran empty so often and was never full grows.
const MISSES_IN_A_ROW: u32 = 8;
/// Of a full stack of so many slots a quarter stays, of a smaller one half. Keeping few spares copying them down, and what
/// goes through a bin comes out again by address; keeping half is best for a number of blocks that goes up and down by chance,
/// which long stacks are not full of.
const LONG: usize = 512;

/// shape [u16; 42]: first slot of each class in the room; the last entry is the number of slots.
const FIRST: [u16; NCACHED + 1] = build_first();

const fn slots(class: usize) -> usize {
    if class >= NBINS {
        return SLOTS_LARGE;
    }
    let size = crate::sizeclass::SIZES[class];
    let mut slab = 4096;
    while slab % size != 0 {
        slab += 4096;
    }
    let twice = slab / size * 2;
    if twice < SLOTS_SMALL_MIN {
        SLOTS_SMALL_MIN
    } else if twice > SLOTS_SMALL_MAX {
        SLOTS_SMALL_MAX
    } else {
        twice
    }
}

/// First batch of a class.
fn first_fill(class: usize) -> u32 {
    FIRST_FILL.max((CACHE_LINE / size_of_index(class).max(1)) as u32)
}

/// Slots that the stack of a class may grow to.
fn most_slots(class: usize) -> usize {
    if class >= NBINS {
        return SLOTS_LARGE;
    }
    (GROWN_BYTES_MAX / size_of_index(class)).clamp(slots(class), GROWN_SLOTS_MAX)
}

/// Slots that the stack of a class grows to for a thread that takes blocks but frees none, or frees but takes none.
fn most_slots_one_way(class: usize) -> usize {
    if class >= NBINS {
        return SLOTS_LARGE;
    }
    (ONE_WAY_BYTES_MAX / size_of_index(class)).clamp(slots(class), LONG)
}

const fn build_first() -> [u16; NCACHED + 1] {
    let mut first = [0; NCACHED + 1];
    let mut class = 0;
    while class < NCACHED {
        first[class + 1] = first[class] + slots(class) as u16;
        class += 1;
    }
    first
}

/// A cache. `repr(C)`: the stacks come first, for `arena::fast_offset`.
#[repr(C)]
pub(crate) struct Cache {
    pub(crate) stacks: [Stack; NCACHED],
    tuning: [Tuning; NCACHED],
    pub(crate) large: LargeCache,
    /// Regions for sampled blocks.
    shelves: Shelves,
    open: AtomicBool,
    /// Next class to collect.
    cursor: AtomicU32,
}

/// What the slow paths know of a class.
struct Tuning {
    /// The array of the stack; longer than the limit after the limit sank.
    room: Slice<AtomicPtr<u8>>,
    /// Slots in use.
    limit: AtomicU32,
    /// Size of the next batch.
    fill: AtomicU32,
    /// How often the stack ran empty since it was last full or grew.
    misses: AtomicU32,
    /// Where the array ends while blocks come and none goes out again: the stack says that it is full then.
    beyond: Beyond,
}

impl Tuning {
    const fn new() -> Tuning {
        Tuning {
            room: Slice::empty(),
            limit: AtomicU32::new(0),
            fill: AtomicU32::new(FIRST_FILL),
            misses: AtomicU32::new(0),
            beyond: Beyond::none(),
        }
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize
    }

    /// The slots in use.
    fn slots(&self) -> &'static [AtomicPtr<u8>] {
        self.room.get().get(..self.limit()).unwrap_or(&[])
    }

    /// Size of the next batch; the one after it is twice as large.
    fn next_fill(&self) -> usize {
        let most = (self.limit() / 2).max(1) as u32;
        let want = self.fill.load(Ordering::Relaxed).min(most);
        self.fill.store(want.saturating_mul(2).min(most), Ordering::Relaxed);
        want as usize
    }
}

impl Cache {
    /// A cache whose stacks are all closed.
    pub(crate) const fn closed() -> Cache {
        Cache {
            stacks: [const { Stack::closed() }; NCACHED],
            tuning: [const { Tuning::new() }; NCACHED],
            large: LargeCache::new(),
            shelves: Shelves::none(),
            open: AtomicBool::new(false),
            cursor: AtomicU32::new(0),
        }
    }

    /// Opens the stacks of all classes up to `max_bytes`, empty. False without memory.
    pub(crate) fn open(&self, max_bytes: usize) -> bool {
        if self.tuning.first().is_some_and(|tuning| tuning.room.get().is_empty()) {
            let Some(room) = base::alloc_nulls(usize::from(FIRST[NCACHED])) else { return false };
            for (tuning, ends) in self.tuning.iter().zip(FIRST.windows(2)) {
                if let [from, to] = ends {
                    tuning.room.set(room.get(usize::from(*from)..usize::from(*to)).unwrap_or(&[]));
                }
            }
        }
        for (class, (stack, tuning)) in self.stacks.iter().zip(&self.tuning).enumerate() {
            tuning.limit.store(slots(class) as u32, Ordering::Relaxed);
            tuning.fill.store(first_fill(class), Ordering::Relaxed);
            tuning.misses.store(0, Ordering::Relaxed);
            tuning.beyond.reset();
            if size_of_index(class) <= max_bytes {
                stack.open(tuning.slots(), size_of_index(class));
            } else {
                stack.close();
            }
        }
        self.large.open(max_bytes >= CACHED_MAX);
        self.open.store(true, Ordering::Relaxed);
        true
    }

    /// True between `open` and `close`.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Gives every block back and closes the stacks.
    pub(crate) fn close(&self, arena: &Arena) {
        self.flush_all(arena);
        self.abandon();
    }

    /// Closes the stacks and forgets their blocks: in the child of a fork, for threads that exist no more.
    pub(crate) fn abandon(&self) {
        self.open.store(false, Ordering::Relaxed);
        self.large.abandon();
        self.shelves.abandon();
        for (stack, tuning) in self.stacks.iter().zip(&self.tuning) {
            stack.close();
            tuning.beyond.reset();
        }
    }

    /// Gives every block back.
    pub(crate) fn flush_all(&self, arena: &Arena) {
        if self.is_open() {
            for class in 0..NCACHED {
                self.flush(class, 0, arena);
            }
            self.large.flush_all();
            self.shelves.flush(arena);
        }
    }

    /// A region of a small class for a block that is to be sampled; the cache is open.
    #[inline]
    pub(crate) fn alloc_sampled(&self, class: usize, arena: &Arena) -> Option<Live> {
        self.shelves.take(class, arena)
    }

    /// A region that the thread keeps for a block that is sampled.
    #[inline(always)]
    pub(crate) fn kept_for_sample(&self, class: usize) -> Option<Live> {
        self.shelves.kept(class)
    }

    /// The region that [`Cache::kept_for_sample`] would give.
    #[inline(always)]
    pub(crate) fn at_hand_for_sample(&self, class: usize) -> Option<Hand> {
        self.shelves.last(class)
    }

    /// Fetches regions for blocks that are sampled; false when there were some, or are none to be had.
    pub(crate) fn fetch_for_samples(&self, class: usize, arena: &Arena) -> bool {
        self.shelves.fetch(class, arena)
    }

    /// Room for the region of a block that was sampled.
    #[inline(always)]
    pub(crate) fn room_for_sampled(&self, class: usize) -> Option<Room> {
        if self.is_open() { self.shelves.room(class) } else { None }
    }

    /// Keeps the region of a block that was sampled; false when there is no room for it.
    #[inline(always)]
    pub(crate) fn free_sampled(&self, class: usize, live: Live) -> bool {
        self.shelves.put(class, live)
    }

    /// Makes room for the region of a block that was sampled. `arena`: the thread's.
    pub(crate) fn make_room(&self, class: usize, arena: &Arena) {
        self.shelves.make_room(class, arena);
    }

    /// True when the class has an open stack.
    pub(crate) fn serves(&self, class: usize) -> bool {
        self.stacks.get(class).is_some_and(Stack::is_open)
    }

    /// A block of a class with an open stack.
    pub(crate) fn alloc(&self, class: usize, arena: &Arena) -> Option<*mut u8> {
        let stack = self.stacks.get(class)?;
        if let Some(block) = stack.pop() {
            return Some(block);
        }
        if !stack.is_open() {
            return None;
        }
        let tuning = self.tuning.get(class)?;
        let room = tuning.slots();
        stack.end_beyond(room, &tuning.beyond);
        if stack.floor(room) > 0 {
            // The reserve below the floor is needed after all.
            stack.set_floor(room, 0);
            return stack.pop();
        }
        let bin = arena.bin(class)?;
        let misses = tuning.misses.load(Ordering::Relaxed) + 1;
        tuning.misses.store(misses, Ordering::Relaxed);
        if misses > MISSES_IN_A_ROW {
            self.extend(class, most_slots_one_way(class));
        }
        let room = tuning.slots();
        let want = tuning.next_fill();
        // Filled from the top down, popped in address order.
        let missing = bin.take(arena, room.get(..want)?);
        stack.set_len(room, want);
        if missing > 0 {
            stack.drop_oldest(room, missing);
        }
        stack.pop()
    }

    /// Keeps a freed block, making room first if need be; false when the class has no open stack.
    pub(crate) fn free(&self, class: usize, block: BlockPtr, arena: &Arena) -> bool {
        let Some(stack) = self.stacks.get(class) else { return false };
        if stack.push(block.0) || self.push_one_way(class, block.0) {
            return true;
        }
        if !stack.is_open() {
            return false;
        }
        if !self.grow(class) {
            let room = self.room_of(class);
            let len = stack.len(room);
            // Nothing of what stayed at the last flush, or look, was needed: the thread takes none of these blocks.
            let is_idle = stack.floor(room) > 0;
            let kept = if is_idle && self.extend(class, most_slots_one_way(class)) {
                len
            } else {
                let keep = match len {
                    _ if is_idle => len / 16,
                    LONG.. => len / 4,
                    _ => len / 2,
                };
                self.flush(class, keep, arena);
                arena.tick(1);
                keep
            };
            let room = self.room_of(class);
            if len < LONG || is_idle {
                stack.set_floor(room, kept);
            }
            if let Some(tuning) = self.tuning.get(class) {
                if is_idle {
                    stack.begin_beyond(room, &tuning.beyond);
                } else {
                    stack.end_beyond(room, &tuning.beyond);
                }
            }
        }
        stack.push(block.0) || self.push_one_way(class, block.0)
    }

    /// Keeps a block of a class of which none goes out again, without bringing it into the processor's cache, where another one's
    /// would miss it; false for other classes, or when the array is full.
    #[inline(always)]
    pub(crate) fn push_one_way(&self, class: usize, block: *mut u8) -> bool {
        let (Some(stack), Some(tuning)) = (self.stacks.get(class), self.tuning.get(class)) else { return false };
        stack.push_beyond(&tuning.beyond, block)
    }

    /// Doubles the limit of a full stack that had run empty before; false when it stays as it is.
    fn grow(&self, class: usize) -> bool {
        let Some(tuning) = self.tuning.get(class) else { return false };
        tuning.misses.load(Ordering::Relaxed) > 0 && self.extend(class, most_slots(class))
    }

    /// Doubles the limit of a stack, up to `most`; false when it stays as it is.
    fn extend(&self, class: usize, most: usize) -> bool {
        let (Some(stack), Some(tuning)) = (self.stacks.get(class), self.tuning.get(class)) else { return false };
        let limit = tuning.limit();
        let more = (2 * limit).min(most);
        if more <= limit {
            return false;
        }
        tuning.misses.store(0, Ordering::Relaxed);
        let room = tuning.room.get();
        // All that it may grow to, once: only what is used takes memory, and no shorter array is left behind.
        let new_room = if room.len() < more { base::alloc_nulls(most_slots(class)) } else { Some(room) };
        let Some(new_room) = new_room else { return false };
        if room.len() < more {
            for (to, from) in new_room.iter().zip(room) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            tuning.room.set(new_room);
        }
        tuning.limit.store(more as u32, Ordering::Relaxed);
        tuning.beyond.reset();
        stack.move_to(room, tuning.slots());
        true
    }

    /// Visits one class: gives back what went unused since the last visit.
    pub(crate) fn collect_step(&self, arena: &Arena) {
        let class = self.cursor.load(Ordering::Relaxed) as usize % NCACHED;
        self.cursor.store(class as u32 + 1, Ordering::Relaxed);
        self.shelves.collect(class, arena);
        let (Some(stack), Some(tuning)) = (self.stacks.get(class), self.tuning.get(class)) else { return };
        if !stack.is_open() {
            return;
        }
        let room = tuning.slots();
        let unused = stack.floor(room);
        if unused > 0 {
            let give = unused - unused / 4;
            let len = stack.len(room);
            // What was not needed was room too much; so is half of a stack that nobody used.
            let spare_room = if unused == len { give.max(tuning.limit() / 2) } else { give };
            self.flush(class, len - give, arena);
            let less = (tuning.fill.load(Ordering::Relaxed) / 2).max(first_fill(class));
            tuning.fill.store(less, Ordering::Relaxed);
            let limit = (tuning.limit() - spare_room).max(slots(class));
            if limit < tuning.limit() && stack.len(room) <= limit {
                tuning.limit.store(limit as u32, Ordering::Relaxed);
                tuning.beyond.reset();
                stack.move_to(room, tuning.slots());
            }
        }
        let room = tuning.slots();
        stack.set_floor(room, stack.len(room));
    }

    /// Bytes of the blocks in the cache.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let stacks = self.stacks.iter().enumerate().filter(|(_, stack)| stack.is_open());
        stacks.map(|(class, stack)| stack.len(self.room_of(class)) * stack.size()).sum()
    }

    fn room_of(&self, class: usize) -> &'static [AtomicPtr<u8>] {
        self.tuning.get(class).map_or(&[], Tuning::slots)
    }

    /// Gives the oldest blocks of a class back until `keep` are left.
    fn flush(&self, class: usize, keep: usize, arena: &Arena) {
        let Some(stack) = self.stacks.get(class) else { return };
        if !stack.is_open() {
            return;
        }
        let room = self.room_of(class);
        let len = stack.len(room);
        let count = len.saturating_sub(keep);
        let Some(blocks) = room.get(..count) else { return };
        if count == 0 {
            return;
        }
        if class < NBINS {
            flush_small(class, blocks, arena);
        } else {
            for block in blocks {
                flush_large(class, block.load(Ordering::Relaxed));
            }
        }
        stack.drop_oldest(room, count);
    }
}

fn flush_large(class: usize, block: *mut u8) {
    if let Some(extent) = extent_of(class, block)
        && let Some(owner) = arenas::get(extent.arena())
    {
        owner.free_large(extent);
    }
}

fn flush_small(class: usize, blocks: &[AtomicPtr<u8>], arena: &Arena) {
    let Some(bin) = arena.bin(class) else { return };
    let mut rest = blocks;
    while !rest.is_empty() {
        let mut chains = Chains::new(size_of_index(class));
        let left = bin.put_mixed(arena, rest, &mut chains);
        chains.each(|owner, chain| {
            if let Some(owner) = arenas::get(owner)
                && let Some(bin) = owner.bin(class)
            {
                bin.put_remote(owner, chain);
            }
        });
        rest = rest.get(..left).unwrap_or(&[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_bounds() {
        assert_eq!((slots(0), slots(4), slots(16), slots(35), slots(40)), (200, 128, 20, 20, 20));
        assert!(FIRST.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn fill_flush_and_collection_balance() {
        let arena = arenas::create().expect("arena");
        let cache = Cache::closed();
        assert!(cache.open(1 << 15));
        let class = 8;
        let blocks: std::vec::Vec<_> = (0..1000).map(|_| cache.alloc(class, arena).expect("block")).collect();
        let distinct: std::collections::BTreeSet<_> = blocks.iter().map(|block| block.addr()).collect();
        assert_eq!(distinct.len(), 1000);
        for block in &blocks {
            assert!(cache.free(class, BlockPtr(*block), arena));
        }
        // The stack ran empty before it was full, so it grew, up to the bound.
        assert!(cache.tuning[class].limit() > slots(class) && cache.bytes() <= GROWN_BYTES_MAX);
        // Rounds without use: the first marks, the later ones give back.
        for _ in 0..20 * NCACHED {
            cache.collect_step(arena);
        }
        assert!(cache.bytes() <= 2 * 128, "idle blocks go back, {} bytes left", cache.bytes());
        assert_eq!(cache.tuning[class].limit(), slots(class));
        cache.close(arena);
        assert_eq!(arena.bin_stats(class).live, 0);
        assert!(cache.alloc(class, arena).is_none());
    }

    fn taken(cache: &Cache, class: usize, arena: &Arena, count: usize) -> std::vec::Vec<*mut u8> {
        (0..count).map(|_| cache.alloc(class, arena).expect("block")).collect()
    }

    #[test]
    fn blocks_of_other_arenas_go_back_to_them() {
        let [first, second, third] = core::array::from_fn(|_| arenas::create().expect("arena"));
        let (cache, other, giver) = (Cache::closed(), Cache::closed(), Cache::closed());
        assert!(cache.open(1 << 15) && other.open(1 << 15) && giver.open(1 << 15));
        for class in [0, 1, 3, 4, 7, 20, NBINS - 1] {
            for mixed in [false, true] {
                let mut blocks = taken(&cache, class, first, 1500);
                let theirs = taken(&other, class, second, 1500);
                let own = taken(&giver, class, third, 100);
                if mixed {
                    blocks = blocks.into_iter().zip(theirs).flat_map(|(a, b)| [a, b]).collect();
                } else {
                    blocks.extend(theirs);
                }
                blocks.extend(own);
                for block in &blocks {
                    assert!(giver.free(class, BlockPtr(*block), third));
                }
                for (cache, arena) in [(&cache, first), (&other, second), (&giver, third)] {
                    cache.flush_all(arena);
                }
                for arena in [first, second, third] {
                    assert_eq!(arena.bin_stats(class).live, 0, "class {class}, mixed {mixed}");
                }
                // What came back is whole: no region is handed out twice.
                let again: std::collections::BTreeSet<_> = taken(&cache, class, first, 3000).into_iter().collect();
                assert_eq!(again.len(), 3000);
                for block in &again {
                    assert!(cache.free(class, BlockPtr(*block), first));
                }
                cache.flush_all(first);
                assert_eq!(arena_live(first, class), 0);
            }
        }
    }

    fn arena_live(arena: &Arena, class: usize) -> u64 {
        arena.bin_stats(class).live
    }

    #[test]
    fn a_cache_that_only_takes_or_only_frees_works_in_larger_batches() {
        let (class, one_way) = (4, most_slots_one_way(4));
        assert!(one_way > slots(class) && one_way * size_of_index(class) <= ONE_WAY_BYTES_MAX);
        let (from, to) = (arenas::create().expect("arena"), arenas::create().expect("arena"));
        let (taker, giver) = (Cache::closed(), Cache::closed());
        assert!(taker.open(1 << 15) && giver.open(1 << 15));
        let blocks = taken(&taker, class, from, 20_000);
        assert_eq!(taker.tuning[class].limit(), one_way);
        for block in &blocks {
            assert!(giver.free(class, BlockPtr(*block), to));
        }
        assert_eq!(giver.tuning[class].limit(), one_way);
        // Its stack takes no block by the fast path until blocks go out again.
        let stack = &giver.stacks[class];
        let (len, block) = (stack.len(giver.room_of(class)), BlockPtr(taken(&taker, class, from, 1)[0]));
        assert!(len + 1 < one_way && !stack.push(block.0) && giver.free(class, block, to) && !stack.push(block.0));
        assert_eq!(stack.len(giver.room_of(class)), len + 1);
        let again = taken(&giver, class, to, len + 2);
        assert!(stack.room() > 0 && again.iter().all(|block| giver.free(class, BlockPtr(*block), to)));
        assert_eq!(again.first(), Some(&block.0));
        // A number that goes up and down does not make the stack grow.
        let both = Cache::closed();
        assert!(both.open(1 << 15));
        for _ in 0..100 {
            let some = taken(&both, class, to, slots(class) / 2);
            for block in &some {
                assert!(both.free(class, BlockPtr(*block), to));
            }
        }
        assert_eq!(both.tuning[class].limit(), slots(class));
        for (cache, arena) in [(&taker, from), (&giver, to), (&both, to)] {
            cache.close(arena);
        }
        assert_eq!((arena_live(from, class), arena_live(to, class)), (0, 0));
    }
}
