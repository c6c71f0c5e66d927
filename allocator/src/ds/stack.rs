//! The bounded stack of block pointers that serves one size class of a thread's cache.
//!
//! ```text
//!   memory   ┌──────────┬───────────────┬──────────────┐  low → high address
//!            │ kept     │ cached blocks │ room         │
//!            └──────────┴───────────────┴──────────────┘
//!            base       lo              top            hi
//! ```
//!
//! `pop` takes from `top` down to `lo`, `push` fills up to `hi`. Blocks between `base` and `lo` are out of reach of the
//! fast path until the slow path lowers `lo`: that is how the cache learns which blocks went unused for a while
//! (`tcache/cache.rs`), at no cost to the fast path.
//!
//! I-STACK-1: `lo <= top <= hi`, all inside one array, or all null (closed: empty and full at once). I-STACK-2: only
//! the owner thread (for an explicit cache, the one thread that the client says) calls anything here; therefore the
//! fields are plain cells, which the compiler can use as memory operands. Fields: all `owner`. I-STACK-3: a [`Beyond`] is null or the
//! end of its stack's array, and `hi` may be lower than that.

use core::arch::asm;
use core::cell::Cell;

use crate::prim::{AtomicPtr, Ordering};

/// One class of a cache; 32 bytes, so that the class index scales to an offset by a shift.
#[repr(C)]
pub(crate) struct Stack {
    top: Cell<*mut AtomicPtr<u8>>,
    lo: Cell<*mut AtomicPtr<u8>>,
    hi: Cell<*mut AtomicPtr<u8>>,
    /// Usable bytes of each block.
    size: Cell<usize>,
}

// SAFETY: I-STACK-2: shared references are passed around, but only one thread uses them.
unsafe impl Sync for Stack {}
// SAFETY: a stack may be made by one thread and used by another; it refers to memory that lives for ever.
unsafe impl Send for Stack {}

const _: () = assert!(size_of::<Stack>() == 32);

/// How far a stack may be filled that says that it is full sooner; null = no further.
pub(crate) struct Beyond(Cell<*mut AtomicPtr<u8>>);

// SAFETY: as for `Stack`: only the stack's thread uses it.
unsafe impl Sync for Beyond {}
// SAFETY: as above.
unsafe impl Send for Beyond {}

impl Beyond {
    /// No further.
    pub(crate) const fn none() -> Beyond {
        Beyond(Cell::new(core::ptr::null_mut()))
    }

    /// No further, from now on: for a stack that is empty, or moves to another array.
    pub(crate) fn reset(&self) {
        self.0.set(core::ptr::null_mut());
    }
}

impl Stack {
    /// Empty and full at once.
    pub(crate) const fn closed() -> Stack {
        Stack {
            top: Cell::new(core::ptr::null_mut()),
            lo: Cell::new(core::ptr::null_mut()),
            hi: Cell::new(core::ptr::null_mut()),
            size: Cell::new(0),
        }
    }

    /// Opens the stack over `room`, empty.
    pub(crate) fn open(&self, room: &'static [AtomicPtr<u8>], size: usize) {
        let range = room.as_ptr_range();
        self.lo.set(range.start.cast_mut());
        self.top.set(range.start.cast_mut());
        self.hi.set(range.end.cast_mut());
        self.size.set(size);
    }

    /// Closes the stack. The caller has taken the blocks out.
    pub(crate) fn close(&self) {
        self.top.set(core::ptr::null_mut());
        self.lo.set(core::ptr::null_mut());
        self.hi.set(core::ptr::null_mut());
    }

    /// True between `open` and `close`.
    pub(crate) fn is_open(&self) -> bool {
        !self.hi.get().is_null()
    }

    /// Usable bytes of each block; 0 before the first `open`.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.size.get()
    }

    /// Takes the newest block.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<*mut u8> {
        let top = self.top.get();
        if top == self.lo.get() {
            return None;
        }
        let newest = top.wrapping_sub(1);
        self.top.set(newest);
        // SAFETY: `lo < top` by the test and I-STACK-1, so the element below `top` is in the array.
        let element = unsafe { &*newest };
        // Relaxed, here and below: the owner's.
        let block = element.load(Ordering::Relaxed);
        // SAFETY: only blocks are pushed, and no block is null.
        unsafe { core::hint::assert_unchecked(!block.is_null()) };
        Some(block)
    }

    /// Keeps a block; false when full.
    #[inline(always)]
    pub(crate) fn push(&self, block: *mut u8) -> bool {
        let top = self.top.get();
        if top == self.hi.get() {
            return false;
        }
        // SAFETY: `top < hi` by the test and I-STACK-1, so the element at `top` is in the array.
        let element = unsafe { &*top };
        element.store(block, Ordering::Relaxed);
        fetch_for_writing(block);
        self.top.set(top.wrapping_add(1));
        true
    }

    /// As [`Stack::push`] for a full stack, without fetching the block: up to where `beyond`, this stack's, says.
    #[inline(always)]
    pub(crate) fn push_beyond(&self, beyond: &Beyond, block: *mut u8) -> bool {
        let top = self.top.get();
        if top >= beyond.0.get() {
            return false;
        }
        // SAFETY: `top` lies in the array, before its end, by the test and I-STACK-3.
        let element = unsafe { &*top };
        element.store(block, Ordering::Relaxed);
        let above = top.wrapping_add(1);
        self.hi.set(above);
        self.top.set(above);
        true
    }

    /// Makes the stack full as it is: what comes next goes beyond that, by the slow path. `room` is the slice given to `open`.
    pub(crate) fn begin_beyond(&self, room: &'static [AtomicPtr<u8>], beyond: &Beyond) {
        self.hi.set(self.top.get());
        beyond.0.set(room.as_ptr_range().end.cast_mut());
    }

    /// Takes back what [`Stack::begin_beyond`] did, if it was called.
    pub(crate) fn end_beyond(&self, room: &'static [AtomicPtr<u8>], beyond: &Beyond) {
        if !beyond.0.get().is_null() {
            self.hi.set(room.as_ptr_range().end.cast_mut());
            beyond.0.set(core::ptr::null_mut());
        }
    }

    /// Blocks the fast path can take.
    #[cfg(test)]
    pub(crate) fn reachable(&self) -> usize {
        (self.top.get().addr() - self.lo.get().addr()) / 8
    }

    /// Blocks that still fit.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        (self.hi.get().addr() - self.top.get().addr()) / 8
    }

    /// Puts `kept` blocks above `base` out of reach of `pop`; `base` is the slice given to `open`.
    pub(crate) fn set_floor(&self, room: &'static [AtomicPtr<u8>], kept: usize) {
        let floor = room.as_ptr().cast_mut().wrapping_add(kept.min(room.len()));
        debug_assert!(floor <= self.top.get());
        self.lo.set(floor);
    }

    /// Number of blocks out of reach.
    pub(crate) fn floor(&self, room: &'static [AtomicPtr<u8>]) -> usize {
        (self.lo.get().addr() - room.as_ptr().addr()) / 8
    }

    /// All blocks, oldest first, out of reach or not; `room` is the slice given to `open`.
    pub(crate) fn len(&self, room: &'static [AtomicPtr<u8>]) -> usize {
        (self.top.get().addr() - room.as_ptr().addr()) / 8
    }

    /// Says that the first `len` slots of `room` hold blocks now, all in reach.
    pub(crate) fn set_len(&self, room: &'static [AtomicPtr<u8>], len: usize) {
        self.lo.set(room.as_ptr().cast_mut());
        self.top.set(room.as_ptr().cast_mut().wrapping_add(len.min(room.len())));
    }

    /// Goes on in `to`, which has room for all blocks and holds a copy of them if it is another array than `from`; all in
    /// reach.
    pub(crate) fn move_to(&self, from: &'static [AtomicPtr<u8>], to: &'static [AtomicPtr<u8>]) {
        let len = self.len(from);
        debug_assert!(len <= to.len());
        self.hi.set(to.as_ptr_range().end.cast_mut());
        self.set_len(to, len);
    }

    /// Drops the `count` oldest blocks, which the caller has taken, and moves the others down. Everything is in reach
    /// afterwards.
    pub(crate) fn drop_oldest(&self, room: &'static [AtomicPtr<u8>], count: usize) {
        let left = self.len(room).saturating_sub(count);
        if let Some(from) = room.get(count..count + left) {
            let to = room.as_ptr().cast_mut();
            // SAFETY: both ranges lie in `room`, and only the calling thread uses its slots (I-STACK-2).
            unsafe { core::ptr::copy(from.as_ptr(), to, left) };
        }
        self.set_len(room, left);
    }
}

/// Has the processor bring the first line of a block into its cache, without waiting: what was freed last is handed out next, and
/// its new owner writes there first.
#[inline(always)]
fn fetch_for_writing(block: *mut u8) {
    // SAFETY: a hint: it changes nothing that the program can see, whatever the address, and processors without it do nothing.
    unsafe { asm!("prefetchw [{}]", in(reg) block, options(nostack, preserves_flags, readonly)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    fn block(i: usize) -> *mut u8 {
        core::ptr::without_provenance_mut(i)
    }

    #[test]
    fn bounded_last_in_first_out_with_floor() {
        let room: &'static [AtomicPtr<u8>] =
            Box::leak((0..4).map(|_| AtomicPtr::default()).collect::<Vec<_>>().into_boxed_slice());
        let stack = Stack::closed();
        assert!(stack.pop().is_none() && !stack.push(block(1)));
        stack.open(room, 64);
        for i in 1..=4 {
            assert!(stack.push(block(i)));
        }
        assert!(!stack.push(block(5)));
        stack.set_floor(room, 2);
        assert_eq!((stack.pop(), stack.pop(), stack.pop()), (Some(block(4)), Some(block(3)), None));
        assert_eq!((stack.floor(room), stack.len(room), stack.reachable()), (2, 2, 0));
        stack.set_floor(room, 0);
        assert!(stack.push(block(9)));
        stack.drop_oldest(room, 1);
        assert_eq!((stack.pop(), stack.pop(), stack.pop()), (Some(block(9)), Some(block(2)), None));
        assert_eq!((stack.size(), stack.room()), (64, 4));
        stack.close();
        assert!(stack.pop().is_none() && !stack.push(block(1)));
    }

    #[test]
    fn a_stack_that_says_it_is_full_goes_on_to_its_end() {
        let room: &'static [AtomicPtr<u8>] =
            Box::leak((0..4).map(|_| AtomicPtr::default()).collect::<Vec<_>>().into_boxed_slice());
        let (stack, beyond) = (Stack::closed(), Beyond::none());
        assert!(!stack.push_beyond(&beyond, block(1)));
        stack.open(room, 64);
        assert!(!stack.push_beyond(&beyond, block(1)) && stack.push(block(1)));
        stack.begin_beyond(room, &beyond);
        for i in 2..=4 {
            assert!(!stack.push(block(i)) && stack.push_beyond(&beyond, block(i)));
        }
        assert!(!stack.push(block(5)) && !stack.push_beyond(&beyond, block(5)));
        // Up to where it was once, blocks come by the fast path.
        assert_eq!((stack.pop(), stack.pop()), (Some(block(4)), Some(block(3))));
        stack.begin_beyond(room, &beyond);
        assert!(stack.push_beyond(&beyond, block(6)));
        assert_eq!(stack.pop(), Some(block(6)));
        assert!(stack.push(block(7)) && !stack.push(block(8)));
        stack.end_beyond(room, &beyond);
        assert!(stack.push(block(8)) && !stack.push_beyond(&beyond, block(9)));
        assert_eq!((stack.len(room), stack.pop()), (4, Some(block(8))));
    }
}
