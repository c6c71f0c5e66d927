//! Addresses in ascending order, each with the index of the symbol that it is of.
//!
//! An address and its index are one number where both fit into 64 bits, as in all files but made-up ones: such numbers take a
//! third of the instructions to sort, and half of the memory.
#![forbid(unsafe_code)]

/// Sorted by address, then by index.
#[derive(Debug)]
pub(super) enum Ascending {
    /// Distances from the lowest address, with the index in the lower bits.
    Packed {
        low: u64,
        index_bits: u32,
        numbers: Vec<u64>,
    },
    Pairs(Vec<(u64, u32)>),
}

impl Default for Ascending {
    fn default() -> Ascending {
        Ascending::Pairs(Vec::new())
    }
}

impl Ascending {
    /// Of what `entries` lists, which is read twice.
    pub(super) fn new<I: Iterator<Item = (u64, u32)>>(entries: impl Fn() -> I) -> Ascending {
        let (mut low, mut high, mut last, mut count) = (u64::MAX, 0, 0, 0);
        for (address, index) in entries() {
            (low, high, last, count) = (address.min(low), address.max(high), index.max(last), count + 1);
        }
        let index_bits = (u32::BITS - last.leading_zeros()).max(1);
        if count == 0 || (high - low) >> (u64::BITS - index_bits) != 0 {
            let mut pairs: Vec<(u64, u32)> = entries().collect();
            pairs.sort_unstable();
            return Ascending::Pairs(pairs);
        }
        let mut numbers = Vec::with_capacity(count);
        numbers.extend(entries().map(|(address, index)| (address - low) << index_bits | u64::from(index)));
        numbers.sort_unstable();
        Ascending::Packed { low, index_bits, numbers }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Ascending::Packed { numbers, .. } => numbers.len(),
            Ascending::Pairs(pairs) => pairs.len(),
        }
    }

    /// Address and index.
    pub(super) fn get(&self, at: usize) -> (u64, u32) {
        match self {
            Ascending::Packed { low, index_bits, numbers } => {
                let number = numbers[at];
                (low + (number >> index_bits), (number & ((1 << index_bits) - 1)) as u32)
            }
            Ascending::Pairs(pairs) => pairs[at],
        }
    }

    pub(super) fn address(&self, at: usize) -> u64 {
        self.get(at).0
    }

    /// How many of the first addresses are so, which must be all that are.
    pub(super) fn partition_point(&self, is_so: impl Fn(u64) -> bool) -> usize {
        match self {
            Ascending::Packed { low, index_bits, numbers } => {
                numbers.partition_point(|number| is_so(low + (number >> index_bits)))
            }
            Ascending::Pairs(pairs) => pairs.partition_point(|(address, _)| is_so(*address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ascending;

    fn check(entries: &[(u64, u32)], is_packed: bool) {
        let sorted = Ascending::new(|| entries.iter().copied());
        let mut expected = entries.to_vec();
        expected.sort_unstable();
        assert_eq!((0..sorted.len()).map(|at| sorted.get(at)).collect::<Vec<_>>(), expected);
        assert_eq!(matches!(sorted, Ascending::Packed { .. }), is_packed);
        for (address, _) in &expected {
            let before = expected.iter().filter(|(other, _)| other < address).count();
            assert_eq!(sorted.partition_point(|other| other < *address), before);
        }
    }

    #[test]
    fn addresses_ascend_and_equal_ones_by_index() {
        check(&[], false);
        check(&[(7, 0)], true);
        check(&[(9, 4), (5, 1), (9, 2), (5, 3), (7, 0)], true);
        check(&[(u64::MAX, 2), (0, 1), (u64::MAX, 1), (1, 7)], false);
        check(&[(u64::MAX, u32::MAX), (u64::MAX - 1, 3)], true);
    }

    #[test]
    fn whatever_fits_is_packed() {
        let mut bits = 1_u64;
        for (shift, is_packed) in [(0, false), (20, true), (40, true), (58, true)] {
            let mut entries: Vec<(u64, u32)> = (0..3_000)
                .map(|index| {
                    bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (bits >> shift, index)
                })
                .collect();
            entries.extend_from_within(..500);
            check(&entries, is_packed);
        }
    }
}
