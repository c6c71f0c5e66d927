//! Messages for people: one line, built in a buffer on the stack, written in one piece. No allocation, no locks, no
//! formatting machinery.
//!
//! The text goes to the program's `malloc_message` when that is set, otherwise to fd 2 by a direct system call. Errors
//! of the write are ignored. Any thread may call this in any state, inside signal handlers too.
#![forbid(unsafe_code)]

use core::ffi::CStr;

use crate::{linked, sys};

/// Longest message, bytes; longer text is cut.
pub const LINE_BYTES: usize = 4096;

/// A message under construction.
pub struct Line {
    buf: [u8; LINE_BYTES],
    len: usize,
}

impl Line {
    /// Opens with the prefix of every message.
    #[cold]
    pub fn new() -> Line {
        Line { buf: [0; LINE_BYTES], len: 0 }.text("<jeprobe>: ")
    }

    /// Appends bytes; the last byte of the buffer stays NUL.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Line {
        let room = (LINE_BYTES - 1).saturating_sub(self.len);
        let take = bytes.len().min(room);
        for (to, from) in self.buf.iter_mut().skip(self.len).zip(bytes.iter().take(take)) {
            *to = *from;
        }
        self.len += take;
        self
    }

    /// Appends text.
    #[must_use]
    pub fn text(self, text: &str) -> Line {
        self.bytes(text.as_bytes())
    }

    /// Appends a decimal number.
    #[must_use]
    pub fn dec(self, value: u64) -> Line {
        self.number(value, 10)
    }

    /// Appends `0x` and a hexadecimal number.
    #[must_use]
    pub fn hex(self, value: usize) -> Line {
        self.text("0x").number(value as u64, 16)
    }

    fn number(self, mut value: u64, base: u64) -> Line {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [b'0'; 20];
        let mut used = 0;
        for slot in digits.iter_mut().rev() {
            *slot = DIGITS.get((value % base) as usize).copied().unwrap_or(b'?');
            value /= base;
            used += 1;
            if value == 0 {
                break;
            }
        }
        self.bytes(digits.get(digits.len() - used..).unwrap_or(&[]))
    }

    /// Ends the line and writes it.
    pub fn send(self) {
        let line = self.text("\n");
        let text = line.buf.get(..line.len).unwrap_or(&[]);
        if !CStr::from_bytes_until_nul(&line.buf).is_ok_and(linked::pass_message) {
            let _ = sys::write_all(2, text);
        }
    }

    /// Writes the line and aborts the process.
    pub fn abort(self) -> ! {
        self.send();
        sys::exit_group_abort()
    }
}

impl Default for Line {
    fn default() -> Line {
        Line::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_cutting() {
        let line = Line::new().dec(0).text(" ").dec(u64::MAX).text(" ").hex(0xdead_beef);
        assert_eq!(&line.buf[..line.len], b"<jeprobe>: 0 18446744073709551615 0xdeadbeef".as_slice());
        let line = Line::new().bytes(&[b'x'; 2 * LINE_BYTES]);
        assert_eq!(line.len, LINE_BYTES - 1);
        assert_eq!(line.buf[LINE_BYTES - 1], 0);
    }
}
