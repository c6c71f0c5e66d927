//! Binary CPU profiles: words of 4 or 8 bytes in either order.
//!
//! ```text
//! 0 | header words n | version | period, µs | 0 (n words)  then  count | depth | depth addresses  ...
//! 0 | 1 | 0 ends the records; the memory map follows as text
//! ```
//!
//! The first 8 bytes tell width and order. Every address gets one less: the first was interrupted behind it, the others
//! are return addresses. Words are read as they are needed; a file that ends within a record is an error.
#![forbid(unsafe_code)]

use std::io::BufRead;
use std::path::Path;

use super::super::address::Width;
use super::super::stop::{Result, Stop, reason};
use super::super::streams::say;
use super::super::values::Kind;
use super::{Context, Profile, Source, rest_of};

/// Deeper stacks are no stacks.
const DEEPEST: u64 = 1 << 16;

/// Header words that exist in no version.
const LARGEST: u64 = 1 << 32;

pub fn read(source: Source<'_>, context: &mut Context<'_>) -> Result<Profile> {
    let name = source.name;
    let (input, offset) = rest_of(source);
    let mut words = Words::new(input, offset, name)?;
    context.width = words.width;
    let named = |what: &str| format!("{}: {what}\n", name.display());
    let [zero, header_words] = words.first;
    if zero != 0 {
        return Err(Stop::NoProfile(named("not a profile file, or old format profile file")));
    }
    let corrupted = || Stop::NoProfile(named("not a profile file, or corrupted profile file"));
    let mut next = || words.next();
    let version = next()?.ok_or_else(corrupted)?;
    let period = next()?.ok_or_else(corrupted)?;
    if version > LARGEST || period > LARGEST || !(3..=LARGEST).contains(&header_words) {
        return Err(corrupted());
    }
    // Two of the header's words are read.
    for _ in 2..header_words {
        if next()?.is_none() {
            return Err(corrupted());
        }
    }
    let mut profile = Profile { kind: Kind::Cpu, ..Profile::default() };
    let mut ids = Vec::new();
    while let Some(count) = words.next()? {
        let depth = words.need()?;
        if depth > DEEPEST {
            let slot = words.slots;
            let at = words.position();
            say(format_args!("At index {slot} (address 0{at:o}):\n"));
            return Err(Stop::error(named("stack trace depth >= 2**32")));
        }
        ids.clear();
        for at in 0..depth {
            let address = words.need()?;
            if at == 0 && address == 0 {
                for _ in 1..depth {
                    words.need()?;
                }
                profile.map = words.text()?;
                return Ok(profile);
            }
            let address = words.width.sub(address, 1);
            profile.max_pc = profile.max_pc.max(address);
            ids.push(context.pcs.id(address));
        }
        profile.stacks.add(&ids, count as f64);
    }
    Ok(profile)
}

/// A file as words.
struct Words<'a, R> {
    input: R,
    name: &'a Path,
    width: Width,
    big_endian: bool,
    /// The first two.
    first: [u64; 2],
    /// Words read so far.
    slots: u64,
    offset: u64,
}

impl<'a, R: BufRead> Words<'a, R> {
    fn new(mut input: R, offset: u64, name: &'a Path) -> Result<Words<'a, R>> {
        let failed = |limit: u32| Stop::NoProfile(format!("{}: header size >= 2**{limit}\n", name.display()));
        let mut half = |limit| {
            let mut bytes = [0; 8];
            input.read_exact(&mut bytes).map(|()| bytes).map_err(|_| failed(limit))
        };
        let start = half(16)?;
        let (width, big_endian, first);
        if start == [0; 8] {
            let second = half(32)?;
            width = Width::W16;
            big_endian = if second[4..] == [0; 4] {
                false
            } else if second[..4] == [0; 4] {
                true
            } else {
                return Err(failed(32));
            };
            first = [0, word(&second, big_endian)];
        } else {
            width = Width::W8;
            big_endian = if start[6..] == [0; 2] {
                false
            } else if start[4..6] == [0; 2] {
                true
            } else {
                return Err(failed(16));
            };
            first = [word(&start[..4], big_endian), word(&start[4..], big_endian)];
        }
        Ok(Words { input, name, width, big_endian, first, slots: 2, offset })
    }

    /// The next word; `None` at the end, also when less than a word is left.
    fn next(&mut self) -> Result<Option<u64>> {
        let mut bytes = [0; 8];
        let length = self.width.digits() / 2;
        let mut have = 0;
        while have < length {
            match self.input.read(&mut bytes[have..length]) {
                Ok(0) => return Ok(None),
                Ok(more) => have += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&reason(&error))),
            }
        }
        self.slots += 1;
        Ok(Some(word(&bytes[..length], self.big_endian)))
    }

    fn need(&mut self) -> Result<u64> {
        self.next()?.ok_or_else(|| self.failed("the file ends within a record"))
    }

    fn position(&self) -> u64 {
        self.offset + self.slots * (self.width.digits() as u64 / 2)
    }

    fn failed(&self, what: &str) -> Stop {
        Stop::error(format!("{}: byte {}: {what}\n", self.name.display(), self.position()))
    }

    /// What follows, as lines.
    fn text(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut text = Vec::new();
        self.input.read_to_end(&mut text).map_err(|error| self.failed(&reason(&error)))?;
        Ok(text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect())
    }
}

fn word(bytes: &[u8], big_endian: bool) -> u64 {
    let digit = |value, &byte: &u8| value << 8 | u64::from(byte);
    if big_endian { bytes.iter().fold(0, digit) } else { bytes.iter().rev().fold(0, digit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn width_and_order_follow_from_the_beginning() {
        let words = |bytes: &[u8]| Words::new(bytes, 0, Path::new("x")).map(|w| (w.width, w.big_endian, w.first)).ok();
        assert_eq!(words(&[0, 0, 0, 0, 3, 0, 0, 0]), Some((Width::W8, false, [0, 3])));
        assert_eq!(words(&[0, 0, 0, 0, 0, 0, 0, 3]), Some((Width::W8, true, [0, 3])));
        assert_eq!(words(&[0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]), Some((Width::W16, false, [0, 3])));
        assert_eq!(words(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]), Some((Width::W16, true, [0, 3])));
        assert_eq!(words(b"hello world"), None);
        assert_eq!(words(b""), None);
    }
}
