//! What a thread owns: counters, event threshold, arena, cache.
//!
//! ```text
//!   Slot ┌  0 allocated     bytes handed out to this thread (usable), ever
//!        ├  8 threshold     the slow path runs when `allocated` reaches this: the only event check of malloc
//!        ├ 16 deallocated   bytes this thread freed, ever
//!        ├ 24 arena
//!        ├ 32 cache         stacks first, two to a cache line: the page map's word holds offsets from the slot's start
//!        └ …  the rest      only the slow paths
//! ```
//!
//! The words in front and the stack of class 0 are one cache line. A small allocation or free touches it, half a line for
//! its class, and one of the stack's array.
//!
//! | field | synchronization |
//! |---|---|
//! | `allocated`, `deallocated` | written by owner, read by anyone (Relaxed: statistics) |
//! | `threshold`, `next_*`, `cache`, `rounds`, `prof` | owner |
//! | `arena` | owner; read by `fork` in the child |
//! | `list`, `seen` | lock:Threads |
//!
//! States are those of `tls.rs`. A thread starts at its first call into the allocator and ends in the destructor of a
//! thread key, which re-arms itself twice so that other destructors come first; what is allocated or freed after that
//! goes through the closed slot. Slots live for ever and are used again.

use core::arch::global_asm;
use core::cell::Cell;
use core::ffi::c_void;

use crate::arena::{self, Arena};
use crate::arenas;
use crate::base;
use crate::conf;
use crate::ds::link::{Link, same};
use crate::ds::list::{List, ListNode};
use crate::prim::{AtomicU32, AtomicU64, Ordering};
use crate::prof::{self, ThreadProf};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;
use crate::tcache::cache::Cache;
use crate::tls;

/// Allocated bytes between two collections of the cache: eight of 41 classes each, so a round is 5 MiB.
const COLLECT_BYTES: u64 = 1 << 20;
/// Blocks of the length that brought the step, likewise, if that is more: a thread that uses large blocks passes the
/// bytes with every few of them.
const COLLECT_BLOCKS: u64 = 64;
/// A thread that does nothing for this long gives up its large blocks.
const SWEEP_NS: u64 = 1_000_000_000;
/// Destructor rounds to sit out: pthread gives four.
const LATE_ROUNDS: u32 = 2;

/// A thread's own part of the allocator, on cache lines of its own.
#[repr(C, align(64))]
pub struct Slot {
    allocated: AtomicU64,
    threshold: ThresholdCell,
    deallocated: AtomicU64,
    arena: Link<Arena>,
    pub(crate) cache: Cache,
    next_collect: AtomicU64,
    next_sample: AtomicU64,
    rounds: AtomicU32,
    list: [Link<Slot>; 2],
    /// Bytes allocated and freed when the last sweep came by.
    seen: AtomicU64,
    prof: ProfCell,
}

/// The event threshold: a plain cell, so that the compiler can compare with it in memory.
#[repr(transparent)]
struct ThresholdCell(Cell<u64>);

// SAFETY: only the owner thread reads or writes it, as the table in the header says.
unsafe impl Sync for ThresholdCell {}

/// The sampler's part of a slot.
struct ProfCell(ThreadProf);

// SAFETY: only the owner thread hands out the reference (`Slot::prof`), as the table in the header says.
unsafe impl Sync for ProfCell {}

const _: () = {
    assert!(core::mem::offset_of!(Slot, cache) == arena::FIRST_STACK_BYTES);
    assert!(core::mem::offset_of!(Cache, stacks) == 0);
    // The counters and the first stack fill a cache line, and no stack crosses one.
    assert!(core::mem::offset_of!(Slot, deallocated) < 32 && align_of::<Slot>() == 64);
    assert!(64 % arena::STACK_BYTES == 0 && arena::FIRST_STACK_BYTES.is_multiple_of(arena::STACK_BYTES));
    assert!(size_of::<crate::ds::stack::Stack>() == arena::STACK_BYTES);
    assert!(arena::fast_offset(crate::sizeclass::NCACHED) <= u16::MAX as usize);
};

struct Registry {
    live: List<Slot>,
    spare: List<Slot>,
    exited_allocated: u64,
    exited_deallocated: u64,
}

static REGISTRY: Mutex<Registry> = Mutex::new(
    Rank::Threads,
    Registry { live: List::new(), spare: List::new(), exited_allocated: 0, exited_deallocated: 0 },
);

/// Thread key plus one; 0 = none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Stands for every thread that never called.
static UNSET: Slot = Slot::new();

global_asm!(
    ".pushsection .tdata,\"awT\",@progbits",
    ".p2align 3",
    ".hidden jeprobe_tls_slot",
    ".globl jeprobe_tls_slot",
    ".type jeprobe_tls_slot, @object",
    ".size jeprobe_tls_slot, 8",
    "jeprobe_tls_slot:",
    ".quad {unset}",
    ".popsection",
    unset = sym UNSET,
);

/// Stands for every thread that is starting or exiting. Its stacks are closed and its counters unused.
static CLOSED: Slot = Slot::new();
static CLOSED_ALLOCATED: AtomicU64 = AtomicU64::new(0);
static CLOSED_DEALLOCATED: AtomicU64 = AtomicU64::new(0);

impl Slot {
    const fn new() -> Slot {
        Slot {
            allocated: AtomicU64::new(0),
            threshold: ThresholdCell(Cell::new(0)),
            deallocated: AtomicU64::new(0),
            arena: Link::null(),
            cache: Cache::closed(),
            next_collect: AtomicU64::new(0),
            next_sample: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            list: [const { Link::null() }; 2],
            seen: AtomicU64::new(0),
            prof: ProfCell(ThreadProf::NEW),
        }
    }

    /// The sampler's part; for the owner thread.
    pub fn prof(&self) -> &ThreadProf {
        &self.prof.0
    }

    /// True for the slot that stands for starting and exiting threads.
    pub(crate) fn is_closed(&self) -> bool {
        same(self, &CLOSED)
    }

    /// Bytes allocated by this thread; the address is `thread.allocatedp`.
    #[inline(always)]
    pub fn allocated(&self) -> &AtomicU64 {
        &self.allocated
    }

    /// Bytes freed by this thread; the address is `thread.deallocatedp`.
    #[inline(always)]
    pub fn deallocated(&self) -> &AtomicU64 {
        &self.deallocated
    }

    /// Value of `allocated` at which the slow path must run.
    #[inline(always)]
    pub(crate) fn threshold(&self) -> u64 {
        self.threshold.0.get()
    }

    /// Counts an allocation outside the fast path; true when an event is due.
    pub(crate) fn count_alloc(&self, usable: usize) -> bool {
        if self.is_closed() {
            // Relaxed, here and below: statistics.
            CLOSED_ALLOCATED.fetch_add(usable as u64, Ordering::Relaxed);
            return false;
        }
        let after = self.allocated.load(Ordering::Relaxed).wrapping_add(usable as u64);
        self.allocated.store(after, Ordering::Relaxed);
        after >= self.threshold()
    }

    /// Counts a free outside the fast path.
    pub(crate) fn count_free(&self, usable: usize) {
        if self.is_closed() {
            CLOSED_DEALLOCATED.fetch_add(usable as u64, Ordering::Relaxed);
        } else {
            let after = self.deallocated.load(Ordering::Relaxed).wrapping_add(usable as u64);
            self.deallocated.store(after, Ordering::Relaxed);
        }
    }

    /// As [`Slot::count_free`], for a thread that has its own slot.
    #[inline(always)]
    pub(crate) fn count_free_own(&self, usable: u64) {
        let after = self.deallocated.load(Ordering::Relaxed).wrapping_add(usable);
        self.deallocated.store(after, Ordering::Relaxed);
    }

    /// The arena that serves this thread.
    pub fn arena(&self) -> Option<&'static Arena> {
        self.arena.get().or_else(|| arenas::get(0))
    }

    /// True when a collection step is due, which then counts as done.
    pub(crate) fn collect_due(&self, usable: usize) -> bool {
        let now = self.allocated.load(Ordering::Relaxed);
        if now < self.next_collect.load(Ordering::Relaxed) {
            return false;
        }
        let distance = COLLECT_BYTES.max(usable as u64 * COLLECT_BLOCKS);
        self.next_collect.store(now.wrapping_add(distance), Ordering::Relaxed);
        true
    }

    /// True when the sample point is reached.
    pub(crate) fn sample_due(&self) -> bool {
        self.allocated.load(Ordering::Relaxed) >= self.next_sample.load(Ordering::Relaxed)
    }

    /// True when the allocation of `usable` bytes more will reach the sample point, and always in the slots that are no
    /// thread's.
    #[inline(always)]
    pub(crate) fn sample_comes(&self, usable: usize) -> bool {
        let after = self.allocated.load(Ordering::Relaxed).wrapping_add(usable as u64);
        after >= self.next_sample.load(Ordering::Relaxed)
    }

    /// Counts an allocation that was sampled, outside the fast path, with the next sample point `distance` bytes from there. A
    /// collection step that is due stays so.
    #[inline(always)]
    pub(crate) fn count_sampled(&self, usable: usize, distance: u64) {
        let after = self.allocated.load(Ordering::Relaxed).wrapping_add(usable as u64);
        self.allocated.store(after, Ordering::Relaxed);
        let next = after.saturating_add(distance);
        self.next_sample.store(next, Ordering::Relaxed);
        self.threshold.0.set(next.min(self.next_collect.load(Ordering::Relaxed)));
    }

    /// Sets the next sample point `distance` bytes from now.
    pub(crate) fn set_sample_distance(&self, distance: u64) {
        let now = self.allocated.load(Ordering::Relaxed);
        self.next_sample.store(now.saturating_add(distance), Ordering::Relaxed);
    }

    /// Moves the thread, the calling one, to an arena; the arena it had.
    pub fn set_arena(&'static self, arena: &'static Arena) -> Option<&'static Arena> {
        if self.is_closed() {
            return None;
        }
        let old = self.arena.get();
        arena.bind_thread();
        self.arena.set(Some(arena));
        if let Some(old) = old {
            old.unbind_thread();
        }
        old
    }

    /// True when the thread caches: `thread.tcache.enabled`.
    pub fn cache_enabled(&self) -> bool {
        self.cache.is_open()
    }

    /// Switches the cache of the thread, the calling one; switching off gives everything back.
    pub fn set_cache_enabled(&self, enabled: bool) {
        if self.is_closed() || self.cache.is_open() == enabled {
            return;
        }
        if enabled {
            self.cache.open(conf::options().tcache_max);
        } else if let Some(arena) = self.arena() {
            self.cache.close(arena);
        }
    }

    /// Gives back what the thread, the calling one, caches: `thread.tcache.flush`.
    pub fn flush_cache(&self) {
        if let Some(arena) = self.arena() {
            self.cache.flush_all(arena);
        }
    }

    /// Takes the cached large blocks away if the thread did nothing since the last call; for any thread.
    fn sweep(&self) {
        let (allocated, freed) = (self.allocated.load(Ordering::Relaxed), self.deallocated.load(Ordering::Relaxed));
        let now = allocated.wrapping_add(freed);
        if self.seen.swap(now, Ordering::Relaxed) == now {
            self.cache.large.surrender();
        }
    }

    /// Makes `threshold` the nearer of the two events.
    pub(crate) fn settle_threshold(&self) {
        let next = self.next_collect.load(Ordering::Relaxed).min(self.next_sample.load(Ordering::Relaxed));
        self.threshold.0.set(next);
    }
}

impl ListNode for Slot {
    fn prev(&self) -> &Link<Slot> {
        &self.list[0]
    }
    fn next(&self) -> &Link<Slot> {
        &self.list[1]
    }
}

/// The slot of a thread that has one; the closed slot while it starts or exits; the unset one before. Both have closed
/// stacks and a threshold that is always reached.
#[inline(always)]
pub(crate) fn slot() -> &'static Slot {
    // SAFETY: the word starts as a `&'static Slot`, and only this module stores into it: such references.
    unsafe { &*tls::slot::<Slot>() }
}

/// As [`slot`]; `None` before the thread was started.
#[inline]
pub(crate) fn get() -> Option<&'static Slot> {
    Some(slot()).filter(|slot| !same(*slot, &UNSET))
}

fn set(slot: &'static Slot) {
    tls::set_slot(core::ptr::from_ref(slot).cast_mut());
}

/// Unset → Starting; the slot that serves the thread meanwhile.
pub(crate) fn begin() -> &'static Slot {
    set(&CLOSED);
    &CLOSED
}

/// Starting → Unset: the next call tries again.
pub(crate) fn give_up() {
    set(&UNSET);
}

/// Starting → Ready; `None` without memory.
pub(crate) fn start() -> Option<&'static Slot> {
    let slot = take_slot()?;
    open(slot);
    arm_exit(core::ptr::from_ref(slot).cast());
    REGISTRY.lock().live.push_back(slot);
    set(slot);
    Some(slot)
}

/// Makes the thread key; once, at boot.
pub(crate) fn make_key() {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: the key is written to this stack; the destructor has the C signature.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(on_exit)) };
    if made == 0 {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// Has the thread key call `on_exit(value)` when the thread ends; false when it will not.
fn arm_exit(value: *const c_void) -> bool {
    match KEY.load(Ordering::Relaxed) {
        0 => false,
        key => {
            // SAFETY: the key was made by `make_key`.
            (unsafe { libc::pthread_setspecific(key - 1, value) }) == 0
        }
    }
}

fn take_slot() -> Option<&'static Slot> {
    if let Some(slot) = REGISTRY.lock().spare.pop_front() {
        return Some(slot);
    }
    make_slot()
}

/// A function of its own, so that a thread that takes a slot again does not touch the pages of its stack that a new one is made on.
#[cold]
#[inline(never)]
fn make_slot() -> Option<&'static Slot> {
    base::alloc_value(Slot::new())
}

fn open(slot: &'static Slot) {
    let options = conf::options();
    slot.allocated.store(0, Ordering::Relaxed);
    slot.deallocated.store(0, Ordering::Relaxed);
    slot.rounds.store(0, Ordering::Relaxed);
    slot.next_collect.store(COLLECT_BYTES, Ordering::Relaxed);
    slot.set_sample_distance(prof::thread_init(slot.prof()));
    slot.settle_threshold();
    slot.arena.set(arenas::choose());
    if options.tcache && !conf::every_block_is_special() {
        slot.cache.open(options.tcache_max);
    }
}

/// Destructor of the thread key.
extern "C" fn on_exit(value: *mut c_void) {
    // SAFETY: the key's value is the `&'static Slot` that `start_slow` armed it with.
    let Some(slot) = (unsafe { value.cast::<Slot>().as_ref() }) else { return };
    let rounds = slot.rounds.load(Ordering::Relaxed);
    if rounds < LATE_ROUNDS && arm_exit(value) {
        slot.rounds.store(rounds + 1, Ordering::Relaxed);
        return;
    }
    prof::thread_exit(slot.prof(), slot.allocated.load(Ordering::Relaxed), slot.deallocated.load(Ordering::Relaxed));
    // Exiting: from here on the closed slot serves this thread.
    set(&CLOSED);
    if let Some(arena) = slot.arena() {
        slot.cache.close(arena);
    }
    if let Some(arena) = slot.arena.get() {
        arena.unbind_thread();
    }
    let mut registry = REGISTRY.lock();
    registry.retire(slot);
}

impl Registry {
    fn retire(&mut self, slot: &'static Slot) {
        self.live.remove(slot);
        self.exited_allocated = self.exited_allocated.wrapping_add(slot.allocated.load(Ordering::Relaxed));
        self.exited_deallocated = self.exited_deallocated.wrapping_add(slot.deallocated.load(Ordering::Relaxed));
        slot.arena.set(None);
        self.spare.push_back(slot);
    }
}

/// Bytes allocated and freed by all threads, ever.
pub(crate) fn totals() -> (u64, u64) {
    let registry = REGISTRY.lock();
    let mut allocated = registry.exited_allocated.wrapping_add(CLOSED_ALLOCATED.load(Ordering::Relaxed));
    let mut deallocated = registry.exited_deallocated.wrapping_add(CLOSED_DEALLOCATED.load(Ordering::Relaxed));
    for slot in registry.live.iter() {
        allocated = allocated.wrapping_add(slot.allocated.load(Ordering::Relaxed));
        deallocated = deallocated.wrapping_add(slot.deallocated.load(Ordering::Relaxed));
    }
    (allocated, deallocated)
}

/// Takes the large blocks out of the caches of threads that did nothing since the last sweep, and lets time pass in arenas
/// that nobody looks at; for any thread, as often as it likes: a sweep is made once a second at most.
pub(crate) fn sweep_idle(now_ns: u64) {
    static NEXT_NS: AtomicU64 = AtomicU64::new(0);
    // Relaxed, all: two that come at once do the same work, one after the other.
    let next = NEXT_NS.load(Ordering::Relaxed);
    if now_ns >= next && NEXT_NS.swap(now_ns.saturating_add(SWEEP_NS), Ordering::Relaxed) == next {
        sweep();
        for arena in arenas::all() {
            arena.decay_if_idle(now_ns);
        }
    }
}

fn sweep() {
    let Some(registry) = REGISTRY.try_lock() else { return };
    registry.live.iter().for_each(Slot::sweep);
}

/// Number of threads with a slot.
pub fn count() -> usize {
    REGISTRY.lock().live.iter().count()
}

pub(crate) fn prefork() {
    REGISTRY.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    REGISTRY.unlock_for_fork();
}

/// In the child only the calling thread exists: the others' counters move to the exited ones, their cached blocks are
/// lost (their owners may have been in the middle of moving them), their slots are free.
pub(crate) fn postfork_child() {
    REGISTRY.reset_in_child();
    let me = get();
    let mut registry = REGISTRY.lock();
    let mut live = core::mem::replace(&mut registry.live, List::new());
    while let Some(slot) = live.pop_front() {
        registry.live.push_back(slot);
        if me.is_none_or(|me| !same(me, slot)) {
            slot.cache.abandon();
            registry.retire(slot);
        }
    }
    for arena in arenas::all() {
        let bound = registry.live.iter().filter(|slot| slot.arena.get().is_some_and(|own| same(own, arena))).count();
        arena.reset_threads_in_child(bound as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Fit;
    use crate::sizeclass::{CACHED_MAX, GRANULE};

    #[test]
    fn an_idle_thread_gives_its_large_blocks_up_and_a_busy_one_keeps_them() {
        let arena = arenas::create().expect("arena");
        let slot = base::alloc_value(Slot::new()).expect("memory");
        assert!(slot.cache.open(CACHED_MAX));
        let block = arena.alloc_large(16 * GRANULE, GRANULE, Fit::Tight).expect("pages");
        assert!(slot.cache.large.put(block, arena));
        for _ in 0..3 {
            slot.count_free(100);
            slot.sweep();
        }
        assert_eq!(arena.large_stats().live_bytes, 16 * GRANULE, "it was at work");
        slot.sweep();
        assert_eq!(arena.large_stats().live_bytes, 0);
        assert!(slot.cache.large.take(16 * GRANULE).is_none());
    }

    #[test]
    fn arenas_that_nobody_looks_at_decay_too() {
        // Not from the registry, whose arenas decay as options say that may not have been read yet.
        let arena = base::alloc_value(Arena::new(4012, true, 10_000, 0).expect("arena")).expect("memory");
        let second = 1_000_000_000;
        let block = arena.alloc_large(8 << 20, GRANULE, Fit::Tight).expect("pages");
        arena.decay_if_idle(1000 * second);
        arena.free_large(block);
        assert_eq!(arena.page_stats().dirty_bytes, 8 << 20);
        arena.decay_if_idle(1001 * second);
        assert_eq!(arena.page_stats().dirty_bytes, 8 << 20, "it became free within the last epoch");
        arena.decay_if_idle(1020 * second);
        assert_eq!(arena.page_stats().dirty_bytes, 0);
    }
}
