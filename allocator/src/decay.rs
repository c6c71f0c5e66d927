//! When and how much to purge: a pure curve and the bookkeeping around it. No clock, no lock, no pages of its own.
//!
//! Pages that became free at time 0 may stay, as a fraction, S(1 - t/T) after t ms of the decay time T, where S is the
//! smoothstep polynomial 6x^5 - 15x^4 + 10x^3: all at first, none after T, no step between. Time is cut into STEPS
//! epochs; the backlog holds how many pages became free in each, newest last, and their weighted sum is the limit. What
//! is above the limit is purged.
//!
//! Units: pages of `sizeclass::GRANULE`; times in ms (option) and ns (clock).
#![forbid(unsafe_code)]

use crate::base;
use crate::prim::{AtomicUsize, Ordering};

/// Epochs per decay time: 200 keep the largest step near 1 % of the pages.
pub(crate) const STEPS: usize = 200;
const LG_ONE: u32 = 24;

/// shape [u32; 200], fixed point with 24 fraction bits: weight of pages freed `STEPS - 1 - i` epochs ago.
const WEIGHTS: [u32; STEPS] = build_weights();

const fn build_weights() -> [u32; STEPS] {
    let mut weights = [0; STEPS];
    let steps = STEPS as u128;
    let mut i = 0;
    while i < STEPS {
        // x = (i + 1) / STEPS; S(x) over the common denominator STEPS^5.
        let x = i as u128 + 1;
        let numerator = 6 * x * x * x * x * x + 10 * x * x * x * steps * steps - 15 * x * x * x * x * steps;
        let denominator = steps * steps * steps * steps * steps;
        weights[i] = ((numerator << LG_ONE) / denominator) as u32;
        i += 1;
    }
    weights
}

/// Decay of one set of free extents. Under the `Pages` lock.
pub(crate) struct Decay {
    /// -1 never, 0 at once, otherwise the decay time in ms.
    ms: i64,
    epoch_ns: u64,
    /// shape [200], oldest first; pages that became free in each epoch.
    backlog: &'static [AtomicUsize],
    /// Pages that were left at the end of the last epoch.
    unpurged: usize,
}

impl Decay {
    /// Nothing freed yet; `None` without memory for the backlog.
    pub(crate) fn new(ms: i64) -> Option<Decay> {
        let backlog = base::alloc_slice(STEPS, |_| AtomicUsize::new(0))?;
        Some(Decay { ms, epoch_ns: 0, backlog, unpurged: 0 })
    }

    pub(crate) fn ms(&self) -> i64 {
        self.ms
    }

    /// Changes the decay time and forgets the past: pages present now start to decay anew.
    pub(crate) fn set_ms(&mut self, ms: i64, now_ns: u64, pages: usize) {
        self.ms = ms;
        self.epoch_ns = now_ns;
        self.shift(STEPS, pages);
        self.unpurged = pages;
    }

    /// How many of `pages` may stay at `now_ns`; `None` = no decision is due.
    pub(crate) fn limit(&mut self, now_ns: u64, pages: usize) -> Option<usize> {
        if self.ms < 0 {
            return None;
        }
        if self.ms == 0 {
            return Some(0);
        }
        if self.epoch_ns == 0 || now_ns < self.epoch_ns {
            // First look, or a clock that went back: start here.
            self.epoch_ns = now_ns.max(1);
            return None;
        }
        let interval_ns = (self.ms as u64).saturating_mul(1_000_000) / STEPS as u64;
        let epochs = (now_ns - self.epoch_ns) / interval_ns.max(1);
        if epochs == 0 {
            return None;
        }
        self.epoch_ns += epochs * interval_ns;
        self.advance(epochs, pages);
        Some(self.sum())
    }

    /// Notes how many pages are left after a purge.
    pub(crate) fn settle(&mut self, pages: usize) {
        self.unpurged = pages;
    }

    /// Ns until the next look: an epoch while there are pages, a quarter of the decay time otherwise; `None` = this set
    /// never decays by time.
    pub(crate) fn next_look_ns(&self, pages_present: bool) -> Option<u64> {
        let parts = if pages_present { STEPS as u64 } else { 4 };
        (self.ms > 0).then(|| (self.ms as u64).saturating_mul(1_000_000) / parts)
    }

    fn advance(&mut self, epochs: u64, pages: usize) {
        let epochs = usize::try_from(epochs).unwrap_or(STEPS).min(STEPS);
        self.shift(epochs, pages.saturating_sub(self.unpurged));
    }

    /// Ages the backlog by `epochs` and puts `newest` at its end. Relaxed: under the `Pages` lock.
    fn shift(&mut self, epochs: usize, newest: usize) {
        for i in 0..STEPS {
            let aged = self.backlog.get(i + epochs).map_or(0, |pages| pages.load(Ordering::Relaxed));
            if let Some(slot) = self.backlog.get(i) {
                slot.store(if i == STEPS - 1 { newest } else { aged }, Ordering::Relaxed);
            }
        }
    }

    fn sum(&self) -> usize {
        let pairs = self.backlog.iter().zip(WEIGHTS);
        let sum: u64 = pairs.map(|(pages, weight)| pages.load(Ordering::Relaxed) as u64 * u64::from(weight)).sum();
        (sum >> LG_ONE) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn pages_leave_along_the_curve() {
        let mut decay = Decay::new(10_000).expect("memory");
        assert_eq!(decay.limit(1, 0), None);
        let mut pages = 10_000;
        let mut at_half = 0;
        for step in 1..=220u64 {
            if let Some(limit) = decay.limit(1 + step * 50 * MS, pages) {
                assert!(limit <= pages);
                pages = pages.min(limit);
                decay.settle(pages);
            }
            if step == 101 {
                at_half = pages;
            }
        }
        assert!((4_900..=5_100).contains(&at_half), "half of the pages at half of the time, not {at_half}");
        assert_eq!(pages, 0);
    }

    #[test]
    fn never_and_at_once() {
        assert_eq!(Decay::new(-1).expect("memory").limit(5, 7), None);
        assert_eq!(Decay::new(-1).expect("memory").next_look_ns(true), None);
        let decay = Decay::new(1000).expect("memory");
        assert_eq!((decay.next_look_ns(true), decay.next_look_ns(false)), (Some(5 * MS), Some(250 * MS)));
        assert_eq!(Decay::new(0).expect("memory").limit(5, 7), Some(0));
        let mut decay = Decay::new(1000).expect("memory");
        decay.set_ms(1000, 5, 100);
        assert_eq!(decay.limit(5 + 2000 * MS, 100), Some(0));
        assert_eq!(decay.limit(3, 100), None);
    }

    #[test]
    fn weights_rise_to_one() {
        assert!(WEIGHTS.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(WEIGHTS[STEPS - 1], 1 << LG_ONE);
        assert_eq!(WEIGHTS[STEPS / 2 - 1], 1 << (LG_ONE - 1));
    }
}
