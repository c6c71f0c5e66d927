//! A profile as a `heap_v2` file: read by perl jeprof, by pprof and by [`crate::input::heap_v2`].
//!
//! The lines come from [`jeprobe_abi::heap_v2::Writer`], the one that the library uses for its own dumps; what is added
//! here is the way from the model to them. Readers unbias each printed pair by its mean size, so the printed pair is not the
//! raw count but what the reader's formula turns into the estimate kept here ([`jeprobe_abi::unbias::written`]). Rounding it
//! to integers is the only loss: half an object of the printed ones.
//!
//! Stacks without live and without cumulative counts are left out, as in files of the library.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use jeprobe_abi::heap_v2::{ByteSink, Pair, Style, Writer};
use jeprobe_abi::root::Counts;

use crate::model::{Mapping, Profile, Share, ThreadUid, Values};
use crate::units::Sums;

/// Bytes gathered before they are handed on.
const BUFFER_BYTES: usize = 64 * 1024;

/// Writes the whole file.
pub fn write(profile: &Profile, out: impl Write) -> io::Result<()> {
    let mut sink = Sink(io::BufWriter::with_capacity(BUFFER_BYTES, out));
    let interval = profile.interval().0;
    let style = Style { interval, unbias: interval != 0, accum: profile.has_cumulative() };
    let mut writer = Writer::new(&mut sink, style);
    writer.header(&pair(&profile.sum()))?;
    threads(profile, &mut writer)?;
    stacks(profile, &mut writer)?;
    writer.mappings_title()?;
    for mapping in profile.mappings() {
        writer.raw(&mapping_line(mapping))?;
    }
    tail(profile, &mut writer)?;
    sink.0.flush()
}

/// Hands the writer's pieces on.
struct Sink<W: Write>(io::BufWriter<W>);

impl<W: Write> ByteSink for Sink<W> {
    type Error = io::Error;

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

fn threads(profile: &Profile, writer: &mut Writer<'_, impl ByteSink<Error = io::Error>>) -> io::Result<()> {
    let mut sums: BTreeMap<ThreadUid, Values> = BTreeMap::new();
    for share in profile.shares() {
        *sums.entry(share.thread).or_default() += share.values;
    }
    for (uid, thread) in profile.threads() {
        let sum = sums.get(&uid).copied().unwrap_or_default();
        writer.thread(uid.0.into(), &pair(&sum), thread.name.as_bytes())?;
    }
    Ok(())
}

fn stacks(profile: &Profile, writer: &mut Writer<'_, impl ByteSink<Error = io::Error>>) -> io::Result<()> {
    let mut shares: Vec<&Share> = profile.shares().iter().collect();
    shares.sort_by_key(|share| (share.stack, share.thread));
    let mut rest = shares.as_slice();
    for (id, frames, values) in profile.totals() {
        let (own, others) = rest.split_at(rest.partition_point(|share| share.stack == id));
        rest = others;
        if values.is_zero() {
            continue;
        }
        writer.stack(frames)?;
        writer.total(&pair(values))?;
        for share in own {
            writer.thread(share.thread.0.into(), &pair(&share.values), b"")?;
        }
    }
    Ok(())
}

fn pair(values: &Values) -> Pair {
    Pair { current: counts(values.current), cumulative: counts(values.cumulative) }
}

/// Negative estimates do not occur in a profile: differences are made by reports and not kept.
fn counts(sums: Sums) -> Counts {
    Counts {
        objects: sums.raw.objects,
        bytes: sums.raw.bytes,
        weight_objects8: (sums.est.objects * 8.0).round() as u64,
        weight_bytes: sums.est.bytes.round() as u64,
    }
}

/// As `/proc/PID/maps` prints it.
fn mapping_line(mapping: &Mapping) -> Vec<u8> {
    let (major, minor) = mapping.device;
    let mut line = format!(
        "{:08x}-{:08x} {} {:08x} {major:02x}:{minor:02x} {} ",
        mapping.start,
        mapping.end,
        String::from_utf8_lossy(&mapping.permissions),
        mapping.offset,
        mapping.inode
    )
    .into_bytes();
    let path = path_bytes(&mapping.path);
    if !path.is_empty() {
        // The column at which the kernel begins paths.
        line.resize(line.len().max(73), b' ');
        for &byte in path {
            if byte == b'\n' { line.extend_from_slice(b"\\012") } else { line.push(byte) }
        }
        if mapping.deleted {
            line.extend_from_slice(b" (deleted)");
        }
    }
    line.push(b'\n');
    line
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn tail(profile: &Profile, writer: &mut Writer<'_, impl ByteSink<Error = io::Error>>) -> io::Result<()> {
    match profile.pid() {
        Some(pid) => writer.tail(pid, profile.program().map_or(&[], path_bytes))?,
        // Of several processes: opened all the same, without saying whose it is.
        None => writer.raw(format!("# jeprobe {}\n", jeprobe_abi::heap_v2::TAIL_VERSION).as_bytes())?,
    }
    for range in profile.allocator_text() {
        writer.allocator(range.start, range.end)?;
    }
    // A merge may hold two builds under one path; an id that is right for one of them only is left out.
    let mut described: BTreeMap<&Path, Option<&[u8]>> = BTreeMap::new();
    for mapping in profile.mappings().iter().filter(|mapping| mapping.is_file()) {
        let id = Some(mapping.build_id.as_slice()).filter(|id| !id.is_empty());
        described
            .entry(&mapping.path)
            .and_modify(|known| *known = known.filter(|known| Some(*known) == id))
            .or_insert(id);
    }
    for (path, id) in described {
        if let Some(id) = id {
            writer.build_id(id, path_bytes(path))?;
        }
    }
    for (key, value) in profile.configuration() {
        writer.config(&one_line(key), format_args!("{}", one_line(value)))?;
    }
    for (name, count) in profile.counters() {
        writer.counter(&one_line(name), *count)?;
    }
    writer.losses(profile.losses_by_reason())?;
    for note in profile.notes() {
        writer.note(format_args!("{}", one_line(note)))?;
    }
    writer.end()
}

/// Without line ends, which would end the field.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
