//! gperftools' binary CPU profiles in.
//!
//! ```text
//! words of 4 or 8 bytes, in either order:
//! 0 | n ≥ 3 | version 0 | period, µs | 0 …(n words in all after the second)
//! count | depth | address × depth      a stack, innermost first; repeated
//! 0 | 1 | 0                            the end; the list of mappings follows as text
//! ```
//!
//! The first address is the interrupted instruction's successor, the others are return addresses, so that one less is looked
//! up for every one. The profile's count is the number of samples, its amount their time in nanoseconds.
#![forbid(unsafe_code)]

use super::lines::{Lines, ReadError, Reason, mapped};
use super::tail::Tail;
use crate::estimate::Sampling;
use crate::model::{Kind, Profile, Values};
use crate::units::{Count, SampleInterval, Sums};

/// Deeper stacks are damage.
const DEEPEST: u64 = 1 << 16;

/// Reads a whole file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let mut words = Words::new(bytes).ok_or_else(|| damage(0, "the header is damaged"))?;
    let header = |words: &mut Words<'_>| {
        let length = words.next().filter(|length| (3..=1 << 16).contains(length))?;
        let (_version, period) = (words.next()?, words.next()?);
        for _ in 2..length {
            words.next()?;
        }
        Some(period)
    };
    let period_ns = header(&mut words).ok_or_else(|| damage(0, "the header is damaged"))?.saturating_mul(1000);
    let mut profile = Profile::new(SampleInterval(0));
    profile.set_kind(Kind::Cpu);
    let mut stack = Vec::new();
    loop {
        let at = words.at;
        let (Some(count), Some(depth)) = (words.next(), words.next()) else {
            return Err(damage(at, "the file ends before its last record; it was cut short"));
        };
        if depth == 0 || depth > DEEPEST {
            return Err(damage(at, &format!("a stack of {depth} frames")));
        }
        stack.clear();
        for place in 0..depth {
            let Some(address) = words.next() else {
                return Err(damage(at, "the file ends within a stack; it was cut short"));
            };
            stack.push(if place == 0 { address.wrapping_sub(1) } else { address });
        }
        if count == 0 && depth == 1 && stack[0] == u64::MAX {
            break;
        }
        let raw = Count { objects: count, bytes: count.saturating_mul(period_ns) };
        profile.add_total(&stack, Values { current: Sampling::None.unbias(raw), cumulative: Sums::ZERO });
    }
    let mut lines = Lines::new(&bytes[words.at..]);
    lines.begin_mappings();
    mapped(&mut lines, &mut profile, Tail::default());
    Ok(profile)
}

/// Whether the bytes begin as such a file does.
pub(super) fn has_header(bytes: &[u8]) -> bool {
    Words::new(bytes).and_then(|mut words| words.next()).is_some_and(|length| (3..=1 << 16).contains(&length))
}

fn damage(byte: usize, what: &str) -> ReadError {
    ReadError { line: 1, byte: byte as u64, reason: Reason::BadCpu(what.to_owned()) }
}

/// The file as words.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
    size: usize,
    is_big: bool,
}

impl<'a> Words<'a> {
    /// Width and order are told by the first word, 0, and the second, which is small.
    fn new(bytes: &'a [u8]) -> Option<Words<'a>> {
        let zero =
            |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|part| part.iter().all(|byte| *byte == 0));
        let (size, is_big) = if zero(0..8) {
            (8, zero(8..12))
        } else if zero(0..4) {
            (4, zero(4..6))
        } else {
            return None;
        };
        Some(Words { bytes, at: size, size, is_big })
    }

    fn next(&mut self) -> Option<u64> {
        let word = self.bytes.get(self.at..self.at + self.size)?;
        self.at += self.size;
        let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if self.is_big { word.iter().fold(0, join) } else { word.iter().rev().fold(0, join) })
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::model::Kind;

    fn file(size: usize, is_big: bool, words: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in words {
            let all = if is_big { word.to_be_bytes() } else { word.to_le_bytes() };
            bytes.extend_from_slice(if is_big { &all[8 - size..] } else { &all[..size] });
        }
        bytes.extend_from_slice(b"00400000-00401000 r-xp 00000000 00:00 1 /bin/prog\n");
        bytes
    }

    const WORDS: [u64; 15] = [0, 3, 0, 10_000, 0, 5, 2, 0x401000, 0x402000, 2, 1, 0x401000, 0, 1, 0];

    #[test]
    fn both_widths_and_orders() {
        for (size, is_big) in [(8, false), (8, true), (4, false), (4, true)] {
            let profile = read(&file(size, is_big, &WORDS)).expect("whole");
            let sum = profile.sum().current.raw;
            assert_eq!((sum.objects, sum.bytes), (7, 70_000_000), "{size} {is_big}");
            assert!(profile.find_stack(&[0x400fff, 0x402000]).is_some());
            assert_eq!(profile.kind(), &Kind::Cpu);
            assert_eq!(profile.mappings().iter().count(), 1);
        }
    }

    #[test]
    fn every_cut_within_the_records_is_an_error() {
        let bytes = file(8, false, &WORDS);
        for end in 0..WORDS.len() * 8 {
            let error = read(&bytes[..end]).expect_err("cut");
            assert!(error.byte <= end as u64, "{error}");
        }
    }
}
