//! Numbers with a unit in their type: raw counts of samples, estimates made from them, and the sampling interval.
//!
//! | type | unit | made by |
//! |---|---|---|
//! | [`Count`] | raw samples and the usable bytes of the sampled objects | the sampler, or a file's count lines |
//! | [`EstCount`] | estimated objects and bytes of the whole heap, unbiased | [`crate::estimate`], or the sampler's weights |
//! | [`Sums`] | one of each, about the same samples | whoever adds samples to a profile |
//! | [`SampleInterval`] | mean bytes between two samples | the file's first line, or the profile table |
//!
//! A raw count and an estimate do not mix: there is no conversion between them here and no arithmetic across them.
//! Estimates are sums over samples that were each unbiased first; they are never unbiased again.
#![forbid(unsafe_code)]

use std::iter::Sum;
use std::ops::{AddAssign, SubAssign};

use jeprobe_abi::root::Counts;

/// Raw samples and their usable bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub objects: u64,
    pub bytes: u64,
}

/// Estimated objects and bytes. Fractions are kept: rounding happens when a number is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EstCount {
    pub objects: f64,
    pub bytes: f64,
}

/// What a set of samples amounts to, raw and estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub raw: Count,
    pub est: EstCount,
}

/// Mean bytes between two samples; 0 = the profile is not sampled and its counts are the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SampleInterval(pub u64);

/// A number of things in words: `1 sample`, `2 samples`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl Count {
    pub const ZERO: Count = Count { objects: 0, bytes: 0 };
}

impl EstCount {
    pub const ZERO: EstCount = EstCount { objects: 0.0, bytes: 0.0 };
}

impl Sums {
    pub const ZERO: Sums = Sums { raw: Count::ZERO, est: EstCount::ZERO };

    /// True when there is neither a sample nor an estimate.
    pub fn is_zero(&self) -> bool {
        *self == Sums::ZERO
    }
}

/// The profile table's sums: raw counts, and the weights that the sampler gave each sample.
impl From<Counts> for Sums {
    fn from(counts: Counts) -> Sums {
        Sums {
            raw: Count { objects: counts.objects, bytes: counts.bytes },
            est: EstCount { objects: counts.weight_objects8 as f64 / 8.0, bytes: counts.weight_bytes as f64 },
        }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl AddAssign for EstCount {
    fn add_assign(&mut self, other: EstCount) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

/// Differences of estimates may be negative: a profile minus its base.
impl SubAssign for EstCount {
    fn sub_assign(&mut self, other: EstCount) {
        self.objects -= other.objects;
        self.bytes -= other.bytes;
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        self.raw += other.raw;
        self.est += other.est;
    }
}

impl Sum for Sums {
    fn sum<I: Iterator<Item = Sums>>(items: I) -> Sums {
        items.fold(Sums::ZERO, |mut total, item| {
            total += item;
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Sums};
    use jeprobe_abi::root::Counts;

    #[test]
    fn table_weights_become_estimates_with_their_fraction() {
        let sums = Sums::from(Counts { objects: 2, bytes: 32, weight_objects8: 12, weight_bytes: 1000 });
        assert_eq!(sums.raw, Count { objects: 2, bytes: 32 });
        assert!((sums.est.objects - 1.5).abs() < f64::EPSILON);
        assert!((sums.est.bytes - 1000.0).abs() < f64::EPSILON);
    }

    #[test]
    fn raw_counts_saturate_instead_of_wrapping() {
        let mut count = Count { objects: u64::MAX, bytes: 1 };
        count += Count { objects: 1, bytes: u64::MAX };
        assert_eq!(count, Count { objects: u64::MAX, bytes: u64::MAX });
    }
}
