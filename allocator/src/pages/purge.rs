//! What decay takes: how much may stay, which extents go, and how they come back.
#![forbid(unsafe_code)]

use super::{HUGE_PAGE_BYTES, PURGE_BATCH, Pages, Which};
use crate::bits::align_down;
use crate::ds::list::List;
use crate::extent::{Extent, State};
use crate::quick;
use crate::sizeclass::GRANULE;

/// A long run is purged at multiples of this: smaller pieces would break up huge pages and cost calls.
const PURGE_PIECE_BYTES: usize = HUGE_PAGE_BYTES;

/// A thread in whose way it is to purge what became due takes this part of it: 1 GiB took 70 ms at once.
const DUE_PART: usize = 8;
/// As above, bytes at least.
const DUE_MIN_BYTES: usize = 32 << 20;

/// An allocation of fresh pages leaves this part of what is in use dirty at most: for a long one, which the idle runs were
/// too short for, less.
const IDLE_PART: usize = 2;
/// As above.
const IDLE_PART_LONG: usize = 32;
/// As above, bytes at least.
const IDLE_MIN_BYTES: usize = 3 << 20;

impl Pages {
    /// How many bytes of a set may stay at `now_ns`; `None` = nothing to decide yet. `by_parts`: of what is due a part goes, and more
    /// with each look.
    pub(crate) fn decay_limit(&mut self, which: Which, now_ns: u64, by_parts: bool) -> Option<usize> {
        let pages = self.idle_bytes(which) / GRANULE;
        let decay = match which {
            Which::Dirty => &mut self.dirty_decay,
            Which::Muzzy => &mut self.muzzy_decay,
        };
        let mut limit = decay.limit(now_ns, pages)?;
        if by_parts {
            let due = pages.saturating_sub(limit);
            limit += due.saturating_sub((due / DUE_PART).max(DUE_MIN_BYTES / GRANULE));
        }
        decay.settle(pages.min(limit));
        Some(limit * GRANULE)
    }

    /// How many dirty bytes may stay after the last allocation, when it took memory that is not resident: what lies idle
    /// above a part of what is in use goes in exchange. `None` = nothing has to go.
    pub(crate) fn exchange_limit(&self) -> Option<usize> {
        let idle = self.idle_bytes(Which::Dirty);
        let part = if self.fresh_bytes > quick::MAX_BYTES { IDLE_PART_LONG } else { IDLE_PART };
        let keep = (self.active_bytes / part).max(IDLE_MIN_BYTES);
        let due = self.fresh_bytes != 0 && self.dirty_decay.ms() > 0 && !self.purge_refused && idle > keep;
        due.then(|| keep.max(idle.saturating_sub(self.fresh_bytes)))
    }

    /// Takes the oldest extents of a set out of it, as Busy, until it holds at most `limit_bytes`, give or take half a
    /// piece, or the batch is full.
    pub(crate) fn take_excess(&mut self, which: Which, limit_bytes: usize, out: &mut List<Extent>) -> usize {
        let mut taken = 0;
        if which == Which::Dirty && self.idle_bytes(which) > limit_bytes {
            self.coalesce();
        }
        while taken < PURGE_BATCH {
            // Before the extent is chosen: when memory is short, this takes a part of one.
            let may_cut = self.stock_descriptors(1).is_ok();
            let excess = self.set(which).bytes().saturating_sub(limit_bytes);
            let Some(extent) = self.set(which).coldest() else { break };
            let Some(bytes) = excess_piece(extent, excess) else { break };
            let lead = if may_cut { extent.bytes() - bytes } else { 0 };
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

    /// Brings back an extent that was taken: into Muzzy, or into Retained (`zeroed` = it reads as zero).
    pub(crate) fn settle(&mut self, extent: &'static Extent, to: State, zeroed: bool) {
        self.count_purge(extent);
        extent.set_zeroed(zeroed);
        self.insert_merged(extent, to);
    }

    /// Brings back an extent whose pages the system did not take, as it was.
    pub(crate) fn put_back(&mut self, extent: &'static Extent, which: Which) {
        let state = match which {
            Which::Dirty => State::Dirty,
            Which::Muzzy => State::Muzzy,
        };
        self.insert_merged(extent, state);
    }

    /// Notes how a purge went: while the system takes nothing, fresh memory is not paid for by idle one.
    pub(crate) fn note_refused(&mut self, refused: bool) {
        self.purge_refused = refused;
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
}

/// How much of the upper end of `extent`, the next to be purged, must go when `excess` bytes must: whole huge pages, so that
/// one long run decays smoothly, and not at once. `None`: it can wait, since more than half of what would go may stay.
fn excess_piece(extent: &Extent, excess: usize) -> Option<usize> {
    let (whole, end) = (extent.bytes(), extent.end());
    if excess == 0 || excess < whole.min(PURGE_PIECE_BYTES) / 2 {
        return None;
    }
    let cut = align_down(end.saturating_sub(excess), PURGE_PIECE_BYTES);
    Some(if cut > extent.addr().addr() { end - cut } else { whole })
}
