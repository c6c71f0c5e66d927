//! Ratios of interleaved rounds.
//!
//! A ratio of two peers on one case is the median of the ratios of their runs in the same round: what disturbs a machine for
//! longer than a run disturbs both. Over the cases ratios are averaged geometrically.
#![forbid(unsafe_code)]

/// Middle of the values; the mean of the two middle ones when their number is even. NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Geometric mean; NaN without values.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value.ln();
        count += 1.0;
    }
    f64::exp(sum / count)
}

/// A ratio over rounds: median, least and greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

/// Ratio of `a` to `b`, whose entries at one index are of one round. shape: equal lengths, not empty.
pub(crate) fn paired(a: &[f64], b: &[f64]) -> Ratio {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    Ratio {
        median: median(&ratios),
        least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        greatest: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_disturbed_round_leaves_a_paired_ratio_alone() {
        // The third round ran at half speed for both.
        let ratio = paired(&[1.1, 1.1, 2.2], &[1.0, 1.0, 2.0]);
        assert!((ratio.median - 1.1).abs() < 1e-9 && (ratio.greatest - 1.1).abs() < 1e-9);
    }

    #[test]
    fn means_of_ratios_are_geometric() {
        assert!((geometric_mean([2.0, 0.5]) - 1.0).abs() < 1e-9);
        assert!(geometric_mean([]).is_nan());
    }
}
