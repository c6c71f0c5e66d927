//! One cache: a stack of blocks for each cached class; filling, flushing and giving back what goes unused.
//!
//! ```text
//!   Cache ┌ stacks[0..41]  the hot part: 32 bytes a class, reached from the page map's word
//!         ├ tuning[0..41]  batch size of each class
//!         └ room           one array for all stacks, cut by `first[class]`
//! ```
//!
//! Fill: an empty stack takes a batch from the bin; batches start at [`FIRST_FILL`] and double with each miss, up to half
//! of the stack. Flush: a full stack gives its older half back. Collection: one class a step, a step every 64 KiB
//! allocated: blocks below the stack's floor went unused since the last visit and three quarters of them are flushed;
//! then the floor rises to the top. So an idle class loses its blocks within a few rounds.
//!
//! A flush goes by owner: blocks of the cache's own arena are put back under one lock of the bin; of the others, each
//! arena's blocks become one chain on that bin's remote list, one exchange a chain.
//!
//! Only the owner thread (or, for an explicit cache, the thread that the client says) calls anything here. Fields:
//! all `owner`; atomics with Relaxed order because the struct is shared by reference.
#![forbid(unsafe_code)]

use crate::arena::Arena;
use crate::arenas;
use crate::base;
use crate::bin;
use crate::ds::link::Slice;
use crate::ds::remote::Chain;
use crate::ds::stack::Stack;
use crate::emap;
use crate::extent::{Extent, State};
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use crate::ptr::{BlockPtr, UserPtr};
use crate::sizeclass::{NBINS, NCACHED, size_of_index};
use crate::slab::SlabMisuse;

/// Slots of a small class: twice the regions of a slab, within these bounds.
const SLOTS_SMALL_MIN: usize = 20;
const SLOTS_SMALL_MAX: usize = 200;
const SLOTS_LARGE: usize = 20;
/// First batch of a class: a thread that uses a class once should not take a page of it.
const FIRST_FILL: u32 = 4;

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
    fill: [AtomicU32; NCACHED],
    room: Slice<AtomicPtr<u8>>,
    open: AtomicBool,
    /// Next class to collect.
    cursor: AtomicU32,
}

impl Cache {
    /// A cache whose stacks are all closed.
    pub(crate) const fn closed() -> Cache {
        Cache {
            stacks: [const { Stack::closed() }; NCACHED],
            fill: [const { AtomicU32::new(FIRST_FILL) }; NCACHED],
            room: Slice::empty(),
            open: AtomicBool::new(false),
            cursor: AtomicU32::new(0),
        }
    }

    /// Opens the stacks of all classes up to `max_bytes`, empty. False without memory.
    pub(crate) fn open(&self, max_bytes: usize) -> bool {
        if self.room.get().is_empty() {
            let slots = usize::from(FIRST[NCACHED]);
            match base::alloc_slice(slots, |_| AtomicPtr::new(core::ptr::null_mut())) {
                Some(room) => self.room.set(room),
                None => return false,
            }
        }
        for (class, stack) in self.stacks.iter().enumerate() {
            if size_of_index(class) <= max_bytes {
                stack.open(self.room_of(class), size_of_index(class));
            } else {
                stack.close();
            }
        }
        for fill in &self.fill {
            fill.store(FIRST_FILL, Ordering::Relaxed);
        }
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
        self.stacks.iter().for_each(Stack::close);
    }

    /// Gives every block back.
    pub(crate) fn flush_all(&self, arena: &Arena) {
        if self.is_open() {
            for class in 0..NCACHED {
                self.flush(class, 0, arena);
            }
        }
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
        let room = self.room_of(class);
        if stack.floor(room) > 0 {
            // The reserve below the floor is needed after all.
            stack.set_floor(room, 0);
            return stack.pop();
        }
        let bin = arena.bin(class)?;
        let fill = self.fill.get(class)?;
        let most = (room.len() / 2).max(1) as u32;
        let want = fill.load(Ordering::Relaxed).min(most);
        fill.store(want.saturating_mul(2).min(most), Ordering::Relaxed);
        let got = bin.take(arena, want as usize, |block| {
            stack.push(block);
        });
        // Regions come in address order; turned around, they are popped in address order.
        if let Some(filled) = room.get(..got) {
            for i in 0..got / 2 {
                if let (Some(a), Some(b)) = (filled.get(i), filled.get(got - 1 - i)) {
                    let low = a.load(Ordering::Relaxed);
                    a.store(b.load(Ordering::Relaxed), Ordering::Relaxed);
                    b.store(low, Ordering::Relaxed);
                }
            }
        }
        stack.pop()
    }

    /// Keeps a freed block, making room first if need be; false when the class has no open stack.
    pub(crate) fn free(&self, class: usize, block: BlockPtr, arena: &Arena) -> bool {
        let Some(stack) = self.stacks.get(class) else { return false };
        if stack.push(block.0) {
            return true;
        }
        if !stack.is_open() {
            return false;
        }
        self.flush(class, stack.len(self.room_of(class)) / 2, arena);
        arena.tick();
        stack.push(block.0)
    }

    /// Visits one class: gives back what went unused since the last visit.
    pub(crate) fn collect_step(&self, arena: &Arena) {
        let class = self.cursor.load(Ordering::Relaxed) as usize % NCACHED;
        self.cursor.store(class as u32 + 1, Ordering::Relaxed);
        let Some(stack) = self.stacks.get(class) else { return };
        if !stack.is_open() {
            return;
        }
        let room = self.room_of(class);
        let unused = stack.floor(room);
        if unused > 0 {
            let give = unused - unused / 4;
            self.flush(class, stack.len(room) - give, arena);
            if let Some(fill) = self.fill.get(class) {
                let less = (fill.load(Ordering::Relaxed) / 2).max(FIRST_FILL);
                fill.store(less, Ordering::Relaxed);
            }
        }
        stack.set_floor(room, stack.len(room));
    }

    /// Bytes of the blocks in the cache.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let stacks = self.stacks.iter().enumerate().filter(|(_, stack)| stack.is_open());
        stacks.map(|(class, stack)| stack.len(self.room_of(class)) * stack.size()).sum()
    }

    fn room_of(&self, class: usize) -> &'static [AtomicPtr<u8>] {
        let (Some(from), Some(to)) = (FIRST.get(class), FIRST.get(class + 1)) else { return &[] };
        self.room.get().get(usize::from(*from)..usize::from(*to)).unwrap_or(&[])
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

/// The active extent of a block that was cached under `class`; reports a block that has none.
fn extent_of(class: usize, block: *mut u8) -> Option<&'static Extent> {
    let found = emap::lookup(UserPtr(block)).map(|(_, extent)| extent);
    let valid = found.filter(|extent| extent.state() == State::Active && extent.class() == class);
    if valid.is_none() {
        // Its slab ended although this block was in a cache: it had been freed before.
        bin::report(BlockPtr(block), SlabMisuse::DoubleFree);
    }
    valid
}

fn flush_large(class: usize, block: *mut u8) {
    if let Some(extent) = extent_of(class, block)
        && let Some(owner) = arenas::get(extent.arena())
    {
        owner.free_large(extent);
    }
}

fn flush_small(class: usize, blocks: &[AtomicPtr<u8>], arena: &Arena) {
    let mut foreign = 0;
    if let Some(bin) = arena.bin(class) {
        let mut inner = bin.lock(arena);
        for slot in blocks {
            let block = slot.load(Ordering::Relaxed);
            let Some(slab) = extent_of(class, block) else { continue };
            if slab.arena() == arena.ind() {
                bin.put(&mut inner, arena, slab, BlockPtr(block));
            } else if let Some(place) = blocks.get(foreign) {
                // Blocks of others move to the front, which was read already.
                place.store(block, Ordering::Relaxed);
                foreign += 1;
            }
        }
    }
    let mut rest = blocks.get(..foreign).unwrap_or(&[]);
    while let Some(first) = rest.first() {
        let ind = extent_of(class, first.load(Ordering::Relaxed)).map(Extent::arena);
        let mut chain = Chain::new();
        let mut left = 0;
        for slot in rest {
            let block = slot.load(Ordering::Relaxed);
            let owner = extent_of(class, block).map(Extent::arena);
            if owner == ind {
                if owner.is_some() {
                    chain.add(BlockPtr(block));
                }
            } else if let Some(place) = rest.get(left) {
                place.store(block, Ordering::Relaxed);
                left += 1;
            }
        }
        if let Some(owner) = ind.and_then(arenas::get)
            && let Some(bin) = owner.bin(class)
        {
            bin.put_remote(owner, &chain);
        }
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
        assert!(cache.bytes() > 0 && cache.bytes() <= slots(class) * 128);
        // Two rounds without use: the first marks, the later ones give back.
        for _ in 0..20 * NCACHED {
            cache.collect_step(arena);
        }
        assert!(cache.bytes() <= 2 * 128, "idle blocks go back, {} bytes left", cache.bytes());
        cache.close(arena);
        assert_eq!(arena.bin_stats(class).live, 0);
        assert!(cache.alloc(class, arena).is_none());
    }
}
