//! Cutting free extents and merging them: the page map's words and the sets in step.
//!
//! Cost of a cut or a merge: two or three words of the page map, one or two ring operations, one descriptor. A run that
//! is cut or grows keeps its descriptor, and its place in its ring while its step stays.
#![forbid(unsafe_code)]

use super::Pages;
use crate::ecache::ExtentSet;
use crate::emap;
use crate::extent::{Extent, State};
use crate::ptr;
#[cfg(test)]
use crate::sizeclass::GRANULE;

impl Pages {
    fn set_of(&mut self, state: State) -> Option<&mut ExtentSet> {
        match state {
            State::Dirty => Some(&mut self.dirty),
            State::Muzzy => Some(&mut self.muzzy),
            State::Retained => Some(&mut self.retained),
            State::Unused | State::Active | State::Busy | State::Quick | State::Cached => None,
        }
    }

    #[inline]
    pub(super) fn remove_from_set(&mut self, extent: &'static Extent) {
        if let Some(set) = self.set_of(extent.state()) {
            set.remove(extent);
        }
    }

    /// Takes `bytes` behind `lead` bytes of a free extent out of its set; what is left stays there. The state of the
    /// part is the caller's to set. Needs two descriptors in stock, but none for the whole extent.
    pub(super) fn carve(&mut self, extent: &'static Extent, lead: usize, bytes: usize) -> &'static Extent {
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

    /// The extent of this arena in `state` that ends where `extent` begins. Its word is checked against its descriptor,
    /// so one that was left behind does no harm.
    #[inline]
    pub(super) fn below(&self, extent: &Extent, state: State) -> Option<&'static Extent> {
        let start = extent.addr().addr();
        emap::extent_below(start).filter(|other| self.holds(other, state) && other.end() == start)
    }

    /// The one that begins where `extent` ends, likewise.
    #[inline]
    pub(super) fn above(&self, extent: &Extent, state: State) -> Option<&'static Extent> {
        let end = extent.end();
        emap::extent_at(end).filter(|other| self.holds(other, state) && other.addr().addr() == end)
    }

    pub(super) fn holds(&self, extent: &Extent, state: State) -> bool {
        extent.is_of(self.arena, state)
    }

    /// Merges an extent, which is in no set, with its free neighbours of the same state and files the result.
    pub(super) fn insert_merged(&mut self, extent: &'static Extent, state: State) -> &'static Extent {
        let (start, bytes) = (extent.addr(), extent.bytes());
        let merged = match (self.below(extent, state), self.above(extent, state)) {
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
