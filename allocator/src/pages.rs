//! The pages of one arena: free extents in three states, growth, splitting, merging, and what decay takes.
//!
//! ```text
//!   system ──reserve──► Retained ◄──────── purge forced ───────┐
//!                          │ alloc                  ▲          │
//!                          ▼                        │          │
//!                        Active ──dealloc──► Dirty ─┴─ lazy ─► Muzzy
//!                          ▲                   │               │
//!                          └───────── alloc ───┴───────────────┘
//! ```
//!
//! Allocation prefers dirty, then muzzy, then retained extents, and grows the reserve geometrically (2 MiB, 2.5, 3, …)
//! so that the number of mappings stays logarithmic in the heap. Everything here happens under the arena's `Pages`
//! lock, except the system calls of a purge: [`Pages::take_excess`] takes extents out of a set (Busy) and
//! [`Pages::settle`] brings them back.
//!
//! I-PAGES-1: two free extents of one state that touch are merged. I-PAGES-2: an active extent handed out by `alloc` has
//! no words in the page map yet, and one given to `dealloc` has none any more.
#![forbid(unsafe_code)]

use crate::base;
use crate::bits::align_up;
use crate::decay::Decay;
use crate::ds::list::List;
use crate::ecache::ExtentSet;
use crate::emap;
use crate::error::AllocError;
use crate::extent::{Extent, State};
use crate::ptr;
use crate::sizeclass::{GRANULE, page_class_bytes, page_index_ceil};
use crate::sys;

/// First growth of an arena: one huge page of x86-64.
const FIRST_GROWTH_BYTES: usize = 2 << 20;
/// Growth stops doubling here: 512 MiB a step is 2048 mappings per TiB.
const MAX_GROWTH_BYTES: usize = 512 << 20;
/// Descriptors made at a time: 4.5 KiB of metadata.
const DESCRIPTOR_BATCH: usize = 32;
/// Bytes of free pages that become metadata when the system gives none: 450 descriptors.
const DONATION_BYTES: usize = 64 << 10;
/// Descriptors that a donation uses up before it brings new ones.
const DONATION_DESCRIPTORS: usize = 2;
/// A long run is purged in multiples of this, a huge page: smaller pieces would break up huge pages and cost calls.
const PURGE_PIECE_BYTES: usize = 2 << 20;
/// Extents that one purge takes at a time.
pub(crate) const PURGE_BATCH: usize = 64;

/// Sizes of the parts of an arena, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    pub active_bytes: usize,
    pub dirty_bytes: usize,
    pub muzzy_bytes: usize,
    pub retained_bytes: usize,
    /// Purge passes that took something, system calls made, pages given back; since the arena was made.
    pub purge_passes: u64,
    pub purge_calls: u64,
    pub purged_bytes: u64,
}

/// Page allocator of one arena.
pub(crate) struct Pages {
    arena: u32,
    retain: bool,
    dirty: ExtentSet,
    muzzy: ExtentSet,
    retained: ExtentSet,
    pub(crate) dirty_decay: Decay,
    pub(crate) muzzy_decay: Decay,
    pool: List<Extent>,
    pool_count: usize,
    growth_bytes: usize,
    active_bytes: usize,
    purge_passes: u64,
    purge_calls: u64,
    purged_bytes: u64,
}

/// How to choose among the extents that are large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The smallest class: keeps long runs whole.
    Tight,
    /// The longest run: for a block that had to move to grow, and will want to grow again where it is.
    Roomy,
}

/// Which set a purge works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Dirty,
    Muzzy,
}

impl Pages {
    /// Without any pages yet.
    pub(crate) fn new(arena: u32, retain: bool, dirty_ms: i64, muzzy_ms: i64) -> Option<Pages> {
        Some(Pages {
            arena,
            retain,
            dirty: ExtentSet::new(State::Dirty)?,
            muzzy: ExtentSet::new(State::Muzzy)?,
            retained: ExtentSet::new(State::Retained)?,
            dirty_decay: Decay::new(dirty_ms)?,
            muzzy_decay: Decay::new(muzzy_ms)?,
            pool: List::new(),
            pool_count: 0,
            growth_bytes: FIRST_GROWTH_BYTES,
            active_bytes: 0,
            purge_passes: 0,
            purge_calls: 0,
            purged_bytes: 0,
        })
    }

    pub(crate) fn stats(&self) -> PageStats {
        PageStats {
            active_bytes: self.active_bytes,
            dirty_bytes: self.dirty.bytes(),
            muzzy_bytes: self.muzzy.bytes(),
            retained_bytes: self.retained.bytes(),
            purge_passes: self.purge_passes,
            purge_calls: self.purge_calls,
            purged_bytes: self.purged_bytes,
        }
    }

    /// An active extent of `bytes` (page multiple) at a multiple of `align`, without words in the page map.
    pub(crate) fn alloc(&mut self, bytes: usize, align: usize, fit: Fit) -> Result<&'static Extent, AllocError> {
        let slack = align.saturating_sub(sys::page_size());
        let need = bytes.checked_add(slack).ok_or(AllocError::TooLarge)?;
        self.stock_descriptors(3)?;
        let extent = match self.find(need, fit) {
            Some(extent) => extent,
            None => self.grow(need, align)?,
        };
        self.remove_from_set(extent);
        let state = extent.state();
        let lead = extent.addr().addr().wrapping_neg() & (align - 1);
        self.carve(extent, state, lead, bytes);
        self.active_bytes += bytes;
        Ok(extent)
    }

    /// Takes back an active extent.
    pub(crate) fn dealloc(&mut self, extent: &'static Extent) {
        self.active_bytes -= extent.bytes();
        extent.assign(extent.addr(), extent.bytes(), State::Dirty, false);
        self.insert_merged(extent, State::Dirty);
    }

    /// Grows an active extent without words by `more` bytes out of the free extent behind it; false when there is none
    /// that large.
    pub(crate) fn grow_in_place(&mut self, extent: &'static Extent, more: usize) -> bool {
        if self.stock_descriptors(3).is_err() {
            return false;
        }
        let Some(next) = emap::extent_at(extent.end()) else { return false };
        if next.arena() != self.arena || next.bytes() < more || !Self::is_free(next) {
            return false;
        }
        self.remove_from_set(next);
        let state = next.state();
        self.carve(next, state, 0, more);
        let zeroed = extent.is_zeroed() && next.is_zeroed();
        extent.set_zeroed(zeroed);
        extent.set_bytes(extent.bytes() + more);
        self.retire(next);
        self.active_bytes += more;
        true
    }

    /// Cuts an active extent without words down to `bytes`; false when no descriptor could be had.
    pub(crate) fn shrink_in_place(&mut self, extent: &'static Extent, bytes: usize) -> bool {
        if self.stock_descriptors(2).is_err() {
            return false;
        }
        let Some(tail) = self.descriptor() else { return false };
        let tail_bytes = extent.bytes() - bytes;
        tail.assign(ptr::forward(extent.addr(), bytes), tail_bytes, State::Dirty, false);
        extent.set_bytes(bytes);
        self.active_bytes -= tail_bytes;
        self.insert_merged(tail, State::Dirty);
        true
    }

    /// How many bytes of a set may stay at `now_ns`; `None` = nothing to decide yet.
    pub(crate) fn decay_limit(&mut self, which: Which, now_ns: u64) -> Option<usize> {
        let pages = self.set(which).bytes() / GRANULE;
        let decay = match which {
            Which::Dirty => &mut self.dirty_decay,
            Which::Muzzy => &mut self.muzzy_decay,
        };
        let limit = decay.limit(now_ns, pages)?;
        decay.settle(pages.min(limit));
        Some(limit * GRANULE)
    }

    /// Takes the oldest extents of a set out of it, as Busy, until it holds at most `limit_bytes` or the batch is full.
    pub(crate) fn take_excess(&mut self, which: Which, limit_bytes: usize, out: &mut List<Extent>) -> usize {
        let mut taken = 0;
        while self.set(which).bytes() > limit_bytes && taken < PURGE_BATCH {
            let Some(extent) = self.set(which).oldest() else { break };
            self.remove_from_set(extent);
            let excess = self.excess_piece(which, limit_bytes, extent);
            if excess < extent.bytes() && self.stock_descriptors(1).is_ok() {
                // The upper end goes: allocation prefers low addresses.
                self.carve(extent, extent.state(), extent.bytes() - excess, excess);
            }
            extent.set_state(State::Busy);
            out.push_back(extent);
            taken += 1;
        }
        if taken > 0 {
            self.purge_passes += 1;
        }
        taken
    }

    /// How much of `extent`, which is out of the set, must go: so that one long run decays smoothly, and not at once.
    fn excess_piece(&mut self, which: Which, limit_bytes: usize, extent: &Extent) -> usize {
        let whole = extent.bytes();
        let excess = (self.set(which).bytes() + whole).saturating_sub(limit_bytes);
        align_up(excess, PURGE_PIECE_BYTES).map_or(whole, |piece| piece.min(whole))
    }

    /// Brings back an extent that was taken: into Muzzy, or into Retained (`zeroed` = it reads as zero).
    pub(crate) fn settle(&mut self, extent: &'static Extent, to: State, zeroed: bool) {
        self.count_purge(extent);
        extent.set_zeroed(zeroed);
        self.insert_merged(extent, to);
    }

    /// Forgets an extent whose pages were unmapped.
    pub(crate) fn forget(&mut self, extent: &'static Extent) {
        self.count_purge(extent);
        self.retire(extent);
    }

    /// True when purged pages keep their address space.
    pub(crate) fn retains(&self) -> bool {
        self.retain
    }

    fn count_purge(&mut self, extent: &Extent) {
        self.purge_calls += 1;
        self.purged_bytes += extent.bytes() as u64;
    }

    fn set(&mut self, which: Which) -> &mut ExtentSet {
        match which {
            Which::Dirty => &mut self.dirty,
            Which::Muzzy => &mut self.muzzy,
        }
    }

    fn set_of(&mut self, state: State) -> Option<&mut ExtentSet> {
        match state {
            State::Dirty => Some(&mut self.dirty),
            State::Muzzy => Some(&mut self.muzzy),
            State::Retained => Some(&mut self.retained),
            State::Unused | State::Active | State::Busy => None,
        }
    }

    fn is_free(extent: &Extent) -> bool {
        matches!(extent.state(), State::Dirty | State::Muzzy | State::Retained)
    }

    fn remove_from_set(&mut self, extent: &'static Extent) {
        if let Some(set) = self.set_of(extent.state()) {
            set.remove(extent);
        }
    }

    fn find(&self, need: usize, fit: Fit) -> Option<&'static Extent> {
        if fit == Fit::Roomy
            && let Some(extent) = self.dirty.find_roomy(need).or_else(|| self.muzzy.find_roomy(need))
        {
            return Some(extent);
        }
        self.dirty.find(need).or_else(|| self.muzzy.find(need)).or_else(|| self.retained.find(need))
    }

    /// Reserves a chunk of at least `need` bytes and files it as retained.
    fn grow(&mut self, need: usize, align: usize) -> Result<&'static Extent, AllocError> {
        let page = sys::page_size();
        let mut bytes = need.max(self.growth_bytes);
        let mut chunk = sys::reserve(bytes, page);
        if chunk.is_none() && bytes > need {
            bytes = need;
            chunk = sys::reserve(bytes, page);
        }
        if chunk.is_none() && align > page {
            // The slack may be what does not fit: ask for the alignment itself.
            bytes = need - (align - page);
            chunk = sys::reserve(bytes, align);
        }
        let chunk = chunk.ok_or(AllocError::NoMemory)?;
        if bytes == self.growth_bytes && bytes < MAX_GROWTH_BYTES {
            self.growth_bytes = page_class_bytes(page_index_ceil(bytes) + 1);
        }
        let extent = self.descriptor().ok_or(AllocError::NoMemory)?;
        if let Err(error) = emap::ensure(chunk.as_ptr().addr(), bytes) {
            // Without words the chunk cannot be used; it stays reserved, untouched, and is lost.
            self.retire(extent);
            return Err(error);
        }
        extent.assign(chunk.as_ptr(), bytes, State::Retained, true);
        Ok(self.insert_merged(extent, State::Retained))
    }

    /// Cuts `extent`, which is in no set, to `bytes` behind `lead` bytes, makes that part Active and gives the rest
    /// back to the set of `state`. Needs two descriptors in stock.
    fn carve(&mut self, extent: &'static Extent, state: State, lead: usize, bytes: usize) {
        emap::clear_ends(extent);
        let (start, whole, zeroed) = (extent.addr(), extent.bytes(), extent.is_zeroed());
        let tail = whole - lead - bytes;
        extent.assign(ptr::forward(start, lead), bytes, State::Active, zeroed);
        self.give_back(state, start, lead, zeroed);
        self.give_back(state, ptr::forward(start, lead + bytes), tail, zeroed);
    }

    fn give_back(&mut self, state: State, addr: *mut u8, bytes: usize, zeroed: bool) {
        if bytes == 0 {
            return;
        }
        let Some(rest) = self.descriptor() else {
            debug_assert!(false, "descriptors are stocked before a cut");
            return;
        };
        rest.assign(addr, bytes, state, zeroed);
        emap::set_free(rest);
        if let Some(set) = self.set_of(state) {
            set.insert(rest);
        }
    }

    /// Merges a free extent, which is in no set, with its free neighbours of the same state and files the result.
    fn insert_merged(&mut self, extent: &'static Extent, state: State) -> &'static Extent {
        extent.set_state(state);
        if let Some(below) = emap::extent_below(extent.addr().addr()) {
            self.absorb(extent, below, state);
        }
        if let Some(above) = emap::extent_at(extent.end()) {
            self.absorb(extent, above, state);
        }
        emap::set_free(extent);
        if let Some(set) = self.set_of(state) {
            set.insert(extent);
        }
        extent
    }

    fn absorb(&mut self, extent: &'static Extent, other: &'static Extent, state: State) {
        if other.arena() != self.arena || other.state() != state {
            return;
        }
        self.remove_from_set(other);
        emap::clear_ends(other);
        // The ends of `extent` are not in the map, or are about to become its inside.
        emap::clear_ends(extent);
        let first = if other.addr() < extent.addr() { other.addr() } else { extent.addr() };
        let bytes = extent.bytes() + other.bytes();
        let zeroed = extent.is_zeroed() && other.is_zeroed();
        extent.assign(first, bytes, state, zeroed);
        self.retire(other);
    }

    /// Makes sure that `count` descriptors can be had. When the system gives no address space for metadata, free pages
    /// of this arena become metadata.
    fn stock_descriptors(&mut self, count: usize) -> Result<(), AllocError> {
        if self.pool_count >= count + DONATION_DESCRIPTORS || self.make_descriptors() {
            return Ok(());
        }
        if self.pool_count >= DONATION_DESCRIPTORS && self.donate() && self.make_descriptors() {
            return Ok(());
        }
        if self.pool_count >= count { Ok(()) } else { Err(AllocError::NoMemory) }
    }

    fn make_descriptors(&mut self) -> bool {
        let arena = self.arena;
        let Some(fresh) = base::alloc_slice(DESCRIPTOR_BATCH, |_| Extent::unused(arena)) else { return false };
        for extent in fresh {
            self.retire(extent);
        }
        true
    }

    /// Gives a free run of pages to `base`; false when there is none.
    #[cold]
    fn donate(&mut self) -> bool {
        let Some(extent) = self.find(DONATION_BYTES, Fit::Tight) else { return false };
        self.remove_from_set(extent);
        self.carve(extent, extent.state(), 0, DONATION_BYTES);
        if !extent.is_zeroed() && !emap::purge_forced(extent) {
            self.insert_merged(extent, State::Dirty);
            return false;
        }
        base::donate(extent.addr(), extent.bytes());
        self.retire(extent);
        true
    }

    fn descriptor(&mut self) -> Option<&'static Extent> {
        let extent = self.pool.pop_front()?;
        self.pool_count -= 1;
        Some(extent)
    }

    fn retire(&mut self, extent: &'static Extent) {
        extent.assign(core::ptr::null_mut(), 0, State::Unused, false);
        self.pool.push_back(extent);
        self.pool_count += 1;
    }

    /// Checks I-ECACHE-1 of all sets; linear.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.dirty.check();
        self.muzzy.check();
        self.retained.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn free_neighbours_merge_and_are_found_again() {
        let mut pages = Pages::new(7, true, 10_000, 0).expect("memory");
        let extents: std::vec::Vec<_> =
            (0..4).map(|_| pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
        let start = extents[0].addr();
        for pair in extents.windows(2) {
            assert_eq!(pair[0].end(), pair[1].addr().addr());
        }
        for i in [1, 3, 0, 2] {
            pages.dealloc(extents[i]);
            pages.check();
        }
        assert_eq!(pages.dirty.count(), 1);
        assert_eq!(pages.stats().active_bytes, 0);
        let whole = pages.alloc(256 * KIB, GRANULE, Fit::Tight).expect("pages");
        assert_eq!((whole.addr(), whole.is_zeroed()), (start, false));
        pages.dealloc(whole);
    }

    #[test]
    fn alignment_is_cut_out_and_nothing_is_lost() {
        let mut pages = Pages::new(8, true, 10_000, 0).expect("memory");
        let before = {
            let extent = pages.alloc(GRANULE, GRANULE, Fit::Tight).expect("pages");
            pages.dealloc(extent);
            let stats = pages.stats();
            stats.dirty_bytes + stats.retained_bytes
        };
        let extent = pages.alloc(16 * KIB, 1 << 20, Fit::Tight).expect("pages");
        assert_eq!(extent.addr().addr() % (1 << 20), 0);
        let stats = pages.stats();
        assert_eq!(stats.active_bytes + stats.dirty_bytes + stats.retained_bytes, before);
        pages.check();
    }

    #[test]
    fn growing_and_shrinking_in_place() {
        let mut pages = Pages::new(9, true, 10_000, 0).expect("memory");
        let a = pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages");
        assert!(pages.grow_in_place(a, 32 * KIB));
        assert_eq!(a.bytes(), 96 * KIB);
        let b = pages.alloc(GRANULE, GRANULE, Fit::Tight).expect("pages");
        assert_eq!(b.addr().addr(), a.end());
        assert!(!pages.grow_in_place(a, GRANULE));
        assert!(pages.shrink_in_place(a, 16 * KIB));
        assert_eq!((a.bytes(), pages.stats().dirty_bytes), (16 * KIB, 80 * KIB));
        assert_eq!(pages.stats().active_bytes, 20 * KIB);
        pages.check();
    }

    #[test]
    fn excess_is_taken_oldest_first_and_settles() {
        let mut pages = Pages::new(10, true, 0, 0).expect("memory");
        let extents: std::vec::Vec<_> =
            (0..8).map(|_| pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
        for i in [0, 2, 4, 6] {
            pages.dealloc(extents[i]);
        }
        let mut busy = List::new();
        assert_eq!(pages.take_excess(Which::Dirty, 128 * KIB, &mut busy), 2);
        let first = busy.pop_front().expect("taken");
        assert_eq!((first.addr(), first.state()), (extents[0].addr(), State::Busy));
        pages.settle(first, State::Retained, true);
        let second = busy.pop_front().expect("taken");
        pages.settle(second, State::Muzzy, false);
        pages.check();
        assert_eq!(pages.stats().muzzy_bytes, 64 * KIB);
        assert_eq!(pages.stats().purged_bytes, 128 * KIB as u64);
    }

    #[test]
    fn a_long_run_decays_in_pieces_from_its_end() {
        let mut pages = Pages::new(12, true, 10_000, 0).expect("memory");
        let run = pages.alloc(32 << 20, GRANULE, Fit::Tight).expect("pages");
        let (start, end) = (run.addr(), run.end());
        pages.dealloc(run);
        let mut busy = List::new();
        assert_eq!(pages.take_excess(Which::Dirty, 29 << 20, &mut busy), 1);
        let piece = busy.pop_front().expect("taken");
        assert_eq!((piece.bytes(), piece.end()), (4 << 20, end));
        assert_eq!(pages.dirty.oldest().map(Extent::addr), Some(start));
        assert_eq!(pages.stats().dirty_bytes, 28 << 20);
        pages.settle(piece, State::Retained, true);
        pages.check();
    }

    #[test]
    fn a_refusing_system_leaves_everything_as_it_was() {
        let mut pages = Pages::new(11, true, 10_000, 0).expect("memory");
        let a = pages.alloc(GRANULE, GRANULE, Fit::Tight).expect("pages");
        let before = pages.stats();
        sys::mock::fail_after(Some(0));
        assert!(pages.alloc(64 << 20, GRANULE, Fit::Tight).is_err());
        sys::mock::fail_after(None);
        assert_eq!(pages.stats(), before);
        pages.check();
        pages.dealloc(a);
        assert!(pages.alloc(64 << 20, GRANULE, Fit::Tight).is_ok());
    }
}
