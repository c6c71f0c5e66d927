//! Stacks and their values, every address and every stack once.
//!
//! ```text
//! Pcs      id u32 -> address            one table for a whole run
//! Stacks   frames: [id id id|id id|...]  youngest first, stacks one behind the other
//!          spans:  [0..3, 3..5, ...]     values: [f64, ...]   one unit per table
//! ```
//!
//! Adding an equal stack adds its value. The hash is keyed per process, so that a hostile file cannot choose stacks that
//! collide. Memory: 4 bytes per frame of a distinct stack and about 32 per stack.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Handle of an address.
pub type PcId = u32;

/// All addresses of a run.
#[derive(Debug, Default)]
pub struct Pcs {
    ids: HashMap<u64, PcId, RandomState>,
    addresses: Vec<u64>,
}

impl Pcs {
    pub fn id(&mut self, address: u64) -> PcId {
        *self.ids.entry(address).or_insert_with(|| {
            self.addresses.push(address);
            (self.addresses.len() - 1) as PcId
        })
    }

    /// Makes room for `count` more.
    pub fn reserve(&mut self, count: usize) {
        self.ids.reserve(count);
        self.addresses.reserve(count);
    }

    pub fn address(&self, id: PcId) -> u64 {
        self.addresses[id as usize]
    }

    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// All addresses, in the order of their numbers.
    pub fn all(&self) -> &[u64] {
        &self.addresses
    }

    /// All addresses, ascending.
    pub fn sorted(&self) -> Vec<u64> {
        let mut all = self.addresses.clone();
        all.sort_unstable();
        all
    }
}

/// Distinct stacks with a value each.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    frames: Vec<PcId>,
    ends: Vec<usize>,
    values: Vec<f64>,
    table: HashTable<u32>,
    /// Upper half of the hash of each stack that is in `table`: growing that reads no frames. Stacks that came all at once are put
    /// there when one is looked up.
    hashes: Vec<u32>,
    hasher: RandomState,
}

/// Stacks as they lie in memory: frames one stack behind the other, where each ends, and values.
pub type Columns = (Vec<PcId>, Vec<usize>, Vec<f64>);

impl Stacks {
    /// Of distinct stacks, as many ends as values, ascending up to the number of frames.
    pub fn of_distinct((frames, ends, values): Columns) -> Stacks {
        debug_assert!(ends.len() == values.len() && ends.last().is_none_or(|&end| end == frames.len()));
        Stacks { frames, ends, values, ..Stacks::default() }
    }

    /// Frames of all stacks, one stack behind the other.
    pub fn frames(&self) -> &[PcId] {
        &self.frames
    }

    /// Number of stacks.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Other numbers for all frames; those that differ must stay different.
    pub fn renumber(&mut self, number: impl Fn(PcId) -> PcId) {
        for frame in &mut self.frames {
            *frame = number(*frame);
        }
        self.table.clear();
        self.hashes.clear();
    }

    /// Puts stacks that are not there into the table.
    fn index(&mut self) {
        let missing = self.values.len() - self.hashes.len();
        self.table.reserve(missing, |&at| spread(self.hashes[at as usize]));
        self.hashes.reserve(missing);
        for at in self.hashes.len()..self.values.len() {
            let (hash, upper) = self.hash(&self.frames[frame_range(&self.ends, at)]);
            self.hashes.push(upper);
            self.table.insert_unique(hash, at as u32, |&at| spread(self.hashes[at as usize]));
        }
    }

    /// Adds `value` to `stack`, youngest frame first. An empty stack is a stack.
    pub fn add(&mut self, stack: &[PcId], value: f64) {
        if self.hashes.len() < self.values.len() {
            self.index();
        }
        let (hash, upper) = self.hash(stack);
        let Stacks { frames, ends, values, table, hashes, .. } = self;
        let is_it = |&at: &u32| hashes[at as usize] == upper && &frames[frame_range(ends, at as usize)] == stack;
        if let Some(&at) = table.find(hash, is_it) {
            values[at as usize] += value;
            return;
        }
        let at = values.len() as u32;
        hashes.push(upper);
        table.insert_unique(hash, at, |&at| spread(hashes[at as usize]));
        frames.extend_from_slice(stack);
        ends.push(frames.len());
        values.push(value);
    }

    pub fn get(&mut self, stack: &[PcId]) -> Option<f64> {
        if self.hashes.len() < self.values.len() {
            self.index();
        }
        let (hash, _) = self.hash(stack);
        let at = self.table.find(hash, |&at| &self.frames[frame_range(&self.ends, at as usize)] == stack)?;
        Some(self.values[*at as usize])
    }

    /// What the table goes by, and the part of it that is kept.
    fn hash(&self, stack: &[PcId]) -> (u64, u32) {
        let upper = (self.hasher.hash_one(stack) >> 32) as u32;
        (spread(upper), upper)
    }

    /// In the order of their first appearance.
    pub fn iter(&self) -> impl Iterator<Item = (&[PcId], f64)> {
        (0..self.values.len()).map(|at| (&self.frames[frame_range(&self.ends, at)], self.values[at]))
    }

    pub fn total(&self) -> f64 {
        // Not `sum`: nothing at all would be -0.0, and printed so.
        self.values.iter().fold(0.0, |sum, value| sum + value)
    }

    /// All stacks of `other` added.
    pub fn merge(&mut self, other: &Stacks) {
        for (stack, value) in other.iter() {
            self.add(stack, value);
        }
    }

    /// `self - base`. `drop_negative`: what would be negative is 0, and stacks of the base alone are left out.
    #[must_use]
    pub fn subtract(&mut self, base: &mut Stacks, drop_negative: bool) -> Stacks {
        let mut result = Stacks::default();
        for (stack, value) in self.iter() {
            let left = value - base.get(stack).unwrap_or(0.0);
            result.add(stack, if drop_negative && left < 0.0 { 0.0 } else { left });
        }
        if !drop_negative {
            for (stack, value) in base.iter() {
                if self.get(stack).is_none() {
                    result.add(stack, 0.0 - value);
                }
            }
        }
        result
    }
}

/// Half a hash as a whole one: the table takes its place from the lower bits and a mark from the uppermost.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn frame_range(ends: &[usize], at: usize) -> std::ops::Range<usize> {
    let start = if at == 0 { 0 } else { ends[at - 1] };
    start..ends[at]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "whole numbers")]

    use super::*;

    #[test]
    fn equal_stacks_are_one() {
        let mut stacks = Stacks::default();
        stacks.add(&[1, 2], 1.5);
        stacks.add(&[], 1.0);
        stacks.add(&[1, 2], 2.0);
        stacks.add(&[2], 4.0);
        assert_eq!(stacks.iter().collect::<Vec<_>>(), [(&[1, 2][..], 3.5), (&[][..], 1.0), (&[2][..], 4.0)]);
        assert_eq!(stacks.total(), 8.5);
    }

    #[test]
    fn stacks_that_came_at_once_are_found_and_added_to() {
        let mut stacks = Stacks::of_distinct((vec![1, 2, 2], vec![2, 2, 3], vec![1.5, 1.0, 4.0]));
        assert_eq!(stacks.clone().get(&[2]), Some(4.0));
        stacks.add(&[1, 2], 2.0);
        stacks.add(&[3], 8.0);
        assert_eq!(
            stacks.iter().collect::<Vec<_>>(),
            [(&[1, 2][..], 3.5), (&[][..], 1.0), (&[2][..], 4.0), (&[3][..], 8.0)]
        );
        stacks.renumber(|id| id + 10);
        assert_eq!((stacks.get(&[1, 2]), stacks.get(&[11, 12])), (None, Some(3.5)));
        stacks.add(&[13], 1.0);
        assert_eq!((stacks.count(), stacks.frames()), (4, &[11, 12, 12, 13][..]));
    }

    #[test]
    fn difference_with_and_without_negatives() {
        let (mut new, mut old) = (Stacks::default(), Stacks::default());
        new.add(&[1], 3.0);
        old.add(&[1], 5.0);
        old.add(&[2], 7.0);
        assert_eq!(new.subtract(&mut old, false).iter().map(|(_, value)| value).collect::<Vec<_>>(), [-2.0, -7.0]);
        assert_eq!(new.subtract(&mut old, true).iter().map(|(_, value)| value).collect::<Vec<_>>(), [0.0]);
    }
}
