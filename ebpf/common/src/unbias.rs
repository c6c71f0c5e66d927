//! From samples to estimates, and from estimates to the numbers a heap file carries.
//!
//! Symbols, each with its unit:
//!
//! - `s`: usable bytes of one allocation; `R`: mean bytes between sample points, 2^lg.
//! - `p(s) = 1 - exp(-s/R)`: chance that an allocation of `s` bytes holds a sample point (distances are exponential).
//!   `R <= 1` means that every allocation is sampled: `p = 1`.
//! - One sample stands for `1/p(s)` objects and `s/p(s)` bytes (Horvitz-Thompson: unbiased for every size). The
//!   variance of an estimated byte total over live objects of sizes `s_i` is the sum of `s_i^2 (1 - p_i) / p_i`; with
//!   `s << R` that is about `R` times the total, so the relative error is about `sqrt(R / total)`.
//!
//! A heap file carries raw-looking counts which its reader scales by `f = 1 / (1 - exp(-(b/c)/R))`, with `b/c` the mean
//! size of the line. Applied to sums over mixed sizes that is biased, so the writer stores what the reader's formula
//! turns into the true estimate: with `C = sum 1/p`, `S = sum s/p`, mean `x = S/C`, it writes `y = S (1 - exp(-x/R))`
//! bytes and `y/x` objects; the reader's mean is then `x` again and its factor exactly undoes the adjustment, but for
//! rounding to integers.
#![forbid(unsafe_code)]

use crate::root::Counts;

/// `2^lg` bytes, `lg` cut to 63.
pub fn interval_bytes(lg_sample: u32) -> u64 {
    1_u64 << lg_sample.min(63)
}

/// `p(s)` for `usable` bytes at a mean distance of `interval` bytes; in 0..=1, and 0 only for `usable == 0`.
pub fn probability(usable: u64, interval: u64) -> f64 {
    if interval <= 1 {
        return if usable == 0 { 0.0 } else { 1.0 };
    }
    -libm::expm1(-(usable as f64) / interval as f64)
}

/// Estimated bytes, unbiased, that one sample of `usable` bytes stands for: round(s / p(s)).
pub fn weight_bytes(usable: u64, interval: u64) -> u64 {
    if interval <= 1 {
        return usable;
    }
    let p = probability(usable, interval);
    if p <= 0.0 {
        return 0;
    }
    libm::round(usable as f64 / p) as u64
}

/// Estimated objects times 8 of the same sample: round(8 / p(s)), computed from the weight so that the free of an
/// object takes off exactly what its allocation added, whatever the interval is by then.
pub fn weight_objects8(usable: u64, weight_bytes: u64) -> u64 {
    if usable == 0 {
        return 0;
    }
    // In integers where they hold it: every sample and every free of one comes here.
    match weight_bytes.checked_mul(8).and_then(|eight| eight.checked_add(usable / 2)) {
        Some(sum) => sum / usable,
        None => libm::round(8.0 * weight_bytes as f64 / usable as f64) as u64,
    }
}

/// Objects and bytes as a heap file carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub objects: u64,
    pub bytes: u64,
}

/// What to write so that a reader's own scaling arrives at the estimate in `counts`. Nothing when either sum is 0.
pub fn written(counts: &Counts, interval: u64) -> Written {
    if counts.weight_objects8 == 0 || counts.weight_bytes == 0 {
        return Written::default();
    }
    let objects = counts.weight_objects8 as f64 / 8.0;
    let bytes = counts.weight_bytes as f64;
    let mean = bytes / objects;
    let factor = -libm::expm1(-mean / interval.max(1) as f64);
    let y = bytes * factor;
    Written { objects: libm::round(y / mean) as u64, bytes: libm::round(y) as u64 }
}

/// The reader's scaling of one line: estimated objects and bytes.
pub fn estimate(written: Written, interval: u64) -> (f64, f64) {
    if written.objects == 0 || interval == 0 {
        return (written.objects as f64, written.bytes as f64);
    }
    let (objects, bytes) = (written.objects as f64, written.bytes as f64);
    let factor = -libm::expm1(-(bytes / objects) / interval as f64);
    if factor <= 0.0 {
        return (objects, bytes);
    }
    (objects / factor, bytes / factor)
}

#[cfg(test)]
mod tests {
    use super::{Written, estimate, interval_bytes, probability, weight_bytes, weight_objects8, written};
    use crate::root::Counts;

    fn counts_of(samples: &[(u64, u64)], interval: u64) -> Counts {
        let mut sum = Counts::default();
        for &(size, n) in samples {
            let weight = weight_bytes(size, interval);
            sum.objects += n;
            sum.bytes += size * n;
            sum.weight_bytes += weight * n;
            sum.weight_objects8 += weight_objects8(size, weight) * n;
        }
        sum
    }

    #[test]
    fn worked_numbers_of_the_reader_formula() {
        let (objects, bytes) = estimate(Written { objects: 10, bytes: 10240 }, 524_288);
        assert!((objects - 5125.0).abs() < 0.1, "{objects}");
        assert!((bytes - 5_248_001.0).abs() < 1.0, "{bytes}");
        let (objects, bytes) = estimate(Written { objects: 3, bytes: 3_145_728 }, 524_288);
        assert!((objects - 3.47).abs() < 0.01, "{objects}");
        assert!((bytes - 3_638_089.0).abs() < 1.0, "{bytes}");
    }

    #[test]
    fn round_trip_recovers_the_estimate_of_mixed_sizes() {
        for lg in [0, 9, 12, 14, 16, 19, 24] {
            let interval = interval_bytes(lg);
            for samples in [&[(16, 400), (96, 30), (4096, 900), (81_920, 7)][..], &[(8, 5000)], &[(67_108_864, 3)]] {
                let counts = counts_of(samples, interval);
                let out = written(&counts, interval);
                let (objects, bytes) = estimate(out, interval);
                // The file carries integers: half a unit of each written number is lost, relative to its size.
                let lost = 0.5 / out.objects as f64 + 0.5 / out.bytes as f64;
                let want_objects = counts.weight_objects8 as f64 / 8.0;
                let want_bytes = counts.weight_bytes as f64;
                let tolerance = 2.0 * lost + 1e-9;
                assert!((bytes / want_bytes - 1.0).abs() <= tolerance, "lg {lg} {samples:?}: {bytes} != {want_bytes}");
                assert!(
                    (objects / want_objects - 1.0).abs() <= 2.0 * tolerance,
                    "lg {lg} {samples:?}: objects {objects}"
                );
            }
        }
    }

    #[test]
    fn one_sample_of_each_size_weighs_its_inverse_chance() {
        let interval = interval_bytes(19);
        for size in [1_u64, 16, 4096, 524_288, 1 << 26] {
            let p = probability(size, interval);
            assert!(p > 0.0 && p <= 1.0);
            let weight = weight_bytes(size, interval);
            assert!((weight as f64 * p - size as f64).abs() <= 0.5 * p + 1e-6);
            let objects8 = weight_objects8(size, weight) as f64;
            assert!((objects8 - 8.0 / p).abs() <= 0.5 + 4.0 / size as f64 + 1e-6, "{size}: {objects8}");
        }
        assert_eq!(weight_bytes(24, 1), 24);
        assert_eq!(weight_objects8(24, 24), 8);
        assert_eq!(weight_bytes(0, interval), 0);
        assert_eq!(written(&Counts::default(), interval), Written::default());
    }
}
