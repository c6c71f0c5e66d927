//! From sampled to estimated values, per record.
//!
//! | rule | factor of both numbers of a pair (c objects, b bytes; R mean distance between samples, bytes) |
//! |---|---|
//! | `Poisson` | 1 / (1 − e^(−(b/c)/R)) |
//! | `Uniform` | 1 / q for q = (b/c)/R below 1, otherwise 1 |
//!
//! A pair without objects, or without bytes, stays as it is: there is no size to estimate from.
#![forbid(unsafe_code)]

/// How a file was sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    None,
    Poisson(f64),
    Uniform(f64),
}

impl Scale {
    /// Value `column` (0 and 2 objects, 1 and 3 bytes) of a record's two pairs, estimated.
    pub fn column(self, numbers: &[f64; 4], column: usize) -> f64 {
        let (count, bytes) = if column < 2 { (numbers[0], numbers[1]) } else { (numbers[2], numbers[3]) };
        numbers[column] * self.factor(count, bytes)
    }

    fn factor(self, count: f64, bytes: f64) -> f64 {
        if count == 0.0 || bytes == 0.0 {
            return 1.0;
        }
        match self {
            Scale::Poisson(rate) if rate > 0.0 => 1.0 / (1.0 - (-(bytes / count / rate)).exp()),
            Scale::Uniform(rate) if rate > 0.0 => {
                let ratio = bytes / count / rate;
                if ratio < 1.0 { 1.0 / ratio } else { 1.0 }
            }
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "values that must not change")]

    use super::Scale;

    #[test]
    fn worked_numbers() {
        let small = [10.0, 10240.0, 12.0, 12288.0];
        let poisson = Scale::Poisson(524_288.0);
        assert_eq!(poisson.column(&small, 0) as u64, 5125);
        assert_eq!(poisson.column(&small, 1) as u64, 5_248_001);
        assert_eq!(Scale::Uniform(524_288.0).column(&small, 1) as u64, 5_242_880);
        assert_eq!(poisson.column(&[0.0, 0.0, 1.0, 0.0], 2), 1.0);
        assert_eq!(Scale::Poisson(0.0).column(&small, 3), 12288.0);
    }
}
