//! Heap and growth profiles: one record per line (gperftools), or stacks followed by lines per thread (jemalloc).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::str;

use regex::bytes::Regex;

use super::super::lines::Place;
use super::super::stacks::Stacks;
use super::super::stop::{Result, Stop};
use super::super::streams::say;
use super::super::values::Kind;
use super::scale::Scale;
use super::{Context, Profile, Skipped, Source, is_map_title, rest_as_map, stack};

/// 128 KiB: mean sampling distance of servers whose profiles do not name it.
const OLD_RATE: f64 = 131_072.0;

/// `heap profile: ...`: lines `objects: bytes [objects: bytes] @ addresses`.
pub fn read_classic(source: &mut Source<'_>, context: &mut Context<'_>, header: &[u8], kind: Kind) -> Result<Profile> {
    let scale = classic_scale(header);
    let column = context.options.heap_column();
    let mut profile = Profile { kind, ..Profile::default() };
    let mut ids = Vec::new();
    let mut skipped = Skipped::default();
    let name = source.name;
    while let Some(line) = source.read()? {
        if is_map_title(line) {
            profile.map = rest_as_map(source)?;
            break;
        }
        let text = line.trim_ascii();
        let Some((numbers, addresses)) = classic_record(text) else {
            if !text.is_empty() {
                skipped.add(source.lines.place());
            }
            continue;
        };
        let column_of_stack = addresses.as_ptr() as usize - line.as_ptr() as usize;
        let addresses = addresses.to_vec();
        let place = source.lines.place();
        stack(&addresses, (name, place, column_of_stack), context, &mut profile.max_pc, &mut ids)?;
        profile.stacks.add(&ids, scale.column(&numbers, column));
    }
    skipped.report(name);
    Ok(profile)
}

fn classic_record(text: &[u8]) -> Option<([f64; 4], &[u8])> {
    let mut rest = Rest(text);
    let numbers = rest.pairs()?;
    rest.blanks(1)?;
    rest.literal(b'@')?;
    rest.blanks(1)?;
    (!rest.0.is_empty()).then_some((numbers, rest.0))
}

fn classic_scale(header: &[u8]) -> Scale {
    let shape = Regex::new(r"^heap profile:\s*(\d+):\s+(\d+)\s+\[\s*(\d+):\s+(\d+)\](?:\s*@\s*([^/]*)(?:/(\d+))?)?")
        .expect("a fixed pattern");
    let Some(found) = shape.captures(header) else { return Scale::None };
    let number = |group: usize| found.get(group).map_or(0.0, |text| decimal(text.as_bytes()));
    let kind = found.get(5).map_or(&b""[..], |kind| kind.as_bytes());
    let has = |word: &[u8]| kind.windows(word.len()).any(|part| part == word);
    let named = number(6);
    let (poisson, rate) = if kind.is_empty() {
        // Servers that old print the same pair twice; anything else was counted, not sampled.
        if number(1) - number(3) != 0.0 || number(2) - number(4) != 0.0 {
            return Scale::None;
        }
        (false, 0.0)
    } else if kind == b"heapprofile" || !has(b"heap") {
        return Scale::None;
    } else if has(b"_v2") {
        (true, named)
    } else {
        (false, named / 2.0)
    };
    let rate = if rate == 0.0 {
        say(format_args!("Adjusting heap profiles for 1-in-128KB sampling rate\n"));
        OLD_RATE
    } else {
        say(format_args!("Adjusting heap profiles for 1-in-{} sampling rate\n", rate as u64));
        rate
    };
    if poisson {
        say(format_args!("Heap version 2\n"));
        Scale::Poisson(rate)
    } else {
        Scale::Uniform(rate)
    }
}

/// `heap_v2/R`: a line `@ addresses`, then `t*: objects: bytes [objects: bytes]` for all threads and one line for each.
pub fn read_threaded(source: &mut Source<'_>, context: &mut Context<'_>, header: &[u8]) -> Result<Profile> {
    let digits = header.strip_prefix(b"heap_v2/").map_or(&b""[..], |rest| leading_digits(rest));
    if digits.is_empty() {
        return Err(Stop::die("Threaded heap profiles require v2 sampling with a sample rate\n"));
    }
    let scale = Scale::Poisson(decimal(digits));
    let column = context.options.heap_column();
    let per_thread = context.options.thread.is_some();
    let mut threads: BTreeMap<u64, Stacks> = BTreeMap::new();
    let mut profile = Profile { kind: Kind::Heap, ..Profile::default() };
    let mut skipped = Skipped::default();
    let mut current = Current::default();
    let name = source.name;
    while let Some(line) = source.read()? {
        if is_map_title(line) {
            profile.map = rest_as_map(source)?;
            break;
        }
        let text = line.trim_ascii();
        let offset = text.as_ptr() as usize - line.as_ptr() as usize;
        if let Some(addresses) =
            text.strip_prefix(b"@").filter(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))
        {
            current.start(addresses, offset + 1);
            current.place = source.lines.place();
            continue;
        }
        let Some((thread, numbers)) = threaded_record(text) else {
            if !text.is_empty() && current.begun {
                skipped.add(source.lines.place());
            }
            continue;
        };
        if !current.begun {
            continue;
        }
        if !current.is_read {
            let at = (name, current.place, current.column);
            stack(&current.text, at, context, &mut profile.max_pc, &mut current.ids)?;
            current.is_read = true;
        }
        match thread {
            None => profile.stacks.add(&current.ids, scale.column(&numbers, column)),
            Some(thread) if per_thread => {
                threads.entry(thread).or_default().add(&current.ids, scale.column(&numbers, column));
            }
            Some(_) => {}
        }
    }
    skipped.report(name);
    profile.threads = Some(threads);
    Ok(profile)
}

/// The stack that the lines being read belong to; its addresses are read when the first of them comes.
#[derive(Default)]
struct Current {
    begun: bool,
    is_read: bool,
    text: Vec<u8>,
    column: usize,
    place: Place,
    ids: Vec<u32>,
}

impl Current {
    fn start(&mut self, text: &[u8], column: usize) {
        self.begun = true;
        self.is_read = false;
        self.text.clear();
        self.text.extend_from_slice(text);
        self.column = column;
    }
}

/// `None` for the line of all threads.
fn threaded_record(text: &[u8]) -> Option<(Option<u64>, [f64; 4])> {
    let mut rest = Rest(text);
    rest.literal(b't')?;
    let thread =
        if rest.literal(b'*').is_some() { None } else { Some(str::from_utf8(rest.digits()?).ok()?.parse().ok()?) };
    rest.literal(b':')?;
    rest.blanks(1)?;
    let numbers = rest.pairs()?;
    rest.0.is_empty().then_some((thread, numbers))
}

/// What is left of a line.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn literal(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn blanks(&mut self, at_least: usize) -> Option<()> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.0 = &self.0[count..];
        (count >= at_least).then_some(())
    }

    fn digits(&mut self) -> Option<&'a [u8]> {
        let digits = leading_digits(self.0);
        self.0 = &self.0[digits.len()..];
        (!digits.is_empty()).then_some(digits)
    }

    /// `c: b [c: b]`.
    fn pairs(&mut self) -> Option<[f64; 4]> {
        let mut numbers = [0.0; 4];
        numbers[0] = decimal(self.digits()?);
        self.literal(b':')?;
        self.blanks(1)?;
        numbers[1] = decimal(self.digits()?);
        self.blanks(1)?;
        self.literal(b'[')?;
        self.blanks(0)?;
        numbers[2] = decimal(self.digits()?);
        self.literal(b':')?;
        self.blanks(1)?;
        numbers[3] = decimal(self.digits()?);
        self.literal(b']')?;
        Some(numbers)
    }
}

fn leading_digits(text: &[u8]) -> &[u8] {
    &text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()]
}

/// A number of digits; beyond 64 bits with the precision of a floating one.
fn decimal(digits: &[u8]) -> f64 {
    let mut value = 0u64;
    for &byte in digits {
        let next = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(byte - b'0')));
        let Some(next) = next else {
            return str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::MAX);
        };
        value = next;
    }
    value as f64
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "whole numbers")]

    use super::*;

    #[test]
    fn records_and_what_is_none() {
        assert_eq!(threaded_record(b"t*: 3: 4 [5: 6]"), Some((None, [3.0, 4.0, 5.0, 6.0])));
        assert_eq!(threaded_record(b"t12:  3:\t4 [ 5:  6]"), Some((Some(12), [3.0, 4.0, 5.0, 6.0])));
        for text in ["t0: 12: 3 [4: 5] main thread", "t: 1: 2 [3: 4]", "t0: 1: 2", "t0: 1:2 [3: 4]", ""] {
            assert_eq!(threaded_record(text.as_bytes()), None, "{text}");
        }
        assert_eq!(classic_record(b"1: 2 [3: 4] @ 0x1 0x2"), Some(([1.0, 2.0, 3.0, 4.0], &b"0x1 0x2"[..])));
        assert_eq!(classic_record(b"1: 2 [3: 4] @"), None);
    }

    #[test]
    fn numbers_beyond_64_bits_keep_their_size() {
        assert_eq!(decimal(b"18446744073709551615"), 18446744073709551615.0);
        assert_eq!(decimal(b"100000000000000000000"), 1e20);
    }
}
