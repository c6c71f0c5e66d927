//! The mappings of this process, read with direct system calls through a buffer of the caller: no allocation, no lock of the
//! dynamic linker.
#![forbid(unsafe_code)]

use core::ffi::CStr;
use core::ops::ControlFlow;

use crate::sys::{self, Errno};

/// The mappings by the calling thread: `/proc/self` is the first thread, which has none any more when it has ended before the
/// others. Linux 3.17.
pub(crate) const MAPS: &CStr = c"/proc/thread-self/maps";

/// Longest line: fields of at most 100 bytes and a path.
pub(crate) const LINE_BYTES: usize = 100 + 4096 + 16;

/// One mapping. Addresses are avma, `end` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) readable: bool,
    pub(crate) executable: bool,
    /// Bytes into the file.
    pub(crate) offset: u64,
    /// 0 for memory without a file.
    pub(crate) inode: u64,
    /// As printed, ` (deleted)` and `[vdso]` included; empty for anonymous memory.
    pub(crate) path: &'a [u8],
}

/// Calls `each` for every mapping, until it breaks.
pub(crate) fn each(buf: &mut [u8], mut each: impl FnMut(&Mapping<'_>) -> ControlFlow<()>) -> Result<(), Errno> {
    each_line(MAPS, buf, |line| match parse(line) {
        Some(mapping) => each(&mapping),
        None => ControlFlow::Continue(()),
    })
}

/// Calls `each` for every line of a file, without its newline. A line longer than the buffer is left out.
fn each_line(path: &CStr, buf: &mut [u8], mut each: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), Errno> {
    let fd = sys::open_read(path)?;
    let mut filled = 0;
    let mut skipping = false;
    let result = loop {
        let n = match sys::read(fd, &mut buf[filled..]) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(error) => break Err(error),
        };
        filled += n;
        let mut start = 0;
        let mut stop = false;
        while let Some(len) = buf[start..filled].iter().position(|&b| b == b'\n') {
            if !skipping && each(&buf[start..start + len]).is_break() {
                stop = true;
                break;
            }
            skipping = false;
            start += len + 1;
        }
        if stop {
            break Ok(());
        }
        buf.copy_within(start..filled, 0);
        filled -= start;
        if filled == buf.len() {
            skipping = true;
            filled = 0;
        }
    };
    sys::close(fd);
    result
}

/// `start-end perms offset major:minor inode   path`
fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let mut rest = line;
    let start = hex(until(&mut rest, b'-')?)?;
    let end = hex(until(&mut rest, b' ')?)?;
    let perms = until(&mut rest, b' ')?;
    let offset = hex(until(&mut rest, b' ')?)?;
    until(&mut rest, b' ')?;
    let inode = match until(&mut rest, b' ') {
        Some(field) => decimal(field)?,
        None => decimal(core::mem::take(&mut rest))?,
    };
    Some(Mapping {
        start,
        end,
        readable: perms.first() == Some(&b'r'),
        executable: perms.get(2) == Some(&b'x'),
        offset,
        inode,
        path: rest.trim_ascii_start(),
    })
}

/// Takes the bytes before `separator` and drops it.
fn until<'a>(rest: &mut &'a [u8], separator: u8) -> Option<&'a [u8]> {
    let at = rest.iter().position(|&b| b == separator)?;
    let (field, tail) = rest.split_at(at);
    *rest = &tail[1..];
    Some(field)
}

fn hex(field: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(field).ok()?, 16).ok()
}

fn decimal(field: &[u8]) -> Option<u64> {
    core::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind() {
        let line =
            b"7f0012345000-7f0012367000 r-xp 00028000 103:02 1835034                    /usr/lib/a b.so (deleted)";
        assert_eq!(
            parse(line),
            Some(Mapping {
                start: 0x7f00_1234_5000,
                end: 0x7f00_1236_7000,
                readable: true,
                executable: true,
                offset: 0x28000,
                inode: 1_835_034,
                path: b"/usr/lib/a b.so (deleted)",
            })
        );
        let anonymous = parse(b"55d0-55e0 rw-p 00000000 00:00 0 ").expect("anonymous");
        assert_eq!((anonymous.inode, anonymous.path), (0, &b""[..]));
        assert!(parse(b"55d0-55e0 rw-p 00000000 00:00 0").is_some());
        assert_eq!(parse(b"not a mapping"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn own_mappings_hold_this_function_through_a_small_buffer() {
        let here = lines_of_every_kind as *const u8 as u64;
        for size in [LINE_BYTES, 300] {
            let mut buf = std::vec![0; size];
            let mut found = 0;
            each(&mut buf, |m| {
                if m.executable && (m.start..m.end).contains(&here) {
                    found += 1;
                }
                ControlFlow::Continue(())
            })
            .expect("procfs");
            assert_eq!(found, 1, "{size}");
        }
    }
}
