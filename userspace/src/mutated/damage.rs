//! Changes that make bad input of good, in a fixed sequence.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A generator of fixed sequences (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `limit`; 0 when that is 0.
    fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() % limit as u64) as usize }
    }
}

/// Values that lengths, counts and offsets break on.
const EXTREMES: &[u64] =
    &[0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, i64::MAX as u64, 1 << 63, u64::MAX];

/// One to four changes of a good input, all in `region`.
fn damage(random: &mut Random, good: &[u8], region: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(4) {
        let at = region.start + random.below(region.len());
        let end = bytes.len();
        if at >= end {
            continue;
        }
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => {
                let width = 1 << random.below(4);
                let value = EXTREMES[random.below(EXTREMES.len())].to_le_bytes();
                let to = end.min(at + width);
                bytes[at..to].copy_from_slice(&value[..to - at]);
            }
            3 => bytes.truncate(at),
            4 => {
                let from = random.below(end);
                let piece = bytes[from..end.min(from + 1 + random.below(64))].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let to = end.min(at + 1 + random.below(64));
                bytes.drain(at..to);
            }
            _ => {
                let to = end.min(at + 1 + random.below(32));
                bytes[at..to].fill(if random.below(2) == 0 { 0xff } else { 0 });
            }
        }
    }
    bytes
}

/// Calls `parse` on damaged forms of `good`. Names the round that panicked.
pub(super) fn rounds(
    count: usize,
    seed: u64,
    good: &[u8],
    region: std::ops::Range<usize>,
    parse: &mut dyn FnMut(&[u8]),
) {
    let mut random = Random(seed);
    for round in 0..count {
        let bytes = damage(&mut random, good, region.clone());
        let ended = catch_unwind(AssertUnwindSafe(|| parse(&bytes)));
        assert!(ended.is_ok(), "panicked in round {round} of seed {seed:#x}, on {} bytes", bytes.len());
    }
}
