//! Places for the records of live samples, beside the pages that the samples lie in.
//!
//! ```text
//!  Extent of sampled blocks ─► SampleMap ─► places [a region each; one for a large block] ─► LiveCell │ null
//! ```
//!
//! A slab of sampled blocks has a map from its first region on to its end. A large block has one while it is a live sample;
//! then the map also keeps its usable bytes, for which the descriptor has no room beside the link.
//!
//! Maps are never freed: those of slabs that ended wait here, by class, with the records in their places. Their lock is taken
//! under that of a bin. A place is changed by the owner of its region: the client's thread, or the one that keeps the region for
//! its next sample.
#![forbid(unsafe_code)]

use crate::base;
use crate::ds::link::Link;
use crate::prim::{AtomicUsize, Ordering};
use crate::prof::records::{Link as RecordLink, LiveCell};
use crate::prof::segments::alloc_blank;
use crate::sizeclass::{NBINS, slab_shape};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

/// Null, or the record of the blocks there.
pub(crate) type Place = RecordLink<LiveCell>;

/// The places of one run of pages.
pub(crate) struct SampleMap {
    places: &'static [Place],
    /// Of the regions, as in `SlabShape`; 0 for a large block.
    inverse: u32,
    /// Of a large block.
    usable: AtomicUsize,
    /// Next of a list of maps without pages.
    pub(crate) next: Link<SampleMap>,
}

/// Maps of each class without a slab.
static SPARE: Mutex<[Option<&'static SampleMap>; NBINS]> = Mutex::new(Rank::SampleMaps, [None; NBINS]);

impl SampleMap {
    fn new(places: usize, inverse: u32) -> Option<&'static SampleMap> {
        // Zero, and not touched before it is used.
        let places = alloc_blank(places)?;
        base::alloc_value(SampleMap { places, inverse, usable: AtomicUsize::new(0), next: Link::null() })
    }

    /// The map of a slab; `None` without memory.
    pub(crate) fn of_slab(class: usize) -> Option<&'static SampleMap> {
        let spare = SPARE.lock().get_mut(class).and_then(|first| {
            let map = first.take()?;
            *first = map.next.get();
            Some(map)
        });
        spare.or_else(|| {
            let shape = slab_shape(class);
            SampleMap::new(shape.nregs as usize, shape.inverse)
        })
    }

    /// A slab ended.
    pub(crate) fn end(&'static self, class: usize) {
        if let Some(first) = SPARE.lock().get_mut(class) {
            self.next.set(*first);
            *first = Some(self);
        }
    }

    /// A new map of a large block; `None` without memory.
    pub(crate) fn of_block() -> Option<&'static SampleMap> {
        SampleMap::new(1, 0)
    }

    /// The place of a large block.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&'static Place> {
        self.places.first()
    }

    /// The place of the region that starts `offset` bytes, less than 4 GiB, into the slab; `None` when none does.
    #[inline(always)]
    pub(crate) fn place_at(&self, offset: usize) -> Option<&'static Place> {
        // The quotient and its rest as in `slab::region_of`.
        let product = offset as u64 * u64::from(self.inverse);
        if product as u32 >= self.inverse { None } else { self.places.get((product >> 32) as usize) }
    }

    /// Relaxed, in both: the owner's.
    #[inline]
    pub(crate) fn usable(&self) -> usize {
        self.usable.load(Ordering::Relaxed)
    }

    pub(crate) fn set_usable(&self, bytes: usize) {
        self.usable.store(bytes, Ordering::Relaxed);
    }
}

pub(crate) fn prefork() {
    SPARE.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    SPARE.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    SPARE.reset_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ds::link::same;

    #[test]
    fn a_map_has_a_place_for_each_region_and_serves_again() {
        for class in 0..NBINS {
            let map = SampleMap::of_slab(class).expect("memory");
            let shape = slab_shape(class);
            for offset in 0..shape.slab_bytes as usize {
                let region = offset / shape.size as usize;
                let place = map.places.get(region).filter(|_| offset.is_multiple_of(shape.size as usize));
                assert_eq!(map.place_at(offset).map(core::ptr::from_ref), place.map(core::ptr::from_ref));
            }
            map.end(class);
        }
        let class = 5;
        let map = SampleMap::of_slab(class).expect("memory");
        map.end(class);
        // Other tests take maps too.
        let again = core::iter::repeat_with(|| SampleMap::of_slab(class).expect("memory")).take(50);
        assert!(again.into_iter().any(|again| same(again, map)));
        assert!(SampleMap::of_block().is_some_and(|map| map.first().is_some() && map.place_at(0).is_none()));
    }
}
