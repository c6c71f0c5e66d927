//! Addresses in ascending order, without comparing what they belong to.
//!
//! An address and its place are one number where both fit into 64 bits, as in all files but made-up ones: such numbers are
//! sorted in a third of the instructions that pairs take.
#![forbid(unsafe_code)]

/// Places of the addresses from the lowest to the highest; equal ones keep their order.
pub(super) fn ascending(addresses: &[u64]) -> Vec<u32> {
    let low = addresses.iter().copied().min().unwrap_or(0);
    let high = addresses.iter().copied().max().unwrap_or(0);
    let place_bits = u64::BITS - (addresses.len() as u64).leading_zeros();
    let numbered = addresses.iter().map(|address| address - low).zip(0_u32..);
    if place_bits >= u64::BITS || (high - low) >> (u64::BITS - 1 - place_bits) != 0 {
        let mut pairs: Vec<(u64, u32)> = numbered.collect();
        pairs.sort_unstable();
        return pairs.into_iter().map(|(_, place)| place).collect();
    }
    let mut packed: Vec<u64> = numbered.map(|(address, place)| address << place_bits | u64::from(place)).collect();
    packed.sort_unstable();
    let places = (1_u64 << place_bits) - 1;
    packed.into_iter().map(|number| (number & places) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::ascending;

    #[test]
    fn equal_addresses_keep_their_order() {
        assert!(ascending(&[]).is_empty());
        assert_eq!(ascending(&[7]), [0]);
        assert_eq!(ascending(&[9, 5, 9, 5, 7]), [1, 3, 4, 0, 2]);
        assert_eq!(ascending(&[u64::MAX, 0, u64::MAX, 1]), [1, 3, 0, 2]);
    }

    #[test]
    fn packed_and_paired_agree() {
        let mut bits = 1_u64;
        for shift in [0, 20, 40, 58] {
            let mut addresses: Vec<u64> = (0..3_000)
                .map(|_| {
                    bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (bits >> shift) | 1 << 40
                })
                .collect();
            addresses.extend_from_within(..500);
            let mut expected: Vec<u32> = (0..addresses.len() as u32).collect();
            expected.sort_by_key(|&place| addresses[place as usize]);
            assert_eq!(ascending(&addresses), expected, "{shift}");
        }
    }
}
