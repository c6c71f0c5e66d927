//! The line about live memory that was never offered to the sampler, as it was allocated while sampling was off.
//!
//! Symbols, all bytes: L live in the allocator (a gauge of its own, true at its last refresh, which is at a sample point
//! and may be long ago), E the estimate of live bytes from samples (true at the reading), σ the standard error of E.
//!
//! L and E of different moments do not subtract: what is freed in between leaves E at once and L at the next sample
//! point. L − E says something when
//!
//! | the reading | because |
//! |---|---|
//! | is the first of its table, and no sample was ever freed | E only grew since L was taken: L − E is too small, if anything |
//! | shows another L than the one before, and no sample was freed in between | L was taken in between, and E only grew since |
//!
//! The first reading is made before sampling is switched on. A gap beyond two standard errors and one percent of L is
//! told, as of its moment: it can only shrink afterwards, while a later gap below it shows that it did.
//!
//! A process that allocates little while it is watched reaches no sample point, and L stays what it was, even 0. Then all that
//! is known is a bound: A − E, with A the memory of the process that is no file's, as the kernel counts it now. It is told
//! where L is old, which shows by A being larger than what the allocator said to have then.
#![forbid(unsafe_code)]

use super::table::Reading;
use super::target::Target;
use crate::model::{Profile, is_lost};

const FROM_THE_START: &str = "a program that is started with MALLOC_CONF=prof:true samples from the start";

/// What the readings of one table showed so far.
#[derive(Debug, Default)]
pub struct Unsampled {
    last: Option<Seen>,
    /// Sampling was off at the first reading.
    was_off: bool,
    found: Option<Gap>,
    /// Longest interval seen: distances drawn at it are used up before a shorter one takes effect.
    interval: f64,
}

/// One reading, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    live: u64,
    estimate: f64,
    error: f64,
    frees: u64,
    epoch: u32,
    /// Memory that is no file's: by the kernel now, and of the allocator when `live` was.
    anonymous: u64,
    resident: u64,
}

/// What stacks of threads, relocated data and the like take of a process's memory, beside the allocator's.
const BESIDES: f64 = 4.0 * 1024.0 * 1024.0;

/// Live bytes at one moment, and those of them that no sample stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gap {
    missing: f64,
    live: f64,
}

impl Unsampled {
    /// Takes in a reading.
    pub fn look(&mut self, reading: &Reading) {
        let profile = &reading.profile;
        if profile.losses().any(|(reason, _)| is_lost(reason)) {
            // Samples are missing for another reason, which is told by itself.
            self.found = None;
            return;
        }
        if self.last.is_none() {
            self.was_off = reading.root.prof_active == 0;
        }
        let basis = profile.basis(false);
        self.interval = self.interval.max(basis.coarsest.0 as f64);
        self.add(Seen {
            live: reading.root.allocated_bytes,
            estimate: profile.sum().current.est.bytes,
            // A distance that is not yet used up hides an interval's worth.
            error: basis.variance.sqrt().max(self.interval),
            frees: reading.root.frees,
            epoch: reading.root.epoch,
            anonymous: reading.anonymous_bytes,
            resident: reading.root.resident_bytes,
        });
    }

    /// Takes in a reading of the process, if it has a table that can be read.
    pub fn look_at(&mut self, pid: u32) {
        if let Ok(reading) = Target::open(pid).and_then(|target| target.read()) {
            self.look(&reading);
        }
    }

    fn add(&mut self, seen: Seen) {
        let comparable = match self.last.replace(seen) {
            None => seen.frees == 0 && seen.epoch == 0,
            Some(last) => seen.live != last.live && seen.frees == last.frees && seen.epoch == last.epoch,
        };
        if !comparable || seen.live == 0 {
            return;
        }
        let gap = Gap { missing: seen.live as f64 - seen.estimate, live: seen.live as f64 };
        if gap.missing > (2.0 * seen.error).max(gap.live / 100.0) {
            self.found = Some(gap);
        } else if self.found.is_some_and(|found| gap.missing + 2.0 * seen.error < found.missing) {
            self.found = None;
        }
    }

    /// Adds the line to the result, when there is something to say.
    pub fn tell(&self, profile: &mut Profile) {
        if let Some(line) = self.line() {
            profile.add_note(line);
        }
    }

    /// The bound, where the gauge is too old to tell more.
    fn bound(&self) -> Option<Gap> {
        let seen = self.last.filter(|_| self.was_off)?;
        let live = seen.anonymous as f64;
        let missing = live - seen.estimate;
        let is_old = live > 1.05 * seen.resident as f64 + BESIDES;
        (is_old && missing > (2.0 * seen.error).max(live / 10.0)).then_some(Gap { missing, live })
    }

    /// Lower case, no trailing stop.
    fn line(&self) -> Option<String> {
        let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
        if let Some(Gap { missing, live }) = self.bound() {
            return Some(format!(
                "up to {:.1} MiB of the {:.1} MiB that the process has beside its files were allocated while sampling was off, so never \
                 sampled, or are no heap: they are in no row here; {FROM_THE_START}",
                mebibytes(missing),
                mebibytes(live)
            ));
        }
        let Gap { missing, live } = self.found?;
        Some(format!(
            "about {:.1} MiB of {:.1} MiB live at one time had been allocated while sampling was off, so never sampled: what is \
             left of them is in no row here; {FROM_THE_START}",
            mebibytes(missing),
            mebibytes(live)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Seen, Unsampled};

    const MB: u64 = 1 << 20;

    /// R = 1 MB; E of 4 MB or more has an error of √(E·R).
    fn seen(live: u64, estimate: u64, frees: u64) -> Seen {
        let error = ((estimate.max(MB) * MB) as f64).sqrt();
        Seen { live, estimate: estimate as f64, error, frees, epoch: 0, anonymous: live, resident: live }
    }

    /// Missing MB after these readings.
    fn after(readings: &[Seen]) -> Option<u64> {
        let mut unsampled = Unsampled::default();
        for &seen in readings {
            unsampled.add(seen);
        }
        unsampled.found.map(|gap| gap.missing as u64 / MB)
    }

    #[test]
    fn what_was_live_before_the_first_sample_is_told() {
        assert_eq!(after(&[seen(60 * MB, 0, 0)]), Some(60));
        assert_eq!(after(&[seen(60 * MB, 0, 0), seen(90 * MB, 20 * MB, 300)]), Some(60));
    }

    #[test]
    fn chance_is_not_told() {
        assert_eq!(after(&[seen(0, 0, 0)]), None);
        assert_eq!(after(&[seen(2 * MB, 0, 0)]), None);
        // 100 ± 10 MB.
        assert_eq!(after(&[seen(119 * MB, 100 * MB, 0)]), None);
        assert_eq!(after(&[seen(121 * MB, 100 * MB, 0)]), Some(21));
        // Exact, but less than a percent.
        assert_eq!(after(&[Seen { error: 0.0, ..seen(1000 * MB, 991 * MB, 0) }]), None);
    }

    /// Attached before the first object; the gauge stays at the peak while samples are freed.
    #[test]
    fn a_gauge_from_before_the_frees_is_not_believed() {
        assert_eq!(after(&[seen(0, 0, 0), seen(734 * MB, 588 * MB, 40)]), None);
        assert_eq!(after(&[seen(0, 0, 0), seen(734 * MB, 730 * MB, 0), seen(734 * MB, 10 * MB, 700)]), None);
        // Sampled before, partly freed: nothing tells whether before or after the refresh.
        assert_eq!(after(&[seen(734 * MB, 10 * MB, 700)]), None);
    }

    #[test]
    fn a_gauge_that_lagged_behind_at_the_start_is_made_good() {
        assert_eq!(after(&[seen(MB, 0, 0), seen(MB, 100 * MB, 0)]), None);
        assert_eq!(after(&[seen(MB, 0, 0), seen(130 * MB, 100 * MB, 0)]), Some(30));
    }

    #[test]
    fn a_later_gap_replaces_the_first() {
        // The old memory went away.
        assert_eq!(after(&[seen(60 * MB, 0, 0), seen(9 * MB, 9 * MB, 0)]), None);
        assert_eq!(after(&[seen(60 * MB, 0, 0), seen(50 * MB, 9 * MB, 0)]), Some(41));
        // Too noisy to tell: the first stands.
        assert_eq!(after(&[seen(60 * MB, 0, 0), seen(2440 * MB, 2400 * MB, 0)]), Some(60));
    }

    #[test]
    fn a_reset_of_the_table_starts_anew() {
        let reset = |live, estimate| Seen { epoch: 1, ..seen(live, estimate, 0) };
        assert_eq!(after(&[reset(60 * MB, 0)]), None);
        assert_eq!(after(&[seen(60 * MB, 60 * MB, 0), reset(61 * MB, 0)]), None);
    }

    /// It holds memory from before and does next to nothing since: the gauge is of no time or of an old one.
    #[test]
    fn an_old_gauge_leaves_a_bound() {
        let idle = |live, estimate, anonymous| Unsampled {
            was_off: true,
            last: Some(Seen { anonymous, ..seen(live, estimate, 0) }),
            ..Unsampled::default()
        };
        let missing = |unsampled: Unsampled| unsampled.bound().map(|gap| gap.missing as u64 / MB);
        assert_eq!(missing(idle(0, 0, 103 * MB)), Some(103));
        assert_eq!(missing(idle(62 * MB, 0, 103 * MB)), Some(103));
        assert_eq!(missing(idle(62 * MB, 30 * MB, 103 * MB)), Some(73));
        // Young enough, or nothing much.
        assert_eq!(missing(idle(100 * MB, 0, 103 * MB)), None);
        assert_eq!(missing(idle(0, 0, 4 * MB)), None);
        // All that the process has is sampled, and what the allocator keeps is not held by anyone.
        assert_eq!(missing(idle(10 * MB, 95 * MB, 103 * MB)), None);
        assert_eq!(missing(Unsampled { was_off: false, ..idle(0, 0, 103 * MB) }), None);
        let line = Unsampled { found: Some(super::Gap { missing: 1.0, live: 1.0 }), ..idle(0, 0, 103 * MB) }.line();
        assert!(line.is_some_and(|line| line.starts_with("up to 103.0 MiB of the 103.0 MiB")), "the bound comes first");
    }

    #[test]
    fn the_line_counts_in_megabytes_of_the_table() {
        let mut unsampled = Unsampled::default();
        unsampled.add(seen(64 * MB, 0, 0));
        assert!(
            unsampled.line().is_some_and(|line| line.starts_with("about 64.0 MiB of 64.0 MiB live")),
            "{unsampled:?}"
        );
    }
}
