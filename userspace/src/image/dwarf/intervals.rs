//! Address ranges that may overlap, asked which of them hold an address.
#![forbid(unsafe_code)]

/// Half-open range with the number of what it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval {
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) owner: u32,
}

/// Intervals by low address. 32 bytes each.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    sorted: Vec<Interval>,
    /// `[i]`: the greatest `high` among the first i + 1.
    reach: Vec<u64>,
}

impl Intervals {
    pub(super) fn new(mut sorted: Vec<Interval>) -> Intervals {
        sorted.sort_unstable();
        let mut most = 0;
        let reach = sorted
            .iter()
            .map(|interval| {
                most = most.max(interval.high);
                most
            })
            .collect();
        Intervals { sorted, reach }
    }

    /// Those that hold `address`, in no order.
    pub(super) fn holding(&self, address: u64) -> impl Iterator<Item = Interval> + '_ {
        let after = self.sorted.partition_point(|interval| interval.low <= address);
        (0..after)
            .rev()
            .take_while(move |&at| self.reach[at] > address)
            .map(|at| self.sorted[at])
            .filter(move |interval| interval.high > address)
    }
}

/// The ranges of one function or unit, neighbours joined as they are added.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// The first stays first, the newest comes right after it; that order decides which neighbour is extended.
    pub(super) fn add(&mut self, low: u64, high: u64) {
        if low == high {
            return;
        }
        for range in &mut self.0 {
            if low == range.1 {
                range.1 = high;
                return;
            }
            if high == range.0 {
                range.0 = low;
                return;
            }
        }
        self.0.insert(1.min(self.0.len()), (low, high));
    }

    /// Start of the first range; 0 without one.
    pub(super) fn first(&self) -> u64 {
        self.0.first().map_or(0, |range| range.0)
    }

    pub(super) fn intervals(&self, owner: u32) -> impl Iterator<Item = Interval> + '_ {
        self.0.iter().map(move |&(low, high)| Interval { low, high, owner })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Interval, Intervals, Ranges};

    #[test]
    fn nested_and_overlapping_intervals_are_all_found() {
        let list = [(0, 100, 0), (10, 20, 1), (15, 30, 2), (40, 50, 3)];
        let list = list.map(|(low, high, owner)| Interval { low, high, owner });
        let intervals = Intervals::new(list.to_vec());
        let owners = |address| {
            let mut owners: Vec<_> = intervals.holding(address).map(|interval| interval.owner).collect();
            owners.sort_unstable();
            owners
        };
        assert_eq!(owners(16), [0, 1, 2]);
        assert_eq!(owners(35), [0]);
        assert_eq!(owners(50), [0]);
        assert!(owners(100).is_empty());
    }

    #[test]
    fn neighbours_are_joined() {
        let mut ranges = Ranges::default();
        ranges.add(10, 20);
        ranges.add(40, 50);
        ranges.add(20, 30);
        ranges.add(5, 5);
        ranges.add(35, 40);
        assert_eq!(ranges.0, [(10, 30), (35, 50)]);
        assert_eq!(ranges.first(), 10);
    }
}
