//! The visible line about memory that no sample covers: live before sampling was on, or too small a part to be seen.
//!
//! Symbols, all bytes: L live in the allocator (its own gauge, exact at its last refresh), E the estimate of live bytes
//! from samples, R mean bytes between samples. A sample of s ≪ R bytes stands for R bytes, so N samples estimate N·R
//! with standard deviation √N·R = √(E·R); larger objects vary less. L − E beyond three of these is no chance: that
//! memory was never offered to the sampler.
#![forbid(unsafe_code)]

use jeprobe_abi::root::Root;

use crate::model::Profile;
use crate::proc::pids;

/// The line, when there is something to say; lower case, no trailing stop.
pub fn note(profile: &Profile, root: &Root, pid: u32) -> Option<String> {
    let estimate = profile.sum().current.est.bytes.max(0.0);
    if root.allocated_bytes == 0 {
        // The gauge was never refreshed: resident memory is the only bound that is left.
        let rss = pids::status(pid).ok()?.rss_bytes as f64;
        return (estimate < rss / 2.0).then(|| {
            format!(
                "samples cover {} of live memory; the process holds {} resident, and what it allocated before sampling was \
                 on has no stack",
                megabytes(estimate),
                megabytes(rss)
            )
        });
    }
    let live = root.allocated_bytes as f64;
    uncovered(live, estimate, profile.interval().0 as f64).map(|missing| {
        format!(
            "{} of {} live bytes were allocated while sampling was off and have no stack",
            megabytes(missing),
            megabytes(live)
        )
    })
}

/// Live bytes that the samples cannot stand for.
fn uncovered(live: f64, estimate: f64, interval: f64) -> Option<f64> {
    // With no sample at all the deviation is that of the first interval.
    let deviation = (estimate.max(interval) * interval).sqrt();
    let missing = live - estimate;
    (missing > 3.0 * deviation).then_some(missing)
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

#[cfg(test)]
mod tests {
    use super::uncovered;

    #[test]
    fn chance_is_not_reported_and_unsampled_memory_is() {
        // 100 samples of R = 1 kB estimate 100 kB ± 10 kB.
        assert_eq!(uncovered(120e3, 100e3, 1e3), None);
        assert_eq!(uncovered(140e3, 100e3, 1e3), Some(40e3));
        assert_eq!(uncovered(50e3, 100e3, 1e3), None);
        assert_eq!(uncovered(2e3, 0.0, 1e3), None);
        assert_eq!(uncovered(1e9, 0.0, 1e3), Some(1e9));
    }
}
