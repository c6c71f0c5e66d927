//! Writes the profile to a file: names, the file's life, messages when it fails.
//!
//! | kind | name | asked for by |
//! |---|---|---|
//! | i | `<prefix>.<pid>.<seq>.i<n>.heap` | `lg_prof_interval` |
//! | m | `<prefix>.<pid>.<seq>.m<n>.heap`, or the name given | `prof.dump` |
//! | r | `<prefix>.<pid>.<seq>.r<n>.heap` | the root's `dump_request` word |
//! | f | `<prefix>.<pid>.<seq>.f.heap` | `prof_final`, at exit |
//!
//! One dump at a time (`ProfDump`). The table is read by the same code that reads it from outside, while other threads
//! go on sampling: no lock of the table is held. Memory for it (a buffer of 64 KiB) is taken once and kept; looking at
//! the modules allocates through the crate's Rust allocator.
//!
//! A dump that fails leaves no file that looks whole: a file it made is removed, one that was there is emptied. The
//! reason is written to fd 2 and, as an error, to the caller.
#![forbid(unsafe_code)]

use crate::prim::{AtomicU32, AtomicU64, Ordering};
use core::ffi::CStr;

use jeprobe_abi::heap_v2::{self, ByteSink, Style, ThreadSum, WriteError, Writer};
use jeprobe_abi::hooks::{DUMP_REASON_FINAL, DUMP_REASON_INTERVAL, DUMP_REASON_MALLCTL, DUMP_REASON_REQUEST};
use jeprobe_abi::reader::{Table, TableError};
use jeprobe_abi::unbias;

use super::records::jeprobe_root;
use super::segments::{OwnMemory, alloc_bytes};
use super::{hooks, maps, walker};
use crate::conf::{self, PREFIX_BYTES};
use crate::diag::Line;
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;
use crate::sys::stack::on_large_stack;
use crate::sys::{self, Errno, file};

/// 64 KiB: one system call for a few hundred stacks.
const BUFFER_BYTES: usize = 64 << 10;
/// Prefix, pid, two numbers and the ending.
const PATH_BYTES: usize = PREFIX_BYTES + 80;
/// Threads summed in one walk over the table.
const SUMS: usize = 64;

/// Why a dump was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Interval,
    Mallctl,
    Request,
    Final,
}

/// Why there is no dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpError {
    /// The prefix is empty and no name was given.
    NoName,
    /// The file could not be opened.
    Open(Errno),
    /// The file could not be written.
    Write(Errno),
    /// No memory for the buffer or for a stack to work on.
    NoMemory,
    /// The allocator has not started, or the table is damaged.
    Table(TableError),
    /// This thread is dumping already.
    Busy,
}

struct State {
    buffer: Option<&'static mut [u8]>,
    path: [u8; PATH_BYTES],
    sums: [ThreadSum; SUMS],
    sequence: u64,
    by_kind: [u64; 4],
}

static STATE: Mutex<State> = Mutex::new(
    Rank::ProfDump,
    State { buffer: None, path: [0; PATH_BYTES], sums: [ThreadSum::EMPTY; SUMS], sequence: 0, by_kind: [0; 4] },
);
/// Thread that holds `STATE`, so that a dump within a dump is refused and not waited for.
static DUMPER: AtomicU32 = AtomicU32::new(0);

struct Prefix {
    /// False: the option counts.
    set: bool,
    text: [u8; PREFIX_BYTES],
}

static PREFIX: Mutex<Prefix> = Mutex::new(Rank::ProfConfig, Prefix { set: false, text: [0; PREFIX_BYTES] });

/// Replaces `opt.prof_prefix`; cut at 4096 bytes.
pub(crate) fn set_prefix(prefix: &CStr) {
    let mut own = PREFIX.lock();
    own.set = true;
    own.text.fill(0);
    for (to, from) in own.text.iter_mut().take(PREFIX_BYTES - 1).zip(prefix.to_bytes()) {
        *to = *from;
    }
}

/// Writes the profile to `name`, or to a name made of prefix and counters.
pub(crate) fn dump(name: Option<&CStr>, kind: Kind) -> Result<(), DumpError> {
    let tid = sys::gettid();
    // Relaxed: only the thread's own id matters, which only it stores.
    if DUMPER.load(Ordering::Relaxed) == tid {
        return Err(DumpError::Busy);
    }
    let mut state = STATE.lock();
    DUMPER.store(tid, Ordering::Relaxed);
    let done = on_large_stack(|| {
        let result = state.dump(name, kind);
        if let Err(error) = result {
            complain(error, state.path(), kind);
        }
        result
    });
    let result = done.unwrap_or(Err(DumpError::NoMemory));
    DUMPER.store(0, Ordering::Relaxed);
    let counter = if result.is_ok() { &jeprobe_root.dumps } else { &jeprobe_root.dump_failures };
    counter.fetch_add(1, Ordering::Relaxed);
    if result.is_ok() && hooks::dump_wanted() {
        let reason = match kind {
            Kind::Interval => DUMP_REASON_INTERVAL,
            Kind::Mallctl => DUMP_REASON_MALLCTL,
            Kind::Request => DUMP_REASON_REQUEST,
            Kind::Final => DUMP_REASON_FINAL,
        };
        hooks::jeprobe_hook_dump(jeprobe_root.dumps.load(Ordering::Relaxed), reason, state.path.as_ptr());
    }
    result
}

impl State {
    fn dump(&mut self, name: Option<&CStr>, kind: Kind) -> Result<(), DumpError> {
        self.set_path(name, kind)?;
        if self.buffer.is_none() {
            self.buffer = alloc_bytes(BUFFER_BYTES);
        }
        walker::refresh(true);
        let path = CStr::from_bytes_until_nul(&self.path).map_err(|_| DumpError::NoName)?;
        let (fd, made) = match file::create_new(path) {
            Ok(fd) => (fd, true),
            Err(Errno(libc::EEXIST)) => (sys::open_write(path).map_err(DumpError::Open)?, false),
            Err(error) => return Err(DumpError::Open(error)),
        };
        let buf = self.buffer.as_deref_mut().ok_or(DumpError::NoMemory);
        let result = buf.and_then(|buf| write_profile(&mut FileSink { fd, buf, len: 0 }, &mut self.sums));
        if result.is_err() {
            if made {
                let _ = file::unlink(path);
            } else if file::file_id(fd).is_ok_and(|id| id.regular) {
                let _ = file::truncate(fd);
            }
        }
        sys::close(fd);
        result
    }

    fn path(&self) -> &[u8] {
        self.path.split(|&b| b == 0).next().unwrap_or(&[])
    }

    fn set_path(&mut self, name: Option<&CStr>, kind: Kind) -> Result<(), DumpError> {
        let mut path = Text { buf: &mut self.path, len: 0 };
        path.buf.fill(0);
        if let Some(name) = name {
            if name.is_empty() {
                return Err(DumpError::NoName);
            }
            path.add(name.to_bytes());
            return if path.len == name.count_bytes() {
                Ok(())
            } else {
                Err(DumpError::Open(Errno(libc::ENAMETOOLONG)))
            };
        }
        let prefix = PREFIX.lock();
        let text = if prefix.set { &prefix.text } else { &conf::options().prof_prefix };
        let text = text.split(|&b| b == 0).next().unwrap_or(&[]);
        if text.is_empty() {
            return Err(DumpError::NoName);
        }
        path.add(text);
        drop(prefix);
        let (letter, counter) = match kind {
            Kind::Interval => (b".i", Some(&mut self.by_kind[0])),
            Kind::Mallctl => (b".m", Some(&mut self.by_kind[1])),
            Kind::Request => (b".r", Some(&mut self.by_kind[2])),
            Kind::Final => (b".f", None),
        };
        path.add(b".");
        path.number(sys::getpid().into());
        path.add(b".");
        path.number(self.sequence);
        path.add(letter);
        self.sequence += 1;
        if let Some(counter) = counter {
            path.number(*counter);
            *counter += 1;
        }
        path.add(b".heap");
        Ok(())
    }
}

/// Text that grows in a buffer and keeps its last byte NUL.
struct Text<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Text<'_> {
    fn add(&mut self, bytes: &[u8]) {
        let room = self.buf.len() - 1 - self.len;
        let take = bytes.len().min(room);
        self.buf[self.len..self.len + take].copy_from_slice(&bytes[..take]);
        self.len += take;
    }

    fn number(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.add(&digits[at..]);
    }
}

struct FileSink<'a> {
    fd: i32,
    buf: &'a mut [u8],
    len: usize,
}

impl FileSink<'_> {
    fn flush(&mut self) -> Result<(), Errno> {
        let len = core::mem::take(&mut self.len);
        sys::write_all(self.fd, &self.buf[..len])
    }
}

impl ByteSink for FileSink<'_> {
    type Error = Errno;

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            if self.len == self.buf.len() {
                self.flush()?;
            }
            let take = bytes.len().min(self.buf.len() - self.len);
            self.buf[self.len..self.len + take].copy_from_slice(&bytes[..take]);
            self.len += take;
            bytes = &bytes[take..];
        }
        Ok(())
    }
}

fn write_profile(sink: &mut FileSink<'_>, sums: &mut [ThreadSum]) -> Result<(), DumpError> {
    let options = conf::options();
    let table = Table::open(&OwnMemory, jeprobe_root.addr()).map_err(DumpError::Table)?;
    let root = *table.root();
    let style = Style {
        interval: unbias::interval_bytes(root.lg_sample),
        unbias: options.prof_unbias,
        accum: root.opt_accum == 1,
    };
    let mut writer = Writer::new(sink, style);
    heap_v2::write_table(&table, &mut writer, sums).map_err(|error| match error {
        WriteError::Table(error) => DumpError::Table(error),
        WriteError::Sink(error) => DumpError::Write(error),
    })?;
    write_mappings(sink).map_err(DumpError::Write)?;
    write_tail(&mut Writer::new(sink, style), &root).map_err(DumpError::Write)?;
    sink.flush().map_err(DumpError::Write)
}

/// Title and copy of the mappings; nothing when they cannot be read.
fn write_mappings(sink: &mut FileSink<'_>) -> Result<(), Errno> {
    let Ok(fd) = sys::open_read(maps::MAPS) else { return Ok(()) };
    let result = sink.write(b"\nMAPPED_LIBRARIES:\n").and_then(|()| sink.flush()).and_then(|()| {
        while let Ok(n @ 1..) = sys::read(fd, sink.buf) {
            sys::write_all(sink.fd, &sink.buf[..n])?;
        }
        Ok(())
    });
    sys::close(fd);
    result
}

fn write_tail(writer: &mut Writer<'_, FileSink<'_>>, root: &jeprobe_abi::root::Root) -> Result<(), Errno> {
    let options = conf::options();
    let mut link = [0; 1024];
    let program = sys::read_link(c"/proc/thread-self/exe", &mut link).unwrap_or(&[]);
    writer.tail(sys::getpid(), program)?;
    let mut result = Ok(());
    walker::with_modules(|modules| {
        for module in modules.iter().filter(|module| !module.build_id.is_empty()) {
            result = writer.build_id(&module.build_id, &module.path);
            if result.is_err() {
                break;
            }
        }
    });
    result?;
    writer.root_facts(root)?;
    writer.config("prof_final", format_args!("{}", options.prof_final))?;
    writer.config("lg_prof_interval", format_args!("{}", options.lg_prof_interval))?;
    writer.config("prof_thread_active_init", format_args!("{}", options.prof_thread_active_init))?;
    writer.end()
}

/// Says on fd 2 what failed and why; a missing prefix is a choice and silent unless someone asked by `prof.dump`.
fn complain(error: DumpError, path: &[u8], kind: Kind) {
    let line = Line::new();
    let line = match error {
        DumpError::NoName if kind != Kind::Mallctl => return,
        DumpError::NoName => line.text("no heap profile written: prof_prefix is empty and no file name was given"),
        DumpError::Open(errno) => reason(line.text("failed to open \"").bytes(path).text("\""), errno),
        DumpError::Write(errno) => reason(line.text("failed to write heap profile \"").bytes(path).text("\""), errno),
        DumpError::NoMemory => line.text("no heap profile written: no memory for its buffer"),
        DumpError::Table(_) => line.text("no heap profile written: the profile table is not ready or damaged"),
        DumpError::Busy => line.text("no heap profile written: one is being written by this thread"),
    };
    line.send();
    if conf::options().abort && kind != Kind::Mallctl {
        sys::exit_group_abort();
    }
}

fn reason(line: Line, errno: Errno) -> Line {
    let text = match errno.0 {
        libc::ENOSPC => "no space left on the device; free some, or set prof_prefix to another file system",
        libc::EDQUOT => "disk quota exceeded; free some space, or set prof_prefix to another file system",
        libc::EACCES | libc::EPERM => "permission denied; set prof_prefix to a directory that the process may write to",
        libc::ENOENT => "no such directory; create it, or set prof_prefix to one that exists",
        libc::EROFS => "read-only file system; set prof_prefix to a writable one",
        libc::ENOTDIR => "a part of the path is not a directory; set prof_prefix to another path",
        libc::EISDIR => "is a directory; give a file name",
        libc::ENAMETOOLONG => "name too long; set a shorter prof_prefix",
        libc::EMFILE | libc::ENFILE => "too many open files; raise the limit (ulimit -n)",
        libc::EFBIG => "file size limit reached; raise it (ulimit -f)",
        libc::EIO => "input/output error of the device",
        _ => "see errno",
    };
    line.text(": ").text(text).text(" (errno ").dec(errno.0.unsigned_abs().into()).text(")")
}

/// Bytes allocated since the last interval dump, over all threads.
static SINCE_DUMP: AtomicU64 = AtomicU64::new(0);

/// Counts allocated bytes towards the next interval dump; true when it is due. One caller of several gets the answer.
pub(crate) fn interval_passed(interval: u64, bytes: u64) -> bool {
    if interval == 0 {
        return false;
    }
    // Relaxed: a counter that orders nothing.
    let mut since = SINCE_DUMP.load(Ordering::Relaxed);
    loop {
        let sum = since.saturating_add(bytes);
        let (next, due) = if sum >= interval { (sum % interval, true) } else { (sum, false) };
        match SINCE_DUMP.compare_exchange_weak(since, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return due,
            Err(now) => since = now,
        }
    }
}

pub(crate) fn prefork_state() {
    STATE.lock_for_fork();
}

pub(crate) fn prefork_prefix() {
    PREFIX.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    PREFIX.unlock_for_fork();
    STATE.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    PREFIX.reset_in_child();
    STATE.reset_in_child();
}
