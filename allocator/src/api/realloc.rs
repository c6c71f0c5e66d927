//! Resizing: in place where the extent allows it, otherwise by moving.
//!
//! | block | new usable size | what happens |
//! |---|---|---|
//! | any | the same | nothing |
//! | large | smaller, still large | the tail goes back to the pages |
//! | large | larger | the free extent behind is taken, if there is one, and no dirty run has room for the whole block |
//! | any | otherwise | allocate, copy, free |

use core::ptr::NonNull;

use crate::arena::Arena;
use crate::arenas;
use crate::emap;
use crate::extent::Extent;
use crate::pages::Fit;
use crate::prof::Caller;
use crate::ptr::{BlockPtr, UserPtr};
use crate::sizeclass::{self, LARGE_MAX, LARGE_MIN, SMALL_MAX};
use crate::sys;
use crate::thread;

use super::alloc::{allocate_fit, event, malloc_cached, malloc_sampled, stack_at, stack_for, zero};
use super::flags::Place;
use super::foreign;
use super::free::{end_large_sample, free, free_placed, slot, usable_of};

/// `realloc` for a block that is not null and a size that is not 0; null when it failed and the block is unchanged.
///
/// # Safety
/// S1: `ptr` is a live block, which the caller gives up unless the result is null.
pub unsafe fn realloc(ptr: *mut u8, size: usize) -> *mut u8 {
    let moved = match outlook(ptr, size) {
        Outlook::Stays => return ptr,
        // SAFETY: S1; S2 as it was said so.
        Outlook::Moves(bytes) => unsafe { realloc_moving(ptr, size, bytes) },
        Outlook::Rest => None,
    };
    match moved {
        Some(moved) => moved.as_ptr(),
        // SAFETY: S1; the block was not given up.
        None => unsafe { realloc_rest(ptr, size, Caller::UNKNOWN) },
    }
}

/// What becomes of a block that is resized.
pub enum Outlook {
    Stays,
    /// It is small and of this many bytes, and moves to a block of another class that may be cached. Large blocks may grow in
    /// place.
    Moves(usize),
    /// More is to be looked at.
    Rest,
}

#[inline(always)]
pub fn outlook(ptr: *mut u8, size: usize) -> Outlook {
    let slot = thread::slot();
    let fast = emap::word(ptr.addr()).fast();
    if fast != 0
        && let Some(new) = stack_for(slot, size)
    {
        let old = stack_at(slot, fast);
        if core::ptr::eq(old, new) {
            return Outlook::Stays;
        }
        if old.size() <= SMALL_MAX {
            return Outlook::Moves(old.size());
        }
    }
    Outlook::Rest
}

/// Moves a block of `bytes` bytes to one of another class out of the thread's cache; `None`, with nothing done, without one.
///
/// # Safety
/// S1: as for [`realloc`]. S2: the block is of another class than `size` and has `bytes` bytes.
#[inline(always)]
pub unsafe fn realloc_moving(ptr: *mut u8, size: usize, bytes: usize) -> Option<NonNull<u8>> {
    let moved = malloc_cached(size)?;
    // SAFETY: S1; `moved` is a block of its own, and both hold at least this many bytes (S2).
    unsafe { hand_over(ptr, moved.as_ptr(), bytes.min(size)) };
    Some(moved)
}

/// Copies the first `bytes` bytes of a block to the one that takes its place, and frees it.
///
/// # Safety
/// S1: `ptr` is a live block, which the caller gives up; `moved` is another, and both hold so many bytes.
#[inline(always)]
unsafe fn hand_over(ptr: *mut u8, moved: *mut u8, bytes: usize) {
    // SAFETY: S1.
    unsafe { ptr.copy_to_nonoverlapping(moved, bytes) };
    // SAFETY: S1: nobody uses the old copy any more.
    unsafe { free(ptr) };
}

/// What [`outlook`] and [`realloc_moving`] leave over, for an entry point that knows who called it.
///
/// # Safety
/// S1: as for [`realloc`].
pub unsafe fn realloc_rest(ptr: *mut u8, size: usize, caller: Caller) -> *mut u8 {
    // SAFETY: S1.
    unsafe { realloc_for(ptr, size, 1, false, Place::default(), caller) }
}

/// Resizes a block, keeping `align` (1 = no wish); with `zeroed`, bytes beyond the old usable size read as zero.
///
/// # Safety
/// S1: as for [`realloc`].
pub unsafe fn realloc_placed(ptr: *mut u8, size: usize, align: usize, zeroed: bool, place: Place) -> *mut u8 {
    // SAFETY: S1.
    unsafe { realloc_for(ptr, size, align, zeroed, place, Caller::UNKNOWN) }
}

/// As [`realloc_placed`], for an entry point that knows who called it.
///
/// # Safety
/// S1: as for [`realloc`].
pub unsafe fn realloc_for(
    ptr: *mut u8,
    size: usize,
    align: usize,
    zeroed: bool,
    place: Place,
    caller: Caller,
) -> *mut u8 {
    let Some((block, extent)) = emap::lookup(UserPtr(ptr)) else { return foreign::realloc(ptr, size) };
    let Some(old) = usable_of(block, extent) else {
        foreign::misuse("realloc", ptr, " is not the start of a live block");
        return core::ptr::null_mut();
    };
    let wanted = if align <= 1 { sizeclass::usable(size) } else { sizeclass::usable_aligned(size, align) };
    let Some(new) = wanted else { return core::ptr::null_mut() };
    let aligned = ptr.addr() & (align - 1) == 0;
    if aligned && (new == old || resize_large(block, extent, size, new, true, caller)) {
        if zeroed && new > old {
            // SAFETY: S1: the block has `new` bytes now; the client holds the first `old`.
            unsafe { zero(ptr.wrapping_add(old), new - old) };
        }
        return ptr;
    }
    let plain = extent.is_slab() && align <= 1 && !zeroed && place == Place::default();
    if plain && let Some(moved) = malloc_cached(size).map(NonNull::as_ptr).or_else(|| malloc_sampled(size, caller)) {
        // SAFETY: S1; `moved` is a block of its own, and both hold at least this many bytes.
        unsafe { hand_over(ptr, moved, old.min(size)) };
        return moved;
    }
    let fit = if new > old && !extent.is_slab() { Fit::Roomy } else { Fit::Tight };
    let moved = allocate_fit(size, align, zeroed, place, fit, caller);
    if moved.is_null() {
        return moved;
    }
    // SAFETY: both blocks are live, distinct, and hold at least this many bytes.
    unsafe { ptr.copy_to_nonoverlapping(moved, old.min(size)) };
    // SAFETY: S1: the client gave the block up, and nobody uses the old copy any more.
    unsafe { free_placed(ptr, Place { arena: None, ..place }) };
    moved
}

/// `xallocx`: makes the usable size at least `size`, better `size + extra`, without moving; the usable size afterwards.
///
/// # Safety
/// S1: `ptr` is a live block of the caller.
pub unsafe fn resize_in_place(ptr: *mut u8, size: usize, extra: usize, align: usize, zeroed: bool) -> usize {
    let Some((block, extent)) = emap::lookup(UserPtr(ptr)) else { return foreign::usable_size(ptr) };
    let Some(old) = usable_of(block, extent) else {
        foreign::misuse("xallocx", ptr, " is not the start of a live block");
        return 0;
    };
    if size > LARGE_MAX || ptr.addr() & (align - 1) != 0 {
        return old;
    }
    let most = size.saturating_add(extra).min(LARGE_MAX);
    let (Some(low), Some(high)) = (usable_or_aligned(size, align), usable_or_aligned(most, align)) else { return old };
    let target = old.clamp(low, high);
    let goals = if old < low { [high, low] } else { [target.max(if old < high { high } else { target }), target] };
    for goal in goals {
        if goal != old && resize_large(block, extent, goal, goal, false, Caller::UNKNOWN) {
            if zeroed && goal > old {
                // SAFETY: S1: the block has `goal` bytes now; the client holds the first `old`.
                unsafe { zero(ptr.wrapping_add(old), goal - old) };
            }
            return goal;
        }
    }
    old
}

fn usable_or_aligned(size: usize, align: usize) -> Option<usize> {
    if align <= 1 { sizeclass::usable(size) } else { sizeclass::usable_aligned(size, align) }
}

/// Changes the usable size of a large block to another large one; false when that is impossible in place.
fn resize_large(
    block: BlockPtr,
    extent: &'static Extent,
    requested: usize,
    new: usize,
    may_move: bool,
    caller: Caller,
) -> bool {
    let old = extent.usable();
    if extent.is_slab() || new < LARGE_MIN.max(sys::page_size()) {
        return false;
    }
    let Some(owner) = arenas::get(extent.arena()) else { return false };
    let map = if extent.is_sampled() { Arena::end_sample(extent) } else { None };
    let resized = owner.resize_large(extent, new, may_move);
    match map {
        Some(map) if !resized => Arena::begin_sample(extent, map, extent.usable()),
        Some(map) => end_large_sample(slot(), map, old),
        None => {}
    }
    if !resized {
        return false;
    }
    let slot = slot();
    slot.count_free(old);
    if slot.count_alloc(new) {
        event(slot, block.0, requested, new, None, caller);
    }
    true
}
