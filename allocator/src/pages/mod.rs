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
//! Allocation prefers an extent of its length that was freed a moment ago (`quick.rs`), then dirty, then muzzy, then
//! retained extents, and then takes pieces of a chunk that small arenas share or, when the arena is no longer small, grows
//! its own reserve geometrically (2 MiB, 2.5, 3, …) so that the number of mappings stays
//! logarithmic in the heap. A long block that no dirty run holds is made of a dirty run and retained pages beside it.
//! Everything here happens under the arena's `Pages` lock, except the system calls of a purge: [`Pages::take_excess`]
//! takes extents out of a set (Busy) and [`Pages::settle`] brings them back.
//!
//! | file | part |
//! |---|---|
//! | `cut.rs` | cutting and merging, words and sets in step |
//! | `growth.rs` | address space from the system |
//! | `huge.rs` | where to ask for huge pages |
//! | `lend.rs` | idle memory of one arena for another |
//! | `purge.rs` | what goes back |
//! | `shared.rs` | chunks that small arenas share |
//! | `stock.rs` | descriptors |
//!
//! I-PAGES-1: two free extents of one state that touch are merged. I-PAGES-2: the word of the first page of an extent
//! handed out by `alloc` is the caller's to write; one given to `dealloc` has no words inside, other than those of its ends.
#![forbid(unsafe_code)]

mod cut;
mod growth;
mod huge;
mod lend;
mod purge;
mod shared;
mod stock;
#[cfg(test)]
mod tests;

use crate::decay::Decay;
use crate::ds::link::Link;
use crate::ecache::ExtentSet;
use crate::emap;
use crate::error::AllocError;
use crate::extent::{Extent, State};
use crate::ptr;
use crate::quick::Quick;
use crate::sync::mutex::Mutex;
use crate::sys;

/// A huge page of x86-64.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// First growth of an arena.
const FIRST_GROWTH_BYTES: usize = HUGE_PAGE_BYTES;
/// Extents that one purge takes at a time.
pub(crate) const PURGE_BATCH: usize = 64;
/// Extents are kept whole up to this part of what is in use: more would keep neighbours apart that long blocks need.
const QUICK_PART: usize = 64;
/// As above, for short extents: cut anew, one would lie elsewhere than the last, and touch pages that this one did not.
const QUICK_PART_SHORT: usize = 8;
/// Extents up to here are short.
const SHORT_BYTES: usize = 64 << 10;
/// As above, bytes at least.
const QUICK_MIN_BYTES: usize = 1 << 20;
/// Blocks from here on are made of a dirty run and its retained neighbours when no dirty run is long enough: what is
/// resident is used, and only the rest has to become so.
const COMBINE_MIN_BYTES: usize = 256 << 10;
/// Dirty runs that are looked at for that, the longest first.
const COMBINE_TRIES: usize = 8;
/// Room that a block which moved to grow is to find.
const ROOM: usize = 2;
/// A block that grows by this part of its length at least has others copy it sooner than it takes fresh pages.
const STEADY_GROWTH_PART: usize = 8;

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
    shared: &'static Mutex<shared::Shared>,
    /// This arena's part of the bytes in use in the process, as it was last counted, if it was.
    counted_bytes: Option<usize>,
    active_bytes: usize,
    /// Bytes that the last allocation took from memory that is not resident.
    fresh_bytes: usize,
    /// As much of it as came into use since other arenas were last asked.
    unasked_bytes: usize,
    /// The last purge came to nothing: the system refuses advice, or the process has locked its memory.
    purge_refused: bool,
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
    /// As `Tight`, for a block that is to be zero: the program may leave most of it as it is.
    Zeroed,
    /// A run of twice the length, if there is one: for a block that had to move to grow, and will want to grow again where
    /// it is. The longest would leave no long run whole.
    Roomy,
}

/// Which set a purge works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Dirty,
    Muzzy,
}

/// What an arena says to a request.
pub(crate) enum Answer {
    Block(&'static Extent),
    /// It would take memory that is not resident; first, another arena may lend so many bytes, at least and at most.
    Borrow {
        need: usize,
        wanted: usize,
    },
}

pub(crate) use shared::{postfork_child, postfork_parent, prefork};

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
            shared: shared::of_process(),
            counted_bytes: None,
            active_bytes: 0,
            fresh_bytes: 0,
            unasked_bytes: 0,
            purge_refused: false,
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

    /// Bytes in use.
    pub(crate) fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// An active extent of `bytes` (page multiple) at a multiple of `align`.
    #[cfg(test)]
    pub(crate) fn alloc(&mut self, bytes: usize, align: usize, fit: Fit) -> Result<&'static Extent, AllocError> {
        match self.alloc_or_borrow(bytes, align, fit, false)? {
            Answer::Block(extent) => Ok(extent),
            Answer::Borrow { .. } => Err(AllocError::NoMemory),
        }
    }

    /// As above; `may_borrow`: the caller can ask other arenas for memory.
    pub(crate) fn alloc_or_borrow(
        &mut self,
        bytes: usize,
        align: usize,
        fit: Fit,
        may_borrow: bool,
    ) -> Result<Answer, AllocError> {
        let slack = align.saturating_sub(sys::page_size());
        self.fresh_bytes = 0;
        if slack == 0
            && fit != Fit::Roomy
            && let Some(extent) = self.quick.take(bytes)
        {
            return Ok(Answer::Block(self.hand_out(extent)));
        }
        let need = bytes.checked_add(slack).ok_or(AllocError::TooLarge)?;
        self.stock_descriptors(3)?;
        let by_chance = if slack == 0 { None } else { self.dirty.find_aligned(bytes, align) };
        let block = match by_chance.or_else(|| self.find_resident(need, fit)) {
            Some(extent) => self.carve(extent, lead_of(extent, align), bytes),
            None if may_borrow && self.asks(need) => {
                return Ok(Answer::Borrow { need, wanted: self.piece_bytes(need) });
            }
            None => match if slack == 0 { self.combine(bytes, fit) } else { None } {
                Some(block) => block,
                None => self.alloc_fresh(bytes, need, align, fit)?,
            },
        };
        Ok(Answer::Block(self.hand_out(block)))
    }

    fn hand_out(&mut self, block: &'static Extent) -> &'static Extent {
        block.set_state(State::Active);
        self.active_bytes += block.bytes();
        block
    }

    /// As [`Pages::alloc`], page-aligned, out of resident memory; `None` when no free run of it is that long.
    pub(crate) fn alloc_resident(&mut self, bytes: usize) -> Option<&'static Extent> {
        let block = if let Some(extent) = self.quick.take(bytes) {
            extent
        } else {
            self.stock_descriptors(3).ok()?;
            let run = self.find_resident(bytes, Fit::Tight)?;
            self.carve(run, 0, bytes)
        };
        self.fresh_bytes = 0;
        Some(self.hand_out(block))
    }

    /// A block of memory that is not resident yet.
    fn alloc_fresh(
        &mut self,
        bytes: usize,
        need: usize,
        align: usize,
        fit: Fit,
    ) -> Result<&'static Extent, AllocError> {
        let extent = match self.retained.find(need) {
            Some(extent) => extent,
            None => self.grow(need, align, fit)?,
        };
        self.fresh_bytes = bytes;
        let lead = lead_of(extent, align);
        self.advise_fresh(extent, lead, bytes, fit);
        Ok(self.carve(extent, lead, bytes))
    }

    /// A block of `bytes` made of a dirty run, which is shorter, and of retained pages on its sides. Needs two
    /// descriptors in stock.
    fn combine(&mut self, bytes: usize, fit: Fit) -> Option<&'static Extent> {
        if bytes < COMBINE_MIN_BYTES {
            return None;
        }
        let above = |run: &Extent| self.above(run, State::Retained);
        let below = |run: &Extent| self.below(run, State::Retained);
        let length = |part: Option<&'static Extent>| part.map_or(0, Extent::bytes);
        let run = self.dirty.search_longest(COMBINE_TRIES, |run| {
            run.bytes() < bytes && run.bytes() + length(above(run)) + length(below(run)) >= bytes
        })?;
        let (above, below, rest) = (above(run), below(run), bytes - run.bytes());
        let from_above = length(above).min(rest);
        self.dirty.remove(run);
        emap::clear_ends(run);
        let mut start = run.addr();
        if let Some(above) = above {
            self.absorb(above, 0, from_above, fit);
        }
        if let Some(below) = below.filter(|_| from_above < rest) {
            let part = rest - from_above;
            start = ptr::forward(below.addr(), below.bytes() - part);
            self.absorb(below, below.bytes() - part, part, fit);
        }
        run.set_range(start, bytes);
        run.set_zeroed(false);
        self.fresh_bytes = rest;
        Some(run)
    }

    /// Takes a part of a free extent away, for an extent that touches it to take over.
    fn absorb(&mut self, extent: &'static Extent, lead: usize, bytes: usize, fit: Fit) {
        if extent.state() == State::Retained {
            self.advise_fresh(extent, lead, bytes, fit);
        }
        let part = self.carve(extent, lead, bytes);
        emap::clear_ends(part);
        self.retire(part);
    }

    /// Takes back an active extent.
    pub(crate) fn dealloc(&mut self, extent: &'static Extent) {
        self.active_bytes -= extent.bytes();
        extent.set_zeroed(false);
        let part = if extent.bytes() <= SHORT_BYTES { QUICK_PART_SHORT } else { QUICK_PART };
        if self.quick.bytes() + extent.bytes() > (self.active_bytes / part).max(QUICK_MIN_BYTES) {
            self.coalesce();
        }
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

    pub(crate) fn idle_bytes(&self, which: Which) -> usize {
        match which {
            Which::Dirty => self.dirty.bytes() + self.quick.bytes(),
            Which::Muzzy => self.muzzy.bytes(),
        }
    }

    /// Grows an active extent without words by `more` bytes out of the free extent behind it; false when there is none
    /// that large. A block that may move does not take fresh pages while a dirty run has room for all of it: a copy
    /// costs less than the faults, and what is resident is used.
    pub(crate) fn grow_in_place(&mut self, extent: &'static Extent, more: usize, may_move: bool) -> bool {
        if self.stock_descriptors(3).is_err() {
            return false;
        }
        let Some(next) = emap::extent_at(extent.end()).or_else(|| self.grow_behind(extent, more)) else { return false };
        if next.state() == State::Quick && self.coalesce() {
            return self.grow_in_place(extent, more, may_move);
        }
        let free = [State::Dirty, State::Muzzy, State::Retained].iter().any(|state| self.holds(next, *state));
        if !free || next.addr().addr() != extent.end() || next.bytes() < more {
            return false;
        }
        let total = extent.bytes() + more;
        if next.state() == State::Retained
            && may_move
            && more >= extent.bytes() / STEADY_GROWTH_PART
            && (self.dirty.longest_bytes() >= total || (self.coalesce() && self.dirty.longest_bytes() >= total))
        {
            return false;
        }
        extent.set_zeroed(extent.is_zeroed() && next.is_zeroed());
        self.absorb(next, 0, more, Fit::Roomy);
        extent.set_range(extent.addr(), total);
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

    fn set(&mut self, which: Which) -> &mut ExtentSet {
        match which {
            Which::Dirty => &mut self.dirty,
            Which::Muzzy => &mut self.muzzy,
        }
    }

    fn find_resident(&mut self, need: usize, fit: Fit) -> Option<&'static Extent> {
        if fit == Fit::Roomy
            && let Some(extent) = need.checked_mul(ROOM).and_then(|room| self.dirty.find(room))
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
        self.muzzy.find(need)
    }

    fn find(&mut self, need: usize, fit: Fit) -> Option<&'static Extent> {
        self.find_resident(need, fit).or_else(|| self.retained.find(need))
    }
}

/// Bytes from the start of a run to the first multiple of `align`.
fn lead_of(extent: &Extent, align: usize) -> usize {
    extent.addr().addr().wrapping_neg() & (align - 1)
}
