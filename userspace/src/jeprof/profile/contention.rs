//! Contention profiles: how long threads waited for locks.
//!
//! Records are `cycles count @ addresses` or `cycles @ addresses`, settings `name = value`; everything else belongs to
//! the memory map. Values are nanoseconds: cycles / (cycles per second / 1e9) · sampling period.
#![forbid(unsafe_code)]

use std::str;

use regex::bytes::Regex;

use super::super::stop::Result;
use super::super::streams::say;
use super::super::values::Kind;
use super::{Context, Profile, Source, stack};

/// Cycles per nanosecond of a file that does not tell.
const GUESSED_RATE: f64 = 2.8;

/// Which of a record's values is shown.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Delay,
    Count,
    Mean,
}

pub fn read(source: &mut Source<'_>, context: &mut Context<'_>) -> Result<Profile> {
    let pattern = |text| Regex::new(text).expect("a fixed pattern");
    let counted = pattern(r"^\s*(\d+)\s+(\d+) @\s*(.*?)\s*$");
    let plain = pattern(r"^\s*(\d+) @\s*(.*?)\s*$");
    let slow = pattern(r"^slow release.*thread \d+  @\s*(.*?)\s*$");
    let setting = pattern(r"^([a-z][^=]*)=(.*)$");
    let column = match context.options {
        options if options.total_delay => Column::Delay,
        options if options.contentions => Column::Count,
        options if options.mean_delay => Column::Mean,
        _ => Column::Delay,
    };
    let mut profile = Profile { kind: Kind::Contention, ..Profile::default() };
    let mut ids = Vec::new();
    let (mut rate, mut period, mut rate_is_known) = (GUESSED_RATE, 1.0, false);
    let name = source.name;
    while let Some(line) = source.read()? {
        let line = line.to_vec();
        let place = source.lines.place();
        if let Some(found) = counted.captures(&line) {
            let cycles = number(&found[1]) / rate * period;
            let count = number(&found[2]) * period;
            let value = match column {
                Column::Delay => cycles,
                Column::Count => count,
                // No contention, no delay.
                Column::Mean if count == 0.0 => 0.0,
                Column::Mean => cycles / count,
            };
            let at = (name, place, found.get(3).map_or(0, |text| text.start()));
            stack(&found[3], at, context, &mut profile.max_pc, &mut ids)?;
            profile.stacks.add(&ids, value);
        } else if slow.is_match(&line) {
            // Lock releases that took long are no waiting.
        } else if let Some(found) = plain.captures(&line) {
            let cycles = number(&found[1]) / rate * period;
            let at = (name, place, found.get(2).map_or(0, |text| text.start()));
            stack(&found[2], at, context, &mut profile.max_pc, &mut ids)?;
            profile.stacks.add(&ids, cycles);
        } else if let Some(found) = setting.captures(&line) {
            let (variable, value) = (found[1].trim_ascii(), found[2].trim_ascii());
            match variable {
                b"cycles/second" => {
                    rate = number(value) / 1e9;
                    rate_is_known = true;
                    if rate <= 0.0 {
                        return Err(source.bad(place, 0, "cycles/second must be above 0"));
                    }
                }
                b"sampling period" => period = number(value),
                b"ms since reset" | b"discarded samples" => {}
                _ => say(format_args!(
                    "Ignoring unnknown variable in /contention output: '{}' = '{}'\n",
                    String::from_utf8_lossy(variable),
                    String::from_utf8_lossy(value)
                )),
            }
        } else {
            profile.map.push(line);
        }
    }
    if !rate_is_known {
        say(format_args!("No cycles/second entry in profile; Guessing {rate:.1} GHz\n"));
    }
    Ok(profile)
}

/// What a text is worth as a number: its longest numeric beginning, otherwise 0.
fn number(text: &[u8]) -> f64 {
    let text = str::from_utf8(text).unwrap_or_default().trim_start();
    let length =
        text.bytes().take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e')).count();
    (0..=length).rev().find_map(|end| text[..end].parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "numbers that were typed")]

    use super::number;

    #[test]
    fn numeric_beginnings() {
        assert_eq!(number(b"1000000000"), 1e9);
        assert_eq!(number(b"2.5 GHz"), 2.5);
        assert_eq!(number(b"x"), 0.0);
    }
}
