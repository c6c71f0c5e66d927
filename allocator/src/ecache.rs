//! A set of free extents in one state: rings by length for finding, and for purging.
//!
//! ```text
//!   filled  1 0 0 1 0 …            bit = ring not empty
//!   heads   │     └─► newest ⇄ … ⇄ oldest ⇄ (newest)
//!           └─► …                  one ring for each step of length
//! ```
//!
//! Steps are single pages up to 32, then 16 per doubling up to 4 GiB; an extent is filed under the largest step that it
//! holds, so any extent of a step at or above the wanted one fits, and at most a sixteenth of it is cut off needlessly.
//! Everything is constant time, but for lengths from 4 GiB on, which share the last ring. Under the `Pages` lock.
//!
//! I-ECACHE-1: `bytes` is the sum over the rings, and a bit of `filled` is set exactly for a ring that is not empty.
#![forbid(unsafe_code)]

use crate::base;
use crate::ds::link::{Link, same};
use crate::ds::list::ListNode;
use crate::extent::{Extent, State};
use crate::steps;

/// Steps per doubling, log2. More keep cuts closer to the request; each costs 8 bytes of every set.
const LG_STEPS: u32 = 4;
/// Rings: lengths from 2^20 pages on share the last.
const RINGS: usize = ((20 - LG_STEPS as usize + 1) << LG_STEPS) + 1;
const WORDS: usize = RINGS.div_ceil(64);
/// Extents of the step below that are looked at for an exact fit.
const NEAR_FITS: usize = 2;
/// Rings that are looked at for an extent that has the alignment by chance.
const ALIGNED_TRIES: usize = 4;

#[inline]
fn step_floor(bytes: usize) -> usize {
    steps::floor::<LG_STEPS>(bytes).min(RINGS - 1)
}

#[inline]
fn step_ceil(bytes: usize) -> usize {
    steps::ceil::<LG_STEPS>(bytes).min(RINGS - 1)
}

/// Free extents of one state.
pub(crate) struct ExtentSet {
    state: State,
    /// shape [273], by step: the newest extent of each ring.
    heads: &'static [Link<Extent>],
    filled: [u64; WORDS],
    bytes: usize,
}

impl ExtentSet {
    /// An empty set; its rings lie in metadata memory, so that making an arena needs little stack.
    pub(crate) fn new(state: State) -> Option<ExtentSet> {
        let heads = base::alloc_slice(RINGS, |_| Link::null())?;
        Some(ExtentSet { state, heads, filled: [0; WORDS], bytes: 0 })
    }

    /// Bytes in the set.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an extent that is in no set, as the newest of its ring.
    pub(crate) fn insert(&mut self, extent: &'static Extent) {
        extent.set_state(self.state);
        self.bytes += extent.bytes();
        self.link(extent, step_floor(extent.bytes()));
    }

    /// Removes an extent of the set; its state stays.
    pub(crate) fn remove(&mut self, extent: &'static Extent) {
        self.bytes -= extent.bytes();
        self.unlink(extent, step_floor(extent.bytes()));
    }

    /// Gives an extent of the set another place and length. It keeps its place in the ring when the step stays.
    pub(crate) fn resize(&mut self, extent: &'static Extent, addr: *mut u8, bytes: usize) {
        let (old, new) = (step_floor(extent.bytes()), step_floor(bytes));
        self.bytes = self.bytes - extent.bytes() + bytes;
        extent.set_range(addr, bytes);
        if old != new {
            self.unlink(extent, old);
            self.link(extent, new);
        }
    }

    /// The extent to purge next: of the longest ones, which are used last, the one that came first.
    pub(crate) fn coldest(&self) -> Option<&'static Extent> {
        let newest = self.longest()?;
        newest.prev().get()
    }

    /// An extent of at least `bytes`, of the smallest step that has one; it stays in the set.
    #[inline]
    pub(crate) fn find(&self, bytes: usize) -> Option<&'static Extent> {
        let (floor, ceil) = (step_floor(bytes), step_ceil(bytes));
        if floor != ceil
            && let Some(extent) = self.near_fit(floor, bytes, NEAR_FITS)
        {
            return Some(extent);
        }
        let step = self.first_filled(ceil)?;
        if step == RINGS - 1 {
            return self.near_fit(step, bytes, usize::MAX);
        }
        self.heads.get(step)?.get()
    }

    /// An extent that holds `bytes` at a multiple of `align`, if one is found quickly; it stays in the set.
    pub(crate) fn find_aligned(&self, bytes: usize, align: usize) -> Option<&'static Extent> {
        let mut step = self.first_filled(step_ceil(bytes))?;
        for _ in 0..ALIGNED_TRIES {
            let extent = self.heads.get(step)?.get()?;
            let lead = extent.addr().addr().wrapping_neg() & (align - 1);
            if lead.checked_add(bytes).is_some_and(|need| need <= extent.bytes()) {
                return Some(extent);
            }
            step = self.first_filled(step + 1)?;
        }
        None
    }

    /// Of the `tries` longest extents, the first that `fits`; it stays in the set.
    pub(crate) fn search_longest(
        &self,
        mut tries: usize,
        mut fits: impl FnMut(&'static Extent) -> bool,
    ) -> Option<&'static Extent> {
        for (w, word) in self.filled.iter().enumerate().rev() {
            let mut bits = *word;
            while bits != 0 {
                let bit = bits.ilog2() as usize;
                bits &= !(1 << bit);
                let head = self.heads.get(w * 64 + bit)?.get()?;
                let mut extent = head;
                loop {
                    if tries == 0 {
                        return None;
                    }
                    if fits(extent) {
                        return Some(extent);
                    }
                    tries -= 1;
                    extent = extent.next().get()?;
                    if same(extent, head) {
                        break;
                    }
                }
            }
        }
        None
    }

    /// Bytes of the longest extents' step; 0 for an empty set.
    pub(crate) fn longest_bytes(&self) -> usize {
        self.longest().map_or(0, Extent::bytes)
    }

    /// Head of the last ring that is not empty.
    fn longest(&self) -> Option<&'static Extent> {
        let (w, word) = self.filled.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        self.heads.get(w * 64 + word.ilog2() as usize)?.get()
    }

    fn near_fit(&self, step: usize, bytes: usize, tries: usize) -> Option<&'static Extent> {
        let head = self.heads.get(step)?.get()?;
        let mut extent = head;
        for _ in 0..tries {
            if extent.bytes() >= bytes {
                return Some(extent);
            }
            extent = extent.next().get()?;
            if same(extent, head) {
                break;
            }
        }
        None
    }

    #[inline]
    fn first_filled(&self, from: usize) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        for (w, word) in self.filled.iter().enumerate().skip(from / 64) {
            let bits = word & mask;
            if bits != 0 {
                return Some(w * 64 + bits.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    #[inline]
    fn link(&mut self, extent: &'static Extent, step: usize) {
        let Some(head) = self.heads.get(step) else { return };
        if let Some(newest) = head.get() {
            let oldest = newest.prev().get().unwrap_or(newest);
            extent.next().set(Some(newest));
            extent.prev().set(Some(oldest));
            oldest.next().set(Some(extent));
            newest.prev().set(Some(extent));
        } else {
            extent.next().set(Some(extent));
            extent.prev().set(Some(extent));
            if let Some(word) = self.filled.get_mut(step / 64) {
                *word |= 1 << (step % 64);
            }
        }
        head.set(Some(extent));
    }

    #[inline]
    fn unlink(&mut self, extent: &'static Extent, step: usize) {
        let Some(head) = self.heads.get(step) else { return };
        let (Some(newer), Some(older)) = (extent.prev().get(), extent.next().get()) else {
            debug_assert!(false, "removal of an extent that is in no ring");
            return;
        };
        if same(older, extent) {
            head.set(None);
            if let Some(word) = self.filled.get_mut(step / 64) {
                *word &= !(1 << (step % 64));
            }
            return;
        }
        newer.next().set(Some(older));
        older.prev().set(Some(newer));
        if head.get().is_some_and(|newest| same(newest, extent)) {
            head.set(Some(older));
        }
    }

    /// All extents of the set.
    #[cfg(test)]
    pub(crate) fn all(&self) -> std::vec::Vec<&'static Extent> {
        let mut all = std::vec::Vec::new();
        for head in self.heads {
            let mut next = head.get();
            while let Some(extent) = next {
                all.push(extent);
                next = extent.next().get().filter(|next| head.get().is_some_and(|head| !same(head, *next)));
            }
        }
        all
    }

    /// Checks I-ECACHE-1; linear in the set.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let all = self.all();
        assert!(all.iter().all(|extent| extent.state() == self.state));
        assert_eq!(all.iter().map(|extent| extent.bytes()).sum::<usize>(), self.bytes);
        for (step, head) in self.heads.iter().enumerate() {
            assert_eq!(head.get().is_some(), self.filled[step / 64] >> (step % 64) & 1 == 1, "ring {step}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizeclass::GRANULE;
    use std::boxed::Box;

    fn extent(page: usize, pages: usize) -> &'static Extent {
        let extent: &'static Extent = Box::leak(Box::new(Extent::unused(0)));
        extent.assign(core::ptr::without_provenance_mut(page * GRANULE), pages * GRANULE, State::Dirty, false);
        extent
    }

    #[test]
    fn lengths_beyond_the_rings_share_the_last() {
        assert_eq!((step_floor(1 << 32), step_floor(1 << 46), step_ceil(1 << 46)), (RINGS - 1, RINGS - 1, RINGS - 1));
        assert_eq!(step_ceil(usize::MAX), RINGS - 1);
        assert!(step_floor((1 << 32) - GRANULE) < RINGS - 1);
    }

    #[test]
    fn finds_the_smallest_step_that_fits_newest_first() {
        let mut set = ExtentSet::new(State::Dirty).expect("memory");
        let (a, b, c) = (extent(900, 4), extent(100, 4), extent(500, 64));
        for extent in [a, b, c] {
            set.insert(extent);
        }
        set.check();
        assert!(same(set.find(3 * GRANULE).expect("fit"), b));
        assert!(same(set.find(5 * GRANULE).expect("fit"), c));
        assert!(set.find(65 * GRANULE).is_none());
        set.remove(b);
        assert!(same(set.find(GRANULE).expect("fit"), a));
        assert!(same(set.coldest().expect("coldest"), c));
        set.check();
        set.resize(c, c.addr(), 4 * GRANULE);
        set.check();
        assert!(same(set.coldest().expect("coldest"), a) && same(set.find(GRANULE).expect("fit"), c));
    }

    #[test]
    fn sizes_between_steps_find_their_own_kind() {
        let mut set = ExtentSet::new(State::Dirty).expect("memory");
        let odd = extent(100, 35);
        set.insert(odd);
        assert!(same(set.find(35 * GRANULE).expect("fit"), odd));
        assert!(set.find(36 * GRANULE).is_none());
        let giant = extent(1 << 24, 3 << 20);
        set.insert(giant);
        assert!(same(set.find(2 << 32).expect("fit"), giant));
        assert!(set.find(4 << 32).is_none());
        set.check();
    }

    #[test]
    fn the_longest_are_searched_in_order() {
        let mut set = ExtentSet::new(State::Dirty).expect("memory");
        let (long, middle, short) = (extent(1, 400), extent(1000, 40), extent(2000, 4));
        for extent in [middle, short, long] {
            set.insert(extent);
        }
        let mut seen = std::vec::Vec::new();
        let found = set.search_longest(8, |extent| {
            seen.push(extent.bytes() / GRANULE);
            extent.bytes() < 10 * GRANULE
        });
        assert!(same(found.expect("found"), short) && seen == [400, 40, 4]);
        assert!(set.search_longest(2, |extent| extent.bytes() < 10 * GRANULE).is_none());
        assert_eq!(set.longest_bytes(), 400 * GRANULE);
    }

    #[test]
    fn alignment_by_chance_is_used() {
        let mut set = ExtentSet::new(State::Dirty).expect("memory");
        let (crooked, straight) = (extent(1, 16), extent(64, 18));
        set.insert(crooked);
        set.insert(straight);
        assert!(same(set.find_aligned(16 * GRANULE, 16 * GRANULE).expect("fit"), straight));
        assert!(set.find_aligned(16 * GRANULE, 128 * GRANULE).is_none());
    }
}
