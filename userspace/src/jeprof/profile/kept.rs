//! Stacks of a large profile as a former run read them, known by the bytes of the file.
//!
//! ```text
//! DIR/SIZE-KEY.stacks
//!   "jeprobe\x01" | version | CRC-32 of all that follows
//!   key                     BLAKE3 of the program's build, the rules of reading, and the bytes of every block
//!   head                    numbers of what follows, and what else the reader found
//!   values, addresses       f64 and u64 each
//!   lengths, frames         2 or 4 bytes each: frames are places in `addresses`
//!   map                     lines of the memory map, each with its length
//! ```
//!
//! - What is kept is found by content: a file that was changed in place, whatever its times say, is another one. Hashing takes a
//!   tenth of the time of reading.
//! - A key is made of the very bytes that were read, not of the file before or after.
//! - Nothing is held in memory to be written, so a limit of memory is met with this cache where it is met without.
//! - A file that is damaged is passed over with a warning and replaced; one of another version, in silence.
//!
//! Profiles whose single threads are asked for are not kept, nor those that need more than a file of the cache may hold.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::image::{Cache, MOST_FILE_BYTES, program_build};
use crate::input::blocks::{self, BLOCK};

use super::super::lines::Place;
use super::super::stacks::{Columns, Stacks};
use super::records::{Rules, Skipped, digest};

const MAGIC: &[u8; 8] = b"jeprobe\x01";
/// Of the layout, and of how files are read.
const VERSION: u32 = 1;
/// 4 MiB: what is smaller is read in some 20 ms.
pub(super) const LEAST: u64 = 4 << 20;
/// Numbers of the head.
const HEAD: usize = 12;

/// What a reader found.
#[derive(Debug, PartialEq)]
pub(super) struct Found<S, A, M> {
    pub(super) stacks: S,
    /// In the order of their numbers.
    pub(super) addresses: A,
    pub(super) map: M,
    pub(super) max_pc: u64,
    pub(super) skipped: Skipped,
    /// The stack without numbers at the end of a file that was cut short.
    pub(super) cut: Option<Place>,
}

pub(super) type FoundRef<'a> = Found<&'a Stacks, &'a [u64], &'a [Vec<u8>]>;
pub(super) type FoundOwned = Found<Columns, Vec<u64>, Vec<Vec<u8>>>;

/// The key of a file that is being read.
pub(super) struct Key(blake3::Hasher);

/// Where stacks of one file are kept.
pub(super) struct Keeping<'a> {
    cache: &'a Cache,
    file: File,
    /// Of the file; where its records begin.
    size: u64,
    byte: u64,
    key: blake3::Hasher,
}

impl<'a> Keeping<'a> {
    /// Of a file of `size` bytes, read from `byte`, behind `line` lines; `None` when this file's stacks are not kept.
    pub(super) fn of(
        cache: Option<&'a Cache>,
        (file, size): (Option<File>, u64),
        (byte, line): (u64, u64),
        rules: Rules,
    ) -> Option<Keeping<'a>> {
        let (cache, file) = (cache?, file?);
        if size < LEAST || rules.per_thread {
            return None;
        }
        let mut key = blake3::Hasher::new();
        key.update(format!("{:?} {rules:?} {byte} {line}\n", program_build()).as_bytes());
        Some(Keeping { cache, file, size, byte, key })
    }

    /// The key to which blocks are added as they are read.
    pub(super) fn key(&self) -> Key {
        Key(self.key.clone())
    }

    /// What a former run left of this file. It is looked for only when there is something of a file of this size.
    pub(super) fn find(&self) -> Option<FoundOwned> {
        if !self.cache.has(&self.prefix(), EXTENSION) {
            return None;
        }
        let mut key = self.key();
        let input = FromPlace { file: &self.file, at: self.byte };
        blocks::in_order(
            (input, self.byte),
            BLOCK,
            |_| (),
            |(), block| digest(&block.bytes),
            |error| error,
            |_, digest| {
                key.add(&digest);
                Ok(())
            },
        )
        .ok()?;
        let key = key.finish();
        let path = self.path(&key);
        let bytes = self.cache.read(&path)?;
        decode(&bytes, &key).unwrap_or_else(|Damaged| {
            self.cache.warn(&path, "is damaged");
            None
        })
    }

    /// Leaves what was read to runs that follow.
    pub(super) fn keep(&self, key: &Key, found: &FoundRef<'_>) {
        let key = key.finish();
        let Some(head) = Head::of(found) else { return };
        if head.bytes() > MOST_FILE_BYTES {
            return;
        }
        self.cache.write_with(&self.path(&key), |file| {
            let mut out = Summed { out: io::BufWriter::with_capacity(1 << 18, file), sum: crc32fast::Hasher::new() };
            out.out.write_all(&[0; START])?;
            encode(&mut out, &key, &head, found)?;
            let sum = out.sum.clone().finalize();
            let file = out.out.into_inner().map_err(io::IntoInnerError::into_error)?;
            let start = [MAGIC.as_slice(), &VERSION.to_le_bytes(), &sum.to_le_bytes()].concat();
            file.write_all_at(&start, 0)
        });
    }

    fn prefix(&self) -> String {
        format!("{:x}-", self.size)
    }

    fn path(&self, key: &blake3::Hash) -> PathBuf {
        self.cache.directory().join(format!("{}{}.{EXTENSION}", self.prefix(), &key.to_hex()[..32]))
    }
}

const EXTENSION: &str = "stacks";
/// Before the checksum's first byte.
const START: usize = 16;

impl Key {
    /// Adds the next block of the file.
    pub(super) fn add(&mut self, digest: &[u8; 32]) {
        self.0.update(digest);
    }

    fn finish(&self) -> blake3::Hash {
        self.0.finalize()
    }
}

/// A file from a place on; where others read in it does not matter.
struct FromPlace<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromPlace<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Sums up what it passes on.
struct Summed<W> {
    out: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Numbers that say how much follows.
#[derive(Debug)]
struct Head {
    stacks: u64,
    addresses: u64,
    frames: u64,
    map_lines: u64,
    map_bytes: u64,
    /// Bytes of a length, of a frame: 2 or 4.
    length_bytes: u64,
    frame_bytes: u64,
}

impl Head {
    /// `None` when a number is too large for the layout.
    fn of(found: &FoundRef<'_>) -> Option<Head> {
        let bytes_for = |largest: usize| match largest {
            0..=0xffff => Some(2),
            0x1_0000..=0xffff_ffff => Some(4),
            _ => None,
        };
        let longest = found.stacks.iter().map(|(stack, _)| stack.len()).max().unwrap_or(0);
        Some(Head {
            stacks: found.stacks.count() as u64,
            addresses: found.addresses.len() as u64,
            frames: found.stacks.frames().len() as u64,
            map_lines: found.map.len() as u64,
            map_bytes: found.map.iter().map(|line| line.len() as u64).sum(),
            length_bytes: bytes_for(longest)?,
            frame_bytes: bytes_for(found.addresses.len())?,
        })
    }

    /// Of the whole file.
    fn bytes(&self) -> u64 {
        (START + 32 + HEAD * 8) as u64
            + 8 * (self.stacks + self.addresses)
            + self.stacks * self.length_bytes
            + self.frames * self.frame_bytes
            + self.map_lines * 4
            + self.map_bytes
    }
}

fn encode(out: &mut impl Write, key: &blake3::Hash, head: &Head, found: &FoundRef<'_>) -> io::Result<()> {
    out.write_all(key.as_bytes())?;
    let cut = found.cut.unwrap_or_default();
    let numbers: [u64; HEAD] = [
        head.stacks,
        head.addresses,
        head.frames,
        head.map_lines,
        head.length_bytes | head.frame_bytes << 8 | u64::from(found.cut.is_some()) << 16,
        found.max_pc,
        found.skipped.count,
        found.skipped.first.line,
        found.skipped.first.byte,
        cut.line,
        cut.byte,
        head.map_bytes,
    ];
    for number in numbers {
        out.write_all(&number.to_le_bytes())?;
    }
    for (_, value) in found.stacks.iter() {
        out.write_all(&value.to_le_bytes())?;
    }
    for address in found.addresses {
        out.write_all(&address.to_le_bytes())?;
    }
    let mut put = |number: u32, bytes: u64| match bytes {
        2 => out.write_all(&(number as u16).to_le_bytes()),
        _ => out.write_all(&number.to_le_bytes()),
    };
    for (stack, _) in found.stacks.iter() {
        put(stack.len() as u32, head.length_bytes)?;
    }
    for &frame in found.stacks.frames() {
        put(frame, head.frame_bytes)?;
    }
    for line in found.map {
        put(line.len() as u32, 4)?;
    }
    for line in found.map {
        out.write_all(line)?;
    }
    Ok(())
}

/// A file that does not hold what it should.
#[derive(Debug, PartialEq, Eq)]
struct Damaged;

/// `Ok(None)`: of another version, or of a file whose key begins alike.
fn decode(bytes: &[u8], key: &blake3::Hash) -> Result<Option<FoundOwned>, Damaged> {
    let (start, body) = bytes.split_at_checked(START).ok_or(Damaged)?;
    let (magic, start) = start.split_at(MAGIC.len());
    let (version, sum) = start.split_at(4);
    if magic != MAGIC {
        return Err(Damaged);
    }
    if version != VERSION.to_le_bytes() {
        return Ok(None);
    }
    if crc32fast::hash(body).to_le_bytes() != sum {
        return Err(Damaged);
    }
    let (kept, body) = body.split_at_checked(32).ok_or(Damaged)?;
    if kept != key.as_bytes() {
        return Ok(None);
    }
    decode_body(body).map(Some).ok_or(Damaged)
}

fn decode_body(body: &[u8]) -> Option<FoundOwned> {
    let mut rest = body;
    let numbers = eights(take(&mut rest, HEAD as u64, 8)?, u64::from_le_bytes);
    let &[
        stacks,
        addresses,
        frames,
        map_lines,
        sizes,
        max_pc,
        skipped,
        skipped_line,
        skipped_byte,
        cut_line,
        cut_byte,
        map_bytes,
    ] = numbers.as_slice()
    else {
        return None;
    };
    let (length_bytes, frame_bytes) = (sizes & 0xff, sizes >> 8 & 0xff);
    let values = eights(take(&mut rest, stacks, 8)?, f64::from_le_bytes);
    let addresses = eights(take(&mut rest, addresses, 8)?, u64::from_le_bytes);
    let mut ends = Vec::with_capacity(values.len());
    let mut end = 0_usize;
    for length in narrow(take(&mut rest, stacks, length_bytes)?, length_bytes)? {
        end = end.checked_add(length as usize)?;
        ends.push(end);
    }
    let frames = narrow(take(&mut rest, frames, frame_bytes)?, frame_bytes)?;
    if end != frames.len() || frames.iter().max().is_some_and(|&last| last as usize >= addresses.len()) {
        return None;
    }
    let lengths = narrow(take(&mut rest, map_lines, 4)?, 4)?;
    let mut text = take(&mut rest, map_bytes, 1)?;
    let map: Vec<Vec<u8>> = lengths
        .into_iter()
        .map(|length| Some(take(&mut text, u64::from(length), 1)?.to_vec()))
        .collect::<Option<_>>()?;
    if !text.is_empty() || !rest.is_empty() {
        return None;
    }
    Some(Found {
        stacks: (frames, ends, values),
        addresses,
        map,
        max_pc,
        skipped: Skipped { count: skipped, first: Place { line: skipped_line, byte: skipped_byte } },
        cut: (sizes >> 16 & 1 == 1).then_some(Place { line: cut_line, byte: cut_byte }),
    })
}

/// The next `count` items of `size` bytes.
fn take<'a>(rest: &mut &'a [u8], count: u64, size: u64) -> Option<&'a [u8]> {
    let bytes = usize::try_from(count.checked_mul(size)?).ok()?;
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn eights<T>(bytes: &[u8], number: fn([u8; 8]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&chunk| number(chunk)).collect()
}

/// Numbers of 2 or 4 bytes.
fn narrow(bytes: &[u8], size: u64) -> Option<Vec<u32>> {
    match size {
        2 => Some(bytes.as_chunks().0.iter().map(|&chunk| u32::from(u16::from_le_bytes(chunk))).collect()),
        4 => Some(bytes.as_chunks().0.iter().map(|&chunk| u32::from_le_bytes(chunk)).collect()),
        _ => None,
    }
}
