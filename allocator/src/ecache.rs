//! A set of free extents in one state: heaps by page class for finding, a list by age for purging.
//!
//! ```text
//!   class bits  1 0 0 1 0 …          heaps[class]: extents of at least that class, lowest address first
//!   oldest ◄─────────────► newest    every extent of the set, by the time it came
//! ```
//!
//! An extent is filed under the largest class that it holds, so any extent of a class at or above the wanted one fits;
//! of the class below, a few are looked at, because page-rounded sizes lie between classes. Under the `Pages` lock.
//! I-ECACHE-1: `bytes` is the sum over the list, and the list and the heaps hold the same extents.
#![forbid(unsafe_code)]

use crate::base;
use crate::ds::heap::{Heap, HeapNode};
use crate::ds::list::List;
use crate::extent::{Extent, State};
use crate::sizeclass::{NPSIZES, page_index_ceil, page_index_floor};

/// Extents of the class below that are looked at for an exact fit.
const NEAR_FITS: usize = 8;
const WORDS: usize = NPSIZES.div_ceil(64);

/// Free extents of one state.
pub(crate) struct ExtentSet {
    state: State,
    /// shape [199], by page class.
    heaps: &'static [Heap<Extent>],
    filled: [u64; WORDS],
    ages: List<Extent>,
    bytes: usize,
    count: usize,
}

impl ExtentSet {
    /// An empty set; its heaps lie in metadata memory, so that making an arena needs little stack.
    pub(crate) fn new(state: State) -> Option<ExtentSet> {
        let heaps = base::alloc_slice(NPSIZES, |_| Heap::new())?;
        Some(ExtentSet { state, heaps, filled: [0; WORDS], ages: List::new(), bytes: 0, count: 0 })
    }

    /// Bytes in the set.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Extents in the set.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds an extent, as the newest.
    pub(crate) fn insert(&mut self, extent: &'static Extent) {
        extent.set_state(self.state);
        let class = page_index_floor(extent.bytes());
        if let Some(heap) = self.heaps.get(class) {
            heap.insert(extent);
        }
        if let Some(word) = self.filled.get_mut(class / 64) {
            *word |= 1 << (class % 64);
        }
        self.ages.push_back(extent);
        self.bytes += extent.bytes();
        self.count += 1;
    }

    /// Removes an extent of the set; its state stays.
    pub(crate) fn remove(&mut self, extent: &'static Extent) {
        let class = page_index_floor(extent.bytes());
        if let Some(heap) = self.heaps.get(class) {
            heap.remove(extent);
            if heap.is_empty()
                && let Some(word) = self.filled.get_mut(class / 64)
            {
                *word &= !(1 << (class % 64));
            }
        }
        self.ages.remove(extent);
        self.bytes -= extent.bytes();
        self.count -= 1;
    }

    /// The oldest extent.
    pub(crate) fn oldest(&self) -> Option<&'static Extent> {
        self.ages.first()
    }

    /// An extent of at least `bytes`, the smallest class first and in it the lowest address; it stays in the set.
    pub(crate) fn find(&self, bytes: usize) -> Option<&'static Extent> {
        let ceil = page_index_ceil(bytes);
        let floor = page_index_floor(bytes);
        if floor != ceil
            && let Some(extent) = self.near_fit(floor, bytes)
        {
            return Some(extent);
        }
        let class = self.first_filled(ceil)?;
        self.heaps.get(class)?.first()
    }

    /// An extent of the largest class in the set, if it has at least `bytes`; it stays in the set.
    pub(crate) fn find_roomy(&self, bytes: usize) -> Option<&'static Extent> {
        let (w, word) = self.filled.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
        let class = w * 64 + word.ilog2() as usize;
        self.heaps.get(class)?.first().filter(|extent| extent.bytes() >= bytes)
    }

    fn near_fit(&self, class: usize, bytes: usize) -> Option<&'static Extent> {
        let root = self.heaps.get(class)?.first()?;
        if root.bytes() >= bytes {
            return Some(root);
        }
        let children = core::iter::successors(root.child().get(), |node| node.after().get());
        children.take(NEAR_FITS).find(|extent| extent.bytes() >= bytes)
    }

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

    /// Checks I-ECACHE-1; for tests and debug builds, linear in the set.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let (mut bytes, mut count) = (0, 0);
        for extent in self.ages.iter() {
            assert_eq!(extent.state(), self.state);
            bytes += extent.bytes();
            count += 1;
        }
        assert_eq!((bytes, count), (self.bytes, self.count));
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
    fn finds_the_smallest_class_that_fits_lowest_address_first() {
        let mut set = ExtentSet::new(State::Dirty).expect("memory");
        let (a, b, c) = (extent(900, 4), extent(100, 4), extent(500, 64));
        for extent in [a, b, c] {
            set.insert(extent);
        }
        set.check();
        assert!(core::ptr::eq(set.find(3 * GRANULE).expect("fit"), b));
        assert!(core::ptr::eq(set.find(5 * GRANULE).expect("fit"), c));
        assert!(set.find(65 * GRANULE).is_none());
        assert!(core::ptr::eq(set.find_roomy(5 * GRANULE).expect("fit"), c));
        assert!(set.find_roomy(65 * GRANULE).is_none());
        set.remove(b);
        assert!(core::ptr::eq(set.find(GRANULE).expect("fit"), a));
        assert!(core::ptr::eq(set.oldest().expect("oldest"), a));
        set.check();
    }

    #[test]
    fn sizes_between_classes_find_their_own_kind() {
        let mut set = ExtentSet::new(State::Dirty).expect("memory");
        let odd = extent(100, 25);
        set.insert(odd);
        assert!(core::ptr::eq(set.find(25 * GRANULE).expect("fit"), odd));
        assert!(set.find(26 * GRANULE).is_none());
    }
}
