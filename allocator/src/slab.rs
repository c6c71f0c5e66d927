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

use crate::ds::bitmap::range_words;
use crate::ds::regions::{self, Grid};
use crate::extent::Extent;
use crate::prim::{AtomicPtr, Ordering};
use crate::ptr::{self, BlockPtr};
use crate::sizeclass::SlabShape;

/// A run is looked at by four where this many more pointers of it follow the first.
const LONG_RUN: usize = 3;

/// Of so many blocks that follow each other only the first and the number are looked at; a few more would cost as much as any others.
const NEIGHBOURS_MIN: usize = 8;

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

/// Takes up to `places.len()` free regions; how many there were. The lowest comes last, and they fill the places from the
/// end on.
pub(crate) fn take(extent: &Extent, shape: &SlabShape, places: &[AtomicPtr<u8>]) -> usize {
    let root = extent.addr();
    let size = shape.size as usize;
    let mut rest = places;
    // No more than there are, so that the words behind the last of them are not looked at.
    let want = places.len().min(extent.nfree() as usize);
    let taken = extent.free.take(want, |first, bits, count| {
        let (left, here) = rest.split_at(rest.len() - count.min(rest.len()));
        let mut block = ptr::forward(root, first * size);
        if regions::fill(block, shape.size, bits, rest) {
            rest = left;
            return;
        }
        // Relaxed, in both: the array is the calling thread's. No test of a bit, which would be guessed wrong too often; but
        // of a slab with few regions often all are free.
        if bits & bits.wrapping_add(1) == 0 {
            for place in here.iter().rev() {
                place.store(block, Ordering::Relaxed);
                block = ptr::forward(block, size);
            }
        } else {
            let mut bits = bits;
            for place in here.iter().rev() {
                place.store(ptr::forward(block, bits.trailing_zeros() as usize * size), Ordering::Relaxed);
                bits &= bits.wrapping_sub(1);
            }
        }
        rest = left;
    });
    extent.set_nfree(extent.nfree() - taken as u32);
    taken
}

/// Frees the region at `block`; the caller adds it to `nfree`.
#[inline]
pub(crate) fn put(extent: &Extent, shape: &SlabShape, block: BlockPtr) -> Result<(), SlabMisuse> {
    let region = region_of(extent, shape, block).ok_or(SlabMisuse::NotABlock)?;
    if extent.free.set(region) { Ok(()) } else { Err(SlabMisuse::DoubleFree) }
}

/// Frees the region of the first of `blocks`, which lies in the slab, if others of it do not seem to follow and nothing is wrong
/// with it; false otherwise, for [`put_run`]. The caller adds it to `nfree`. `region_bytes`: the shape's.
#[inline(always)]
pub(crate) fn put_alone(extent: &Extent, shape: &SlabShape, region_bytes: usize, blocks: &[AtomicPtr<u8>]) -> bool {
    let base = extent.addr().addr();
    // Relaxed: the array is the calling thread's.
    let offset = |block: &AtomicPtr<u8>| block.load(Ordering::Relaxed).addr().wrapping_sub(base);
    let Some(here) = blocks.first().map(offset) else { return false };
    let product = here as u64 * u64::from(shape.inverse);
    if here >= region_bytes || product as u32 >= shape.inverse {
        return false;
    }
    match blocks.get(LONG_RUN) {
        Some(later) if offset(later) < region_bytes => false,
        _ => extent.free.set((product >> 32) as usize),
    }
}

/// Frees the region of the first of `blocks`, which lies in the slab, and of those behind it as far as they lie there too, come
/// in numbers and nothing is wrong with them; how many that were, and what is wrong with the next one. The caller adds them to
/// `nfree`.
#[inline(always)]
pub(crate) fn put_run(extent: &Extent, shape: &SlabShape, blocks: &[AtomicPtr<u8>]) -> (usize, Option<SlabMisuse>) {
    match put_by_four(extent, shape, blocks) {
        0 => put_each(extent, shape, blocks),
        freed => (freed, None),
    }
}

fn grid(extent: &Extent, shape: &SlabShape) -> Grid {
    Grid { base: extent.addr().addr(), bytes: shape.nregs * shape.size, inverse: shape.inverse }
}

/// The regions that the head of `blocks` points to, if many of them follow each other up or down: the lowest, and how many.
#[inline]
fn neighbours(extent: &Extent, shape: &SlabShape, blocks: &[AtomicPtr<u8>]) -> Option<(usize, usize)> {
    let addr = |at: usize| blocks.get(at).map(|slot| slot.load(Ordering::Relaxed).addr());
    let (first, second) = (addr(0)?, addr(1)?);
    let (stride, size) = (second.wrapping_sub(first).cast_signed(), shape.size.cast_signed() as isize);
    if stride.abs() != size {
        return None;
    }
    let region = region_at(shape, first.wrapping_sub(extent.addr().addr()))?;
    let most = if stride > 0 { shape.nregs as usize - region } else { region + 1 };
    let run = regions::neighbours(blocks.get(..most).unwrap_or(blocks), stride);
    (run >= NEIGHBOURS_MIN).then_some((if stride > 0 { region } else { region + 1 - run }, run))
}

/// Frees a run without looking at its pointers one by one; 0, and nothing changed, when that does not work.
fn put_by_four(extent: &Extent, shape: &SlabShape, blocks: &[AtomicPtr<u8>]) -> usize {
    if let Some((lowest, run)) = neighbours(extent, shape, blocks)
        && extent.free.set_range(lowest, run)
    {
        return run;
    }
    let grid = grid(extent, shape);
    match shape.nregs {
        0..=64 => regions::set::<1>(&extent.free, &grid, blocks),
        65..=128 => regions::set::<2>(&extent.free, &grid, blocks),
        129..=256 => regions::set::<4>(&extent.free, &grid, blocks),
        _ => regions::set::<8>(&extent.free, &grid, blocks),
    }
}

/// Which regions the head of `blocks` points to, as far as they lie in the slab, if many seem to do: passed on word by word of the
/// bitmap, as the address of the word's first region and bits. How many there were; 0, and nothing passed on, when they do not come in
/// numbers or something may be wrong with one.
pub(crate) fn gather(
    extent: &Extent,
    shape: &SlabShape,
    blocks: &[AtomicPtr<u8>],
    mut each: impl FnMut(*mut u8, u64),
) -> usize {
    if !blocks.get(LONG_RUN).is_some_and(|later| spans(extent, shape, later.load(Ordering::Relaxed))) {
        return 0;
    }
    if let Some((lowest, run)) = neighbours(extent, shape, blocks) {
        for (word, bits) in range_words(lowest, run) {
            each(ptr::forward(extent.addr(), word * 64 * shape.size as usize), bits);
        }
        return run;
    }
    let grid = grid(extent, shape);
    let mut pass_on = |words: &[u64]| {
        let mut first = extent.addr();
        for bits in words {
            if *bits != 0 {
                each(first, *bits);
            }
            first = ptr::forward(first, 64 * shape.size as usize);
        }
    };
    match shape.nregs {
        0..=64 => gather_words::<1>(&grid, blocks, &mut pass_on),
        65..=128 => gather_words::<2>(&grid, blocks, &mut pass_on),
        129..=256 => gather_words::<4>(&grid, blocks, &mut pass_on),
        _ => gather_words::<8>(&grid, blocks, &mut pass_on),
    }
}

#[inline]
fn gather_words<const WORDS: usize>(grid: &Grid, blocks: &[AtomicPtr<u8>], pass_on: &mut impl FnMut(&[u64])) -> usize {
    let (len, words) = regions::gather::<WORDS>(grid, blocks);
    if len > 0 {
        pass_on(&words);
    }
    len
}

/// Frees those of the 64 regions from `first` on, the slab's or one behind a multiple of 64 of them, whose bits are set, and how
/// many these are, which the caller adds to `nfree`; `None`, and nothing changed, when something is wrong with one of them.
#[inline]
pub(crate) fn put_word(extent: &Extent, shape: &SlabShape, first: BlockPtr, bits: u64) -> Option<u32> {
    let region = region_of(extent, shape, first)?;
    let inside = shape.nregs as usize - region;
    let outside = if inside < 64 { u64::MAX << inside } else { 0 };
    (bits & outside == 0 && extent.free.set_word(region, bits)).then(|| bits.count_ones())
}

/// As [`put_run`], by one pointer after the other. A function of its own, so that all of the loop is in registers.
#[inline(never)]
fn put_each(extent: &Extent, shape: &SlabShape, blocks: &[AtomicPtr<u8>]) -> (usize, Option<SlabMisuse>) {
    let base = extent.addr().addr();
    let inside = shape.region_bytes();
    let inverse = shape.inverse;
    let mut setter = extent.free.setter();
    let mut misuse = None;
    let mut freed = 0;
    for slot in blocks {
        // Relaxed: the array is the calling thread's.
        let offset = slot.load(Ordering::Relaxed).addr().wrapping_sub(base);
        if offset >= inside {
            break;
        }
        let product = offset as u64 * u64::from(inverse);
        if product as u32 >= inverse || !setter.set((product >> 32) as usize) {
            misuse = Some(offset);
            break;
        }
        freed += 1;
    }
    setter.finish();
    let misuse = misuse.map(|offset| match region_at(shape, offset) {
        Some(_) => SlabMisuse::DoubleFree,
        None => SlabMisuse::NotABlock,
    });
    (freed, misuse)
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

/// Region that starts `offset` bytes into a slab. The product is `offset / size` in units of 2^-32, a little too large: by
/// less than `inverse`, which is what one byte adds.
#[inline(always)]
fn region_at(shape: &SlabShape, offset: usize) -> Option<usize> {
    let product = offset as u64 * u64::from(shape.inverse);
    ((product as u32) < shape.inverse && offset < shape.region_bytes()).then_some((product >> 32) as usize)
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

    /// A slab that no memory stands behind, none of whose regions is free.
    fn slab_of(class: usize) -> (SlabShape, Extent) {
        let shape = slab_shape(class);
        let extent = Extent::unused(0);
        extent.assign(core::ptr::without_provenance_mut(0x10_0000), shape.slab_bytes as usize, State::Active, true);
        extent.set_use(class, true);
        (shape, extent)
    }

    #[test]
    fn regions_come_and_go_once() {
        for class in [0, 3, 7, 28, 35] {
            let (shape, extent) = slab_of(class);
            init(&extent, &shape);
            let places: Vec<AtomicPtr<u8>> = (0..1000).map(|_| AtomicPtr::default()).collect();
            assert_eq!(take(&extent, &shape, &places), shape.nregs as usize);
            check(&extent);
            let got: Vec<*mut u8> =
                places.iter().rev().take(shape.nregs as usize).map(|place| place.load(Ordering::Relaxed)).collect();
            assert!(got.windows(2).all(|pair| pair[1].addr() - pair[0].addr() == shape.size as usize));
            let first = BlockPtr(got[0]);
            assert_eq!(put(&extent, &shape, first), Ok(()));
            extent.set_nfree(1);
            assert_eq!(put(&extent, &shape, first), Err(SlabMisuse::DoubleFree));
            assert_eq!(put(&extent, &shape, BlockPtr(got[0].wrapping_add(4))), Err(SlabMisuse::NotABlock));
            let end = got[0].wrapping_add(shape.slab_bytes as usize);
            assert_eq!(put(&extent, &shape, BlockPtr(end)), Err(SlabMisuse::NotABlock));
            let run: Vec<_> = got.iter().copied().chain([end, got[0]]).map(AtomicPtr::new).collect();
            assert_eq!(put_run(&extent, &shape, &run), (0, Some(SlabMisuse::DoubleFree)));
            let mut rest = &run[1..got.len()];
            while !rest.is_empty() {
                let (freed, misuse) = put_run(&extent, &shape, rest);
                assert!(freed > 0 && misuse.is_none());
                rest = &rest[freed..];
            }
            let between = [AtomicPtr::new(got[0].wrapping_add(1))];
            assert_eq!(put_run(&extent, &shape, &between), (0, Some(SlabMisuse::NotABlock)));
            extent.set_nfree(shape.nregs);
            check(&extent);
        }
    }

    /// Blocks in the order of their addresses, up or down, from any one on, with what must not be taken for one of them behind.
    #[test]
    fn neighbours_come_back_together() {
        for class in [0, 3, 7, 28] {
            let (shape, extent) = slab_of(class);
            let nregs = shape.nregs as usize;
            let region = |i: usize| AtomicPtr::new(extent.addr().wrapping_add(i.wrapping_mul(shape.size as usize)));
            let wide = crate::sys::cpu::is_wide();
            for first in (0..nregs).filter(|first| nregs < 40 || first % 7 == 0 || first + 12 > nregs) {
                let up: Vec<_> = (first..nregs + 20).map(region).collect();
                // Down into what lies before the slab.
                let down: Vec<_> = (0..=first).rev().chain((usize::MAX - 19..=usize::MAX).rev()).map(region).collect();
                for (blocks, most) in [(up, nregs - first), (down, first + 1)] {
                    init(&extent, &SlabShape { nregs: 0, ..shape });
                    let (freed, misuse) = put_run(&extent, &shape, &blocks);
                    assert!(misuse.is_none());
                    assert_eq!((freed, extent.free.count()), (most, most), "class {class}, from {first}");
                    // One of them is free already: those before it are freed, and it is told.
                    if most > 1 {
                        let again = BlockPtr(blocks[most - 1].load(Ordering::Relaxed));
                        init(&extent, &SlabShape { nregs: 0, ..shape });
                        assert_eq!(put(&extent, &shape, again), Ok(()));
                        assert_eq!(put_run(&extent, &shape, &blocks), (most - 1, Some(SlabMisuse::DoubleFree)));
                        assert_eq!(extent.free.count(), most);
                    }
                    if most > LONG_RUN && wide {
                        let mut words = Vec::new();
                        assert_eq!(gather(&extent, &shape, &blocks, |first, bits| words.push((first, bits))), most);
                        init(&extent, &SlabShape { nregs: 0, ..shape });
                        let put = |(first, bits): &(*mut u8, u64)| put_word(&extent, &shape, BlockPtr(*first), *bits);
                        assert_eq!(words.iter().filter_map(put).sum::<u32>(), most as u32);
                        assert_eq!(extent.free.count(), most);
                    }
                }
            }
        }
    }

    #[test]
    fn runs_become_words_and_words_regions() {
        for class in [0, 3, 7, 28, 35] {
            let (shape, extent) = slab_of(class);
            let (size, nregs) = (shape.size as usize, shape.nregs as usize);
            let region = |i: usize| extent.addr().wrapping_add(i * size);
            let end = region(0).wrapping_add(shape.slab_bytes as usize);
            let run: Vec<_> = (0..nregs).map(region).chain([end, end]).map(AtomicPtr::new).collect();
            let mut words = Vec::new();
            let len = gather(&extent, &shape, &run, |first, bits| words.push((first, bits)));
            if nregs > LONG_RUN && crate::sys::cpu::is_wide() {
                assert_eq!(len, nregs);
                let total: u32 =
                    words.iter().filter_map(|(first, bits)| put_word(&extent, &shape, BlockPtr(*first), *bits)).sum();
                assert_eq!(total, shape.nregs);
            } else {
                assert_eq!(len, 0);
                assert_eq!(put_word(&extent, &shape, BlockPtr(region(0)), u64::MAX >> (64 - nregs)), Some(shape.nregs));
            }
            extent.set_nfree(shape.nregs);
            check(&extent);
            // Free already, behind the last region, no region.
            assert_eq!(put_word(&extent, &shape, BlockPtr(region(0)), 1), None);
            init(&extent, &SlabShape { nregs: 0, ..shape });
            assert_eq!(put_word(&extent, &shape, BlockPtr(region(1)), 1), None);
            assert_eq!(put_word(&extent, &shape, BlockPtr(region(0).wrapping_add(1)), 1), None);
            assert_eq!(put_word(&extent, &shape, BlockPtr(end), 1), None);
            if nregs < 64 {
                assert_eq!(put_word(&extent, &shape, BlockPtr(region(0)), 1 << nregs), None);
            }
            check(&extent);
        }
    }
}
