//! Whole numbers whose sum is the whole number of the sum.
//!
//! Numbers are cut at the point, as jeprof cuts its total: so the rows of every format sum up to the total that the table shows.
#![forbid(unsafe_code)]

/// Cuts one number after another; what is lost is carried on. Each is off by less than 1 (by less than 2 where sums change
/// their sign), their sum by as much.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole {
    sum: f64,
    given: i128,
}

impl Whole {
    pub fn next(&mut self, value: f64) -> i128 {
        self.sum += value;
        let whole = cut(self.sum);
        whole.saturating_sub(std::mem::replace(&mut self.given, whole))
    }

    /// The same for a form whose numbers have 64 bits: what is beyond that is as much as it can say.
    pub fn next_of_64_bits(&mut self, value: f64) -> i64 {
        self.next(value).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// Without the digits behind the point. What floating sums leave below a whole number is none: 2.999999999 is 3.
pub fn cut(value: f64) -> i128 {
    let near = value.round();
    let slack = 1e-6 + value.abs() * 4e-15;
    (if (value - near).abs() < slack { near } else { value.trunc() }) as i128
}

/// Less than half a byte or object: what floating sums leave of a difference.
pub fn is_nothing(value: f64) -> bool {
    value.abs() < 0.5
}

#[cfg(test)]
mod tests {
    use super::{Whole, cut};

    #[test]
    fn parts_sum_up() {
        let mut whole = Whole::default();
        let numbers: Vec<i128> = (0..9).map(|_| whole.next(1.0 / 3.0)).collect();
        assert_eq!(numbers.iter().sum::<i128>(), 3);
        assert!(numbers.iter().all(|number| (0..=1).contains(number)));
        assert_eq!(whole.next(-2.0), -2);
    }

    #[test]
    fn sums_beyond_64_bits_are_no_less_than_their_parts() {
        let mut whole = Whole::default();
        let most = u64::MAX as f64;
        assert_eq!((whole.next(most), whole.next(most / 2.0)), (1 << 64, 1 << 63));
        assert_eq!(whole.next(-2.0 * most), -(2 << 64));
        assert_eq!((whole.next_of_64_bits(4.0 * most), whole.next_of_64_bits(1e40)), (i64::MAX, i64::MAX));
    }

    #[test]
    fn the_sum_is_cut_and_not_rounded() {
        let mut whole = Whole::default();
        assert_eq!((0..4).map(|_| whole.next(2.7)).sum::<i128>(), 10);
        for (value, shown) in [(10.8, 10), (-10.8, -10), (2.999_999_999, 3), (0.0, 0)] {
            assert_eq!(cut(value), shown, "{value}");
        }
    }
}
