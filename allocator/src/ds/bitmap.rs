//! A bitmap of at most 512 bits: which regions of a slab are free. Bit set = free. Under the bin's lock.
#![forbid(unsafe_code)]

use crate::prim::{AtomicU64, Ordering};

/// Bits; the regions of the fullest slab (4096 bytes of 8).
pub(crate) const BITS: usize = 512;
const WORDS: usize = BITS / 64;

/// shape [u64; 8], bit i of word w = region 64 w + i.
pub(crate) struct Bitmap([AtomicU64; WORDS]);

impl Bitmap {
    /// No bit set.
    pub(crate) const fn new() -> Bitmap {
        Bitmap([const { AtomicU64::new(0) }; WORDS])
    }

    /// Sets the first `count` bits and clears the others.
    pub(crate) fn set_first(&self, count: usize) {
        let mut left = count;
        for word in &self.0 {
            let here = left.min(64);
            let bits = if here == 64 { u64::MAX } else { (1u64 << here) - 1 };
            // Relaxed, here and below: ordered by the bin's lock.
            word.store(bits, Ordering::Relaxed);
            left -= here;
        }
    }

    /// Sets a bit; false when it was set already or lies outside.
    #[inline]
    pub(crate) fn set(&self, bit: usize) -> bool {
        let Some(word) = self.0.get(bit / 64) else { return false };
        let old = word.load(Ordering::Relaxed);
        let mask = 1u64 << (bit % 64);
        word.store(old | mask, Ordering::Relaxed);
        old & mask == 0
    }

    /// True when the bit is set.
    #[cfg(test)]
    pub(crate) fn is_set(&self, bit: usize) -> bool {
        self.0.get(bit / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1)
    }

    /// Clears up to `want` of the lowest set bits and reports each; how many there were.
    #[inline]
    pub(crate) fn take(&self, want: usize, mut each: impl FnMut(usize)) -> usize {
        let mut taken = 0;
        for (w, word) in self.0.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            while bits != 0 && taken < want {
                each(w * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
                taken += 1;
            }
            word.store(bits, Ordering::Relaxed);
            if taken == want {
                break;
            }
        }
        taken
    }

    /// Number of set bits.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn take_and_set() {
        let map = Bitmap::new();
        map.set_first(130);
        assert_eq!(map.count(), 130);
        let mut got = Vec::new();
        assert_eq!(map.take(70, |bit| got.push(bit)), 70);
        assert_eq!(got, (0..70).collect::<Vec<_>>());
        assert!(!map.is_set(3));
        assert!(map.set(3) && !map.set(3) && map.is_set(3));
        assert!(!map.set(BITS));
        got.clear();
        assert_eq!(map.take(100, |bit| got.push(bit)), 61);
        assert_eq!(got[0], 3);
        assert_eq!(map.count(), 0);
        map.set_first(512);
        assert_eq!(map.count(), 512);
    }
}
