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
//! | the same of one sample | √(w · (w − s)), w = s / p its weight | samples whose intervals differ: [`Basis`] |
//!
//! The standard error of a stack of small objects is close to R·√n: with 4 samples an estimate is good to 50 %, with 400 to
//! 5 %. Sums are formed after unbiasing, never before; variances add up, whatever interval each sample was taken at. `tests/suite/sampling_error.rs` checks the formulas against truth.
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::AddAssign;

use jeprobe_abi::unbias::weight_bytes;

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

/// What the estimate of a total rests on. Of two profiles together it is the sum of both.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Basis {
    /// Samples as they were taken.
    pub samples: u64,
    /// Variance of the estimated bytes, bytes².
    pub variance: f64,
    /// Shortest and longest interval that the samples were taken at.
    pub finest: SampleInterval,
    pub coarsest: SampleInterval,
}

/// Least difference between weight and size, bytes, from which the interval is read off: rounding hides it below.
const TELLING_BYTES: u64 = 8;

impl Basis {
    /// Of no sample yet, at this interval.
    pub fn new(interval: SampleInterval) -> Basis {
        Basis { finest: interval, coarsest: interval, ..Basis::default() }
    }

    /// Adds samples of one stack that were taken at an interval that is known.
    pub fn add_stack(&mut self, sums: Sums) {
        self.samples += sums.raw.objects;
        self.variance += variance_bytes2(sums);
    }

    /// Adds one sample of so many usable bytes, with its weight.
    pub fn add_sample(&mut self, usable: u64, weight: u64) {
        self.samples += 1;
        self.variance += weight as f64 * weight.saturating_sub(usable) as f64;
        if let Some(interval) = interval_of(usable, weight, self.finest) {
            self.finest = self.finest.min(interval);
            self.coarsest = self.coarsest.max(interval);
        }
    }

    /// True when the samples were not all taken at one interval.
    pub fn is_mixed(&self) -> bool {
        self.finest != self.coarsest
    }

    /// The interval in words, `one per 524288 bytes`; none where every object is counted.
    pub fn one_per(&self) -> Option<String> {
        let (finest, coarsest) = (self.finest.0.max(1), self.coarsest.0);
        match coarsest {
            0 | 1 => None,
            _ if finest < coarsest => Some(format!("one per {finest} to {coarsest} bytes")),
            _ => Some(format!("one per {coarsest} bytes")),
        }
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Basis> {
        let mut words = text.split(' ');
        let samples = words.next()?.parse().ok()?;
        let variance = words.next()?.parse().ok().filter(|variance: &f64| variance.is_finite() && *variance >= 0.0)?;
        let mut interval = || words.next()?.parse().ok().map(SampleInterval);
        let (finest, coarsest) = (interval()?, interval()?);
        (finest <= coarsest && words.next().is_none()).then_some(Basis { samples, variance, finest, coarsest })
    }
}

impl AddAssign for Basis {
    fn add_assign(&mut self, other: Basis) {
        // What has no samples says nothing about intervals.
        if self.samples == 0 || other.samples == 0 {
            *self = if other.samples == 0 { *self } else { other };
            return;
        }
        self.samples = self.samples.saturating_add(other.samples);
        self.variance += other.variance;
        self.finest = self.finest.min(other.finest);
        self.coarsest = self.coarsest.max(other.coarsest);
    }
}

/// `SAMPLES VARIANCE FINEST COARSEST`.
impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:e} {} {}", self.samples, self.variance, self.finest.0, self.coarsest.0)
    }
}

/// The power of two that gives an object of this size this weight; `likely` is tried first. From p = s / w = 1 − e^(−s/R)
/// follows R = −s / ln(1 − s/w). `None` for what is sampled nearly for certain, whose weight says nothing.
fn interval_of(usable: u64, weight: u64, likely: SampleInterval) -> Option<SampleInterval> {
    if usable == 0 || weight < usable.saturating_add(TELLING_BYTES) {
        return None;
    }
    if weight_bytes(usable, likely.0) == weight {
        return Some(likely);
    }
    let size = usable as f64;
    let lg = (-size / (-size / weight as f64).ln_1p()).log2().round();
    // Casts of floating numbers stop at the ends of the integer's range.
    let interval = 1_u64.checked_shl(lg as u32)?;
    (weight_bytes(usable, interval) == weight).then_some(SampleInterval(interval))
}

#[cfg(test)]
mod tests {
    use super::{Basis, Sampling, interval_of, variance_bytes2, weight_bytes};
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

    /// By hand: 49 samples of small objects at R = 524288 have √49 · R = 3670016 bytes, 14.3 % of 49 R; 709 at 16384 have
    /// √709 · 16384 = 436259. Together √(3670016² + 436259²) = 3695854 of 37306368 bytes: 9.9 %.
    #[test]
    fn variances_of_two_intervals_add_up() {
        let (fine, coarse) = (SampleInterval(16384), R);
        let mut both = Basis::new(coarse);
        (0..49).for_each(|_| both.add_sample(16, weight_bytes(16, coarse.0)));
        assert!((both.variance.sqrt() / 3_670_016.0 - 1.0).abs() < 0.001, "{both}");
        let mut other = Basis::new(fine);
        other.add_stack(Sampling::Poisson(fine).unbias(Count { objects: 709, bytes: 709 * 16 }));
        both += other;
        assert!((both.variance.sqrt() / 3_695_854.0 - 1.0).abs() < 0.001, "{both}");
        assert_eq!((both.samples, both.finest, both.coarsest), (758, fine, coarse));
        assert_eq!(both.one_per().as_deref(), Some("one per 16384 to 524288 bytes"));
        assert_eq!(Basis::parse(&both.to_string()), Some(both));
        both += Basis::new(SampleInterval(1));
        assert_eq!(both.finest, fine, "no samples, no interval");
    }

    /// s = R: p = 1 − 1/e, w = s/p = 1.58198 s, variance = w (w − s) = 0.92067 s².
    #[test]
    fn one_sample_has_the_variance_of_its_weight() {
        let mut basis = Basis::new(R);
        basis.add_sample(R.0, weight_bytes(R.0, R.0));
        assert!((basis.variance / (R.0 as f64).powi(2) - 0.92067).abs() < 1e-4, "{basis}");
        basis.add_sample(64, 64);
        assert_eq!(basis.samples, 2);
        assert!((basis.variance / (R.0 as f64).powi(2) - 0.92067).abs() < 1e-4, "a certain sample adds none: {basis}");
    }

    #[test]
    fn the_interval_is_read_off_a_weight() {
        for lg in [4, 8, 14, 19, 30] {
            for size in [16, 48, 4096, 1 << 19] {
                let weight = weight_bytes(size, 1 << lg);
                let telling = weight >= size + 8;
                let found = interval_of(size, weight, SampleInterval(512));
                assert_eq!(found, telling.then_some(SampleInterval(1 << lg)), "{size} at 2^{lg}");
            }
        }
        assert_eq!(interval_of(64, 100, R), None, "no power of two");
        assert_eq!(interval_of(0, 100, R), None);
        assert_eq!(interval_of(1, u64::MAX, R), None);
    }

    #[test]
    fn damaged_text_is_no_basis() {
        for text in ["", "1 2 3", "1 2 3 4 5", "1 -2 3 4", "1 NaN 3 4", "1 inf 3 4", "1 2 4 3", "x 2 3 4"] {
            assert_eq!(Basis::parse(text), None, "{text}");
        }
    }
}
