//! What one block of a heap profile says, before its addresses are numbered for the run.
//!
//! ```text
//!   t0: 1: 64 [0: 0]          head: belongs to the last stack of the block before
//! @ 0x401175 0x4011c2         a stack: numbers of this worker, `new` has the addresses that it meets first
//!   t*: 10: 10240 [0: 0]      a value of it
//! @ 0x401175                  last: its values may come with the next block
//! ```
//!
//! A stack's addresses are read when its first value comes: one without values is not looked at.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::Path;
use std::str;

use foldhash::fast::RandomState;

use crate::digits;
use crate::input::blocks::Block;
use crate::jeprof::address::{Width, parse_hex};
use crate::jeprof::lines::Place;
use crate::jeprof::streams::say;

use super::scale::Scale;

/// How lines are read.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Stacks followed by lines per thread; otherwise one record per line.
    pub threaded: bool,
    pub scale: Scale,
    /// Which of a record's four numbers counts.
    pub column: usize,
    /// Values of single threads are wanted.
    pub per_thread: bool,
    pub width: Width,
}

/// What is wrong, and where in the block.
#[derive(Debug)]
pub struct Bad {
    pub place: Place,
    pub column: usize,
    pub what: String,
}

/// Lines that are no record: how many, and the first one's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub count: u64,
    pub first: Place,
}

/// The last stack of a block.
#[derive(Debug)]
pub enum Last {
    /// Its number in the block.
    Read(u32),
    /// No value of it came yet.
    Unread { text: Vec<u8>, place: Place, column: usize },
}

/// Places count lines from the block's beginning, from 1.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Whose numbers the frames are.
    pub worker: usize,
    /// Addresses that the worker did not meet before; they get the numbers that follow those it gave.
    pub new: Vec<u64>,
    frames: Vec<u32>,
    ends: Vec<u32>,
    /// Number of the stack, value.
    pub values: Vec<(u32, f64)>,
    /// Number of the stack, thread, value.
    pub shares: Vec<(u32, u64, f64)>,
    pub head_values: Vec<f64>,
    pub head_shares: Vec<(u64, f64)>,
    /// Values of threads that are not wanted belong to the last stack of the block before.
    pub head_touched: bool,
    pub head_skipped: Skipped,
    pub skipped: Skipped,
    pub last: Option<Last>,
    /// The largest address.
    pub max_pc: u64,
    pub lines: u64,
    /// Of the block's bytes, when it is wanted.
    pub digest: Option<[u8; 32]>,
    /// Where the memory map begins in the block, behind its title.
    pub map: Option<usize>,
    pub error: Option<Bad>,
}

impl Parsed {
    /// Frames of a stack of this block.
    pub fn stack(&self, number: u32) -> &[u32] {
        let number = number as usize;
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.frames[start..self.ends[number] as usize]
    }
}

/// By which a block is known again.
pub fn digest(block: &[u8]) -> [u8; 32] {
    *blake3::hash(block).as_bytes()
}

/// Addresses that one worker has met, numbered.
#[derive(Debug)]
pub struct Worker {
    number: usize,
    rules: Rules,
    /// Blocks are hashed, too.
    hashes: bool,
    ids: HashMap<u64, u32, RandomState>,
}

impl Worker {
    pub fn new(number: usize, rules: Rules, hashes: bool) -> Worker {
        Worker { number, rules, hashes, ids: HashMap::default() }
    }

    pub fn parse(&mut self, block: &Block) -> Parsed {
        let digest = self.hashes.then(|| digest(&block.bytes));
        let parsed = Parsed { worker: self.number, digest, ..Parsed::default() };
        let place = Place { line: 0, byte: block.byte };
        let mut reader = Reader { worker: self, parsed, open: Open::None, text: Vec::new(), at: (place, 0), place };
        let has_returns = memchr::memchr(b'\r', &block.bytes).is_some();
        let mut cleaned = Vec::new();
        let mut rest = block.bytes.as_slice();
        while !rest.is_empty() {
            let (mut line, after) = match memchr::memchr(b'\n', rest) {
                Some(end) => (&rest[..end], &rest[end + 1..]),
                None => (rest, &rest[rest.len()..]),
            };
            reader.place.line += 1;
            reader.place.byte = block.byte + (block.bytes.len() - rest.len()) as u64;
            rest = after;
            if has_returns {
                cleaned.clear();
                cleaned.extend(line.iter().copied().filter(|&byte| byte != b'\r'));
                line = &cleaned;
            }
            if is_map_title(line) {
                reader.parsed.map = Some(block.bytes.len() - rest.len());
                break;
            }
            if let Err(bad) = reader.line(line) {
                reader.parsed.error = Some(bad);
                break;
            }
        }
        let Reader { mut parsed, open, text, at: (begin, column), place, .. } = reader;
        parsed.lines = place.line;
        parsed.last = match open {
            Open::None => None,
            Open::Read(number) => Some(Last::Read(number)),
            Open::Unread => Some(Last::Unread { text, place: begin, column }),
        };
        parsed
    }
}

/// The stack that lines belong to.
#[derive(Clone, Copy)]
enum Open {
    /// The last one of the block before.
    None,
    Unread,
    Read(u32),
}

struct Reader<'a> {
    worker: &'a mut Worker,
    parsed: Parsed,
    open: Open,
    /// Addresses of the stack that is open and not read, and where they stand: line, byte in it.
    text: Vec<u8>,
    at: (Place, usize),
    /// Of the current line.
    place: Place,
}

impl Reader<'_> {
    fn line(&mut self, line: &[u8]) -> Result<(), Bad> {
        if self.worker.rules.threaded { self.threaded(line) } else { self.classic(line) }
    }

    fn threaded(&mut self, line: &[u8]) -> Result<(), Bad> {
        let text = line.trim_ascii();
        if let Some(addresses) =
            text.strip_prefix(b"@").filter(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))
        {
            self.open = Open::Unread;
            self.text.clear();
            self.text.extend_from_slice(addresses);
            self.at = (self.place, text.as_ptr() as usize - line.as_ptr() as usize + 1);
            return Ok(());
        }
        let Some((thread, numbers)) = threaded_record(text) else {
            if !text.is_empty() {
                let skipped = match self.open {
                    Open::None => &mut self.parsed.head_skipped,
                    _ => &mut self.parsed.skipped,
                };
                skipped.add(self.place);
            }
            return Ok(());
        };
        if let Open::Unread = self.open {
            let text = std::mem::take(&mut self.text);
            let number = self.stack(&text, self.at)?;
            self.text = text;
            self.open = Open::Read(number);
        }
        let Rules { scale, column, per_thread, .. } = self.worker.rules;
        match (self.open, thread) {
            (Open::Read(number), None) => self.parsed.values.push((number, scale.column(&numbers, column))),
            (_, None) => self.parsed.head_values.push(scale.column(&numbers, column)),
            (Open::Read(number), Some(thread)) if per_thread => {
                self.parsed.shares.push((number, thread, scale.column(&numbers, column)));
            }
            (_, Some(thread)) if per_thread => {
                self.parsed.head_shares.push((thread, scale.column(&numbers, column)));
            }
            // That there are values of it makes the stack count.
            (Open::None | Open::Unread, Some(_)) => self.parsed.head_touched = true,
            (Open::Read(_), Some(_)) => {}
        }
        Ok(())
    }

    fn classic(&mut self, line: &[u8]) -> Result<(), Bad> {
        let text = line.trim_ascii();
        let Some((numbers, addresses)) = classic_record(text) else {
            if !text.is_empty() {
                self.parsed.skipped.add(self.place);
            }
            return Ok(());
        };
        let column = addresses.as_ptr() as usize - line.as_ptr() as usize;
        let number = self.stack(addresses, (self.place, column))?;
        let Rules { scale, column, .. } = self.worker.rules;
        self.parsed.values.push((number, scale.column(&numbers, column)));
        Ok(())
    }

    /// Reads the addresses of a stack, youngest first; gives its number in the block.
    fn stack(&mut self, text: &[u8], (place, column): (Place, usize)) -> Result<u32, Bad> {
        let Worker { ids, rules, .. } = &mut *self.worker;
        let Parsed { new, frames, ends, max_pc, .. } = &mut self.parsed;
        let mut is_first = true;
        addresses(text, |address| {
            let address = if is_first { address } else { rules.width.sub(address, 1) };
            is_first = false;
            *max_pc = (*max_pc).max(address);
            let next = ids.len() as u32;
            frames.push(*ids.entry(address).or_insert_with(|| {
                new.push(address);
                next
            }));
        })
        .map_err(|(at, what)| Bad { place, column: column + at, what })?;
        ends.push(frames.len() as u32);
        Ok(ends.len() as u32 - 1)
    }
}

/// The title of a memory map.
fn is_map_title(line: &[u8]) -> bool {
    line.starts_with(b"MAPPED_LIBRARIES:") || line.starts_with(b"--- Memory map:")
}

/// Calls `each` with the blank-separated addresses of a text; the byte of a word that is none, and what is wrong.
pub fn addresses(text: &[u8], mut each: impl FnMut(u64)) -> Result<(), (usize, String)> {
    let mut at = 0;
    loop {
        while text.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) else { return Ok(()) };
        let prefix = if rest.starts_with(b"0x") { 2 } else { 0 };
        let (address, digits) = digits::hex(&rest[prefix..]);
        let end = prefix + digits;
        if digits > 0 && rest.get(end).is_none_or(u8::is_ascii_whitespace) {
            each(address);
            at += end;
            continue;
        }
        let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let word = &rest[..length];
        each(parse_hex(word).ok_or_else(|| (at, no_address(word)))?);
        at += length;
    }
}

fn no_address(word: &[u8]) -> String {
    format!("'{}' is no address", String::from_utf8_lossy(&word[..word.len().min(40)]))
}

impl Skipped {
    pub fn add(&mut self, place: Place) {
        if self.count == 0 {
            self.first = place;
        }
        self.count += 1;
    }

    /// Says how many there were: values that were not counted.
    pub fn report(&self, name: &Path) {
        if self.count > 0 {
            say(format_args!(
                "{}:{}: byte {}: {} line{} here and below are no record and were not counted\n",
                name.display(),
                self.first.line,
                self.first.byte,
                self.count,
                if self.count == 1 { "" } else { "s" }
            ));
        }
    }
}

fn classic_record(text: &[u8]) -> Option<([f64; 4], &[u8])> {
    let mut rest = Rest(text);
    let numbers = rest.pairs()?;
    rest.blanks(1)?;
    rest.literal(b'@')?;
    rest.blanks(1)?;
    (!rest.0.is_empty()).then_some((numbers, rest.0))
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

pub fn leading_digits(text: &[u8]) -> &[u8] {
    &text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()]
}

/// A number of digits; beyond 64 bits with the precision of a floating one.
pub fn decimal(digits: &[u8]) -> f64 {
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
