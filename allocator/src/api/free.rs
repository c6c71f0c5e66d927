//! Freeing: the fast path, and everything it leaves to the slow one.
//!
//! Fast path of `free`: slot word → page-map word → stack by the offset in the word → push. The page map gives offset
//! 0 for whatever needs more thought: null and foreign pointers, large blocks, sampled blocks. A stack that says it is full may have
//! room for blocks that are not going out again (`free_full`).

use crate::arena::{self, Arena};
use crate::arenas;
use crate::bin;
use crate::boot;
use crate::conf::{self, Junk};
use crate::emap;
use crate::extent::{Extent, State};
use crate::prim::Ordering;
use crate::prof;
use crate::prof::lives::{self, Live};
use crate::ptr::{BlockPtr, UserPtr};
use crate::samplemap::SampleMap;
use crate::sizeclass::{self, CACHED_MAX, NCACHED};
use crate::slab::{self, SlabMisuse};
use crate::tcache::cache::Cache;
use crate::thread::{self, Slot};

use super::alloc::{arena_of, cache_of, stack_at};
use super::flags::Place;
use super::foreign;

/// Frees a block; null is ignored, a pointer of another allocator is passed on.
///
/// # Safety
/// S1: `ptr` is null, or a live block that the caller gives up. (A pointer that is no block at all is recognised; one
/// that was freed before is found out when its slab is next looked at.)
#[inline(always)]
pub unsafe fn free(ptr: *mut u8) {
    let slot = thread::slot();
    let fast = emap::word(ptr.addr()).fast();
    if fast != 0 {
        let stack = stack_at(slot, fast);
        if !stack.push(ptr) {
            return free_full(ptr, slot, fast);
        }
        let size = stack.size() as u64;
        // Relaxed: the owner's counter.
        let after = slot.deallocated().load(Ordering::Relaxed).wrapping_add(size);
        slot.deallocated().store(after, Ordering::Relaxed);
        return;
    }
    free_slow(ptr);
}

/// Keeps a block whose stack, at `fast` in `slot`, says that it is full. For a class of which the thread takes no blocks this is
/// mostly all: a function without a frame.
#[cold]
#[inline(never)]
fn free_full(ptr: *mut u8, slot: &'static Slot, fast: usize) {
    if slot.cache.push_one_way(arena::class_of_offset(fast), ptr) {
        slot.count_free_own(stack_at(slot, fast).size() as u64);
    } else {
        free_block(ptr);
    }
}

/// Of null this is all, which programs free about as often as blocks: a function without a frame.
#[cold]
#[inline(never)]
fn free_slow(ptr: *mut u8) {
    if !ptr.is_null() {
        free_block(ptr);
    }
}

/// Of most sampled blocks this is all, so it calls nothing and keeps little at hand.
#[inline(never)]
fn free_block(ptr: *mut u8) {
    if let Some(extent) = emap::word(ptr.addr()).extent()
        && extent.is_sampled()
        && free_at_hand(ptr, extent)
    {
        return;
    }
    free_rest(ptr);
}

/// Frees a block that is a sample of this thread onto the thread's shelf; false, with nothing done, when it is none, lies in no
/// slab, or more is to be done.
#[inline(always)]
fn free_at_hand(ptr: *mut u8, extent: &'static Extent) -> bool {
    let slot = thread::slot();
    if let Some(live) = lives::find(ptr, extent)
        && let Some(room) = slot.cache.room_for_sampled(extent.class())
        && let Some(usable) = prof::quick_free(slot.prof(), live)
    {
        live.rest();
        slot.count_free_own(usable);
        room.put(live);
        return true;
    }
    false
}

#[inline(never)]
fn free_rest(ptr: *mut u8) {
    if let Some(extent) = emap::word(ptr.addr()).extent()
        && (if extent.is_sampled() { free_own_sampled(ptr, extent) } else { free_own(ptr, extent) })
    {
        return;
    }
    // SAFETY: S1 by the caller, `free`.
    unsafe { free_placed(ptr, Place::default()) };
}

/// Frees a large block of the thread's own arena that is no sample, into the thread's cache or, when it is longer than those of
/// the stacks and the cache does not keep it, into the arena; false when it is none.
#[inline]
fn free_own(ptr: *mut u8, extent: &'static Extent) -> bool {
    let slot = thread::slot();
    if !extent.is_plain_large() || extent.addr() != ptr {
        return false;
    }
    let Some(arena) = slot.arena().filter(|arena| arena.ind() == extent.arena()) else { return false };
    let usable = extent.usable();
    // A closed cache keeps nothing; so the slot is the thread's own below.
    if !slot.cache.large.put(extent, arena)
        && (!slot.cache.is_open() || !free_own_large(BlockPtr(ptr), extent, usable, arena))
    {
        return false;
    }
    slot.count_free(usable);
    true
}

/// Frees a block that is a sample, or lies among samples, into the thread's cache; false when the cache does not keep it.
#[inline(always)]
fn free_own_sampled(ptr: *mut u8, extent: &'static Extent) -> bool {
    let slot = thread::slot();
    // Closed for threads without a slot.
    if !slot.cache.is_open() {
        return false;
    }
    if !extent.is_slab() {
        return free_own_large_sample(slot, ptr, extent);
    }
    let Some(live) = lives::find(ptr, extent) else { return false };
    if !live.is_in_use() {
        bin::report(BlockPtr(ptr), SlabMisuse::DoubleFree);
        return true;
    }
    let class = extent.class();
    let usable = sizeclass::size_of_index(class);
    prof::free(slot.prof(), live, usable);
    live.rest();
    slot.count_free(usable);
    slot.cache.free_sampled(class, live) || free_sampled_slow(slot, live, extent)
}

/// Frees the region of a block that was sampled when its shelf is full, or there is none; always true.
#[cold]
#[inline(never)]
fn free_sampled_slow(slot: &'static Slot, live: Live, extent: &'static Extent) -> bool {
    if let Some(arena) = slot.arena() {
        slot.cache.make_room(extent.class(), arena);
    }
    if !slot.cache.free_sampled(extent.class(), live)
        && let Some(owner) = arenas::get(extent.arena())
    {
        owner.free_small(extent, BlockPtr(live.block()));
    }
    true
}

#[inline(never)]
fn free_own_large_sample(slot: &'static Slot, ptr: *mut u8, extent: &'static Extent) -> bool {
    let Some(arena) = slot.arena().filter(|arena| arena.ind() == extent.arena()) else { return false };
    if !extent.is_active() || extent.addr() != ptr {
        return false;
    }
    let Some(map) = Arena::end_sample(extent) else { return false };
    let (block, usable) = (BlockPtr(ptr), extent.usable());
    end_large_sample(slot, map, usable);
    slot.count_free(usable);
    if usable <= CACHED_MAX {
        fill_old(block, usable);
        give_back(block, extent, Some(&slot.cache), arena);
    } else if !slot.cache.large.put(extent, arena) {
        free_own_large(block, extent, usable, arena);
    }
    true
}

#[inline]
fn free_own_large(block: BlockPtr, extent: &'static Extent, usable: usize, arena: &'static Arena) -> bool {
    if usable <= CACHED_MAX {
        return false;
    }
    fill_old(block, usable);
    arena.free_large(extent);
    arena.tick(1);
    true
}

/// Frees a block through the given cache.
///
/// # Safety
/// S1: as for [`free`].
pub unsafe fn free_placed(ptr: *mut u8, place: Place) {
    if ptr.is_null() {
        return;
    }
    // A thread whose first call is a free was handed the block, often with neighbours of it in other threads' hands:
    // kept in its cache, the block would be the first to be used again, and its cache line shared for good.
    let handed = thread::get().is_none();
    let slot = boot::current();
    let Some((block, extent)) = emap::lookup(UserPtr(ptr)) else { return foreign::free(ptr) };
    let Some(usable) = usable_of(block, extent) else {
        return foreign::misuse("free", ptr, " is not the start of a live block; ignored");
    };
    let Some(arena) = arena_of(slot, Place { arena: None, ..place }) else { return };
    end_sample(slot, block, extent, usable);
    fill_old(block, usable);
    slot.count_free(usable);
    give_back(block, extent, cache_of(slot, place).filter(|_| !handed), arena);
}

/// Tells the sampler that a block ends, if it may be one of its samples.
#[inline]
pub(super) fn end_sample(slot: &Slot, block: BlockPtr, extent: &'static Extent, usable: usize) {
    if extent.is_sampled() {
        end_sample_slow(slot, block, extent, usable);
    }
}

#[cold]
#[inline(never)]
fn end_sample_slow(slot: &Slot, block: BlockPtr, extent: &'static Extent, usable: usize) {
    if extent.is_slab() {
        if let Some(live) = lives::find(block.0, extent) {
            prof::free(slot.prof(), live, usable);
            live.rest();
        }
    } else if let Some(map) = Arena::end_sample(extent) {
        end_large_sample(slot, map, usable);
    }
}

/// A large block of `usable` bytes is no sample any more, whose map was taken.
#[inline(always)]
pub(super) fn end_large_sample(slot: &Slot, map: &'static SampleMap, usable: usize) {
    if let Some(live) = lives::live_of(map) {
        prof::free(slot.prof(), live, usable);
    }
    prof::give_map(slot.prof(), map);
}

/// Hands a block to the cache or to its arena.
pub(super) fn give_back(block: BlockPtr, extent: &'static Extent, cache: Option<&Cache>, arena: &'static Arena) {
    let class = extent.class();
    if let Some(cache) = cache
        && !extent.is_sampled()
        && (extent.is_slab() || (class < NCACHED && extent.usable() == sizeclass::size_of_index(class)))
        && cache.free(class, block, arena)
    {
        return;
    }
    if let Some(cache) = cache
        && !extent.is_slab()
        && !extent.is_sampled()
        && extent.arena() == arena.ind()
        && cache.large.put(extent, arena)
    {
        return;
    }
    let Some(owner) = arenas::get(extent.arena()) else { return };
    if extent.is_slab() {
        owner.free_small(extent, block);
    } else {
        owner.free_large(extent);
    }
    // A program that only frees sees its pages decay too.
    owner.tick(1);
}

/// Usable bytes of a live block of ours; `None` when the pointer is not the start of one.
pub(super) fn usable_of(block: BlockPtr, extent: &'static Extent) -> Option<usize> {
    if !extent.is_active() {
        return None;
    }
    if extent.is_slab() {
        let shape = sizeclass::slab_shape(extent.class());
        slab::region_of(extent, &shape, block)?;
        // Of blocks among samples it is known which are in use.
        if extent.is_sampled() && !lives::find(block.0, extent).is_some_and(Live::is_in_use) {
            return None;
        }
        return Some(shape.size as usize);
    }
    (extent.addr() == block.0).then(|| extent.usable())
}

/// Usable bytes of a block; 0 for null.
#[inline]
pub fn usable_size(ptr: *mut u8) -> usize {
    match emap::word(ptr.addr()).fast() {
        0 => usable_size_slow(ptr),
        fast => sizeclass::size_of_index(arena::class_of_offset(fast)),
    }
}

#[cold]
#[inline(never)]
fn usable_size_slow(ptr: *mut u8) -> usize {
    if ptr.is_null() {
        return 0;
    }
    let Some((block, extent)) = emap::lookup(UserPtr(ptr)) else { return foreign::usable_size(ptr) };
    usable_of(block, extent).unwrap_or_else(|| {
        foreign::misuse("malloc_usable_size", ptr, " is not the start of a live block");
        0
    })
}

/// Index of the arena that a pointer into an active block of ours belongs to: `arenas.lookup`.
pub fn arena_of_ptr(ptr: *const u8) -> Option<u32> {
    let extent = emap::word(ptr.addr()).extent()?;
    (extent.state() == State::Active).then(|| extent.arena())
}

fn fill_old(block: BlockPtr, usable: usize) {
    if conf::every_block_is_special() && matches!(conf::options().junk, Junk::Free | Junk::Both) {
        // SAFETY: the client gave the block back, and it has `usable` bytes.
        unsafe { block.0.write_bytes(0x5a, usable) };
    }
}

/// The calling thread's slot, for callers outside this folder that count.
pub(super) fn slot() -> &'static Slot {
    boot::current()
}
