//! Descriptors of an arena: made in batches, kept in a pool, out of free pages when the system gives no memory.
#![forbid(unsafe_code)]

use super::{Fit, Pages};
use crate::base;
use crate::ds::list::ListNode;
use crate::emap;
use crate::error::AllocError;
use crate::extent::{Extent, State};

/// Descriptors made at a time: 4.5 KiB of metadata.
const DESCRIPTOR_BATCH: usize = 32;
/// Bytes of free pages that become metadata when the system gives none: 450 descriptors.
const DONATION_BYTES: usize = 64 << 10;
/// Descriptors that a donation uses up before it brings new ones.
const DONATION_DESCRIPTORS: usize = 2;

impl Pages {
    /// Makes sure that `count` descriptors can be had. When the system gives no address space for metadata, free pages
    /// of this arena become metadata.
    #[inline]
    pub(super) fn stock_descriptors(&mut self, count: usize) -> Result<(), AllocError> {
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
    pub(super) fn descriptor(&mut self) -> Option<&'static Extent> {
        let extent = self.pool.get()?;
        self.pool.set(extent.next().get());
        self.pool_count -= 1;
        Some(extent)
    }

    #[inline]
    pub(super) fn retire(&mut self, extent: &'static Extent) {
        extent.set_state(State::Unused);
        extent.next().set(self.pool.get());
        self.pool.set(Some(extent));
        self.pool_count += 1;
    }
}
