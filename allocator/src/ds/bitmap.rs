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

    /// Sets a bit; false when it was set already. A bit outside stands for one inside.
    #[inline]
    pub(crate) fn set(&self, bit: usize) -> bool {
        let word = &self.0[bit / 64 % WORDS];
        let (bits, mask) = (word.load(Ordering::Relaxed), 1u64 << (bit % 64));
        word.store(bits | mask, Ordering::Relaxed);
        bits & mask == 0
    }

    /// Begins to set bits.
    #[inline(always)]
    pub(crate) fn setter(&self) -> Setter<'_> {
        Setter { map: self, at: 0, bits: self.0[0].load(Ordering::Relaxed) }
    }

    /// Sets the bits of `words`, which stand for the first ones of the map; false, and nothing changed, when one is set
    /// already.
    #[inline]
    pub(crate) fn set_words(&self, words: &[u64]) -> bool {
        let both = self.0.iter().zip(words);
        if both.clone().any(|(word, bits)| word.load(Ordering::Relaxed) & bits != 0) {
            return false;
        }
        for (word, bits) in both {
            word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        }
        true
    }

    /// Sets `count` bits from `first` on, which lie in the map; false, and nothing changed, when one is set already.
    #[inline]
    pub(crate) fn set_range(&self, first: usize, count: usize) -> bool {
        let words = || range_words(first, count).map(|(w, bits)| (&self.0[w % WORDS], bits));
        if words().any(|(word, bits)| word.load(Ordering::Relaxed) & bits != 0) {
            return false;
        }
        for (word, bits) in words() {
            word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        }
        true
    }

    /// Sets the bits of `bits`, which stand for 64 bits from a multiple of 64 on, `first`; false, and nothing changed, when one is set
    /// already or `first` is no such bit.
    #[inline]
    pub(crate) fn set_word(&self, first: usize, bits: u64) -> bool {
        let Some(word) = self.0.get(first / 64).filter(|_| first.is_multiple_of(64)) else { return false };
        let before = word.load(Ordering::Relaxed);
        if before & bits != 0 {
            return false;
        }
        word.store(before | bits, Ordering::Relaxed);
        true
    }

    /// True when the bit is set.
    #[cfg(test)]
    pub(crate) fn is_set(&self, bit: usize) -> bool {
        self.0.get(bit / 64).is_some_and(|word| word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1)
    }

    /// Clears up to `want` of the lowest set bits; reports those of each word, as the number of its first bit and a word of
    /// them with their count. How many there were.
    #[inline]
    pub(crate) fn take(&self, want: usize, mut some: impl FnMut(usize, u64, usize)) -> usize {
        let mut taken = 0;
        for (w, word) in self.0.iter().enumerate() {
            let bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            let (mut here, mut count) = (bits, bits.count_ones() as usize);
            if count > want - taken {
                count = want - taken;
                let mut left = bits;
                for _ in 0..count {
                    left &= left.wrapping_sub(1);
                }
                here = bits ^ left;
            }
            word.store(bits ^ here, Ordering::Relaxed);
            some(w * 64, here, count);
            taken += count;
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

/// `count` bits from `first` on, as numbers of words with their bits.
#[inline]
pub(crate) fn range_words(first: usize, count: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = first + count;
    (first / 64..end.div_ceil(64)).map(move |word| {
        let (from, to) = (first.max(64 * word) % 64, end.min(64 * word + 64) - 64 * word);
        (word, u64::MAX << from & u64::MAX >> (64 - to))
    })
}

/// Sets bits one by one, holding the word of the last one: bits often come in neighbours, and a load that waits for the
/// store before it takes longer than all else here.
pub(crate) struct Setter<'a> {
    map: &'a Bitmap,
    at: usize,
    bits: u64,
}

impl Setter<'_> {
    /// Sets a bit; false when it was set already. A bit outside stands for one inside.
    #[inline(always)]
    pub(crate) fn set(&mut self, bit: usize) -> bool {
        let at = bit / 64 % WORDS;
        if at != self.at {
            self.map.0[self.at].store(self.bits, Ordering::Relaxed);
            self.at = at;
            self.bits = self.map.0[at].load(Ordering::Relaxed);
        }
        let mask = 1u64 << (bit % 64);
        let free = self.bits & mask != 0;
        self.bits |= mask;
        !free
    }

    /// Writes what is held.
    #[inline(always)]
    pub(crate) fn finish(self) {
        self.map.0[self.at].store(self.bits, Ordering::Relaxed);
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
        let take = |want, got: &mut Vec<usize>| {
            map.take(want, |first, bits, count| {
                assert_eq!(bits.count_ones() as usize, count);
                got.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
            })
        };
        assert_eq!(take(70, &mut got), 70);
        assert_eq!(got, (0..70).collect::<Vec<_>>());
        assert!(!map.is_set(3));
        let mut setter = map.setter();
        assert!(setter.set(3) && setter.set(131) && !setter.set(3));
        setter.finish();
        assert!(map.is_set(3) && map.is_set(131));
        got.clear();
        assert_eq!(take(100, &mut got), 62);
        assert_eq!((got[0], got[61]), (3, 131));
        assert_eq!(map.count(), 0);
        assert!(map.set(100) && !map.set(100) && map.is_set(100));
        map.set_first(0);
        assert!(map.set_words(&[8, 1 << 3]) && !map.set_words(&[1, 1 << 3]));
        assert!(map.is_set(3) && map.is_set(67) && map.count() == 2);
        for (first, count) in [(0, 1), (5, 20), (60, 8), (63, 1), (64, 64), (0, 512), (100, 300), (448, 64), (511, 1)] {
            map.set_first(0);
            assert!(map.set_range(first, count));
            assert_eq!(map.count(), count);
            assert!(map.is_set(first) && map.is_set(first + count - 1) && (first == 0 || !map.is_set(first - 1)));
            assert!(!map.set_range(first + count - 1, 1) && (first == 0 || !map.set_range(first - 1, 2)));
            assert_eq!(map.count(), count, "changed only if none was set");
        }
        map.set_first(512);
        assert_eq!(map.count(), 512);
        got.clear();
        assert_eq!(take(100, &mut got), 100);
        assert_eq!(got, (0..100).collect::<Vec<_>>());
    }
}
