//! Extents that were freed a moment ago, kept whole for the next request of their length.
//!
//! ```text
//!   lists  │ 4 KiB │ 8 KiB │ … │ 64 KiB │ 72 KiB │ … │ 1 MiB │      one for each step, eight to a doubling
//!          └─► newest ─► … ─► oldest
//! ```
//!
//! Blocks and slabs come and go in a few lengths: taking one back as it is costs a push and a pop, where merging and
//! cutting would cost a dozen words of metadata. The price is that neighbours stay apart meanwhile, so the lists are
//! short, and [`Pages`](crate::pages::Pages) empties them before it takes memory that is not resident, before it purges,
//! and before it moves a block. Under the `Pages` lock.
//!
//! I-QUICK-1: an extent here has state Quick, no word of the page map but that of its first page, and the exact length
//! of its step. `bytes` is their sum.
#![forbid(unsafe_code)]

use crate::ds::link::Link;
use crate::ds::list::ListNode;
use crate::extent::{Extent, State};
use crate::steps;

/// Steps to a doubling, log2: with 4 steps, the pages behind the usable bytes made up 8 % of what became resident.
pub(crate) const LG_STEPS: u32 = 3;
/// Longer blocks are worth the merge: they are rare, and long runs dear.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Lists: one for each step up to the longest; the one of step 0 is never used.
const CLASSES: usize = steps::floor::<LG_STEPS>(MAX_BYTES) + 1;
/// Bytes that one list may keep, and extents: beyond this they merge at once.
const CLASS_BYTES: usize = 2 << 20;
const CLASS_EXTENTS: usize = 32;

/// Length that an extent for `bytes` gets, so that blocks of about the same length take each other's place as they are.
#[inline]
pub(crate) fn rounded(bytes: usize) -> usize {
    if bytes > MAX_BYTES { bytes } else { steps::bytes::<LG_STEPS>(steps::ceil::<LG_STEPS>(bytes)) }
}

/// The lists of one arena.
pub(crate) struct Quick {
    heads: [Link<Extent>; CLASSES],
    counts: [u8; CLASSES],
    bytes: usize,
}

impl Quick {
    pub(crate) const fn new() -> Quick {
        Quick { heads: [const { Link::null() }; CLASSES], counts: [0; CLASSES], bytes: 0 }
    }

    /// Bytes in all lists.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps an extent that is in no set; false when its length is not kept or its list is full.
    #[inline]
    pub(crate) fn put(&mut self, extent: &'static Extent) -> bool {
        let bytes = extent.bytes();
        let class = steps::ceil::<LG_STEPS>(bytes);
        let (Some(head), Some(count)) = (self.heads.get(class), self.counts.get_mut(class)) else { return false };
        let most = (CLASS_BYTES / bytes).min(CLASS_EXTENTS);
        if usize::from(*count) >= most || rounded(bytes) != bytes {
            return false;
        }
        extent.set_state(State::Quick);
        extent.next().set(head.get());
        head.set(Some(extent));
        *count += 1;
        self.bytes += bytes;
        true
    }

    /// An extent of exactly `bytes`, the last freed first.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'static Extent> {
        let class = steps::ceil::<LG_STEPS>(bytes);
        let extent = self.heads.get(class)?.get()?;
        if extent.bytes() != bytes {
            return None;
        }
        self.pop(class)
    }

    /// Any extent; `None` when all lists are empty.
    pub(crate) fn take_any(&mut self) -> Option<&'static Extent> {
        let class = self.counts.iter().position(|count| *count != 0)?;
        self.pop(class)
    }

    #[inline]
    fn pop(&mut self, class: usize) -> Option<&'static Extent> {
        let head = self.heads.get(class)?;
        let extent = head.get()?;
        head.set(extent.next().get());
        if let Some(count) = self.counts.get_mut(class) {
            *count -= 1;
        }
        self.bytes -= extent.bytes();
        Some(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ds::link::same;
    use crate::sizeclass::GRANULE;
    use std::boxed::Box;

    fn extent(pages: usize) -> &'static Extent {
        let extent: &'static Extent = Box::leak(Box::new(Extent::unused(0)));
        extent.assign(core::ptr::without_provenance_mut(1 << 30), pages * GRANULE, State::Active, false);
        extent
    }

    #[test]
    fn lengths_come_back_newest_first_and_lists_are_bounded() {
        let mut quick = Quick::new();
        let (a, b, odd, long) = (extent(20), extent(20), extent(21), extent(257));
        assert!(quick.put(a) && quick.put(b));
        assert!(!quick.put(odd) && !quick.put(long));
        assert_eq!((quick.bytes(), b.state()), (40 * GRANULE, State::Quick));
        assert!(quick.take(24 * GRANULE).is_none() && quick.take(21 * GRANULE).is_none());
        assert!(quick.take(20 * GRANULE).is_some_and(|extent| same(extent, b)));
        assert!(quick.take_any().is_some_and(|extent| same(extent, a)) && quick.take_any().is_none());
        let kept = (0..100).filter(|_| quick.put(extent(1))).count();
        let kept_long = (0..100).filter(|_| quick.put(extent(256))).count();
        assert_eq!((kept, kept_long), (32, 2));
        while quick.take_any().is_some() {}
        assert_eq!(quick.bytes(), 0);
    }
}
