//! The numbers of a stack, part by part: one part for each thread that is known to have allocated.
//!
//! Heap files round each printed pair by itself, so the threads' numbers do not add up to the stack's. The stack's are what
//! reports show; the parts given here are the threads' shares of them and sum up to them. With a base there are no parts:
//! which thread a difference comes from is not known.
#![forbid(unsafe_code)]

use super::select::{Numbers, Selection, numbers};
use super::view::Stack;
use crate::model::{Profile, Share, ThreadUid};

/// Shares by stack.
#[derive(Debug)]
pub struct Parts<'a> {
    shares: Vec<&'a Share>,
    /// By stack: where its shares end.
    ends: Vec<usize>,
}

impl<'a> Parts<'a> {
    pub fn new(profile: &'a Profile) -> Parts<'a> {
        let mut shares: Vec<&Share> = profile.shares().iter().collect();
        shares.sort_by_key(|share| (share.stack, share.thread));
        let mut ends = Vec::with_capacity(profile.stack_count());
        let mut end = 0;
        for (id, _, _) in profile.totals() {
            end += shares[end..].iter().take_while(|share| share.stack == id).count();
            ends.push(end);
        }
        Parts { shares, ends }
    }

    /// Calls `each` with every part of a stack: its thread where that is known, its numbers.
    pub fn of(&self, selection: &Selection<'_>, stack: &Stack<'_>, mut each: impl FnMut(Option<ThreadUid>, Numbers)) {
        let index = stack.id.index();
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        let shares = &self.shares[start..self.ends[index]];
        if shares.is_empty() || selection.has_base() {
            return each(None, stack.numbers);
        }
        let mut sums = [0.0; 4];
        for share in shares {
            sums.iter_mut().zip(numbers(&share.values)).for_each(|(sum, number)| *sum += number);
        }
        let mut rest = stack.numbers;
        for share in shares {
            let mut part = numbers(&share.values);
            for place in 0..part.len() {
                part[place] = if sums[place] > 0.0 { part[place] / sums[place] * stack.numbers[place] } else { 0.0 };
                rest[place] -= part[place];
            }
            each(Some(share.thread), part);
        }
        // What no thread can be made to hold: all of it, or what floating arithmetic leaves.
        for place in 0..rest.len() {
            if sums[place] > 0.0 {
                rest[place] = 0.0;
            }
        }
        if rest.iter().any(|number| *number != 0.0) {
            each(None, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;
    use crate::model::{Profile, ThreadUid, Values};
    use crate::output::{Options, Selection, Value};
    use crate::symbolize::Symbols;
    use crate::units::{Count, EstCount, SampleInterval, Sums};

    fn values(bytes: f64) -> Values {
        let est = EstCount { objects: 1.0, bytes };
        Values { current: Sums { raw: Count { objects: 1, bytes: bytes as u64 }, est }, cumulative: Sums::ZERO }
    }

    #[test]
    fn parts_sum_up_to_the_stack() {
        let mut profile = Profile::new(SampleInterval(1));
        let shared = profile.add_total(&[1], values(100.0));
        profile.add_share(shared, ThreadUid(3), values(30.0));
        profile.add_share(shared, ThreadUid(2), values(10.0));
        profile.add_total(&[2], values(7.0));
        let symbols = Symbols::default();
        let selection = Selection::new(&profile, &symbols, Value::InuseSpace);
        let parts = Parts::new(&profile);
        let mut found = Vec::new();
        let walked = selection.walk::<std::convert::Infallible>(&Options::default(), |stack, _| {
            parts.of(&selection, stack, |thread, numbers| found.push((thread.map(|uid| uid.0), numbers[0])));
            Ok(())
        });
        assert!(walked.is_ok());
        assert_eq!(found, [(Some(2), 25.0), (Some(3), 75.0), (None, 7.0)]);
    }
}
