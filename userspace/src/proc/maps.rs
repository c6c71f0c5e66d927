//! `/proc/PID/maps` as data. Pure: bytes in, mappings out; file access is in `proc/exe.rs`.
//!
//! ```text
//! 7f2b4c021000-7f2b4c0c3000 r-xp 00021000 fe:01 1835        /usr/lib/libc.so.6 (deleted)
//! start        end          perm offset   dev   inode       path, may hold spaces; newlines come as \012
//! ```
//!
//! Low to high address, as the kernel writes it. A line that does not parse is counted, never guessed at.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What a mapping allows.
#[expect(clippy::struct_excessive_bools, reason = "the four letters of the permission field")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perms {
    pub read: bool,
    pub write: bool,
    pub exec: bool,
    pub shared: bool,
}

/// One line. Addresses are avma, half-open; `offset` is bytes into the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub perms: Perms,
    pub offset: u64,
    /// Major and minor number of the device; of the superblock, which on btrfs and overlayfs is not what `stat` says.
    pub dev: (u32, u32),
    /// 0 = anonymous or special.
    pub inode: u64,
    /// As the target sees it, without the `(deleted)` mark; empty for anonymous memory, `[heap]` and the like included.
    pub path: Vec<u8>,
    /// The kernel marked the file as deleted or replaced.
    pub deleted: bool,
}

impl Mapping {
    /// Backed by a file, as opposed to anonymous memory, stacks and the vdso.
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.first() == Some(&b'/')
    }

    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// Identity of the mapped file within the target.
    pub fn file_id(&self) -> ((u32, u32), u64) {
        (self.dev, self.inode)
    }
}

/// All lines of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    pub entries: Vec<Mapping>,
    /// Lines that did not parse.
    pub malformed: usize,
}

impl Maps {
    /// The mapping that holds `avma`.
    pub fn find(&self, avma: u64) -> Option<&Mapping> {
        let after = self.entries.partition_point(|m| m.start <= avma);
        self.entries[..after].last().filter(|m| avma < m.end)
    }

    /// One entry per mapped file: its mapping with the lowest file offset.
    pub fn files(&self) -> Vec<&Mapping> {
        let mut files: Vec<&Mapping> = Vec::new();
        for mapping in self.entries.iter().filter(|m| m.is_file()) {
            match files.iter_mut().find(|f| f.file_id() == mapping.file_id() && f.path == mapping.path) {
                Some(first) if mapping.offset < first.offset => *first = mapping,
                Some(_) => {}
                None => files.push(mapping),
            }
        }
        files
    }
}

/// Parses the whole file.
pub fn parse(bytes: &[u8]) -> Maps {
    let mut maps = Maps::default();
    for line in bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        match parse_line(line) {
            Some(mapping) => maps.entries.push(mapping),
            None => maps.malformed += 1,
        }
    }
    maps
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = field(line)?;
    let (perms, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (dev, rest) = field(rest)?;
    let (inode, rest) = field(rest)?;

    let dash = range.iter().position(|&b| b == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    if start >= end || perms.len() < 4 {
        return None;
    }
    let colon = dev.iter().position(|&b| b == b':')?;
    let dev = (u32::try_from(hex(&dev[..colon])?).ok()?, u32::try_from(hex(&dev[colon + 1..])?).ok()?);

    let mut path = unescape(rest.trim_ascii_start());
    let deleted = path.first() == Some(&b'/') && path.ends_with(DELETED);
    if deleted {
        path.truncate(path.len() - DELETED.len());
    }
    Some(Mapping {
        start,
        end,
        perms: Perms {
            read: perms[0] == b'r',
            write: perms[1] == b'w',
            exec: perms[2] == b'x',
            shared: perms[3] == b's',
        },
        offset: hex(offset)?,
        dev,
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        path,
        deleted,
    })
}

/// The mark that the kernel appends to the name of a file without a directory entry.
const DELETED: &[u8] = b" (deleted)";

/// Splits off one field and the blanks before it.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
    (end > 0).then(|| line.split_at(end))
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The kernel writes a newline of a path as `\012`; nothing else is escaped.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        if rest.starts_with(b"\\012") {
            out.push(b'\n');
            rest = &rest[4..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Maps, parse};

    const SAMPLE: &[u8] = b"\
55d0c0a00000-55d0c0a2f000 r--p 00000000 fe:01 1835       /usr/bin/my prog\n\
55d0c0a2f000-55d0c0b00000 r-xp 0002f000 fe:01 1835       /usr/bin/my prog\n\
55d0c1c00000-55d0c1c21000 rw-p 00000000 00:00 0          [heap]\n\
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
7f2b4c021000-7f2b4c0c3000 r-xp 00021000 103:2a 18446744073709551615 /tmp/a\\012b.so (deleted)\n\
7f2b4d000000-7f2b4d001000 rw-s 00000000 00:01 77         /memfd:jit (deleted)\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";

    #[test]
    fn paths_keep_spaces_newlines_and_lose_the_deleted_mark() {
        let maps = parse(SAMPLE);
        assert_eq!(maps.malformed, 0);
        assert_eq!(maps.entries.len(), 7);
        assert_eq!(maps.entries[0].path, b"/usr/bin/my prog");
        assert!(!maps.entries[0].deleted);
        assert_eq!(maps.entries[4].path, b"/tmp/a\nb.so");
        assert!(maps.entries[4].deleted);
        assert_eq!(maps.entries[4].dev, (0x103, 0x2a));
        assert_eq!(maps.entries[4].inode, u64::MAX);
        assert!(maps.entries[5].deleted && maps.entries[5].is_file() && maps.entries[5].perms.shared);
        assert_eq!(maps.entries[6].end, 0xffff_ffff_ff60_1000);
    }

    #[test]
    fn anonymous_and_special_memory_is_no_file() {
        let maps = parse(SAMPLE);
        assert!(!maps.entries[2].is_file());
        assert!(!maps.entries[3].is_file());
        let files: Vec<_> = maps.files().iter().map(|m| (m.path.clone(), m.offset)).collect();
        assert_eq!(files.len(), 3);
        assert_eq!(files[0], (b"/usr/bin/my prog".to_vec(), 0));
    }

    #[test]
    fn addresses_are_found_in_half_open_ranges() {
        let maps = parse(SAMPLE);
        assert_eq!(maps.find(0x55d0_c0a2_f000).map(|m| m.offset), Some(0x2f000));
        assert_eq!(maps.find(0x55d0_c0b0_0000), None);
        assert_eq!(maps.find(0), None);
        assert_eq!(Maps::default().find(1), None);
    }

    #[test]
    fn damaged_lines_are_counted() {
        let maps = parse(
            b"garbage\n1000-0fff r--p 0 0:0 0\n1000-2000 r- 0 0:0 0\n1000-2000 r--p 0 00 0\n\n1-2 r--p 0 0:0 x\n",
        );
        assert_eq!(maps.entries.len(), 0);
        assert_eq!(maps.malformed, 5);
    }

    #[test]
    fn a_huge_file_parses() {
        let mut text = Vec::new();
        for i in 0..200_000_u64 {
            let start = 0x7000_0000_0000 + i * 0x2000;
            text.extend_from_slice(format!("{start:x}-{:x} rw-p 00000000 00:00 0 \n", start + 0x1000).as_bytes());
        }
        let maps = parse(&text);
        assert_eq!(maps.entries.len(), 200_000);
        assert!(maps.find(0x7000_0000_0000 + 0x2000 * 199_999).is_some());
    }
}
