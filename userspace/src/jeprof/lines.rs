//! Lines of a profile with their place in the file: read in blocks, carriage returns removed wherever they stand.
//!
//! One line is held at a time; a line without end is bounded by `LONGEST`.
#![forbid(unsafe_code)]

use std::io::{self, BufRead};

use crate::input::blocks::LONGEST;

/// Where a line stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: u64,
    /// Offset of the line's first byte in the file.
    pub byte: u64,
}

/// Reads lines of `input`.
pub struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    place: Place,
    next_byte: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines { input, buffer: Vec::new(), place: Place::default(), next_byte: 0 }
    }

    /// The next line without its end; `None` behind the last.
    pub fn read(&mut self) -> io::Result<Option<&[u8]>> {
        self.buffer.clear();
        self.place = Place { line: self.place.line + 1, byte: self.next_byte };
        let mut is_ended = false;
        loop {
            let block = self.input.fill_buf()?;
            if block.is_empty() {
                break;
            }
            let (taken, done) = match memchr::memchr(b'\n', block) {
                Some(end) => (end + 1, true),
                None => (block.len(), false),
            };
            self.buffer.extend_from_slice(&block[..taken]);
            self.input.consume(taken);
            self.next_byte += taken as u64;
            if done {
                self.buffer.pop();
                is_ended = true;
                break;
            }
            if self.buffer.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line longer than 64 MiB"));
            }
        }
        if self.buffer.is_empty() && !is_ended {
            return Ok(None);
        }
        if memchr::memchr(b'\r', &self.buffer).is_some() {
            self.buffer.retain(|&byte| byte != b'\r');
        }
        Ok(Some(&self.buffer))
    }

    /// Place of the line that `read` gave last.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The first byte that was not read yet, without reading it.
    pub fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    /// Offset of what lies behind the lines read so far.
    pub fn next_byte(&self) -> u64 {
        self.next_byte
    }

    /// What lies behind the lines read so far, and its offset.
    pub fn into_rest(self) -> (R, u64) {
        (self.input, self.next_byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_ends_and_carriage_returns() {
        let mut lines = Lines::new(&b"one\r\n\nth\rree"[..]);
        assert_eq!(lines.read().unwrap(), Some(&b"one"[..]));
        assert_eq!(lines.place(), Place { line: 1, byte: 0 });
        assert_eq!(lines.read().unwrap(), Some(&b""[..]));
        assert_eq!(lines.peek().unwrap(), Some(b't'));
        assert_eq!(lines.read().unwrap(), Some(&b"three"[..]));
        assert_eq!(lines.place(), Place { line: 3, byte: 6 });
        assert_eq!(lines.read().unwrap(), None);
    }
}
