//! What the readers of text profiles share: lines with their position, errors that name it, addresses, the list of mappings.
#![forbid(unsafe_code)]

use memchr::memchr;
use thiserror::Error;

use super::tail::Tail;
use jeprobe_abi::heap_v2::NO_STACK;

use crate::digits::hex;
use crate::model::{Mapping, Profile};
use crate::proc::maps;
use crate::units::counted;

/// Bytes of an offending line that an error shows.
const SHOWN_BYTES: usize = 60;

/// Said of files that name no mapped file.
const NO_MAPPINGS: &str = "the file lists no mapped files: it may have been cut short, and only a program at fixed addresses \
                           can be resolved";

/// Beginnings of forms that are written and not read.
const WRITTEN_ONLY: [&str; 4] =
    [r#"{"schema":"jeprobe-report""#, r#"{"$schema":"https://www.speedscope"#, "# callgrind format", "function,flat_"];

/// Why and where a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, byte {byte}: {reason}")]
pub struct ReadError {
    /// Number of the line, from 1.
    pub line: u64,
    /// Offset of its first byte.
    pub byte: u64,
    pub reason: Reason,
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    #[error("the file is empty")]
    Empty,
    #[error("not a heap profile; it begins with {0:?}")]
    NotAProfile(String),
    #[error("the names of a symbolized profile do not end with a line `---`; the file was cut short")]
    NoEndOfNames,
    #[error("not a CPU profile: {0}")]
    BadCpu(String),
    #[error("a symbolized profile; give the original file, symbols are looked up here")]
    Symbolized,
    #[error("the sampling interval is not a number: {0:?}")]
    BadInterval(String),
    #[error("not a count line: {0:?}")]
    BadCounts(String),
    #[error("not an address: {0:?}")]
    BadAddress(String),
    #[error("not a thread: {0:?}")]
    BadThread(String),
    #[error("counts that belong to no stack")]
    CountsWithoutStack,
    #[error("a stack without its `t*` counts; the file is damaged or was cut short")]
    StackWithoutCounts,
    #[error("not understood: {0:?}; the file is damaged or was cut short")]
    Unknown(String),
}

impl ReadError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self.reason {
            Reason::Empty | Reason::StackWithoutCounts | Reason::BadCounts(_) | Reason::Unknown(_) => {
                Some("take the profile again; a process that ends while it dumps leaves a part of a file".into())
            }
            // As a shell of Windows writes what it redirects.
            Reason::NotAProfile(ref text) if text.contains("h\0e\0a\0p") => {
                Some("if it is a profile in UTF-16, convert it first: iconv -f UTF-16 -t UTF-8 FILE".into())
            }
            Reason::NotAProfile(ref text) if text.starts_with("\u{7f}ELF") => Some(
                "it is a program; one program may be named, before the profiles: jeprobe report PROGRAM PROFILE..."
                    .into(),
            ),
            Reason::NotAProfile(ref text) if WRITTEN_ONLY.iter().any(|form| text.starts_with(form)) => {
                Some("jeprobe writes that form and does not read it; give the heap file that it was made of".into())
            }
            Reason::NotAProfile(_) | Reason::BadCpu(_) => Some(
                "give a file that jeprobe, jemalloc, gperftools or pprof wrote; `jeprobe report PROGRAM PROFILE` \
                     wants you to name the program first"
                    .into(),
            ),
            _ => None,
        }
    }
}

/// Lines without their end and without blanks around, with the position of the current one.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    line: u64,
    byte: u64,
    next_byte: u64,
    /// The last line has its end.
    ends_whole: bool,
    /// The list of mappings has begun.
    in_mappings: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Lines<'a> {
        Lines { rest: bytes, line: 0, byte: 0, next_byte: 0, ends_whole: bytes.ends_with(b"\n"), in_mappings: false }
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        self.byte = self.next_byte;
        self.line += 1;
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(1..).unwrap_or_default();
        self.next_byte += (end + usize::from(!rest.is_empty())) as u64;
        Some(line.trim_ascii())
    }

    /// The next line of the part before the mappings that is not empty.
    pub(super) fn next_of_body(&mut self) -> Option<&'a [u8]> {
        loop {
            let line = self.next()?;
            if is_map_title(line) {
                self.in_mappings = true;
                return None;
            }
            if !line.is_empty() {
                return Some(line);
            }
        }
    }

    /// What was not handed out yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of the line that was handed out last.
    #[cfg(test)]
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Passes over the part before the mappings and their title, which somebody else read.
    pub(super) fn pass_body(&mut self, bytes: usize, lines: u64) {
        self.rest = &self.rest[bytes..];
        self.next_byte += bytes as u64;
        self.line += lines;
        self.in_mappings = true;
    }

    /// From here on there are mappings.
    pub(super) fn begin_mappings(&mut self) {
        self.in_mappings = true;
    }

    pub(super) fn error(&self, reason: Reason) -> ReadError {
        ReadError { line: self.line.max(1), byte: self.byte, reason }
    }
}

/// The title of the list of mappings.
pub(super) fn is_map_title(line: &[u8]) -> bool {
    line == b"MAPPED_LIBRARIES:" || line == b"--- Memory map:"
}

/// The list of mappings, and what jeprobe writes after it.
pub(super) fn mapped(lines: &mut Lines<'_>, profile: &mut Profile, mut tail: Tail) {
    if !lines.in_mappings {
        tail.finish(profile);
        if profile.names().is_empty() {
            profile.add_note(NO_MAPPINGS);
        }
        return;
    }
    let mut malformed = 0_u64;
    while let Some(line) = lines.next() {
        if line.is_empty() || tail.line(line, profile) {
            continue;
        }
        let is_cut = lines.rest.is_empty() && !lines.ends_whole;
        // The line in which a file was cut short is told by itself.
        if !mapping_line(line, profile) && !is_cut {
            malformed += 1;
        }
    }
    if profile.mappings().is_empty() {
        profile.add_note(NO_MAPPINGS);
    } else if !lines.ends_whole {
        profile.add_note("the file was cut short: it ends within a line of the list of mappings");
    }
    tail.finish(profile);
    if malformed > 0 {
        let lines = counted(malformed, "line", "lines");
        profile.add_note(format!("{lines} of the list of mappings could not be understood"));
    }
}

/// Takes one line of the list of mappings; false when it is none.
pub(super) fn mapping_line(line: &[u8], profile: &mut Profile) -> bool {
    let parsed = maps::parse(line);
    let Some(entry) = parsed.entries.first() else { return false };
    if !entry.path.is_empty() || entry.perms.exec {
        profile.add_mapping(Mapping::from(entry));
    }
    true
}

/// Of an `@` line of `heap_v2`, where [`NO_STACK`] stands for none.
pub(super) fn stack_addresses(text: &[u8], stack: &mut Vec<u64>) -> Result<(), Reason> {
    addresses(text, stack)?;
    if *stack == [NO_STACK] {
        stack.clear();
    }
    Ok(())
}

/// Blank-separated hexadecimal addresses, of up to 16 digits.
pub(super) fn addresses(text: &[u8], stack: &mut Vec<u64>) -> Result<(), Reason> {
    stack.clear();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        let digits = rest.strip_prefix(b"0x").unwrap_or(rest);
        let (address, length) = hex(digits);
        let after = &digits[length..];
        if length == 0 || !after.first().is_none_or(u8::is_ascii_whitespace) {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            return Err(Reason::BadAddress(shown(&rest[..end])));
        }
        stack.push(address);
        rest = after.trim_ascii_start();
    }
    Ok(())
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &digit| {
        digit.is_ascii_digit().then(|| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))).flatten()
    })
}

pub(super) fn shown(line: &[u8]) -> String {
    let cut = &line[..line.len().min(SHOWN_BYTES)];
    let mut text = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < line.len() {
        text.push('…');
    }
    text
}
