//! Lengths of page runs in steps: single pages at first, then `2^LG` steps to a doubling.
//!
//! ```text
//!   LG = 3    step   1 … 16 │ 17  18 … 24 │ 25  26 … 32 │ 33 …
//!             pages  1 … 16 │ 18  20 … 32 │ 36  40 … 64 │ 72 …
//! ```
//!
//! Rounding up to a step adds at most a `2^LG`-th. Units: bytes in, steps out, and back. Pure.
#![forbid(unsafe_code)]

use crate::sizeclass::{GRANULE, LG_GRANULE};

/// Largest step that a run of `bytes` (at least a page) holds.
#[inline]
pub(crate) const fn floor<const LG: u32>(bytes: usize) -> usize {
    let pages = bytes >> LG_GRANULE;
    if pages < 1 << LG {
        return pages;
    }
    let lg = pages.ilog2();
    (((lg - LG) as usize) << LG) + (pages >> (lg - LG))
}

/// Smallest step that holds `bytes`.
#[inline]
pub(crate) const fn ceil<const LG: u32>(bytes: usize) -> usize {
    let pages = bytes.div_ceil(GRANULE);
    if pages <= 1 << LG {
        return pages;
    }
    let round = (1usize << (pages.ilog2() - LG)) - 1;
    floor::<LG>(pages.saturating_add(round).saturating_mul(GRANULE))
}

/// Bytes of a step.
#[inline]
pub(crate) const fn bytes<const LG: u32>(step: usize) -> usize {
    if step < 2 << LG {
        return step << LG_GRANULE;
    }
    let doublings = (step >> LG) - 1;
    (step - (doublings << LG)) << doublings << LG_GRANULE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const LG: u32>() {
        let mut last = 0;
        for pages in 1..1usize << 17 {
            let run = pages * GRANULE;
            let (below, above) = (floor::<LG>(run), ceil::<LG>(run));
            assert!(below >= last && below - last <= 1 && above >= below && above - below <= 1, "{pages} pages");
            assert!(bytes::<LG>(below) <= run && bytes::<LG>(above) >= run, "{pages} pages");
            assert!(bytes::<LG>(above) - run <= run >> LG && (above == below) == (bytes::<LG>(above) == run));
            last = below;
        }
    }

    #[test]
    fn steps_round_both_ways() {
        check::<2>();
        check::<3>();
        check::<4>();
        assert_eq!((floor::<3>(16 << 12), floor::<3>(19 << 12), ceil::<3>(19 << 12)), (16, 17, 18));
        assert_eq!(bytes::<3>(32), 256 << 10);
    }
}
