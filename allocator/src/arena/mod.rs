//! One arena: 36 bins, and as many for sampled blocks, over one page allocator.
//!
//! Threads are spread over arenas so that they seldom meet at a lock; a block always returns to the arena that its
//! extent names, whoever frees it. Sampled small blocks have slabs of their own, so that a live sample takes no other block
//! off the fast path of `free`. Fields: `bins`, `pages` behind their own locks; counters atomic, Relaxed
//! (statistics); `ind` init-only; `threads` atomic.
#![forbid(unsafe_code)]

mod lend;
#[cfg(test)]
mod tests;

use crate::base;
use crate::bin::{Bin, BinStats, SlabSource};
use crate::bits::align_up;
use crate::ds::link::Link;
use crate::ds::list::List;
use crate::emap;
use crate::error::AllocError;
use crate::extent::{Extent, State};
use crate::pages::{Answer, Fit, PageStats, Pages, Which};
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::quick;
use crate::samplemap::SampleMap;
use crate::sizeclass::{CACHED_MAX, LOOKUP, NBINS, SlabShape, index_of, size_of_index};
use crate::slab;
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;
use crate::sys;

/// Bytes from the start of a thread slot to its first stack, and from one stack to the next: the page map stores the
/// product for `free`. Checked against the layout in `thread.rs`.
pub(crate) const FIRST_STACK_BYTES: usize = 32;
/// As above.
pub(crate) const STACK_BYTES: usize = 32;

/// Ticks (128 KiB allocated by a thread, a flush, a large block freed) between two looks at the clock.
const TICKS_PER_DECAY: u32 = 16;

/// Spare slabs that a bin gives up for a slab of another bin: some, since neighbours make room for slabs of several pages,
/// and since the next slab will come soon.
const SPARES_AT_A_TIME: u32 = 16;

/// An arena that was not looked at for this long is looked at by threads of others.
const IDLE_NS: u64 = 500_000_000;

/// What the page map stores for a class, so that `free` finds its stack.
pub(crate) const fn fast_offset(class: usize) -> usize {
    FIRST_STACK_BYTES + class * STACK_BYTES
}

/// shape [u16; 4097]: [`fast_offset`] of the class of a size of up to `8 * i` bytes, so that `malloc` has no arithmetic left
/// between the table and the stack.
pub(crate) static FAST_OF_SIZE: [u16; LOOKUP.len()] = {
    let mut table = [0; LOOKUP.len()];
    let mut i = 0;
    while i < table.len() {
        table[i] = fast_offset(LOOKUP[i] as usize) as u16;
        i += 1;
    }
    table
};

/// The class that the page map's offset stands for.
#[inline]
pub(crate) const fn class_of_offset(fast: usize) -> usize {
    (fast - FIRST_STACK_BYTES) / STACK_BYTES
}

pub use crate::pages::LargeStats;
pub(crate) use lend::join;

/// Bytes of the extent for a large block of `usable` bytes. What lies behind the usable bytes is not touched for the block.
fn extent_bytes(usable: usize) -> usize {
    align_up(quick::rounded(usable), sys::page_size()).unwrap_or(usable)
}

/// One arena.
pub struct Arena {
    ind: u32,
    /// By class; then those of sampled blocks, by class.
    bins: &'static [Bin],
    pages: Mutex<Pages>,
    threads: AtomicU32,
    ticks: AtomicU32,
    /// Bins may have spare slabs: set by who adds one, reset by who finds none. A count would cost each of them an atomic change,
    /// which waits for all that the program wrote before.
    may_have_spares: AtomicBool,
    /// False when free pages go back at once: then bins keep no slabs without live regions either.
    keeps_spares: AtomicBool,
    /// When `tick` last let time pass.
    looked_at_ns: AtomicU64,
    /// Bytes in use when the last large block was made.
    in_use: AtomicUsize,
    /// Idle bytes as of the last time that pages became free.
    idle: AtomicUsize,
    /// The arena that was made before, of those that lend to each other.
    next: Link<Arena>,
    /// The last one that lent to this.
    lender: Link<Arena>,
}

impl Arena {
    /// An arena without pages; `None` when there is no memory for its tables.
    pub(crate) fn new(ind: u32, retain: bool, dirty_ms: i64, muzzy_ms: i64) -> Option<Arena> {
        let pages = Pages::new(ind, retain, dirty_ms, muzzy_ms)?;
        Some(Arena {
            ind,
            bins: base::alloc_slice(2 * NBINS, |bin| {
                let fast = if bin < NBINS { fast_offset(bin) } else { 0 };
                Bin::new(ind, bin % NBINS, fast)
            })?,
            pages: Mutex::new(Rank::Pages, pages),
            threads: AtomicU32::new(0),
            ticks: AtomicU32::new(0),
            may_have_spares: AtomicBool::new(false),
            keeps_spares: AtomicBool::new(dirty_ms != 0),
            looked_at_ns: AtomicU64::new(0),
            in_use: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            next: Link::null(),
            lender: Link::null(),
        })
    }

    /// Index in the registry.
    pub fn ind(&self) -> u32 {
        self.ind
    }

    /// Threads bound to this arena now.
    pub fn thread_count(&self) -> u32 {
        self.threads.load(Ordering::Relaxed)
    }

    pub(crate) fn bind_thread(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a thread in if `threads` are bound; false when their number changed meanwhile.
    pub(crate) fn bind_if(&self, threads: u32) -> bool {
        // Relaxed: nothing is published by the count.
        self.threads.compare_exchange(threads, threads + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn unbind_thread(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn reset_threads_in_child(&self, count: u32) {
        self.threads.store(count, Ordering::Relaxed);
    }

    /// The bin of the blocks of a class that caches hold.
    pub(crate) fn bin(&self, class: usize) -> Option<&Bin> {
        self.bins.get(class)
    }

    fn bin_of_samples(&self, class: usize) -> Option<&Bin> {
        self.bins.get(NBINS + class)
    }

    /// One region of a small class, without a cache.
    pub(crate) fn alloc_small(&self, class: usize) -> Option<*mut u8> {
        self.bins.get(class)?.take_one(self)
    }

    /// One region of a small class for a block that is to be sampled.
    pub(crate) fn alloc_sampled(&self, class: usize) -> Option<*mut u8> {
        self.bin_of_samples(class)?.take_one(&Samples(self))
    }

    /// Fills `batch`, whose slots are the calling thread's, with regions for blocks that are to be sampled, from the end
    /// on; how many slots stay without one.
    pub(crate) fn take_sampled(&self, class: usize, batch: &[AtomicPtr<u8>]) -> usize {
        self.bin_of_samples(class).map_or(batch.len(), |bin| bin.take(&Samples(self), batch))
    }

    /// Frees those of the blocks that lie in this arena's slabs of sampled blocks; the others move to the front. How many
    /// these are.
    pub(crate) fn put_sampled(&self, class: usize, blocks: &[AtomicPtr<u8>]) -> usize {
        self.bin_of_samples(class).map_or(blocks.len(), |bin| bin.put_batch(self, blocks))
    }

    /// Frees one region without a cache.
    pub(crate) fn free_small(&self, slab: &'static Extent, block: crate::ptr::BlockPtr) {
        let bin = if slab.is_sampled() { self.bin_of_samples(slab.class()) } else { self.bin(slab.class()) };
        if let Some(bin) = bin {
            bin.put(self, slab, block);
        }
    }

    /// A large block of `usable` bytes (page multiple); its extent.
    pub(crate) fn alloc_large(&self, usable: usize, align: usize, fit: Fit) -> Result<&'static Extent, AllocError> {
        let mut exchange = None;
        let extent = self.alloc_pages(|pages, may_borrow| {
            let answer = pages.alloc_or_borrow(extent_bytes(usable), align, fit, may_borrow)?;
            let Answer::Block(extent) = answer else { return Ok(answer) };
            pages.large.allocs += 1;
            pages.large.live_bytes += extent.bytes();
            exchange = pages.exchange_limit();
            // Relaxed: a hint.
            self.in_use.store(pages.active_bytes(), Ordering::Relaxed);
            Ok(answer)
        })?;
        if let Some(limit_bytes) = exchange {
            self.purge_to(Which::Dirty, limit_bytes);
        }
        extent.set_use(index_of(usable), false);
        extent.set_usable(usable);
        Self::map_large(extent);
        Ok(extent)
    }

    /// A thread's share of what was in use when the last large block was made.
    pub(crate) fn share_bytes(&self) -> usize {
        self.in_use.load(Ordering::Relaxed) / self.thread_count().max(1) as usize
    }

    /// Pages: idle ones of another arena sooner than fresh ones, and at the price of the bins' spare slabs if need be.
    fn alloc_pages(
        &self,
        mut attempt: impl FnMut(&mut Pages, bool) -> Result<Answer, AllocError>,
    ) -> Result<&'static Extent, AllocError> {
        let mut answer = attempt(&mut self.pages.lock(), true);
        if let Ok(Answer::Borrow { need, wanted }) = answer {
            self.borrow(need, wanted);
            answer = attempt(&mut self.pages.lock(), false);
        }
        let answer = answer.or_else(|_| {
            // The lock of one bin may be held: those of the others are only tried.
            self.bins.iter().for_each(|bin| {
                bin.try_end_spares(self, u32::MAX);
            });
            attempt(&mut self.pages.lock(), false)
        })?;
        match answer {
            Answer::Block(extent) => Ok(extent),
            Answer::Borrow { .. } => Err(AllocError::NoMemory),
        }
    }

    /// Pages for a slab out of memory that is resident, at the price of spare slabs of the other bins; `None` when it takes
    /// fresh memory.
    fn resident(&self, bytes: usize) -> Option<&'static Extent> {
        // Relaxed: a hint.
        if !self.may_have_spares.load(Ordering::Relaxed) {
            return None;
        }
        if !self.bins.iter().any(Bin::has_spares) {
            // Relaxed: one that is added now is found with the next one.
            self.may_have_spares.store(false, Ordering::Relaxed);
            return None;
        }
        let got = self.pages.lock().alloc_resident(bytes);
        got.or_else(|| {
            let mut giving = self.bins.iter().filter(|bin| bin.try_end_spares(self, SPARES_AT_A_TIME));
            giving.find_map(|_| self.pages.lock().alloc_resident(bytes))
        })
    }

    /// Frees a large block.
    pub(crate) fn free_large(&self, extent: &'static Extent) {
        // Off the fast path before the pages are anybody's: a second `free` of the block is found out then.
        emap::set_large(extent, 0);
        let at_once = {
            let mut pages = self.pages.lock();
            pages.large.frees += 1;
            pages.large.live_bytes -= extent.bytes();
            pages.dealloc(extent);
            self.note_idle(&pages);
            pages.dirty_decay.ms() == 0
        };
        if at_once {
            self.purge_to(Which::Dirty, 0);
        }
    }

    /// Changes the usable bytes of a large block without moving it; false when that is impossible or, for a block that
    /// may move, not worth it.
    pub(crate) fn resize_large(&self, extent: &'static Extent, usable: usize, may_move: bool) -> bool {
        let (old, have, want) = (extent.usable(), extent.bytes(), extent_bytes(usable));
        if usable == old {
            return true;
        }
        let mut pages = self.pages.lock();
        emap::clear_ends(extent);
        let done = if want < have {
            pages.shrink_in_place(extent, want)
        } else {
            want == have
                || pages.grow_in_place(extent, want - have, may_move)
                || usable <= have
                || pages.grow_in_place(extent, usable - have, may_move)
        };
        if done {
            extent.set_use(index_of(usable), false);
            extent.set_usable(usable);
            pages.large.live_bytes = pages.large.live_bytes - have + extent.bytes();
        }
        Self::map_large(extent);
        done
    }

    /// Makes a large block a live sample, whose record is in `map`: `free` must look closer while it is.
    #[inline]
    pub(crate) fn begin_sample(extent: &'static Extent, map: &'static SampleMap, usable: usize) {
        let is_cached = Self::is_cached(extent, usable);
        map.set_usable(usable);
        extent.put_samples(map);
        extent.set_sampled(true);
        if is_cached {
            Self::map_large(extent);
        }
    }

    /// A large block is no live sample any more; the map of its record, if it was one.
    #[inline]
    pub(crate) fn end_sample(extent: &'static Extent) -> Option<&'static SampleMap> {
        let map = extent.samples()?;
        let usable = map.usable();
        extent.set_usable(usable);
        extent.set_sampled(false);
        if Self::is_cached(extent, usable) {
            Self::map_large(extent);
        }
        Some(map)
    }

    /// True for a large block that caches hold in stacks: the page map says so while it is no sample.
    #[inline]
    fn is_cached(extent: &Extent, usable: usize) -> bool {
        usable <= CACHED_MAX && usable == size_of_index(extent.class())
    }

    fn fast_of(extent: &Extent) -> usize {
        if Self::is_cached(extent, extent.usable()) && !extent.is_sampled() { fast_offset(extent.class()) } else { 0 }
    }

    fn slab(&self, class: usize, shape: &SlabShape, sampled: bool) -> Option<&'static Extent> {
        let bytes = shape.slab_bytes as usize;
        let map = if sampled { Some(SampleMap::of_slab(class)?) } else { None };
        let got = self.resident(bytes).or_else(|| {
            let page = sys::page_size();
            self.alloc_pages(|pages, may_borrow| pages.alloc_or_borrow(bytes, page, Fit::Tight, may_borrow)).ok()
        });
        let Some(extent) = got else {
            map.inspect(|map| map.end(class));
            return None;
        };
        extent.set_use(class, true);
        extent.set_sampled(sampled);
        extent.set_usable(0);
        if let Some(map) = map {
            extent.put_samples(map);
        }
        slab::init(extent, shape);
        emap::set_slab(extent, if sampled { 0 } else { fast_offset(class) });
        Some(extent)
    }

    fn map_large(extent: &'static Extent) {
        emap::set_large(extent, Self::fast_of(extent));
    }

    fn give_pages_back(&self, extent: &'static Extent) {
        let at_once = {
            let mut pages = self.pages.lock();
            pages.dealloc(extent);
            self.note_idle(&pages);
            pages.dirty_decay.ms() == 0
        };
        if at_once {
            self.purge_to(Which::Dirty, 0);
        }
    }

    /// Counts what a thread did, in ticks; every so many, lets time pass.
    pub(crate) fn tick(&self, count: u32) {
        // Relaxed: a lost count only delays the next look.
        let before = self.ticks.load(Ordering::Relaxed);
        let ticks = before.wrapping_add(count);
        self.ticks.store(ticks, Ordering::Relaxed);
        if ticks / TICKS_PER_DECAY != before / TICKS_PER_DECAY {
            let now_ns = sys::clock_recent_ns();
            // Relaxed, both: two threads that look at once do the same work twice.
            if self.looked_at_ns.load(Ordering::Relaxed) != now_ns {
                self.looked_at_ns.store(now_ns, Ordering::Relaxed);
                self.decay_by(now_ns, true);
            }
        }
    }

    /// Lets time pass: brings in remote frees and purges what decay says at `now_ns`.
    pub fn decay(&self, now_ns: u64) {
        self.decay_by(now_ns, false);
    }

    /// As above; `by_parts`: a call of the program waits.
    fn decay_by(&self, now_ns: u64, by_parts: bool) {
        for bin in self.bins {
            bin.collect(self);
        }
        for which in [Which::Dirty, Which::Muzzy] {
            // Separate statement, so that the lock is not held while purging.
            let limit = self.pages.lock().decay_limit(which, now_ns, by_parts);
            if let Some(limit) = limit {
                self.purge_to(which, limit);
            }
        }
    }

    /// Lets time pass if nobody looked for a while: in an arena whose threads are idle or gone.
    pub(crate) fn decay_if_idle(&self, now_ns: u64) {
        // Relaxed: as in `tick`.
        let last = self.looked_at_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(last) >= IDLE_NS {
            self.looked_at_ns.store(now_ns, Ordering::Relaxed);
            self.decay_by(now_ns, true);
        }
    }

    /// Gives all free pages back to the system.
    pub fn purge(&self) {
        for bin in self.bins {
            bin.purge(self);
        }
        self.purge_to(Which::Dirty, 0);
        self.purge_to(Which::Muzzy, 0);
    }

    /// Ns until someone should look at the decay again; `None` = nothing decays by time. Without free pages that is a
    /// quarter of the decay time: what becomes free meanwhile waits no longer than that.
    pub(crate) fn next_look_ns(&self) -> Option<u64> {
        let pages = self.pages.lock();
        let stats = pages.stats();
        let dirty = pages.dirty_decay.next_look_ns(stats.dirty_bytes > 0);
        let muzzy = pages.muzzy_decay.next_look_ns(stats.muzzy_bytes > 0);
        match (dirty, muzzy) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Decay time of dirty (or muzzy) pages, ms.
    pub fn decay_ms(&self, muzzy: bool) -> i64 {
        let pages = self.pages.lock();
        if muzzy { pages.muzzy_decay.ms() } else { pages.dirty_decay.ms() }
    }

    /// Changes a decay time; what is free now decays anew, or at once for 0.
    pub fn set_decay_ms(&self, muzzy: bool, ms: i64) {
        let now_ns = sys::clock_monotonic_ns();
        {
            let mut pages = self.pages.lock();
            let stats = pages.stats();
            let granule = crate::sizeclass::GRANULE;
            if muzzy {
                pages.muzzy_decay.set_ms(ms, now_ns, stats.muzzy_bytes / granule);
            } else {
                pages.dirty_decay.set_ms(ms, now_ns, stats.dirty_bytes / granule);
                // Relaxed: a slab that is kept or not once more is no harm.
                self.keeps_spares.store(ms != 0, Ordering::Relaxed);
            }
        }
        if ms == 0 && !muzzy {
            self.bins.iter().for_each(|bin| bin.purge(self));
        }
        self.decay(now_ns);
    }

    /// Purges the oldest extents of a set until it holds at most `limit_bytes`, or the system takes nothing more. System calls
    /// happen without the lock.
    fn purge_to(&self, which: Which, limit_bytes: usize) {
        loop {
            let mut busy = List::new();
            let (taken, retain, lazy) = {
                let mut pages = self.pages.lock();
                let taken = pages.take_excess(which, limit_bytes, &mut busy);
                let lazy = which == Which::Dirty && pages.muzzy_decay.ms() != 0;
                (taken, pages.retains(), lazy)
            };
            // Put back at the end of the batch, so that none of them comes twice in it.
            let mut refused = List::new();
            let mut kept = 0;
            while let Some(extent) = busy.pop_front() {
                if !self.purge_one(extent, retain, lazy) {
                    kept += 1;
                    refused.push_back(extent);
                }
            }
            if taken > 0 {
                let mut pages = self.pages.lock();
                pages.note_refused(kept == taken);
                while let Some(extent) = refused.pop_front() {
                    pages.put_back(extent, which);
                }
            }
            if taken < crate::pages::PURGE_BATCH || kept == taken {
                return;
            }
        }
    }

    /// False when the system did not take the pages: then they stay resident, and are to be used before others.
    fn purge_one(&self, extent: &'static Extent, retain: bool, lazy: bool) -> bool {
        if lazy && emap::purge_lazy(extent) {
            self.pages.lock().settle(extent, State::Muzzy, false);
        } else if !retain {
            emap::clear_ends(extent);
            emap::purge_unmap(extent);
            self.pages.lock().forget(extent);
        } else if emap::purge_forced(extent) {
            self.pages.lock().settle(extent, State::Retained, true);
        } else {
            return false;
        }
        true
    }

    /// Sizes of the parts.
    pub fn page_stats(&self) -> PageStats {
        self.pages.lock().stats()
    }

    /// Counts of a bin.
    pub fn bin_stats(&self, class: usize) -> BinStats {
        let stats = |bin: Option<&Bin>| bin.map(|bin| bin.stats(self)).unwrap_or_default();
        stats(self.bin(class)).with(&stats(self.bin_of_samples(class)))
    }

    /// Counts of large blocks.
    pub fn large_stats(&self) -> LargeStats {
        self.pages.lock().large
    }

    pub(crate) fn prefork_bins(&self) {
        self.bins.iter().for_each(Bin::prefork);
    }

    pub(crate) fn prefork_pages(&self) {
        self.pages.lock_for_fork();
    }

    pub(crate) fn postfork_parent(&self) {
        self.pages.unlock_for_fork();
        self.bins.iter().for_each(Bin::postfork_parent);
    }

    pub(crate) fn postfork_child(&self) {
        self.pages.reset_in_child();
        self.bins.iter().for_each(Bin::postfork_child);
    }
}

/// The arena as the source of slabs of sampled blocks.
struct Samples<'a>(&'a Arena);

impl SlabSource for Samples<'_> {
    fn new_slab(&self, class: usize, shape: &SlabShape) -> Option<&'static Extent> {
        self.0.slab(class, shape, true)
    }

    fn end_slab(&self, slab: &'static Extent) {
        self.0.end_slab(slab);
    }

    fn is_deserted(&self) -> bool {
        self.0.thread_count() == 0
    }

    fn keeps_spares(&self) -> bool {
        self.0.keeps_spares()
    }

    fn note_spare(&self) {
        self.0.note_spare();
    }
}

impl SlabSource for Arena {
    fn new_slab(&self, class: usize, shape: &SlabShape) -> Option<&'static Extent> {
        self.slab(class, shape, false)
    }

    fn end_slab(&self, slab: &'static Extent) {
        slab.set_sampled(false);
        if let Some(map) = slab.samples() {
            slab.set_usable(0);
            map.end(slab.class());
        }
        emap::clear_slab(slab);
        self.give_pages_back(slab);
    }

    fn is_deserted(&self) -> bool {
        self.thread_count() == 0
    }

    fn keeps_spares(&self) -> bool {
        self.keeps_spares.load(Ordering::Relaxed)
    }

    fn note_spare(&self) {
        // Relaxed: a hint.
        if !self.may_have_spares.load(Ordering::Relaxed) {
            self.may_have_spares.store(true, Ordering::Relaxed);
        }
    }
}
