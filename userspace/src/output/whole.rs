//! Whole numbers whose sum is the rounded sum.
#![forbid(unsafe_code)]

/// Rounds one number after another; what is lost or gained is carried on. Each is off by less than 1, their sum by half.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole {
    carried: f64,
}

impl Whole {
    pub fn next(&mut self, value: f64) -> i64 {
        if value == 0.0 {
            return 0;
        }
        let exact = value + self.carried;
        let whole = exact.round();
        self.carried = exact - whole;
        whole as i64
    }
}

#[cfg(test)]
mod tests {
    use super::Whole;

    #[test]
    fn thirds_sum_up() {
        let mut whole = Whole::default();
        let numbers: Vec<i64> = (0..9).map(|_| whole.next(1.0 / 3.0)).collect();
        assert_eq!(numbers.iter().sum::<i64>(), 3);
        assert!(numbers.iter().all(|number| (0..=1).contains(number)));
        assert_eq!(whole.next(-2.0), -2);
    }
}
