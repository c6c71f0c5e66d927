//! Regions in a slab: which are free, and from pointer to region and back.
//!
//! ```text
//!   extent.addr ┌────────┬────────┬─ … ─┬────────────┐  low → high address
//!               │ reg 0  │ reg 1  │     │ reg nregs-1│  each `size` bytes
//!               └────────┴────────┴─ … ─┴────────────┘
//!   extent.free bit i set = region i is free; extent.nfree = number of set bits (I-SLAB-1)
//! ```
//!
//! The bitmap lies in the descriptor, outside the client's reach. Everything here happens under the lock of the slab's
//! bin. A pointer that is no region start, or whose region is free already, is an error and changes nothing.
#![forbid(unsafe_code)]

use crate::extent::Extent;
use crate::ptr::{self, BlockPtr};
use crate::sizeclass::SlabShape;

/// Why a block could not be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlabMisuse {
    /// The pointer is not the start of a region.
    NotABlock,
    /// The region is free.
    DoubleFree,
}

/// Makes all regions of a fresh slab free.
pub(crate) fn init(extent: &Extent, shape: &SlabShape) {
    extent.free.set_first(shape.nregs as usize);
    extent.set_nfree(shape.nregs);
}

/// Takes up to `want` free regions, lowest first; how many there were.
pub(crate) fn take(extent: &Extent, shape: &SlabShape, want: usize, mut each: impl FnMut(*mut u8)) -> usize {
    let root = extent.addr();
    let size = shape.size as usize;
    let taken = extent.free.take(want, |region| each(ptr::forward(root, region * size)));
    extent.set_nfree(extent.nfree() - taken as u32);
    taken
}

/// Frees the region at `block`.
pub(crate) fn put(extent: &Extent, shape: &SlabShape, block: BlockPtr) -> Result<(), SlabMisuse> {
    let region = region_of(extent, shape, block).ok_or(SlabMisuse::NotABlock)?;
    if !extent.free.set(region) {
        return Err(SlabMisuse::DoubleFree);
    }
    extent.set_nfree(extent.nfree() + 1);
    Ok(())
}

/// Region that starts at `block`.
pub(crate) fn region_of(extent: &Extent, shape: &SlabShape, block: BlockPtr) -> Option<usize> {
    let offset = block.addr().wrapping_sub(extent.addr().addr());
    if offset >= shape.slab_bytes as usize {
        return None;
    }
    let region = ((offset as u64 * u64::from(shape.inverse)) >> 32) as usize;
    (region * shape.size as usize == offset && region < shape.nregs as usize).then_some(region)
}

/// Checks I-SLAB-1.
pub(crate) fn check(extent: &Extent) {
    debug_assert_eq!(extent.free.count(), extent.nfree() as usize, "I-SLAB-1");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::State;
    use crate::sizeclass::slab_shape;
    use std::vec::Vec;

    #[test]
    fn regions_come_and_go_once() {
        for class in [0, 3, 7, 28, 35] {
            let shape = slab_shape(class);
            let extent = Extent::unused(0);
            extent.assign(core::ptr::without_provenance_mut(0x10_0000), shape.slab_bytes as usize, State::Active, true);
            extent.set_use(class, true);
            init(&extent, &shape);
            let mut got = Vec::new();
            assert_eq!(take(&extent, &shape, 1000, |block| got.push(block)), shape.nregs as usize);
            check(&extent);
            assert!(got.windows(2).all(|pair| pair[1].addr() - pair[0].addr() == shape.size as usize));
            let first = BlockPtr(got[0]);
            assert_eq!(put(&extent, &shape, first), Ok(()));
            assert_eq!(put(&extent, &shape, first), Err(SlabMisuse::DoubleFree));
            assert_eq!(put(&extent, &shape, BlockPtr(got[0].wrapping_add(4))), Err(SlabMisuse::NotABlock));
            let end = got[0].wrapping_add(shape.slab_bytes as usize);
            assert_eq!(put(&extent, &shape, BlockPtr(end)), Err(SlabMisuse::NotABlock));
            assert_eq!(extent.nfree(), 1);
            check(&extent);
        }
    }
}
