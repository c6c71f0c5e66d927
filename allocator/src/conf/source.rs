//! Where option text comes from: the program's variables, a symbolic link, the environment.
//!
//! | # | source | skipped |
//! |---|---|---|
//! | 1 | fixed when the library was built: none | always empty |
//! | 2 | variable `malloc_conf` of the program | |
//! | 3 | target text of the symbolic link `/etc/malloc.conf`; the target need not exist | |
//! | 4 | `MALLOC_CONF`, then `_RJEM_MALLOC_CONF` of the environment | in programs with raised privileges (`AT_SECURE`) |
//! | 5 | variable `malloc_conf_2_conf_harder` of the program | |
//!
//! The first allocation of a program may come from its dynamic linker, before libc knows the environment. Then the
//! kernel's copy in `/proc/self/environ` is read. All texts lie on the stack of the caller or in memory that stays; none
//! is copied to the heap, which does not exist yet.
#![forbid(unsafe_code)]

use core::ffi::CStr;

use super::Options;
use super::parse::{Line, Outcome, Source, parse};
use crate::{linked, sys};

/// Longest text taken from the link or from `/proc`, bytes. The rest is cut; libc's own environment has no limit here.
const TEXT_BYTES: usize = 4096;

const LINK: &CStr = c"/etc/malloc.conf";
const VARIABLES: [&str; 2] = ["MALLOC_CONF", "_RJEM_MALLOC_CONF"];

/// Text of bounded length on the stack.
struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl Text {
    const fn new() -> Text {
        Text { bytes: [0; TEXT_BYTES], len: 0 }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }
}

/// Reads every source into `options`.
#[cold]
pub(super) fn read_all(options: &mut Options, line: &mut Line<'_>) -> Outcome {
    let mut room = [0; TEXT_BYTES];
    let target = sys::read_link(LINK, &mut room).unwrap_or(&[]);
    let mut kernel_copy = [Text::new(), Text::new()];
    let mut environment: [&[u8]; 2] = [&[]; 2];
    if !linked::raised_privileges() {
        if let Some(found) = from_libc() {
            environment = found;
        } else {
            from_kernel(&mut kernel_copy);
            environment = [kernel_copy[0].as_bytes(), kernel_copy[1].as_bytes()];
        }
    }
    let global = linked::malloc_conf().map_or(&[][..], CStr::to_bytes);
    let harder = linked::malloc_conf_2_conf_harder().map_or(&[][..], CStr::to_bytes);
    let sources = [
        Source { number: 1, what: "string specified when the library was built", text: &[] },
        Source { number: 2, what: "string pointed to by the global variable malloc_conf", text: global },
        Source {
            number: 3,
            what: "\"name\" of the file referenced by the symbolic link named /etc/malloc.conf",
            text: target,
        },
        Source { number: 4, what: "value of the environment variable MALLOC_CONF", text: environment[0] },
        Source { number: 4, what: "value of the environment variable _RJEM_MALLOC_CONF", text: environment[1] },
        Source { number: 5, what: "string pointed to by the global variable malloc_conf_2_conf_harder", text: harder },
    ];
    parse(&sources, options, line)
}

/// Values of the two variables by libc's environment, `None` when it has none yet. The first entry of a name counts.
fn from_libc() -> Option<[&'static [u8]; 2]> {
    let mut found: [Option<&[u8]>; 2] = [None; 2];
    let there = linked::for_each_variable(|entry| {
        for (slot, name) in found.iter_mut().zip(VARIABLES) {
            let value = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            *slot = slot.or(value);
        }
    });
    there.then_some(found.map(Option::unwrap_or_default))
}

/// The same out of `/proc/self/environ`. A text that does not fit is cut.
fn from_kernel(texts: &mut [Text; 2]) {
    let Ok(fd) = sys::open_read(c"/proc/self/environ") else {
        return;
    };
    let mut scan = Scan::new();
    let mut chunk = [0; 512];
    while let Ok(got @ 1..) = sys::read(fd, &mut chunk) {
        for byte in chunk.iter().take(got) {
            scan.feed(*byte, texts);
        }
    }
    sys::close(fd);
}

/// Finds the variables in a stream of NUL-separated `NAME=value` entries.
struct Scan {
    /// Bytes of the entry seen so far.
    at: usize,
    variables: [Candidate; 2],
}

/// One variable looked for.
struct Candidate {
    name: &'static str,
    /// Its `NAME=` still matches the entry.
    matches: bool,
    /// An earlier entry had it.
    seen: bool,
}

impl Scan {
    fn new() -> Scan {
        Scan { at: 0, variables: VARIABLES.map(|name| Candidate { name, matches: true, seen: false }) }
    }

    fn feed(&mut self, byte: u8, texts: &mut [Text; 2]) {
        for (variable, text) in self.variables.iter_mut().zip(texts) {
            variable.feed(self.at, byte, text);
        }
        self.at = if byte == 0 { 0 } else { self.at + 1 };
    }
}

impl Candidate {
    /// Takes the byte at offset `at` of an entry; 0 ends it.
    fn feed(&mut self, at: usize, byte: u8, text: &mut Text) {
        let name = self.name.as_bytes();
        if byte == 0 {
            self.seen |= self.matches && at > name.len();
            self.matches = !self.seen;
            return;
        }
        match name.get(at) {
            Some(wanted) => self.matches &= *wanted == byte,
            None if at == name.len() => self.matches &= byte == b'=',
            None if self.matches => text.push(byte),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(environment: &[u8]) -> [Text; 2] {
        let mut texts = [Text::new(), Text::new()];
        let mut scan = Scan::new();
        for byte in environment {
            scan.feed(*byte, &mut texts);
        }
        texts
    }

    #[test]
    fn variables_are_found_in_the_kernels_copy() {
        let texts = scan(b"A=b\0MALLOC_CONF=prof:true\0_RJEM_MALLOC_CONF=narenas:1\0MALLOC_CONF=second\0Z=\0");
        assert_eq!(texts[0].as_bytes(), b"prof:true");
        assert_eq!(texts[1].as_bytes(), b"narenas:1");
        let texts = scan(b"MALLOC_CONFX=1\0XMALLOC_CONF=2\0MALLOC_CON=3\0MALLOC_CONF=\0MALLOC_CONF\0A=MALLOC_CONF=4\0");
        assert_eq!(texts[0].as_bytes(), b"");
        assert_eq!(texts[1].as_bytes(), b"");
    }

    #[test]
    fn a_long_value_is_cut() {
        let mut environment = b"MALLOC_CONF=".to_vec();
        environment.resize(3 * TEXT_BYTES, b'x');
        assert_eq!(scan(&environment)[0].as_bytes().len(), TEXT_BYTES);
    }

    #[test]
    fn libc_and_the_kernel_agree() {
        let libc = from_libc().expect("a test program has an environment");
        let mut kernel = [Text::new(), Text::new()];
        from_kernel(&mut kernel);
        assert_eq!(libc[0], kernel[0].as_bytes());
        assert_eq!(libc[1], kernel[1].as_bytes());
    }
}
