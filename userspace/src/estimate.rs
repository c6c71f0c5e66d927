//! From raw samples to estimates, and how far an estimate may be off. Pure functions.
//!
//! Symbols: s usable bytes of an object; R mean bytes between samples; p(s) = 1 − e^(−s/R), the chance that an object
//! of s bytes is sampled; n raw samples, b their bytes, a = b/n their mean size.
//!
//! | what | formula | used for |
//! |---|---|---|
//! | Poisson | n/p(a) objects, b/p(a) bytes | `heap_v2`; exact when all n have one size, and made exact by the writer otherwise |
//! | ratio | divided by a/R when a < R | gperftools' first format, which drew uniform distances |
//! | standard error | √(n · a² · (1 − p)) / p bytes, p = b / estimate | Horvitz-Thompson, equal sizes within a stack |
//!
//! The standard error of a stack of small objects is close to R·√n: with 4 samples an estimate is good to 50 %, with 400 to
//! 5 %. Sums are formed after unbiasing, never before. `tests/suite/sampling_error.rs` checks the formulas against truth.
#![forbid(unsafe_code)]

use crate::units::{Count, EstCount, SampleInterval, Sums};

/// How the counts of a file came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Every object is counted.
    None,
    /// Exponential distances with this mean.
    Poisson(SampleInterval),
    /// Uniform distances with this mean.
    Uniform(SampleInterval),
}

impl Sampling {
    /// Mean bytes between samples; 0 when nothing was left out.
    pub fn interval(self) -> SampleInterval {
        match self {
            Sampling::None => SampleInterval(0),
            Sampling::Poisson(interval) | Sampling::Uniform(interval) => interval,
        }
    }

    /// Unbiases one printed pair of counts.
    pub fn unbias(self, raw: Count) -> Sums {
        let (objects, bytes) = (raw.objects as f64, raw.bytes as f64);
        let interval = self.interval().0 as f64;
        let factor = if raw.objects == 0 || interval == 0.0 {
            1.0
        } else {
            let ratio = (bytes / objects) / interval;
            match self {
                Sampling::None => 1.0,
                // A pair without bytes stands for nothing that can be scaled.
                _ if ratio == 0.0 => 1.0,
                Sampling::Poisson(_) => 1.0 / (1.0 - (-ratio).exp()),
                Sampling::Uniform(_) if ratio < 1.0 => 1.0 / ratio,
                Sampling::Uniform(_) => 1.0,
            }
        };
        Sums { raw, est: EstCount { objects: objects * factor, bytes: bytes * factor } }
    }
}

impl Sampling {
    /// The raw counts that [`Sampling::unbias`] turns into this estimate, as far as whole numbers can: for files that keep
    /// estimates only. Differences below 0 have none.
    pub fn raw_of(self, est: EstCount) -> Count {
        let interval = self.interval().0 as f64;
        let chance = if est.objects <= 0.0 || est.bytes <= 0.0 || interval == 0.0 {
            1.0
        } else {
            let ratio = (est.bytes / est.objects) / interval;
            match self {
                Sampling::None => 1.0,
                Sampling::Poisson(_) => -(-ratio).exp_m1(),
                Sampling::Uniform(_) => ratio.min(1.0),
            }
        };
        // Casts of floating numbers stop at the ends of the integer's range.
        Count { objects: (est.objects * chance).round() as u64, bytes: (est.bytes * chance).round() as u64 }
    }
}

/// Variance, in bytes², of the estimate of one stack. Variances of different stacks add up. The chance of being sampled
/// is read off the estimate itself, p = b / estimated bytes, so it holds for samples taken at several intervals too.
pub fn variance_bytes2(sums: Sums) -> f64 {
    let (objects, bytes) = (sums.raw.objects as f64, sums.raw.bytes as f64);
    if objects == 0.0 || bytes == 0.0 || sums.est.bytes <= bytes {
        return 0.0;
    }
    let mean = bytes / objects;
    let p = bytes / sums.est.bytes;
    objects * mean * mean * (1.0 - p) / (p * p)
}

#[cfg(test)]
mod tests {
    use super::{Sampling, variance_bytes2};
    use crate::units::{Count, SampleInterval};

    const R: SampleInterval = SampleInterval(524288);

    #[test]
    fn the_factor_of_small_objects_is_near_interval_over_size() {
        let sums = Sampling::Poisson(R).unbias(Count { objects: 10, bytes: 10240 });
        assert!((sums.est.bytes - 5_248_001.0).abs() < 1.0, "{sums:?}");
        assert!((sums.est.objects - 5125.0).abs() < 0.1, "{sums:?}");
    }

    #[test]
    fn raw_counts_come_back_from_estimates() {
        for raw in [Count { objects: 10, bytes: 10240 }, Count { objects: 3, bytes: 3 << 20 }, Count::ZERO] {
            for sampling in [Sampling::None, Sampling::Poisson(R), Sampling::Uniform(R)] {
                assert_eq!(sampling.raw_of(sampling.unbias(raw).est), raw, "{sampling:?}");
            }
        }
    }

    #[test]
    fn uniform_sampling_leaves_large_objects_alone() {
        let sums = Sampling::Uniform(R).unbias(Count { objects: 3, bytes: 3 << 20 });
        assert!((sums.est.bytes - f64::from(3 << 20)).abs() < 1e-6);
        let sums = Sampling::Uniform(R).unbias(Count { objects: 10, bytes: 10240 });
        assert!((sums.est.bytes - 10.0 * 524288.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_and_the_unsampled_stay_as_they_are() {
        for sampling in [Sampling::None, Sampling::Poisson(SampleInterval(0)), Sampling::Poisson(R)] {
            let sums = sampling.unbias(Count { objects: 0, bytes: 77 });
            assert!((sums.est.bytes - 77.0).abs() < 1e-9);
        }
        let odd = Sampling::Poisson(R).unbias(Count { objects: 5, bytes: 0 });
        assert!(odd.est.objects.is_finite() && odd.est.bytes == 0.0);
    }

    #[test]
    fn error_of_small_objects_is_the_interval_times_root_n() {
        let deviation = variance_bytes2(Sampling::Poisson(R).unbias(Count { objects: 100, bytes: 1600 })).sqrt();
        assert!((deviation / (524288.0 * 10.0) - 1.0).abs() < 0.001, "{deviation}");
        assert!(variance_bytes2(Sampling::Poisson(R).unbias(Count { objects: 1, bytes: 64 << 20 })) < 1.0);
        assert!(variance_bytes2(Sampling::None.unbias(Count { objects: 3, bytes: 48 })) == 0.0);
    }

    #[test]
    fn the_error_follows_the_interval_that_the_samples_were_taken_at() {
        let fine = Sampling::Poisson(SampleInterval(4096)).unbias(Count { objects: 400, bytes: 6400 });
        let deviation = variance_bytes2(fine).sqrt() / fine.est.bytes;
        assert!((deviation / 0.05 - 1.0).abs() < 0.01, "{deviation}");
    }
}
