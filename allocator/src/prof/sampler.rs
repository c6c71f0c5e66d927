//! When to sample: distances in allocated bytes, drawn from an exponential distribution. Pure: no clock, no state but
//! the generator's word, the same sequence for the same seed.
//!
//! `R = 2^lg` is the mean distance in bytes. A distance `d = ceil(-R ln u)`, `u` uniform in (0, 1], satisfies
//! `P(d <= s) = 1 - exp(-s/R)` for every whole `s`: exactly the chance that `jeprobe_abi::unbias::probability` gives an
//! allocation of `s` usable bytes, when the allocation that brings the bytes since the last draw to `d` or more is the
//! sample. The distribution has no memory, so drawing anew after each sample, after a change of `R`, or on a whim
//! changes no probability.
#![forbid(unsafe_code)]

/// Longest distance, bytes: leaves room to add it to any byte counter. Reached only with `lg` above 56.
const MAX_DISTANCE: u64 = 1 << 62;

/// Generator of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    state: u64,
}

impl Sampler {
    pub(crate) const fn seeded(seed: u64) -> Sampler {
        Sampler { state: seed }
    }

    /// `SplitMix64`: every seed gives a full-period sequence of its own.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Bytes until the next sample point, at least 1; always 1 for `lg == 0`.
    pub(crate) fn distance(&mut self, lg: u32) -> u64 {
        if lg == 0 {
            return 1;
        }
        // 53 bits, shifted from 0..2^53 to 1..=2^53, so that the logarithm is finite.
        let u = ((self.next() >> 11) + 1) as f64 * (1.0 / 9_007_199_254_740_992.0);
        let mean = (1_u64 << lg.min(63)) as f64;
        let distance = libm::ceil(-mean * libm::log(u));
        // A float outside the integer's range is cut to its ends.
        (distance as u64).clamp(1, MAX_DISTANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DISTANCE, Sampler};
    use std::vec::Vec;

    const DRAWS: usize = 200_000;

    /// Mean of `n` exponential draws has the standard deviation `R / sqrt(n)`; rounding up adds a half.
    #[test]
    fn mean_and_variance_are_those_of_the_distribution() {
        for (seed, lg) in [(1, 9), (2, 12), (3, 19), (4, 30)] {
            let mut sampler = Sampler::seeded(seed);
            let mean_want = (1_u64 << lg) as f64 + 0.5;
            let draws: Vec<f64> = (0..DRAWS).map(|_| sampler.distance(lg) as f64).collect();
            let n = DRAWS as f64;
            let mean = draws.iter().sum::<f64>() / n;
            let sigma = mean_want / n.sqrt();
            assert!((mean - mean_want).abs() < 4.0 * sigma, "lg {lg}: {mean} against {mean_want} +- {sigma}");
            // The variance R^2 is estimated with relative deviation sqrt((kurtosis - 1) / n) = sqrt(8 / n).
            let variance = draws.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / n;
            let relative = variance / (mean_want * mean_want) - 1.0;
            assert!(relative.abs() < 4.0 * (8.0 / n).sqrt() + 1.0 / mean_want, "lg {lg}: {relative}");
        }
    }

    /// The share of objects of `s` bytes that are sampled is p(s), with binomial deviation.
    #[test]
    fn the_chance_of_each_size_is_the_one_that_weights_assume() {
        let lg = 12;
        for size in [16_u64, 512, 4096, 20_000] {
            let mut sampler = Sampler::seeded(size);
            let (mut since, mut distance, mut hits) = (0, sampler.distance(lg), 0_u64);
            for _ in 0..DRAWS {
                since += size;
                if since >= distance {
                    hits += 1;
                    since = 0;
                    distance = sampler.distance(lg);
                }
            }
            let p = jeprobe_abi::unbias::probability(size, 1 << lg);
            let n = DRAWS as f64;
            let sigma = (p * (1.0 - p) / n).sqrt();
            let share = hits as f64 / n;
            assert!((share - p).abs() < 4.0 * sigma, "size {size}: {share} against {p} +- {sigma}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        let mut sampler = Sampler::seeded(7);
        assert!((0..100).all(|_| sampler.distance(0) == 1));
        assert!((0..1000).all(|_| (1..=MAX_DISTANCE).contains(&sampler.distance(63))));
        assert!((0..1000).all(|_| (1..=MAX_DISTANCE).contains(&sampler.distance(u32::MAX))));
    }

    #[test]
    fn a_seed_repeats_and_seeds_differ() {
        let draw =
            |seed| (0..8).map(|_| 0).scan(Sampler::seeded(seed), |s, _| Some(s.distance(20))).collect::<Vec<_>>();
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
