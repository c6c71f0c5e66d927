//! The pages of one arena: free extents in three states, growth, splitting, merging, and what decay takes.
//!
//! ```text
//!   system ──reserve──► Retained ◄──────── purge forced ───────┐
//!                          │ alloc                  ▲          │
//!                          ▼                        │          │
//!             Quick ◄──► Active ──dealloc──► Dirty ─┴─ lazy ─► Muzzy
//!               │          ▲                   ▲│              │
//!               │          └───────── alloc ───┼┴──────────────┘
//!               └──────── coalesce ────────────┘
//! ```
//!
//! Allocation prefers an extent of its length that was freed a moment ago (`quick.rs`), then dirty, then muzzy, then retained extents, and grows the reserve geometrically (2 MiB, 2.5, 3, …)
//! so that the number of mappings stays logarithmic in the heap. Everything here happens under the arena's `Pages`
//! lock, except the system calls of a purge: [`Pages::take_excess`] takes extents out of a set (Busy) and
//! [`Pages::settle`] brings them back.
//!
//! I-PAGES-1: two free extents of one state that touch are merged. I-PAGES-2: the word of the first page of an extent
//! handed out by `alloc` is the caller's to write; one given to `dealloc` has no words inside, other than those of its ends.
//!
//! Cost of a cut or a merge: two or three words of the page map, one or two ring operations, one descriptor. A run that
//! is cut or grows keeps its descriptor, and its place in its ring while its step stays.
#![forbid(unsafe_code)]

use crate::base;
use crate::bits::align_up;
use crate::conf::{self, Thp};
use crate::decay::Decay;
use crate::ds::link::Link;
use crate::ds::list::{List, ListNode};
use crate::ecache::ExtentSet;
use crate::emap;
use crate::error::AllocError;
use crate::extent::{Extent, State};
use crate::ptr;
use crate::quick::Quick;
use crate::sizeclass::{GRANULE, page_class_bytes, page_index_ceil};
use crate::sys;

/// A huge page of x86-64.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// First growth of an arena.
const FIRST_GROWTH_BYTES: usize = HUGE_PAGE_BYTES;
/// By default an arena asks for huge pages when this much of it is in use: the one that it is filling is then at most a
/// sixth of it. Below, and for a single request larger than all that is in use, memory counts more.
const HUGE_MIN_BYTES: usize = 6 * HUGE_PAGE_BYTES;
/// Growth stops doubling here: 512 MiB a step is 2048 mappings per TiB.
const MAX_GROWTH_BYTES: usize = 512 << 20;
/// Descriptors made at a time: 4.5 KiB of metadata.
const DESCRIPTOR_BATCH: usize = 32;
/// Bytes of free pages that become metadata when the system gives none: 450 descriptors.
const DONATION_BYTES: usize = 64 << 10;
/// Descriptors that a donation uses up before it brings new ones.
const DONATION_DESCRIPTORS: usize = 2;
/// A long run is purged in multiples of this: smaller pieces would break up huge pages and cost calls.
const PURGE_PIECE_BYTES: usize = HUGE_PAGE_BYTES;
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

/// Counts of large blocks of an arena since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeStats {
    pub allocs: u64,
    pub frees: u64,
    /// Bytes of their extents that are handed out now, cached ones included.
    pub live_bytes: usize,
}

/// Page allocator of one arena.
pub(crate) struct Pages {
    arena: u32,
    retain: bool,
    quick: Quick,
    dirty: ExtentSet,
    muzzy: ExtentSet,
    retained: ExtentSet,
    pub(crate) dirty_decay: Decay,
    pub(crate) muzzy_decay: Decay,
    /// Descriptors without pages, the last used first; chained by `next`.
    pool: Link<Extent>,
    pool_count: usize,
    growth_bytes: usize,
    active_bytes: usize,
    pub(crate) large: LargeStats,
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
            quick: Quick::new(),
            dirty: ExtentSet::new(State::Dirty)?,
            muzzy: ExtentSet::new(State::Muzzy)?,
            retained: ExtentSet::new(State::Retained)?,
            dirty_decay: Decay::new(dirty_ms)?,
            muzzy_decay: Decay::new(muzzy_ms)?,
            pool: Link::null(),
            pool_count: 0,
            growth_bytes: FIRST_GROWTH_BYTES,
            active_bytes: 0,
            large: LargeStats::default(),
            purge_passes: 0,
            purge_calls: 0,
            purged_bytes: 0,
        })
    }

    pub(crate) fn stats(&self) -> PageStats {
        PageStats {
            active_bytes: self.active_bytes,
            dirty_bytes: self.idle_bytes(Which::Dirty),
            muzzy_bytes: self.muzzy.bytes(),
            retained_bytes: self.retained.bytes(),
            purge_passes: self.purge_passes,
            purge_calls: self.purge_calls,
            purged_bytes: self.purged_bytes,
        }
    }

    /// An active extent of `bytes` (page multiple) at a multiple of `align`.
    pub(crate) fn alloc(&mut self, bytes: usize, align: usize, fit: Fit) -> Result<&'static Extent, AllocError> {
        let slack = align.saturating_sub(sys::page_size());
        if slack == 0
            && fit == Fit::Tight
            && let Some(extent) = self.quick.take(bytes)
        {
            extent.set_state(State::Active);
            self.active_bytes += bytes;
            return Ok(extent);
        }
        let need = bytes.checked_add(slack).ok_or(AllocError::TooLarge)?;
        self.stock_descriptors(3)?;
        let by_chance = if slack == 0 { None } else { self.dirty.find_aligned(bytes, align) };
        let extent = match by_chance.or_else(|| self.find(need, fit)) {
            Some(extent) => extent,
            None => self.grow(need, align)?,
        };
        let lead = extent.addr().addr().wrapping_neg() & (align - 1);
        let block = self.carve(extent, lead, bytes);
        block.set_state(State::Active);
        self.active_bytes += bytes;
        Ok(block)
    }

    /// Takes back an active extent.
    pub(crate) fn dealloc(&mut self, extent: &'static Extent) {
        self.active_bytes -= extent.bytes();
        extent.set_zeroed(false);
        if !self.quick.put(extent) {
            self.insert_merged(extent, State::Dirty);
        }
    }

    /// Merges the extents that were kept whole; true when there were any.
    fn coalesce(&mut self) -> bool {
        let any = self.quick.bytes() != 0;
        while let Some(extent) = self.quick.take_any() {
            self.insert_merged(extent, State::Dirty);
        }
        any
    }

    fn idle_bytes(&self, which: Which) -> usize {
        match which {
            Which::Dirty => self.dirty.bytes() + self.quick.bytes(),
            Which::Muzzy => self.muzzy.bytes(),
        }
    }

    /// Grows an active extent without words by `more` bytes out of the free extent behind it; false when there is none
    /// that large.
    pub(crate) fn grow_in_place(&mut self, extent: &'static Extent, more: usize) -> bool {
        if self.stock_descriptors(3).is_err() {
            return false;
        }
        let Some(next) = emap::extent_at(extent.end()) else { return false };
        if next.state() == State::Quick && self.coalesce() {
            return self.grow_in_place(extent, more);
        }
        let free = matches!(next.state(), State::Dirty | State::Muzzy | State::Retained);
        if !free || next.arena() != self.arena || next.addr().addr() != extent.end() || next.bytes() < more {
            return false;
        }
        let taken = self.carve(next, 0, more);
        emap::clear_ends(taken);
        extent.set_zeroed(extent.is_zeroed() && taken.is_zeroed());
        extent.set_range(extent.addr(), extent.bytes() + more);
        self.retire(taken);
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
        tail.assign(ptr::forward(extent.addr(), bytes), tail_bytes, State::Active, false);
        extent.set_range(extent.addr(), bytes);
        self.active_bytes -= tail_bytes;
        self.insert_merged(tail, State::Dirty);
        true
    }

    /// How many bytes of a set may stay at `now_ns`; `None` = nothing to decide yet.
    pub(crate) fn decay_limit(&mut self, which: Which, now_ns: u64) -> Option<usize> {
        let pages = self.idle_bytes(which) / GRANULE;
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
        if which == Which::Dirty && self.idle_bytes(which) > limit_bytes {
            self.coalesce();
        }
        while self.set(which).bytes() > limit_bytes && taken < PURGE_BATCH {
            let Some(extent) = self.set(which).coldest() else { break };
            let excess = self.excess_piece(which, limit_bytes, extent);
            let lead = if self.stock_descriptors(1).is_ok() { extent.bytes() - excess } else { 0 };
            // The upper end goes, so that what stays is one run with what lies below it.
            let piece = self.carve(extent, lead, extent.bytes() - lead);
            piece.set_state(State::Busy);
            out.push_back(piece);
            taken += 1;
        }
        if taken > 0 {
            self.purge_passes += 1;
        }
        taken
    }

    /// How much of `extent`, the next to be purged, must go: so that one long run decays smoothly, and not at once.
    fn excess_piece(&mut self, which: Which, limit_bytes: usize, extent: &Extent) -> usize {
        let whole = extent.bytes();
        let excess = self.set(which).bytes().saturating_sub(limit_bytes);
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
            State::Unused | State::Active | State::Busy | State::Quick | State::Cached => None,
        }
    }

    #[inline]
    fn remove_from_set(&mut self, extent: &'static Extent) {
        if let Some(set) = self.set_of(extent.state()) {
            set.remove(extent);
        }
    }

    fn find(&mut self, need: usize, fit: Fit) -> Option<&'static Extent> {
        if fit == Fit::Roomy
            && let Some(extent) = self.dirty.find_roomy(need).or_else(|| self.muzzy.find_roomy(need))
        {
            return Some(extent);
        }
        if let Some(extent) = self.dirty.find(need) {
            return Some(extent);
        }
        if self.coalesce()
            && let Some(extent) = self.dirty.find(need)
        {
            return Some(extent);
        }
        self.muzzy.find(need).or_else(|| self.retained.find(need))
    }

    /// Reserves a chunk of at least `need` bytes and files it as retained.
    fn grow(&mut self, need: usize, align: usize) -> Result<&'static Extent, AllocError> {
        let page = sys::page_size();
        let huge = self.huge_pages_for(need);
        let mut bytes = need.max(self.growth_bytes);
        let mut chunk = if huge == Some(true) {
            // Whole huge pages.
            bytes = align_up(bytes, HUGE_PAGE_BYTES).unwrap_or(bytes);
            sys::reserve(bytes, HUGE_PAGE_BYTES)
        } else {
            sys::reserve(bytes, page)
        };
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
        if bytes >= self.growth_bytes && self.growth_bytes < MAX_GROWTH_BYTES && need <= self.growth_bytes {
            let next = page_class_bytes(page_index_ceil(self.growth_bytes) + 1);
            self.growth_bytes = align_up(next, HUGE_PAGE_BYTES).unwrap_or(next);
        }
        if let Some(wanted) = huge {
            emap::advise_huge(chunk.as_ptr(), bytes, wanted);
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

    /// What to tell the kernel about huge pages for a chunk that `need` bytes make necessary; `None` = nothing.
    fn huge_pages_for(&self, need: usize) -> Option<bool> {
        match conf::options().thp {
            Thp::Always => Some(true),
            Thp::Never => Some(false),
            Thp::Default => (self.active_bytes >= HUGE_MIN_BYTES && need <= self.active_bytes).then_some(true),
        }
    }

    /// Takes `bytes` behind `lead` bytes of a free extent out of its set; what is left stays there. The state of the
    /// part is the caller's to set. Needs two descriptors in stock, but none for the whole extent.
    fn carve(&mut self, extent: &'static Extent, lead: usize, bytes: usize) -> &'static Extent {
        let (start, whole, state, zeroed) = (extent.addr(), extent.bytes(), extent.state(), extent.is_zeroed());
        let tail = whole - lead - bytes;
        if lead == 0 && tail == 0 {
            self.remove_from_set(extent);
            return extent;
        }
        let Some(part) = self.descriptor() else {
            debug_assert!(false, "descriptors are stocked before a cut");
            self.remove_from_set(extent);
            return extent;
        };
        part.assign(ptr::forward(start, lead), bytes, State::Active, zeroed);
        if lead == 0 {
            self.resize_in_set(extent, ptr::forward(start, bytes), tail);
            emap::set_start(extent);
            return part;
        }
        let rest = if tail == 0 { None } else { self.descriptor() };
        emap::clear_ends(part);
        self.resize_in_set(extent, start, lead);
        emap::set_end(extent);
        if let Some(rest) = rest {
            rest.assign(ptr::forward(start, lead + bytes), tail, state, zeroed);
            emap::set_free(rest);
            if let Some(set) = self.set_of(state) {
                set.insert(rest);
            }
        }
        part
    }

    fn resize_in_set(&mut self, extent: &'static Extent, addr: *mut u8, bytes: usize) {
        if let Some(set) = self.set_of(extent.state()) {
            set.resize(extent, addr, bytes);
        }
    }

    /// Merges an extent, which is in no set, with its free neighbours of the same state and files the result. Its
    /// neighbours' words are checked against their descriptors, so a word that was left behind does no harm.
    fn insert_merged(&mut self, extent: &'static Extent, state: State) -> &'static Extent {
        let (start, bytes, end) = (extent.addr(), extent.bytes(), extent.end());
        let joins = |other: &&Extent| other.state() == state && other.arena() == self.arena;
        let below = emap::extent_below(start.addr()).filter(joins).filter(|other| other.end() == start.addr());
        let above = emap::extent_at(end).filter(joins).filter(|other| other.addr().addr() == end);
        let merged = match (below, above) {
            (None, None) => {
                emap::set_free(extent);
                if let Some(set) = self.set_of(state) {
                    set.insert(extent);
                }
                return extent;
            }
            (Some(below), None) => {
                emap::clear_inner(below, extent);
                self.resize_in_set(below, below.addr(), below.bytes() + bytes);
                emap::set_end(below);
                below
            }
            (None, Some(above)) => {
                emap::clear_inner(extent, above);
                self.resize_in_set(above, start, above.bytes() + bytes);
                emap::set_start(above);
                above
            }
            (Some(below), Some(above)) => {
                emap::clear_inner(below, extent);
                emap::clear_inner(extent, above);
                emap::clear_ends(extent);
                self.remove_from_set(above);
                below.set_zeroed(below.is_zeroed() && above.is_zeroed());
                self.resize_in_set(below, below.addr(), below.bytes() + bytes + above.bytes());
                emap::set_end(below);
                self.retire(above);
                below
            }
        };
        merged.set_zeroed(merged.is_zeroed() && extent.is_zeroed());
        self.retire(extent);
        merged
    }

    /// Makes sure that `count` descriptors can be had. When the system gives no address space for metadata, free pages
    /// of this arena become metadata.
    #[inline]
    fn stock_descriptors(&mut self, count: usize) -> Result<(), AllocError> {
        if self.pool_count >= count + DONATION_DESCRIPTORS { Ok(()) } else { self.stock_descriptors_slow(count) }
    }

    #[cold]
    fn stock_descriptors_slow(&mut self, count: usize) -> Result<(), AllocError> {
        if self.make_descriptors() {
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
        let part = self.carve(extent, 0, DONATION_BYTES);
        if !part.is_zeroed() && !emap::purge_forced(part) {
            self.insert_merged(part, State::Dirty);
            return false;
        }
        emap::clear_ends(part);
        base::donate(part.addr(), part.bytes());
        self.retire(part);
        true
    }

    #[inline]
    fn descriptor(&mut self) -> Option<&'static Extent> {
        let extent = self.pool.get()?;
        self.pool.set(extent.next().get());
        self.pool_count -= 1;
        Some(extent)
    }

    #[inline]
    fn retire(&mut self, extent: &'static Extent) {
        extent.set_state(State::Unused);
        extent.next().set(self.pool.get());
        self.pool.set(Some(extent));
        self.pool_count += 1;
    }

    /// Checks I-ECACHE-1 of all sets and the page map's words of their extents; linear.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for set in [&self.dirty, &self.muzzy, &self.retained] {
            set.check();
            for extent in set.all() {
                let (first, last) = (extent.addr().addr(), extent.end() - GRANULE);
                for page in (first..=last).step_by(GRANULE) {
                    let found = emap::extent_at(page);
                    let wanted = (page == first || page == last).then_some(extent);
                    assert!(found.map(core::ptr::from_ref) == wanted.map(core::ptr::from_ref), "word of {page:#x}");
                }
                let parted = |above: &Extent| {
                    above.arena() != self.arena
                        || above.addr().addr() != extent.end()
                        || above.state() != extent.state()
                };
                assert!(emap::extent_at(extent.end()).is_none_or(parted), "I-PAGES-1");
            }
        }
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
        assert_eq!((pages.quick.bytes(), pages.stats().dirty_bytes), (256 * KIB, 256 * KIB));
        assert!(pages.coalesce() && !pages.coalesce());
        pages.check();
        assert_eq!(pages.dirty.all().len(), 1);
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

    /// A random history: blocks never overlap, bytes are conserved, and the page map's words are those of its table.
    #[test]
    fn any_history_keeps_the_invariants() {
        let mut pages = Pages::new(13, true, 10_000, 0).expect("memory");
        let mut live: std::vec::Vec<&'static Extent> = std::vec::Vec::new();
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        let mut total = 0;
        for round in 0..4000 {
            match random(10) {
                0..=4 => {
                    let bytes = {
                        let lg = random(9);
                        (1 + random(1 << lg)) * GRANULE
                    };
                    let align = GRANULE << if random(4) == 0 { random(9) } else { 0 };
                    let fit = if random(5) == 0 { Fit::Roomy } else { Fit::Tight };
                    let extent = pages.alloc(bytes, align, fit).expect("pages");
                    assert!(extent.bytes() == bytes && extent.addr().addr().is_multiple_of(align));
                    emap::set_large(extent, 0);
                    let apart =
                        |other: &&Extent| other.end() <= extent.addr().addr() || extent.end() <= other.addr().addr();
                    assert!(live.iter().all(apart), "overlap");
                    live.push(extent);
                }
                5..=7 if !live.is_empty() => pages.dealloc(live.swap_remove(random(live.len()))),
                8 if !live.is_empty() => {
                    let extent = live[random(live.len())];
                    emap::clear_ends(extent);
                    let pages_now = extent.bytes() / GRANULE;
                    if pages_now > 1 && random(2) == 0 {
                        assert!(pages.shrink_in_place(extent, (1 + random(pages_now - 1)) * GRANULE));
                    } else {
                        pages.grow_in_place(extent, (1 + random(8)) * GRANULE);
                    }
                    emap::set_large(extent, 0);
                }
                9 => {
                    let which = if random(2) == 0 { Which::Dirty } else { Which::Muzzy };
                    let limit = pages.set(which).bytes() / 2;
                    let mut busy = List::new();
                    pages.take_excess(which, limit, &mut busy);
                    while let Some(extent) = busy.pop_front() {
                        let to = if random(2) == 0 { State::Muzzy } else { State::Retained };
                        pages.settle(extent, to, to == State::Retained);
                    }
                }
                _ => {}
            }
            let stats = pages.stats();
            assert_eq!(stats.active_bytes, live.iter().map(|extent| extent.bytes()).sum::<usize>());
            let all = stats.active_bytes + stats.dirty_bytes + stats.muzzy_bytes + stats.retained_bytes;
            assert!(all >= total);
            total = all;
            if round % 64 == 0 {
                pages.check();
            }
        }
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
    fn excess_is_taken_longest_and_oldest_first_and_settles() {
        let mut pages = Pages::new(10, true, 0, 0).expect("memory");
        let extents: std::vec::Vec<_> =
            (0..8).map(|_| pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
        for i in [0, 2, 4, 6] {
            pages.dealloc(extents[i]);
            pages.coalesce();
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
        assert_eq!(pages.dirty.coldest().map(Extent::addr), Some(start));
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
