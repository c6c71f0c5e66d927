//! Allocation: the fast path, and everything it leaves to the slow one.
//!
//! Fast path of `malloc`: slot word → class by table → counter against threshold → pop. Anything unusual fails one of
//! its four tests and goes to the slow path: no slot, a size beyond the table, an event due, an empty or closed stack.

use core::ptr::NonNull;

use crate::arena::{self, Arena, FAST_OF_SIZE};
use crate::arenas;
use crate::bits::align_up;
use crate::boot;
use crate::conf::{self, Junk};
use crate::ds::stack::Stack;
use crate::emap;
use crate::pages::Fit;
use crate::prim::Ordering;
use crate::prof::lives::{self, Live};
use crate::prof::{self, Caller};
use crate::sizeclass::{self, CACHED_MAX, GRANULE, LOOKUP_MAX, SMALL_MAX};
use crate::stats;
use crate::sys;
use crate::tcache::cache::Cache;
use crate::tcache::{explicit, shelves};
use crate::thread::{self, Slot};

use super::flags::{CacheChoice, Place};

/// Classes whose cached blocks are looked at in one event.
const COLLECT_STEPS: u32 = 8;

/// Zeroed blocks from here on may be tables of which little is used: what of them is not resident stays so.
const SPARSE_MIN_BYTES: usize = 256 << 10;

/// A block of at least `size` bytes; null without memory.
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    match malloc_cached(size) {
        Some(block) => block.as_ptr(),
        None => malloc_slow(size),
    }
}

/// The fast path alone: a block out of the thread's cache, `None` when that takes more.
#[inline(always)]
pub fn malloc_cached(size: usize) -> Option<NonNull<u8>> {
    let slot = thread::slot();
    if let Some(stack) = stack_for(slot, size) {
        // Relaxed: the owner's counter.
        let after = slot.allocated().load(Ordering::Relaxed).wrapping_add(stack.size() as u64);
        if after < slot.threshold()
            && let Some(block) = stack.pop()
        {
            slot.allocated().store(after, Ordering::Relaxed);
            return NonNull::new(block);
        }
    }
    None
}

/// The stack in `slot` that serves a size; `None` for a size that no thread caches.
#[inline(always)]
pub(super) fn stack_for(slot: &'static Slot, size: usize) -> Option<&'static Stack> {
    if size > LOOKUP_MAX {
        return None;
    }
    // SAFETY: `size <= LOOKUP_MAX`, so the index is at most LOOKUP_MAX / 8, the last one.
    let fast = unsafe { *FAST_OF_SIZE.get_unchecked(size.div_ceil(8)) };
    Some(stack_at(slot, usize::from(fast)))
}

/// The stack that lies at an offset of the page map, or of the table of sizes, in `slot`; not for 0.
#[inline(always)]
pub(super) fn stack_at(slot: &'static Slot, fast: usize) -> &'static Stack {
    debug_assert!(fast != 0);
    let stack = core::ptr::from_ref(slot).wrapping_byte_add(fast).cast::<Stack>();
    // SAFETY: both hold 0 or the offset of a stack in a slot (checked where the layout is defined).
    unsafe { &*stack }
}

/// As [`malloc_cached`], at a multiple of `align`, a power of two. Blocks of a class that is a multiple of the alignment
/// lie at multiples of it, up to the page.
#[inline(always)]
pub fn memalign_cached(size: usize, align: usize) -> Option<NonNull<u8>> {
    malloc_cached(padded(size, align)?)
}

/// As [`malloc_sampled`], at a multiple of `align`, a power of two.
#[inline(always)]
pub fn memalign_sampled(size: usize, align: usize, caller: Caller) -> Option<*mut u8> {
    sampled_at_hand(padded(size, align)?, size, caller)
}

/// A size that is a multiple of `align`, a power of two, for one of which some block may be cached.
#[inline(always)]
fn padded(size: usize, align: usize) -> Option<usize> {
    if align > GRANULE || size > SMALL_MAX {
        return None;
    }
    Some((size.max(1) + align - 1) & !(align - 1))
}

/// A block of at least `size` bytes at a multiple of `align`, a power of two; null without memory.
#[inline]
pub fn memalign(size: usize, align: usize) -> *mut u8 {
    match memalign_cached(size, align) {
        Some(block) => block.as_ptr(),
        None => allocate(size, align, false, Place::default()),
    }
}

/// What [`malloc_cached`] leaves over; null without memory.
#[cold]
#[inline(never)]
pub fn malloc_slow(size: usize) -> *mut u8 {
    malloc_slow_for(size, Caller::UNKNOWN)
}

/// As [`malloc_slow`], for an entry point that knows who called it.
#[inline(always)]
pub fn malloc_slow_for(size: usize, caller: Caller) -> *mut u8 {
    match malloc_sampled(size, caller) {
        Some(block) => block,
        None => malloc_rest(size, caller),
    }
}

/// A small block that becomes a sample, where that takes little: out of those that the thread keeps for that, with nothing new
/// since its last samples. As the cached blocks, these are not filled. Of most samples this is all, so it calls nothing and keeps
/// little at hand; for entry points that know who called them.
#[inline(always)]
pub fn malloc_sampled(size: usize, caller: Caller) -> Option<*mut u8> {
    sampled_at_hand(size, size, caller)
}

/// As [`malloc_sampled`], when the program asked for `requested` bytes.
#[inline(always)]
fn sampled_at_hand(size: usize, requested: usize, caller: Caller) -> Option<*mut u8> {
    if size > SMALL_MAX {
        return None;
    }
    let slot = thread::slot();
    // SAFETY: `SMALL_MAX <= LOOKUP_MAX`, so the index is at most LOOKUP_MAX / 8, the last one.
    let fast = usize::from(unsafe { *FAST_OF_SIZE.get_unchecked(size.div_ceil(8)) });
    let usable = stack_at(slot, fast).size();
    if !slot.sample_comes(usable) {
        return None;
    }
    let shelf = || slot.cache.at_hand_for_sample(arena::class_of_offset(fast));
    let (distance, hand) = prof::quick(slot.prof(), requested, usable, caller, shelf)?;
    slot.count_sampled(usable, distance);
    Some(hand.take().block())
}

/// As [`sampled_at_hand`], which left it over: once more, if all that was missing were things to have at hand.
#[inline]
fn sampled_once_stocked(size: usize, requested: usize, caller: Caller) -> Option<*mut u8> {
    if size > SMALL_MAX {
        return None;
    }
    let slot = thread::slot();
    stocked(slot, class_for_sample(slot, size)?, size, requested, caller)
}

/// The class of a small block that becomes a sample out of what the thread keeps; `None` for one that does not.
#[inline]
fn class_for_sample(slot: &'static Slot, size: usize) -> Option<usize> {
    let class = sizeclass::small_index(size);
    let comes = slot.sample_comes(sizeclass::size_of_index(class));
    (comes && !slot.is_closed() && slot.cache.is_open() && prof::wanted(slot.prof())).then_some(class)
}

/// For [`class_for_sample`].
#[cold]
#[inline(never)]
fn stocked(slot: &'static Slot, class: usize, size: usize, requested: usize, caller: Caller) -> Option<*mut u8> {
    let drew = prof::draw_ahead(slot.prof());
    let fetched = slot.arena().is_some_and(|arena| slot.cache.fetch_for_samples(class, arena));
    if drew || fetched { sampled_at_hand(size, requested, caller) } else { None }
}

/// As [`malloc_slow_for`], at a multiple of `align`, a power of two.
#[inline(always)]
pub fn memalign_slow_for(size: usize, align: usize, caller: Caller) -> *mut u8 {
    match memalign_sampled(size, align, caller) {
        Some(block) => block,
        None => memalign_rest(size, align, caller),
    }
}

/// What [`memalign_sampled`] leaves over; null without memory.
#[inline]
pub fn memalign_rest(size: usize, align: usize, caller: Caller) -> *mut u8 {
    match padded(size, align).and_then(|padded| sampled_once_stocked(padded, size, caller)) {
        Some(block) => block,
        None => allocate_for(size, align, false, Place::default(), caller),
    }
}

/// What [`malloc_sampled`] leaves over.
#[inline(always)]
pub fn malloc_rest(size: usize, caller: Caller) -> *mut u8 {
    let at_hand = if size <= SMALL_MAX { sampled(size, caller) } else { large_cached(size, caller) };
    match at_hand {
        Some(block) => block,
        None => malloc_uncached(size, caller),
    }
}

#[inline(never)]
fn malloc_uncached(size: usize, caller: Caller) -> *mut u8 {
    match sizeclass::usable(size) {
        Some(usable) => allocate_usable(size, usable, 1, false, Place::default(), Fit::Tight, caller),
        None => core::ptr::null_mut(),
    }
}

/// A small block that becomes a sample, of those that the thread keeps for that; `None` when more is to be done. As the
/// cached blocks, these are not filled.
#[inline]
fn sampled(size: usize, caller: Caller) -> Option<*mut u8> {
    let slot = thread::slot();
    let class = class_for_sample(slot, size)?;
    if let Some(block) = stocked(slot, class, size, size, caller) {
        return Some(block);
    }
    let usable = sizeclass::size_of_index(class);
    let live = slot.cache.kept_for_sample(class)?;
    slot.count_alloc(usable);
    if slot.collect_due(usable) {
        collect(slot);
    }
    sample(slot, Some(prof::Object { live, requested: size, usable }), usable, caller);
    slot.settle_threshold();
    Some(live.block())
}

/// A large block out of the thread's cache.
#[inline]
fn large_cached(size: usize, caller: Caller) -> Option<*mut u8> {
    let slot = thread::get()?;
    // The stacks and lists of a closed cache are empty.
    let (block, usable) = if size <= CACHED_MAX {
        let stack = stack_for(slot, size)?;
        (stack.pop()?, stack.size())
    } else {
        let usable = align_up(size, sys::page_size())?;
        (slot.cache.large.take(usable)?.addr(), usable)
    };
    if slot.count_alloc(usable) {
        event_large(slot, block, size, usable, caller);
    }
    Some(block)
}

/// A zeroed block for `count` values of `size` bytes; null on overflow and without memory.
#[inline]
pub fn calloc(count: usize, size: usize) -> *mut u8 {
    match calloc_cached(count, size) {
        Some(block) => block.as_ptr(),
        None => calloc_rest(count, size, Caller::UNKNOWN),
    }
}

/// The fast path of [`calloc`] alone.
#[inline(always)]
pub fn calloc_cached(count: usize, size: usize) -> Option<NonNull<u8>> {
    let bytes = count.checked_mul(size)?;
    let block = malloc_cached(bytes)?;
    // SAFETY: S1: it was just allocated.
    unsafe { zero_small(block.as_ptr(), bytes) };
    Some(block)
}

/// As [`malloc_sampled`], zeroed.
#[inline(always)]
pub fn calloc_sampled(count: usize, size: usize, caller: Caller) -> Option<*mut u8> {
    let bytes = count.checked_mul(size)?;
    let block = malloc_sampled(bytes, caller)?;
    // SAFETY: S1: it was just allocated.
    unsafe { zero_small(block, bytes) };
    Some(block)
}

/// As [`malloc_slow_for`], zeroed.
#[inline]
pub fn calloc_slow_for(count: usize, size: usize, caller: Caller) -> *mut u8 {
    match calloc_sampled(count, size, caller) {
        Some(block) => block,
        None => calloc_rest(count, size, caller),
    }
}

/// What [`calloc_cached`] and [`calloc_sampled`] leave over.
#[cold]
#[inline(never)]
pub fn calloc_rest(count: usize, size: usize, caller: Caller) -> *mut u8 {
    let Some(bytes) = count.checked_mul(size) else { return core::ptr::null_mut() };
    if let Some(block) = sampled_once_stocked(bytes, bytes, caller) {
        // SAFETY: S1: it was just allocated.
        unsafe { zero_small(block, bytes) };
        return block;
    }
    allocate_for(bytes, 1, true, Place::default(), caller)
}

/// A block of at least `size` bytes at a multiple of `align` (a power of two; 1 = no wish), zeroed if asked for, from
/// the given place; null when the size is too large or there is no memory.
pub fn allocate(size: usize, align: usize, zeroed: bool, place: Place) -> *mut u8 {
    allocate_for(size, align, zeroed, place, Caller::UNKNOWN)
}

/// As [`allocate`], for an entry point that knows who called it.
pub fn allocate_for(size: usize, align: usize, zeroed: bool, place: Place, caller: Caller) -> *mut u8 {
    allocate_fit(size, align, zeroed, place, if zeroed { Fit::Zeroed } else { Fit::Tight }, caller)
}

/// As [`allocate_for`], choosing the pages of a large block by `fit`.
pub(super) fn allocate_fit(size: usize, align: usize, zeroed: bool, place: Place, fit: Fit, caller: Caller) -> *mut u8 {
    let usable = if align <= 1 { sizeclass::usable(size) } else { sizeclass::usable_aligned(size, align) };
    match usable {
        Some(usable) => allocate_usable(size, usable, align, zeroed, place, fit, caller),
        None => core::ptr::null_mut(),
    }
}

fn allocate_usable(
    size: usize,
    usable: usize,
    align: usize,
    zeroed: bool,
    place: Place,
    fit: Fit,
    caller: Caller,
) -> *mut u8 {
    let slot = boot::current();
    let Some(arena) = arena_of(slot, place) else { return core::ptr::null_mut() };
    let cache = cache_of(slot, place);
    renew_distance(slot);
    let mut live = None;
    if usable <= SMALL_MAX && slot.sample_comes(usable) && !slot.is_closed() && prof::wanted(slot.prof()) {
        let class = sizeclass::small_index(usable);
        live = match cache {
            Some(cache) => cache.alloc_sampled(class, arena),
            None => shelves::alloc_one(class, arena),
        };
    }
    let block = match live {
        Some(live) => Some(Fresh { block: live.block(), is_zero: false }),
        None if usable <= SMALL_MAX => small(sizeclass::small_index(usable), cache, arena),
        None => large(usable, align, cache, arena, fit),
    };
    let Some(Fresh { block, is_zero }) = block else { return core::ptr::null_mut() };
    fill_new(block, usable, zeroed, is_zero);
    if slot.count_alloc(usable) {
        event(slot, block, size, usable, live, caller);
    }
    block
}

/// A block, and whether it is known to be zero.
struct Fresh {
    block: *mut u8,
    is_zero: bool,
}

fn small(class: usize, cache: Option<&Cache>, arena: &Arena) -> Option<Fresh> {
    let block = match cache {
        Some(cache) if cache.serves(class) => cache.alloc(class, arena)?,
        _ => arena.alloc_small(class)?,
    };
    Some(Fresh { block, is_zero: false })
}

fn large(usable: usize, align: usize, cache: Option<&Cache>, arena: &Arena, fit: Fit) -> Option<Fresh> {
    if usable <= CACHED_MAX
        && align <= sys::page_size()
        && let Some(cache) = cache
        && let Some(stack) = cache.stacks.get(sizeclass::index_of(usable))
        && let Some(block) = stack.pop()
    {
        return Some(Fresh { block, is_zero: false });
    }
    if align <= sys::page_size()
        && fit != Fit::Roomy
        && let Some(cache) = cache
        && let Some(extent) = cache.large.take(usable)
    {
        return Some(Fresh { block: extent.addr(), is_zero: false });
    }
    let extent = arena.alloc_large(usable, align.max(sys::page_size()), fit).ok()?;
    Some(Fresh { block: extent.addr(), is_zero: extent.is_zeroed() })
}

pub(super) fn arena_of(slot: &Slot, place: Place) -> Option<&'static Arena> {
    match place.arena {
        Some(ind) => arenas::get_or_create(ind),
        None => slot.arena(),
    }
}

pub(super) fn cache_of(slot: &'static Slot, place: Place) -> Option<&'static Cache> {
    let cache = match place.cache {
        CacheChoice::Automatic => &slot.cache,
        CacheChoice::Bypass => return None,
        CacheChoice::Explicit(id) => explicit::get(id)?,
    };
    cache.is_open().then_some(cache)
}

fn fill_new(block: *mut u8, usable: usize, zeroed: bool, is_zero: bool) {
    let options = conf::options();
    if zeroed || options.zero {
        if is_zero {
            return;
        }
        if usable >= SPARSE_MIN_BYTES {
            // SAFETY: S1: a large block consists of whole pages and nobody else knows it.
            unsafe { sys::zero_resident(block, usable) };
        } else {
            // SAFETY: the block has `usable` bytes and nobody else knows it.
            unsafe { zero(block, usable) };
        }
    } else if conf::every_block_is_special() && matches!(options.junk, Junk::Alloc | Junk::Both) {
        // SAFETY: as above.
        unsafe { block.write_bytes(0xa5, usable) };
    }
}

/// Zeroes all of a block for `size` bytes of a class that threads cache.
///
/// # Safety
/// S1: the block is small, allocated for `size` bytes, and nobody else knows it.
#[inline(always)]
unsafe fn zero_small(block: *mut u8, size: usize) {
    // SAFETY: S1: so long is it.
    unsafe { zero(block, sizeclass::size_of_index(sizeclass::small_index(size))) };
}

/// # Safety
/// S1: `block .. block + bytes` belongs to the caller.
#[inline]
pub(super) unsafe fn zero(block: *mut u8, bytes: usize) {
    // SAFETY: S1.
    unsafe { block.write_bytes(0, bytes) };
}

/// The thread's counter passed its threshold: collect, decay, sample. `live`: the record of a small block that may be sampled,
/// since its slab is off the fast path of `free`.
#[cold]
pub(super) fn event(
    slot: &'static Slot,
    block: *mut u8,
    requested: usize,
    usable: usize,
    live: Option<Live>,
    caller: Caller,
) {
    if usable > SMALL_MAX {
        return event_large(slot, block, requested, usable, caller);
    }
    if slot.collect_due(usable) {
        collect(slot);
        renew_distance(slot);
    }
    let small = live.map(|live| prof::Object { live, requested, usable });
    if slot.sample_due() {
        sample(slot, small, usable, caller);
    } else {
        small.inspect(prof::leave);
    }
    slot.settle_threshold();
}

/// As [`event`], with a large block.
#[cold]
#[inline(never)]
fn event_large(slot: &'static Slot, block: *mut u8, requested: usize, usable: usize, caller: Caller) {
    if slot.collect_due(usable) {
        collect(slot);
        renew_distance(slot);
    }
    if slot.sample_due() {
        sample_large(slot, block, requested, usable, caller);
    }
    slot.settle_threshold();
}

/// Has the thread draw its next sample point anew when the mean distance was changed. The slow paths ask, so a thread goes
/// on by the old one while its cache has what it wants, for a collection step at most.
#[inline]
fn renew_distance(slot: &'static Slot) {
    if let Some(distance) = prof::redraw(slot.prof()) {
        slot.set_sample_distance(distance);
        slot.settle_threshold();
    }
}

#[cold]
#[inline(never)]
fn collect(slot: &'static Slot) {
    if let Some(arena) = slot.arena() {
        for _ in 0..COLLECT_STEPS {
            slot.cache.collect_step(arena);
        }
        slot.cache.large.collect_step();
        arena.tick(COLLECT_STEPS);
        thread::sweep_idle(sys::clock_recent_ns());
    }
}

/// The sample point is reached with a large block.
#[inline(always)]
fn sample_large(slot: &'static Slot, block: *mut u8, requested: usize, usable: usize, caller: Caller) {
    let extent = if prof::wanted(slot.prof()) { emap::word(block.addr()).extent() } else { None };
    let found = extent.zip(extent.and_then(|_| prof::take_map(slot.prof(), block)));
    let live = found.and_then(|(_, map)| lives::live_of(map));
    let marked = if let Some((distance, _)) = prof::quick(slot.prof(), requested, usable, caller, || live.as_ref()) {
        slot.set_sample_distance(distance);
        true
    } else {
        sample(slot, live.map(|live| prof::Object { live, requested, usable }), usable, caller)
    };
    match found {
        Some((extent, map)) if marked => Arena::begin_sample(extent, map, usable),
        Some((_, map)) => prof::give_map(slot.prof(), map),
        None => {}
    }
}

/// The sample point is reached. `object`: the block, if it may be a sample. True when it is one now.
#[inline(never)]
fn sample(slot: &'static Slot, object: Option<prof::Object>, usable: usize, caller: Caller) -> bool {
    let now_ns = sys::clock_recent_ns();
    let (allocated, deallocated) =
        (slot.allocated().load(Ordering::Relaxed), slot.deallocated().load(Ordering::Relaxed));
    let outcome = prof::sample(slot.prof(), object, usable, allocated, deallocated, now_ns, caller);
    slot.set_sample_distance(outcome.distance);
    stats::refresh_gauges(now_ns);
    outcome.marked
}
