//! Pure integer arithmetic used at compile time and on the allocation path. No panics: overflow is an `Option`.
#![forbid(unsafe_code)]

/// Smallest multiple of `align` that is at least `n`; `None` on overflow. `align` is a power of two.
#[inline]
pub(crate) const fn align_up(n: usize, align: usize) -> Option<usize> {
    match n.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

/// Largest multiple of `align` that is at most `n`. `align` is a power of two.
#[inline]
pub(crate) const fn align_down(n: usize, align: usize) -> usize {
    n & !(align - 1)
}

/// Floor of the base-2 logarithm; 0 for 0.
#[inline]
pub(crate) const fn lg_floor(n: usize) -> u32 {
    usize::BITS - 1 - (n | 1).leading_zeros()
}

/// True for 1, 2, 4, 8, …
#[inline]
pub(crate) const fn is_pow2(n: usize) -> bool {
    n.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding() {
        assert_eq!(align_up(0, 16), Some(0));
        assert_eq!(align_up(1, 16), Some(16));
        assert_eq!(align_up(16, 16), Some(16));
        assert_eq!(align_up(usize::MAX - 3, 16), None);
        assert_eq!(align_down(31, 16), 16);
    }

    #[test]
    fn logarithms() {
        assert_eq!(lg_floor(0), 0);
        assert_eq!(lg_floor(1), 0);
        assert_eq!(lg_floor(4095), 11);
        assert_eq!(lg_floor(4096), 12);
        assert!(is_pow2(64) && !is_pow2(48) && !is_pow2(0));
    }
}
