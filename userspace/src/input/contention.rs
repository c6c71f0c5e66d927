//! Contention profiles in: how long threads waited for locks, as gperftools writes them.
//!
//! ```text
//! --- contention
//! cycles/second = 2800000000
//! sampling period = 100
//! 120000 12 @ 0x401175 0x4011c2       cycles, events, stack
//! ```
//!
//! Amount: cycles / (cycles per second) as nanoseconds, times the sampling period; count: events times the period. Lines of
//! the list of mappings may stand anywhere after the settings. Go writes the same, with names (`go`).
#![forbid(unsafe_code)]

use super::go;
use super::lines::{Lines, ReadError, Reason, addresses, mapping_line, number, shown};
use crate::model::{Kind, Profile, Values};
use crate::units::{Count, EstCount, SampleInterval, Sums};

/// Cycles per second of a file that does not say.
const ASSUMED_HZ: f64 = 2.8e9;

/// Reads what follows the title.
pub(super) fn read(lines: &mut Lines<'_>) -> Result<Profile, ReadError> {
    let mut profile = Profile::new(SampleInterval(0));
    profile.set_kind(Kind::Contention);
    let (mut hz, mut period) = (None, 1.0);
    let mut stack = Vec::new();
    let mut names = go::Names::default();
    let is_go = go::is_go(lines.rest());
    while let Some(line) = lines.next() {
        if line.starts_with(b"#") {
            names.line(line, &stack);
            continue;
        }
        names.give(&mut profile);
        let at = line.iter().position(|&byte| byte == b'@');
        if line.is_empty()
            || line.starts_with(b"slow release")
            || line == b"MAPPED_LIBRARIES:"
            || line == b"--- Memory map:"
        {
            continue;
        }
        if let (Some(at), Some(true)) = (at, line.first().map(u8::is_ascii_digit)) {
            let mut words = line[..at].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let cycles = words.next().and_then(number);
            let events = words.next().map_or(Some(1), number);
            let (Some(cycles), Some(events), None) = (cycles, events, words.next()) else {
                return Err(lines.error(Reason::BadCounts(shown(line))));
            };
            addresses(&line[at + 1..], &mut stack).map_err(|reason| lines.error(reason))?;
            if is_go {
                go::without_return_of_leaf(&mut stack);
            }
            let est = EstCount {
                objects: events as f64 * period,
                bytes: cycles as f64 / (hz.unwrap_or(ASSUMED_HZ) / 1e9) * period,
            };
            let raw = Count { objects: events, bytes: est.bytes.round() as u64 };
            profile.add_total(&stack, Values { current: Sums { raw, est }, cumulative: Sums::ZERO });
        } else if let Some(place) = line.iter().position(|&byte| byte == b'=').filter(|_| line[0].is_ascii_lowercase())
        {
            let (key, value) = (line[..place].trim_ascii(), line[place + 1..].trim_ascii());
            let value: Option<f64> = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            match key {
                b"cycles/second" => {
                    hz = value.filter(|hz| *hz > 0.0);
                    if hz.is_none() {
                        return Err(lines.error(Reason::BadInterval(shown(line))));
                    }
                }
                b"sampling period" => period = value.unwrap_or(1.0),
                _ => {}
            }
        } else if !mapping_line(line, &mut profile) {
            return Err(lines.error(Reason::Unknown(shown(line))));
        }
    }
    names.give(&mut profile);
    if hz.is_none() {
        profile.add_note("the file does not give the cycles per second; 2.8 GHz are assumed");
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use crate::input::heap_v2::read;
    use crate::model::Kind;

    #[test]
    fn cycles_become_nanoseconds_and_the_period_counts() {
        let text = "--- contention\ncycles/second = 2000000000\nsampling period = 10\n4000 2 @ 0x10 0x20\n6000 @ 0x10\n\
                    slow release of lock in thread 3 @ 0x1\n00400000-00401000 r-xp 00000000 00:00 1 /bin/prog\n";
        let profile = read(text.as_bytes()).expect("whole");
        let sum = profile.sum().current;
        assert!((sum.est.bytes - 50_000.0).abs() < 1e-6 && (sum.est.objects - 30.0).abs() < 1e-9, "{sum:?}");
        assert_eq!((profile.kind(), profile.stack_count()), (&Kind::Contention, 2));
        assert!(profile.mappings().find(0x400010).is_some());
        let with_colon = text.replacen("--- contention\n", "--- contention:\n", 1);
        assert_eq!(read(with_colon.as_bytes()).expect("gperftools and Go write a colon").stack_count(), 2);
        let error = read(b"--- contention\nnonsense\n").expect_err("no record");
        assert_eq!((error.line, error.byte), (2, 15));
    }
}
