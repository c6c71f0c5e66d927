//! Size classes: four per doubling, as constants and the maps between sizes and indices.
//!
//! ```text
//!   ind   0   1  2  3  4    5  6   7   8     9 …      35 │ 36 … 231
//!   size  8  16 32 48 64   80 96 112 128   160 …   14336 │ 16384 … 7 · 2^60
//!                          └── 2^6 + n · 2^4 ──┘   small │ large
//! ```
//!
//! A class above 64 is 2^b + n · 2^(b-2), n in 1..=4. Small classes live in slabs: the fewest pages that the size
//! divides. Large ones own their pages; above [`PAGE_ROUNDED_MIN`] the usable size is the request rounded to the page,
//! and the class only names it in statistics. Page classes, for the sets of free extents, are 1, 2, 3 pages and then the
//! large classes.
//!
//! All sizes are bytes. Indices made here are below the length of the tables that they index.
#![forbid(unsafe_code)]

use crate::bits::{align_up, is_pow2, lg_floor};
use crate::sys;

/// All size classes.
pub const NSIZES: usize = 232;
/// Small classes, one bin each.
pub const NBINS: usize = 36;
/// Classes that a thread caches: the small ones and the large ones up to 32 KiB.
pub const NCACHED: usize = 41;
/// Page classes.
pub const NPSIZES: usize = 199;
/// Largest small size.
pub const SMALL_MAX: usize = 14336;
/// Smallest large size.
pub const LARGE_MIN: usize = 16384;
/// Largest size a thread cache can hold.
pub const CACHED_MAX: usize = 32768;
/// Requests above this are rounded to the page instead of the class.
pub const PAGE_ROUNDED_MIN: usize = 32768;
/// Largest request.
pub const LARGE_MAX: usize = 0x7000_0000_0000_0000;
/// Granule of the page map and of slabs on the smallest page size, bytes.
pub const LG_GRANULE: u32 = 12;
/// As above, bytes.
pub const GRANULE: usize = 1 << LG_GRANULE;
/// Sizes up to this are mapped by table: all that a thread caches.
pub const LOOKUP_MAX: usize = CACHED_MAX;
/// Alignment of every block above 8 bytes.
pub const QUANTUM: usize = 16;

/// shape [usize; 232], ascending; unit bytes.
pub const SIZES: [usize; NSIZES] = build_sizes();

/// shape [u8; 4097]: class of a size of up to `8 * i` bytes.
pub static LOOKUP: [u8; LOOKUP_MAX / 8 + 1] = build_lookup();

/// How the slabs of one class are cut.
#[derive(Clone, Copy, Debug)]
pub struct SlabShape {
    /// Bytes of a region: the class.
    pub size: u32,
    /// Bytes of a slab.
    pub slab_bytes: u32,
    /// Regions in a slab, at most 512.
    pub nregs: u32,
    /// `2^32 / size`, rounded up: `offset * inverse >> 32` is the region of an offset below 2^15 · size.
    pub inverse: u32,
}

impl SlabShape {
    /// Bytes of all regions: the slab, but for its tail where pages are larger than the granule.
    #[inline]
    pub(crate) fn region_bytes(&self) -> usize {
        (self.nregs * self.size) as usize
    }
}

const SHAPES: [SlabShape; NBINS] = build_shapes();

const _: () = assert!(SIZES[NBINS - 1] == SMALL_MAX && SIZES[NBINS] == LARGE_MIN);
const _: () = assert!(SIZES[NSIZES - 1] == LARGE_MAX && SIZES[NCACHED - 1] == CACHED_MAX);

const fn build_sizes() -> [usize; NSIZES] {
    let mut sizes = [0; NSIZES];
    sizes[0] = 8;
    let mut i = 1;
    while i < NSIZES {
        sizes[i] = if i <= 4 {
            i * 16
        } else {
            let (group, n) = ((i - 5) / 4, (i - 5) % 4 + 1);
            (1 << (group + 6)) + (n << (group + 4))
        };
        i += 1;
    }
    sizes
}

const fn build_lookup() -> [u8; LOOKUP_MAX / 8 + 1] {
    let mut table = [0; LOOKUP_MAX / 8 + 1];
    let mut i = 1;
    while i < table.len() {
        table[i] = index_of(i * 8) as u8;
        i += 1;
    }
    table
}

const fn build_shapes() -> [SlabShape; NBINS] {
    let mut shapes = [SlabShape { size: 0, slab_bytes: 0, nregs: 0, inverse: 0 }; NBINS];
    let mut i = 0;
    while i < NBINS {
        let size = SIZES[i];
        let mut slab = GRANULE;
        while !slab.is_multiple_of(size) {
            slab += GRANULE;
        }
        let inverse = (1u64 << 32).div_ceil(size as u64);
        shapes[i] = SlabShape {
            size: size as u32,
            slab_bytes: slab as u32,
            nregs: (slab / size) as u32,
            inverse: inverse as u32,
        };
        i += 1;
    }
    shapes
}

/// Class of a size in 0..=[`LARGE_MAX`], by arithmetic.
#[inline]
pub const fn index_of(size: usize) -> usize {
    if size <= 8 {
        return 0;
    }
    if size <= 64 {
        return 1 + (size - 1) / 16;
    }
    let lg = lg_floor(size - 1) as usize;
    5 + (lg - 6) * 4 + ((size - 1) >> (lg - 2)) - 4
}

/// Class of a small size, by table where it reaches.
#[inline(always)]
pub fn small_index(size: usize) -> usize {
    match LOOKUP.get(size.div_ceil(8)) {
        Some(ind) => usize::from(*ind),
        None => index_of(size),
    }
}

/// Size of a class; 0 for an index outside.
#[inline]
pub fn size_of_index(ind: usize) -> usize {
    SIZES.get(ind).copied().unwrap_or(0)
}

/// Slab shape of a small class on the running page size.
#[inline]
pub fn slab_shape(ind: usize) -> SlabShape {
    let mut shape = SHAPES.get(ind).copied().unwrap_or(SHAPES[0]);
    let page = sys::page_size();
    if page > GRANULE
        && let Some(slab) = align_up(shape.slab_bytes as usize, page)
    {
        shape.slab_bytes = slab as u32;
        shape.nregs = (shape.slab_bytes / shape.size).min(crate::ds::bitmap::BITS as u32);
    }
    shape
}

/// Usable bytes that a request of `size` gets; `None` when it is too large.
#[inline]
pub fn usable(size: usize) -> Option<usize> {
    if size <= SMALL_MAX {
        return Some(size_of_index(small_index(size)));
    }
    large_usable(size)
}

/// Usable bytes of a large block for a request of `size`.
pub fn large_usable(size: usize) -> Option<usize> {
    let page = sys::page_size();
    if size <= PAGE_ROUNDED_MIN {
        return align_up(size_of_index(index_of(size.max(LARGE_MIN))), page);
    }
    if size > LARGE_MAX {
        return None;
    }
    align_up(size, page)
}

/// Usable bytes that a request of `size` at a multiple of `align` (a power of two) gets.
pub fn usable_aligned(size: usize, align: usize) -> Option<usize> {
    debug_assert!(is_pow2(align));
    if align <= sys::page_size() && size < LARGE_MIN {
        // A multiple of the alignment falls into a class that is a multiple of it as well.
        let rounded = align_up(size.max(1), align)?;
        if rounded < LARGE_MIN {
            return usable(rounded);
        }
    }
    let usable = large_usable(size.max(LARGE_MIN))?;
    let room = usable.checked_add(align)?;
    if room > LARGE_MAX { None } else { Some(usable) }
}

/// Page class of the smallest class that is at least `bytes` (a page multiple, not 0).
#[inline]
pub fn page_index_ceil(bytes: usize) -> usize {
    let pages = bytes.div_ceil(GRANULE).max(1);
    if pages <= 4 {
        return pages - 1;
    }
    let lg = lg_floor(pages - 1) as usize;
    (lg - 2) * 4 + ((pages - 1) >> (lg - 2))
}

/// Page class of the largest class that is at most `bytes` (a page multiple, not 0).
#[inline]
pub fn page_index_floor(bytes: usize) -> usize {
    let ceil = page_index_ceil(bytes);
    if page_class_bytes(ceil) > bytes { ceil.saturating_sub(1) } else { ceil }
}

/// Bytes of a page class.
#[inline]
pub const fn page_class_bytes(pind: usize) -> usize {
    if pind < 3 {
        (pind + 1) * GRANULE
    } else if pind - 3 + NBINS < NSIZES {
        SIZES[pind - 3 + NBINS]
    } else {
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_maps_to_the_smallest_class_that_holds_it() {
        let mut ind = 0;
        for size in 0..=300_000 {
            while SIZES[ind] < size {
                ind += 1;
            }
            assert_eq!(index_of(size), ind, "size {size}");
            if size <= LOOKUP_MAX {
                assert_eq!(small_index(size), ind);
            }
        }
        for (i, size) in SIZES.iter().enumerate() {
            assert_eq!(index_of(*size), i);
            if i + 1 < NSIZES {
                assert!(SIZES[i + 1] > *size);
                assert_eq!(index_of(size + 1), i + 1);
            }
        }
    }

    #[test]
    fn slabs_match_the_published_table() {
        let expected =
            [(0, 4096, 512), (3, 12288, 256), (7, 28672, 256), (28, 4096, 1), (31, 28672, 4), (35, 28672, 2)];
        for (ind, slab_bytes, nregs) in expected {
            let shape = slab_shape(ind);
            assert_eq!((shape.slab_bytes, shape.nregs), (slab_bytes, nregs));
        }
        for ind in 0..NBINS {
            let shape = slab_shape(ind);
            for reg in 0..shape.nregs {
                let offset = u64::from(reg * shape.size);
                assert_eq!((offset * u64::from(shape.inverse)) >> 32, u64::from(reg));
            }
        }
    }

    #[test]
    fn usable_sizes_are_those_of_the_reference() {
        for (request, got) in [
            (0, 8),
            (1, 8),
            (9, 16),
            (14336, 14336),
            (14337, 16384),
            (16385, 20480),
            (32769, 36864),
            (100_000, 102_400),
            (1_000_000, 1_003_520),
            (3_000_000, 3_002_368),
        ] {
            assert_eq!(usable(request), Some(got), "request {request}");
        }
        assert_eq!(usable(LARGE_MAX + 1), None);
        for (align, size, got) in [
            (64, 1, 64),
            (64, 65, 128),
            (32, 48, 64),
            (128, 200, 256),
            (128, 1000, 1024),
            (2048, 2049, 4096),
            (4096, 4097, 8192),
            (4096, 14337, 16384),
            (8192, 1, 16384),
            (1 << 40, 1, 16384),
        ] {
            assert_eq!(usable_aligned(size, align), Some(got), "align {align} size {size}");
        }
        assert_eq!(usable_aligned(1 << 62, 1 << 63), None);
    }

    #[test]
    fn page_classes_round_both_ways() {
        assert_eq!(page_class_bytes(NPSIZES - 1), LARGE_MAX);
        for pages in 1..5000usize {
            let bytes = pages * GRANULE;
            let (floor, ceil) = (page_index_floor(bytes), page_index_ceil(bytes));
            assert!(page_class_bytes(floor) <= bytes && page_class_bytes(ceil) >= bytes);
            assert!(ceil - floor <= 1);
            assert!(ceil == 0 || page_class_bytes(ceil - 1) < bytes);
        }
    }
}
