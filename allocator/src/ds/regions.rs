//! From pointers to regions of a slab and back: four pointers at a time. Which regions the pointers at the head of an array
//! are ([`gather`], [`set`]):
//!
//! ```text
//!   pointers  p0 p1 p2 p3 │ p4 … │ …       as long as they lie in the slab
//!      │ less the slab's start, times the inverse of the region's size
//!   regions   r0 r1 r2 r3                  whole part of the product; its fraction tells a start of a region
//!      │ 1 << (r - 64 k), which is 0 where r is in another word
//!   words     w0[4] … wk[4]                a column for each of the four, put together in the end
//! ```
//!
//! Freed blocks come in the order of the client, so which word of a slab's bitmap comes next cannot be guessed: here nothing
//! depends on it but the end of the run. What looks wrong in any way is left to the caller, who looks at the pointers one by
//! one: nothing was changed yet.
//!
//! Blocks that were allocated one after the other are mostly freed so, or the other way round: then they are neighbours in the
//! slab, and how many of them ([`neighbours`]) is all that there is to be known.
//!
//! The way back ([`fill`]) takes a word of the bitmap by its bytes: a table tells which bits of a byte are set, eight pointers are
//! made whether there are as many or not, and those that are too many are written over by the next byte's.

use core::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_or_si128, _mm_unpackhi_epi64, _mm256_add_epi64,
    _mm256_and_si256, _mm256_castsi256_pd, _mm256_castsi256_si128, _mm256_cmpeq_epi64, _mm256_cmpgt_epi64,
    _mm256_cvtepu8_epi64, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_max_epu32, _mm256_movemask_pd,
    _mm256_mul_epu32, _mm256_or_si256, _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_slli_epi64,
    _mm256_sllv_epi64, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_sub_epi64, _mm256_xor_si256,
};

use crate::ds::bitmap::Bitmap;
use crate::prim::{AtomicPtr, Ordering};
use crate::sys::cpu;

/// Pointers looked at together.
const LANES: usize = 4;

/// Regions that a byte of a bitmap stands for.
const BYTE: usize = 8;
/// A word with fewer bits than this is taken bit by bit: its bytes would be looked at for little.
const FILL_MIN: usize = 16;

/// shape [[u8; 8]; 256]: numbers of the bits that are set in a byte, the lowest last; the rest does not matter.
static BITS_OF_BYTE: [[u8; BYTE]; 256] = {
    let mut table = [[0; BYTE]; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut bit, mut place) = (0, BYTE);
        while bit < BYTE {
            if byte >> bit & 1 == 1 {
                place -= 1;
                table[byte][place] = bit as u8;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// Where regions begin.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    /// Address of the slab.
    pub base: usize,
    /// Bytes of all regions together.
    pub bytes: u32,
    /// `2^32 / size` of a region, rounded up.
    pub inverse: u32,
}

/// Which regions the head of `blocks`, which is the calling thread's, points to: as far as the pointers lie in the slab, whose
/// regions fit into `WORDS` words. How many there were; 0 when one is no start of a region or comes twice, when there are too few, or
/// on a processor that has not the instructions.
#[inline]
pub(crate) fn gather<const WORDS: usize>(grid: &Grid, blocks: &[AtomicPtr<u8>]) -> (usize, [u64; WORDS]) {
    if !cpu::is_wide() {
        return (0, [0; WORDS]);
    }
    // SAFETY: S1 by the test above.
    unsafe { gather_wide(grid, blocks) }
}

/// Sets in `map` the bits of the regions that [`gather`] finds, and how many these are; 0, and nothing changed, when it finds none
/// or one has its bit set already.
#[inline]
pub(crate) fn set<const WORDS: usize>(map: &Bitmap, grid: &Grid, blocks: &[AtomicPtr<u8>]) -> usize {
    let (len, words) = gather::<WORDS>(grid, blocks);
    if len > 0 && map.set_words(&words) { len } else { 0 }
}

/// As [`gather`].
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn gather_wide<const WORDS: usize>(grid: &Grid, blocks: &[AtomicPtr<u8>]) -> (usize, [u64; WORDS]) {
    // Distances are compared as signed numbers: half of the range is added to both sides.
    let base = _mm256_set1_epi64x(grid.base.cast_signed().wrapping_sub(isize::MIN) as i64);
    let end = _mm256_set1_epi64x(i64::MIN + i64::from(grid.bytes));
    let inverse = _mm256_set1_epi64x(i64::from(grid.inverse));
    let one = _mm256_set1_epi64x(1);
    let mut columns = [_mm256_setzero_si256(); WORDS];
    let mut worst = _mm256_setzero_si256();
    let mut len = 0;
    while let Some(group) = blocks.get(len..len + LANES) {
        let offset = _mm256_sub_epi64(load(group), base);
        let inside = _mm256_cmpgt_epi64(end, offset);
        let mask = _mm256_movemask_pd(_mm256_castsi256_pd(inside)) as u32;
        let product = _mm256_mul_epu32(offset, inverse);
        if mask != (1 << LANES) - 1 {
            // The first ones may lie in the slab; the others get a region that no word has.
            let lead = mask.trailing_ones();
            let keep = _mm256_cmpgt_epi64(_mm256_set1_epi64x(i64::from(lead)), _mm256_setr_epi64x(0, 1, 2, 3));
            worst = _mm256_max_epu32(worst, _mm256_and_si256(product, keep));
            let none = _mm256_xor_si256(keep, _mm256_set1_epi64x(-1));
            add(&mut columns, _mm256_or_si256(_mm256_srli_epi64::<32>(product), none), one);
            len += lead as usize;
            break;
        }
        worst = _mm256_max_epu32(worst, product);
        add(&mut columns, _mm256_srli_epi64::<32>(product), one);
        len += LANES;
    }
    let mut words = [0; WORDS];
    let mut distinct = 0;
    for (word, column) in words.iter_mut().zip(columns) {
        *word = fold(column);
        distinct += word.count_ones();
    }
    // The greatest fraction in the low half of each lane.
    let inexact = _mm256_cmpgt_epi64(
        _mm256_and_si256(worst, _mm256_set1_epi64x(i64::from(u32::MAX))),
        _mm256_set1_epi64x(i64::from(grid.inverse) - 1),
    );
    let exact = _mm256_movemask_pd(_mm256_castsi256_pd(inexact)) == 0;
    (if exact && distinct as usize == len { len } else { 0 }, words)
}

/// Adds a bit to each column: in word k, that of a region in `64 k .. 64 k + 64`; a shift by more than 63 gives 0.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[inline]
#[target_feature(enable = "avx2")]
fn add<const WORDS: usize>(columns: &mut [__m256i; WORDS], regions: __m256i, one: __m256i) {
    for (word, column) in columns.iter_mut().enumerate() {
        let first = _mm256_set1_epi64x(64 * word as i64);
        *column = _mm256_or_si256(*column, _mm256_sllv_epi64(one, _mm256_sub_epi64(regions, first)));
    }
}

/// The four lanes as one word.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[inline]
#[target_feature(enable = "avx2")]
fn fold(column: __m256i) -> u64 {
    let half = _mm_or_si128(_mm256_castsi256_si128(column), _mm256_extracti128_si256::<1>(column));
    _mm_cvtsi128_si64(_mm_or_si128(half, _mm_unpackhi_epi64(half, half))).cast_unsigned()
}

/// How many pointers at the head of `blocks`, which is the calling thread's, lie `stride` bytes behind the one before, the first
/// included; 0 where the processor has not the instructions.
#[inline]
pub(crate) fn neighbours(blocks: &[AtomicPtr<u8>], stride: isize) -> usize {
    if blocks.is_empty() || !cpu::is_wide() {
        return 0;
    }
    // SAFETY: S1 by the test above.
    unsafe { neighbours_wide(blocks, stride) }
}

/// As [`neighbours`], of one pointer at least.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn neighbours_wide(blocks: &[AtomicPtr<u8>], stride: isize) -> usize {
    let bytes = stride.cast_unsigned();
    let stride = _mm256_set1_epi64x(stride as i64);
    let mut len = 1;
    while let Some((before, behind)) = blocks.get(len - 1..len + LANES - 1).zip(blocks.get(len..len + LANES)) {
        let same = _mm256_cmpeq_epi64(_mm256_sub_epi64(load(behind), load(before)), stride);
        let mask = _mm256_movemask_pd(_mm256_castsi256_pd(same)) as u32;
        if mask != (1 << LANES) - 1 {
            return len + mask.trailing_ones() as usize;
        }
        len += LANES;
    }
    let rest = blocks.get(len - 1..).unwrap_or(&[]);
    // Relaxed: the array is the calling thread's.
    let step = |pair: &[AtomicPtr<u8>]| match pair {
        [before, behind] => behind.load(Ordering::Relaxed).addr().wrapping_sub(before.load(Ordering::Relaxed).addr()),
        _ => 0,
    };
    len + rest.windows(2).take_while(|pair| step(pair) == bytes).count()
}

/// Four pointers, which the calling thread alone writes.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[inline]
#[target_feature(enable = "avx2")]
fn load(group: &[AtomicPtr<u8>]) -> __m256i {
    debug_assert!(group.len() == LANES);
    // SAFETY: the slice has four pointers of eight bytes, by the caller, and nobody else writes them.
    unsafe { _mm256_loadu_si256(group.as_ptr().cast()) }
}

/// Writes the addresses of the regions of `size` bytes whose bits are set in `bits`, of which bit 0 stands for the one at
/// `first`, to the end of `places`, which is the calling thread's: the lowest last. What lies before them is undefined then.
/// False, and nothing written, when they are few, or do not fit, or on a processor that has not the instructions.
#[inline]
pub(crate) fn fill(first: *mut u8, size: u32, bits: u64, places: &[AtomicPtr<u8>]) -> bool {
    let count = bits.count_ones() as usize;
    if count < FILL_MIN || places.len() < count || !cpu::is_wide() {
        return false;
    }
    let start = first.expose_provenance();
    let lowest = bits.trailing_zeros();
    let run = bits >> lowest;
    if run & run.wrapping_add(1) == 0
        && let Some(here) = places.get(places.len() - count..)
    {
        // SAFETY: S1 by the test above.
        unsafe { fill_run(start + lowest as usize * size as usize, size, here) };
    } else {
        // SAFETY: as above.
        unsafe { fill_wide(start, size, bits, places) };
    }
    true
}

/// Fills `places` with the addresses of regions of `bytes` side by side, the first at `first`, which comes last.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn fill_run(first: usize, bytes: u32, places: &[AtomicPtr<u8>]) {
    let size = i64::from(bytes);
    let start = _mm256_set1_epi64x(first.cast_signed() as i64);
    let mut pointers = _mm256_add_epi64(start, _mm256_setr_epi64x(3 * size, 2 * size, size, 0));
    let step = _mm256_set1_epi64x(LANES as i64 * size);
    let mut groups = places.rchunks_exact(LANES);
    for group in &mut groups {
        store(group, pointers);
        pointers = _mm256_add_epi64(pointers, step);
    }
    let rest = groups.remainder();
    let done = places.len() - rest.len();
    for (i, place) in rest.iter().rev().enumerate() {
        let region = first + (done + i) * bytes as usize;
        // Relaxed: the array is the calling thread's.
        place.store(core::ptr::with_exposed_provenance_mut(region), Ordering::Relaxed);
    }
}

/// As [`fill`], for regions of `bytes`.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn fill_wide(first: usize, bytes: u32, bits: u64, places: &[AtomicPtr<u8>]) {
    let mut base = _mm256_set1_epi64x(first.cast_signed() as i64);
    let size = _mm256_set1_epi64x(i64::from(bytes));
    let step = _mm256_slli_epi64::<3>(size);
    let mut rest = places;
    let (mut first, mut bits) = (first, bits);
    while bits != 0 {
        let byte = bits as u8;
        bits >>= BYTE;
        let count = byte.count_ones() as usize;
        let order = BITS_OF_BYTE[usize::from(byte)];
        if let Some((_, group)) = rest.split_last_chunk::<BYTE>() {
            let (low, high) = group.split_at(LANES);
            store(low, _mm256_add_epi64(base, _mm256_mul_epu32(lanes(order, 0), size)));
            store(high, _mm256_add_epi64(base, _mm256_mul_epu32(lanes(order, LANES), size)));
        } else {
            // Room for those that there are, but not for eight.
            for (place, bit) in rest.iter().rev().zip(order.iter().rev().take(count)) {
                let region = first + usize::from(*bit) * bytes as usize;
                // Relaxed: the array is the calling thread's.
                place.store(core::ptr::with_exposed_provenance_mut(region), Ordering::Relaxed);
            }
        }
        base = _mm256_add_epi64(base, step);
        first += BYTE * bytes as usize;
        rest = rest.get(..rest.len().saturating_sub(count)).unwrap_or(&[]);
    }
}

/// Four of the bytes as numbers.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[inline]
#[target_feature(enable = "avx2")]
fn lanes(bytes: [u8; BYTE], from: usize) -> __m256i {
    let four = bytes.get(from..from + LANES).and_then(|four| <[u8; LANES]>::try_from(four).ok()).unwrap_or_default();
    _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(i32::from_le_bytes(four)))
}

/// Writes four pointers, whose provenance was exposed.
///
/// # Safety
/// S1: [`cpu::is_wide`].
#[inline]
#[target_feature(enable = "avx2")]
fn store(group: &[AtomicPtr<u8>], pointers: __m256i) {
    debug_assert!(group.len() == LANES);
    // SAFETY: the slice has four atomic pointers of eight bytes, by the caller, and nobody else reads or writes them.
    unsafe { _mm256_storeu_si256(group.as_ptr().cast_mut().cast(), pointers) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn bits_become_regions() {
        if !cpu::is_wide() {
            return;
        }
        let first = 0x7fff_1234_5000usize;
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..500 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = match round {
                0 => u64::MAX,
                1 => 0xffff,
                2 => 0xffff << 48,
                3..64 => u64::MAX >> (round % 16) << (round % 13),
                _ => seed | seed.rotate_left(round % 64),
            };
            let size = 8 * (1 + round as usize % 1792);
            let count = bits.count_ones() as usize;
            for spare in [0, 1, BYTE - 1, BYTE, 100] {
                let places: Vec<AtomicPtr<u8>> = (0..count + spare).map(|_| AtomicPtr::default()).collect();
                let (guard, inner) = places.split_at(spare.saturating_sub(BYTE));
                assert_eq!(fill(core::ptr::without_provenance_mut(first), size as u32, bits, inner), count >= FILL_MIN);
                if count >= FILL_MIN {
                    let got: Vec<usize> =
                        places.iter().rev().take(count).map(|place| place.load(Ordering::Relaxed).addr()).collect();
                    let wanted: Vec<usize> =
                        (0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit * size).collect();
                    assert_eq!(got, wanted, "{bits:#x}");
                }
                assert!(guard.iter().all(|place| place.load(Ordering::Relaxed).is_null()), "out of bounds");
            }
        }
        let places: Vec<AtomicPtr<u8>> = (0..63).map(|_| AtomicPtr::default()).collect();
        assert!(!fill(core::ptr::without_provenance_mut(first), 8, u64::MAX, &places), "no room");
    }

    #[test]
    fn neighbours_are_counted_both_ways() {
        if !cpu::is_wide() {
            return;
        }
        for stride in [48isize, -48, 8] {
            for run in 1..20 {
                for (behind, jump) in [(0, 0), (9, 1), (9, -7)] {
                    let at = |i: usize| 0x7fff_1234_5000usize.wrapping_add_signed(i as isize * stride);
                    let jumped = |i: usize| at(i).wrapping_add_signed(jump);
                    let array = pointers((0..run).map(at).chain((run..run + behind).map(jumped)));
                    assert_eq!(neighbours(&array, stride), run, "stride {stride}, {behind} behind, off by {jump}");
                }
            }
        }
        assert_eq!(neighbours(&[], 8), 0);
    }

    fn pointers(addresses: impl IntoIterator<Item = usize>) -> Vec<AtomicPtr<u8>> {
        addresses.into_iter().map(|addr| AtomicPtr::new(core::ptr::without_provenance_mut(addr))).collect()
    }

    /// Slab of 48-byte regions at `0x7fff_1234_5000`: 256 of them.
    fn grid() -> Grid {
        Grid { base: 0x7fff_1234_5000, bytes: 12288, inverse: (1u64 << 32).div_ceil(48) as u32 }
    }

    fn bits(map: &Bitmap) -> Vec<usize> {
        (0..256).filter(|bit| map.is_set(*bit)).collect()
    }

    #[test]
    fn regions_of_a_run_become_bits() {
        if !cpu::is_wide() {
            return;
        }
        let grid = grid();
        for run in 0..40 {
            // A stride that visits words in no order; behind the run a pointer of another slab, and enough to look at.
            let mut regions: Vec<usize> = (0..run).map(|i| i * 101 % 256).collect();
            for first in [grid.base - 48, grid.base + 12288, 0, usize::MAX - 47] {
                let inside = regions.iter().map(|region| grid.base + region * 48);
                let array = pointers(inside.chain([first, grid.base, grid.base + 48, grid.base + 96]));
                let map = Bitmap::new();
                assert_eq!(set::<4>(&map, &grid, &array), run);
                regions.sort_unstable();
                assert_eq!(bits(&map), regions, "run of {run}");
            }
        }
        // What is left of an array that does not fill a group stays for the caller.
        let map = Bitmap::new();
        assert_eq!(set::<4>(&map, &grid, &pointers((0..7).map(|i| grid.base + i * 48))), 4);
        assert_eq!(bits(&map), [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_wrong_is_left_alone() {
        if !cpu::is_wide() {
            return;
        }
        let grid = grid();
        let freed_before = 77;
        let with = |at: usize, addr: usize| {
            let mut addresses: Vec<usize> = (0..16).map(|i| grid.base + i * 48).collect();
            addresses[at] = addr;
            let map = Bitmap::new();
            assert!(map.set_words(&[0, 1 << (freed_before % 64)]));
            let len = set::<4>(&map, &grid, &pointers(addresses));
            assert_eq!(bits(&map).len(), len + 1, "changed only if all is well");
            len
        };
        for at in 0..16 {
            assert_eq!(with(at, grid.base + 48 * 100 + 8), 0, "inside a region, at {at}");
            assert_eq!(with(at, grid.base + 48 * 200 - 1), 0, "at the end of one, at {at}");
            assert_eq!(with(at, grid.base + (at + 1) % 16 * 48), 0, "twice, at {at}");
            assert_eq!(with(at, grid.base + freed_before * 48), 0, "free already, at {at}");
            assert_eq!(with(at, grid.base + 48 * 255), 16, "the last region, at {at}");
        }
    }
}
