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
use crate::prim::{AtomicPtr, Ordering};
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

/// Frees the region at `block`; the caller adds it to `nfree`.
#[inline]
pub(crate) fn put(extent: &Extent, shape: &SlabShape, block: BlockPtr) -> Result<(), SlabMisuse> {
    let region = region_of(extent, shape, block).ok_or(SlabMisuse::NotABlock)?;
    if extent.free.set(region) { Ok(()) } else { Err(SlabMisuse::DoubleFree) }
}

/// Frees the regions at the head of `blocks`, as far as these lie in the slab; how many there were, and how many of them
/// were freed. The others are reported. The caller adds the freed ones to `nfree`.
#[inline]
pub(crate) fn put_run(
    extent: &Extent,
    shape: &SlabShape,
    blocks: &[AtomicPtr<u8>],
    mut misused: impl FnMut(BlockPtr, SlabMisuse),
) -> (usize, u32) {
    let base = extent.addr().addr();
    let (mut looked, mut freed) = (0, 0);
    for slot in blocks {
        // Relaxed: the array is the calling thread's.
        let block = slot.load(Ordering::Relaxed);
        let offset = block.addr().wrapping_sub(base);
        if offset >= shape.slab_bytes as usize {
            break;
        }
        looked += 1;
        match region_at(shape, offset) {
            Some(region) if extent.free.set(region) => freed += 1,
            Some(_) => misused(BlockPtr(block), SlabMisuse::DoubleFree),
            None => misused(BlockPtr(block), SlabMisuse::NotABlock),
        }
    }
    (looked, freed)
}

/// True when `block` lies in the slab.
#[inline]
pub(crate) fn spans(extent: &Extent, shape: &SlabShape, block: *mut u8) -> bool {
    block.addr().wrapping_sub(extent.addr().addr()) < shape.slab_bytes as usize
}

/// Region that starts at `block`.
#[inline]
pub(crate) fn region_of(extent: &Extent, shape: &SlabShape, block: BlockPtr) -> Option<usize> {
    let offset = block.addr().wrapping_sub(extent.addr().addr());
    if offset < shape.slab_bytes as usize { region_at(shape, offset) } else { None }
}

/// Region that starts `offset` bytes into a slab.
#[inline]
fn region_at(shape: &SlabShape, offset: usize) -> Option<usize> {
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
            extent.set_nfree(1);
            assert_eq!(put(&extent, &shape, first), Err(SlabMisuse::DoubleFree));
            assert_eq!(put(&extent, &shape, BlockPtr(got[0].wrapping_add(4))), Err(SlabMisuse::NotABlock));
            let end = got[0].wrapping_add(shape.slab_bytes as usize);
            assert_eq!(put(&extent, &shape, BlockPtr(end)), Err(SlabMisuse::NotABlock));
            let run: Vec<_> = got.iter().copied().chain([end, got[0]]).map(AtomicPtr::new).collect();
            let mut misused = Vec::new();
            let (looked, freed) = put_run(&extent, &shape, &run, |block, misuse| misused.push((block, misuse)));
            assert_eq!((looked, freed), (got.len(), shape.nregs - 1));
            assert_eq!(misused, [(first, SlabMisuse::DoubleFree)]);
            extent.set_nfree(shape.nregs);
            check(&extent);
        }
    }
}
