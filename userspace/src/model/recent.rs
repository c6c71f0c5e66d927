//! What is known of addresses that were met lately.
//!
//! The frames of many stacks are few addresses, which come again and again: a table that each address has one place in tells
//! most of them in half the time that a hash table takes. An address that takes another's place makes that one unknown, so
//! whoever asks has another source.
#![forbid(unsafe_code)]

/// 2^15 places: some hundred thousand bytes, a processor's own cache.
const LG_PLACES: u32 = 15;

/// By address.
#[derive(Clone, Debug)]
pub struct Recent<T> {
    places: Vec<Option<(u64, T)>>,
}

impl<T: Copy> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent { places: vec![None; 1 << LG_PLACES] }
    }
}

impl<T: Copy> Recent<T> {
    fn place(address: u64) -> usize {
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - LG_PLACES)) as usize
    }

    pub fn get(&self, address: u64) -> Option<T> {
        self.places[Recent::<T>::place(address)].filter(|(known, _)| *known == address).map(|(_, value)| value)
    }

    pub fn put(&mut self, address: u64, value: T) {
        self.places[Recent::<T>::place(address)] = Some((address, value));
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn an_address_is_known_until_another_takes_its_place() {
        let mut recent = Recent::default();
        for address in [0, 1, u64::MAX] {
            assert_eq!(recent.get(address), None);
            recent.put(address, address ^ 7);
            assert_eq!(recent.get(address), Some(address ^ 7));
        }
        let of = Recent::<u64>::place;
        let same = (2..u64::MAX).find(|&address| of(address) == of(1)).expect("places are few");
        recent.put(same, 5);
        assert_eq!((recent.get(1), recent.get(same)), (None, Some(5)));
    }
}
