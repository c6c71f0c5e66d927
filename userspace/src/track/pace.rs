//! When a process's samples are probed, and when its profile table is read instead. Pure: the caller brings the clock.
//!
//! A probed sample or free costs the process 3 to 5 us, a reading of its table nothing but the loader's time. Probes lose
//! nothing when the process dies; of the table, what came after the last reading is lost.
//!
//! ```text
//!             fewer than FEW_PER_S for as long as CALM_NS, doubled with each return
//!   Table ─────────────────────────────────────────────────────────────────────────► Probes
//!         ◄─────────────────────────────────────────────────────────────────────────
//!             a bucket of BURST events, emptied at MOST_PER_S, runs over
//! ```
//!
//! The table comes first, because probes cannot be taken away at once: the kernel waits for all tasks before it does, and a
//! process that allocates 10 GB/s would be trapped for a quarter of a second. The calm time keeps that below a hundredth.
#![forbid(unsafe_code)]

/// Events a second that stay probed: at 5 us each half a percent of one processor.
const MOST_PER_S: u64 = 1_000;
/// Events beyond that rate that are still probed: 5 ms of the process's time at most.
const BURST: u64 = 1_000;
/// Events a second at which probes come back.
const FEW_PER_S: u64 = 200;
/// How long it has to be that few, at first and at most.
const CALM_NS: u64 = 2_000_000_000;
const MOST_CALM_NS: u64 = 600_000_000_000;
/// Shortest time between two readings.
const READ_EVERY_NS: u64 = 100_000_000;
/// Longer when readings are slow: they take at most this part of the loader's time.
const READ_SHARE: u64 = 25;

/// How the samples of a process are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Probes,
    Table,
}

/// See the module's text. Times are ns of one monotonic clock.
#[derive(Clone, Debug)]
pub struct Pace {
    way: Way,
    /// Bucket: events times 1e9.
    level: u128,
    counted_ns: u64,
    /// Samples and frees in the table at the last reading.
    total: u64,
    calm_since_ns: u64,
    calm_ns: u64,
    next_reading_ns: u64,
}

impl Pace {
    /// Begins with the table, which said `total` samples and frees in a reading from `began_ns` to `ended_ns`.
    pub fn new(total: u64, began_ns: u64, ended_ns: u64) -> Pace {
        let mut pace = Pace {
            way: Way::Table,
            level: 0,
            counted_ns: 0,
            total: 0,
            calm_since_ns: 0,
            calm_ns: CALM_NS / 2,
            next_reading_ns: 0,
        };
        pace.use_table(total, began_ns, ended_ns);
        pace
    }

    /// Begins with probes.
    pub fn probing(now_ns: u64) -> Pace {
        let mut pace = Pace::new(0, now_ns, now_ns);
        pace.calm_ns = CALM_NS / 2;
        pace.use_probes(now_ns);
        pace
    }

    pub fn way(&self) -> Way {
        self.way
    }

    /// Takes in the events since the last call; true when they are too many to be probed.
    pub fn is_too_fast(&mut self, events: u64, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.counted_ns);
        self.counted_ns = now_ns;
        let drained = self.level.saturating_sub(u128::from(passed_ns) * u128::from(MOST_PER_S));
        self.level = drained + u128::from(events) * 1_000_000_000;
        self.level > u128::from(BURST) * 1_000_000_000
    }

    /// From now on the table is read; it said `total` samples and frees in a reading from `began_ns` to `ended_ns`.
    pub fn use_table(&mut self, total: u64, began_ns: u64, ended_ns: u64) {
        self.way = Way::Table;
        self.calm_ns = self.calm_ns.saturating_mul(2).min(MOST_CALM_NS);
        self.calm_since_ns = began_ns;
        self.counted_ns = began_ns;
        self.total = total;
        self.plan(began_ns, ended_ns);
    }

    /// From now on the process is probed.
    pub fn use_probes(&mut self, now_ns: u64) {
        (self.way, self.level, self.counted_ns) = (Way::Probes, 0, now_ns);
    }

    /// When the table is to be read, `None` while the process is probed.
    pub fn next_reading_ns(&self) -> Option<u64> {
        (self.way == Way::Table).then_some(self.next_reading_ns)
    }

    /// Takes in a reading; true when the process has been calm for long enough to be probed again.
    pub fn is_calm(&mut self, total: u64, began_ns: u64, ended_ns: u64) -> bool {
        let events = u128::from(total.saturating_sub(self.total)) * 1_000_000_000;
        let passed_ns = u128::from(began_ns.saturating_sub(self.counted_ns));
        // A few at once between two readings are no rate.
        let few = (passed_ns * u128::from(FEW_PER_S)).max(u128::from(FEW_PER_S / 4) * 1_000_000_000);
        if events > few {
            self.calm_since_ns = began_ns;
        }
        (self.total, self.counted_ns) = (total, began_ns);
        self.plan(began_ns, ended_ns);
        began_ns.saturating_sub(self.calm_since_ns) >= self.calm_ns
    }

    /// A reading that failed is tried again in the same time.
    pub fn postpone(&mut self, now_ns: u64) {
        self.plan(now_ns, now_ns);
    }

    fn plan(&mut self, began_ns: u64, ended_ns: u64) {
        self.next_reading_ns = after_reading(began_ns, ended_ns);
    }
}

/// When the next reading may begin after one from `began_ns` to `ended_ns`.
pub fn after_reading(began_ns: u64, ended_ns: u64) -> u64 {
    let took_ns = ended_ns.saturating_sub(began_ns);
    ended_ns.saturating_add(READ_EVERY_NS.max(took_ns.saturating_mul(READ_SHARE)))
}

#[cfg(test)]
mod tests {
    use super::{BURST, CALM_NS, FEW_PER_S, MOST_PER_S, Pace, READ_EVERY_NS, READ_SHARE, Way};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_steady_rate_below_the_limit_stays_probed_and_one_above_does_not() {
        let mut pace = Pace::probing(0);
        assert!((1..=1000).all(|tenth| !pace.is_too_fast(MOST_PER_S / 10, tenth * SECOND / 10)));
        // Twice the limit: one burst beyond it after a second.
        let first = (1..=100).find(|tenth| pace.is_too_fast(MOST_PER_S / 5, (1000 + tenth) * SECOND / 10));
        assert_eq!(first, Some(10 * BURST / MOST_PER_S));
    }

    #[test]
    fn a_burst_is_forgiven_and_a_greater_one_is_not() {
        let mut pace = Pace::probing(0);
        assert!(!pace.is_too_fast(BURST, 1));
        assert!(!pace.is_too_fast(BURST, 10 * SECOND));
        assert!(pace.is_too_fast(BURST + 1, 20 * SECOND));
    }

    #[test]
    fn probes_come_after_a_calm_time_without_a_break() {
        let mut total = 1_000_000;
        let mut pace = Pace::new(total, SECOND, SECOND);
        for (start, busy, calm_ns) in [(1, 1, CALM_NS), (100, 102, 2 * CALM_NS), (200, 205, 4 * CALM_NS)] {
            if start > 1 {
                pace.use_table(total, start * SECOND, start * SECOND);
            }
            assert_eq!(pace.way(), Way::Table);
            let mut second = start + 1;
            loop {
                total += if second == busy { 10 * FEW_PER_S } else { FEW_PER_S };
                if pace.is_calm(total, second * SECOND, second * SECOND) {
                    break;
                }
                second += 1;
            }
            assert_eq!(second, busy + calm_ns / SECOND, "the calm time doubles with each return");
            pace.use_probes(second * SECOND);
            assert_eq!((pace.way(), pace.next_reading_ns()), (Way::Probes, None));
        }
    }

    #[test]
    fn slow_readings_are_rare() {
        let mut pace = Pace::new(0, SECOND, SECOND + 1000);
        assert_eq!(pace.next_reading_ns(), Some(SECOND + 1000 + READ_EVERY_NS));
        let _calm = pace.is_calm(0, 2 * SECOND, 3 * SECOND);
        assert_eq!(pace.next_reading_ns(), Some((3 + READ_SHARE) * SECOND));
    }
}
