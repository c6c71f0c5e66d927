//! Writes heap files in jemalloc's `heap_v2` form: the process itself, a reader of another process, and a merge of
//! several sources all through [`Writer`]. No allocation; bytes go to a [`ByteSink`] in small pieces, which it gathers.
//!
//! ```text
//! heap_v2/524288
//!   t*: 3: 120 [0: 0]                 totals, then one line per thread with its name
//!   t0: 3: 120 [0: 0] worker
//! @ 0x55d0 0x55e0                     a stack, leaf first, then its total and its share per thread
//!   t*: 3: 120 [0: 0]
//!   t0: 3: 120 [0: 0]
//!
//! MAPPED_LIBRARIES:
//! 7f00-7f80 r-xp …                    /proc/PID/maps
//! # jeprobe 1                         the tail, see below
//! # process 4312
//! # end
//! ```
//!
//! The tail follows the mappings, one fact a line, each opening with `# `: readers of heap files look there for address
//! ranges and skip what is none. Grammar in `README.md`. Its last line is `# end`: a file without it is not whole.
#![forbid(unsafe_code)]

use core::fmt::Write as _;

use crate::drops::Reason;
use crate::reader::{RemoteMemory, Table, TableError, TctxCounts};
use crate::root::{Counts, Root, Thread};
use crate::unbias::{self, Written};

/// Takes the bytes of a heap file.
pub trait ByteSink {
    type Error;

    fn write(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// The one address of a stack that has none: perl jeprof passes over an `@` line without addresses and counts what follows
/// as the stack's before. The last address that jeprof takes for code, which no process has; low ones it gives to the program.
pub const NO_STACK: u64 = 0x7fff_ffff_ffff_ffff;

/// Version of the tail's grammar.
pub const TAIL_VERSION: u32 = 1;

/// Current and cumulative sums of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub current: Counts,
    pub cumulative: Counts,
}

impl Pair {
    /// Of one stack in one thread.
    pub fn of(tctx: &TctxCounts) -> Pair {
        Pair { current: tctx.current(), cumulative: tctx.cumulative }
    }

    pub fn add(&mut self, other: &Pair) {
        self.current.add(&other.current);
        self.cumulative.add(&other.cumulative);
    }
}

/// How counts become numbers of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Mean bytes between samples, the R of the header.
    pub interval: u64,
    /// Write what the reader's scaling turns into the unbiased estimate; raw samples otherwise.
    pub unbias: bool,
    /// Write cumulative counts, and stacks without live objects; zeroes otherwise.
    pub accum: bool,
}

/// Line by line writer. The order of calls is the order of the file's parts in the module's picture.
pub struct Writer<'s, S> {
    sink: &'s mut S,
    style: Style,
}

impl<'s, S: ByteSink> Writer<'s, S> {
    pub fn new(sink: &'s mut S, style: Style) -> Writer<'s, S> {
        Writer { sink, style }
    }

    pub fn style(&self) -> Style {
        self.style
    }

    /// First line and the totals over all threads.
    pub fn header(&mut self, totals: &Pair) -> Result<(), S::Error> {
        let interval = self.style.interval;
        self.format(format_args!("heap_v2/{interval}\n"))?;
        self.total(totals)
    }

    /// `  t*:` line: of the file after the header, of a stack after its frames.
    pub fn total(&mut self, pair: &Pair) -> Result<(), S::Error> {
        self.sink.write(b"  t*: ")?;
        self.numbers(pair)?;
        self.sink.write(b"\n")
    }

    /// `  tN:` line. `name` belongs to the thread's line at the top and is empty within stacks; bytes that would break
    /// the line are replaced.
    pub fn thread(&mut self, uid: u64, pair: &Pair, name: &[u8]) -> Result<(), S::Error> {
        self.format(format_args!("  t{uid}: "))?;
        self.numbers(pair)?;
        if !name.is_empty() {
            self.sink.write(b" ")?;
            self.printable(name)?;
        }
        self.sink.write(b"\n")
    }

    /// `@` line. Frames: avma, leaf first; without any, the line has [`NO_STACK`].
    pub fn stack(&mut self, frames: &[u64]) -> Result<(), S::Error> {
        let frames = if frames.is_empty() { &[NO_STACK] } else { frames };
        self.sink.write(b"@")?;
        for frame in frames {
            self.format(format_args!(" {frame:#x}"))?;
        }
        self.sink.write(b"\n")
    }

    /// True when a stack with these counts belongs into the file.
    pub fn wants(&self, pair: &Pair) -> bool {
        if self.style.accum { pair.cumulative.objects != 0 } else { pair.current.objects != 0 }
    }

    /// Title of the mappings; a copy of `/proc/PID/maps` follows through [`Writer::raw`].
    pub fn mappings_title(&mut self) -> Result<(), S::Error> {
        self.sink.write(b"\nMAPPED_LIBRARIES:\n")
    }

    pub fn raw(&mut self, bytes: &[u8]) -> Result<(), S::Error> {
        self.sink.write(bytes)
    }

    /// Opens the tail; `# process PID [PATH]` follows.
    pub fn tail(&mut self, pid: u32, path: &[u8]) -> Result<(), S::Error> {
        self.format(format_args!("# jeprobe {TAIL_VERSION}\n# process {pid}"))?;
        if !path.is_empty() {
            self.sink.write(b" ")?;
            self.printable(path)?;
        }
        self.sink.write(b"\n")
    }

    /// `# build-id HEX PATH`, the path as in the mappings.
    pub fn build_id(&mut self, id: &[u8], path: &[u8]) -> Result<(), S::Error> {
        self.sink.write(b"# build-id ")?;
        for byte in id {
            self.format(format_args!("{byte:02x}"))?;
        }
        self.sink.write(b" ")?;
        self.printable(path)?;
        self.sink.write(b"\n")
    }

    /// `# allocator START-END`: code of the allocator, so that its frames can be cut. Nothing for an empty range.
    pub fn allocator(&mut self, start: u64, end: u64) -> Result<(), S::Error> {
        if end <= start {
            return Ok(());
        }
        self.format(format_args!("# allocator {start:x}-{end:x}\n"))
    }

    /// `# config KEY=VALUE`: an option in force.
    pub fn config(&mut self, key: &str, value: core::fmt::Arguments<'_>) -> Result<(), S::Error> {
        self.format(format_args!("# config {key}={value}\n"))
    }

    /// `# counter NAME COUNT`.
    pub fn counter(&mut self, name: &str, count: u64) -> Result<(), S::Error> {
        self.format(format_args!("# counter {name} {count}\n"))
    }

    /// `# loss NAME COUNT` for each reason that is not 0.
    pub fn losses(&mut self, drops: &[u64]) -> Result<(), S::Error> {
        for reason in Reason::ALL {
            match drops.get(*reason as usize) {
                None | Some(0) => {}
                Some(count) => self.format(format_args!("# loss {} {count}\n", reason.name()))?,
            }
        }
        Ok(())
    }

    /// `# note TEXT`.
    pub fn note(&mut self, text: core::fmt::Arguments<'_>) -> Result<(), S::Error> {
        self.format(format_args!("# note {text}\n"))
    }

    /// What the root alone can say: allocator, config, counter and loss lines.
    pub fn root_facts(&mut self, root: &Root) -> Result<(), S::Error> {
        let unbias = self.style.unbias;
        self.allocator(root.text_start, root.text_end)?;
        self.config("prof", format_args!("{}", root.opt_prof == 1))?;
        self.config("prof_active", format_args!("{}", root.prof_active == 1))?;
        self.config("lg_prof_sample", format_args!("{}", root.lg_sample))?;
        self.config("prof_accum", format_args!("{}", root.opt_accum == 1))?;
        self.config("prof_bt_max", format_args!("{}", root.max_frames))?;
        self.config("prof_unbias", format_args!("{unbias}"))?;
        self.counter("samples", root.samples)?;
        self.counter("frees", root.frees)?;
        self.losses(&root.drops)
    }

    /// The last line.
    pub fn end(&mut self) -> Result<(), S::Error> {
        self.sink.write(b"# end\n")
    }

    fn numbers(&mut self, pair: &Pair) -> Result<(), S::Error> {
        let current = self.convert(&pair.current);
        let cumulative = if self.style.accum { self.convert(&pair.cumulative) } else { Written::default() };
        self.format(format_args!(
            "{}: {} [{}: {}]",
            current.objects, current.bytes, cumulative.objects, cumulative.bytes
        ))
    }

    fn convert(&self, counts: &Counts) -> Written {
        if self.style.unbias {
            unbias::written(counts, self.style.interval)
        } else {
            Written { objects: counts.objects, bytes: counts.bytes }
        }
    }

    fn printable(&mut self, text: &[u8]) -> Result<(), S::Error> {
        for piece in text.chunk_by(|a, b| is_plain(*a) == is_plain(*b)) {
            if is_plain(piece[0]) {
                self.sink.write(piece)?;
            } else {
                for _ in piece {
                    self.sink.write(b"?")?;
                }
            }
        }
        Ok(())
    }

    fn format(&mut self, args: core::fmt::Arguments<'_>) -> Result<(), S::Error> {
        let mut adapter = Adapter { sink: self.sink, error: None };
        let done = adapter.write_fmt(args);
        match (adapter.error, done) {
            (Some(error), _) => Err(error),
            // Formatting integers and strings fails only where the sink does.
            (None, _) => Ok(()),
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != 0x7f
}

struct Adapter<'s, S: ByteSink> {
    sink: &'s mut S,
    error: Option<S::Error>,
}

impl<S: ByteSink> core::fmt::Write for Adapter<'_, S> {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        self.sink.write(s.as_bytes()).map_err(|error| {
            self.error = Some(error);
            core::fmt::Error
        })
    }
}

/// Why a table could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError<E> {
    Table(TableError),
    Sink(E),
}

impl<E> From<TableError> for WriteError<E> {
    fn from(error: TableError) -> WriteError<E> {
        WriteError::Table(error)
    }
}

/// Sums of one thread, gathered while the table is walked.
#[derive(Clone, Copy, Debug)]
pub struct ThreadSum {
    addr: u64,
    thread: Thread,
    pair: Pair,
}

impl ThreadSum {
    pub const EMPTY: ThreadSum = ThreadSum {
        addr: 0,
        thread: Thread {
            uid: 0,
            tid: 0,
            alive: 0,
            _pad: 0,
            name: [0; 16],
            samples: 0,
            frees: 0,
            allocated_bytes: 0,
            deallocated_bytes: 0,
            kept: 0,
            freed: 0,
        },
        pair: Pair { current: Counts::ZERO, cumulative: Counts::ZERO },
    };
}

/// Writes header, threads and stacks of a table; the caller goes on with the mappings and notes.
///
/// `sums` is working space: threads are summed as many at a time as it holds (at least one, or no thread is written),
/// each batch costing a walk over all per-thread counts. Returns the number of records that were torn.
pub fn write_table<M: RemoteMemory, S: ByteSink>(
    table: &Table<'_, M>,
    writer: &mut Writer<'_, S>,
    sums: &mut [ThreadSum],
) -> Result<u64, WriteError<S::Error>> {
    let sink = WriteError::<S::Error>::Sink;
    let mut torn = 0;

    let mut totals = Pair::default();
    torn += table
        .tctxs(|_, tctx| {
            totals.add(&Pair::of(tctx));
            Ok::<_, WriteError<S::Error>>(())
        })?
        .torn;
    writer.header(&totals).map_err(sink)?;
    torn += write_threads(table, writer, sums)?;

    let walk = table.contexts(|_, context, frames| {
        let mut pair = Pair::default();
        table.tctxs_of(context, |_, tctx| {
            pair.add(&Pair::of(tctx));
            Ok::<_, WriteError<S::Error>>(())
        })?;
        if !writer.wants(&pair) {
            return Ok::<_, WriteError<S::Error>>(());
        }
        writer.stack(frames).map_err(sink)?;
        writer.total(&pair).map_err(sink)?;
        table.tctxs_of(context, |_, tctx| {
            let pair = Pair::of(tctx);
            if !writer.wants(&pair) {
                return Ok::<_, WriteError<S::Error>>(());
            }
            let thread = table.thread(tctx.thread)?;
            writer.thread(thread.uid.into(), &pair, b"").map_err(sink)
        })?;
        Ok(())
    })?;
    Ok(torn + walk.torn)
}

fn write_threads<M: RemoteMemory, S: ByteSink>(
    table: &Table<'_, M>,
    writer: &mut Writer<'_, S>,
    sums: &mut [ThreadSum],
) -> Result<u64, WriteError<S::Error>> {
    let mut torn = 0;
    let mut written = 0;
    loop {
        // The next batch in list order.
        let mut filled = 0;
        let mut seen = 0_u64;
        table.threads(|addr, thread| {
            if seen >= written
                && let Some(sum) = sums.get_mut(filled)
            {
                *sum = ThreadSum { addr, thread: *thread, pair: Pair::default() };
                filled += 1;
            }
            seen += 1;
            Ok::<_, WriteError<S::Error>>(())
        })?;
        if filled == 0 {
            return Ok(torn);
        }
        let batch = &mut sums[..filled];
        batch.sort_unstable_by_key(|sum| sum.addr);
        torn += table
            .tctxs(|_, tctx| {
                if let Ok(i) = batch.binary_search_by_key(&tctx.thread, |sum| sum.addr) {
                    batch[i].pair.add(&Pair::of(tctx));
                }
                Ok::<_, WriteError<S::Error>>(())
            })?
            .torn;
        batch.sort_unstable_by_key(|sum| sum.thread.uid);
        for sum in batch.iter() {
            if sum.thread.alive == 1 || writer.wants(&sum.pair) {
                let name = sum.thread.name.split(|&b| b == 0).next().unwrap_or(b"");
                writer.thread(sum.thread.uid.into(), &sum.pair, name).map_err(WriteError::Sink)?;
            }
        }
        written += filled as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{ByteSink, Pair, Style, Writer};
    use crate::drops::{DROP_REASONS, Reason};
    use crate::root::Counts;
    use crate::unbias;

    struct Bytes(Vec<u8>);

    impl ByteSink for Bytes {
        type Error = core::convert::Infallible;

        fn write(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn counts(size: u64, objects: u64, interval: u64) -> Counts {
        let weight = unbias::weight_bytes(size, interval);
        Counts {
            objects,
            bytes: size * objects,
            weight_objects8: unbias::weight_objects8(size, weight) * objects,
            weight_bytes: weight * objects,
        }
    }

    fn text(style: Style, pair: &Pair) -> std::string::String {
        let mut bytes = Bytes(Vec::new());
        let mut writer = Writer::new(&mut bytes, style);
        let Ok(()) = writer.header(pair);
        let Ok(()) = writer.thread(0, pair, b"a b:c\nd\x7f");
        let Ok(()) = writer.stack(&[0x55d0, 0x7fff_0000_1234]);
        let Ok(()) = writer.total(pair);
        let Ok(()) = writer.thread(0, pair, b"");
        let Ok(()) = writer.mappings_title();
        let Ok(()) = writer.tail(12, b"");
        let Ok(()) = writer.build_id(&[0xab, 0x01], b"/bin/x y");
        let mut drops = [0; DROP_REASONS];
        drops[Reason::NoStack as usize] = 3;
        let Ok(()) = writer.losses(&drops);
        let Ok(()) = writer.end();
        std::string::String::from_utf8(bytes.0).expect("text")
    }

    #[test]
    fn the_whole_form() {
        let pair = Pair { current: counts(24, 5, 1), cumulative: counts(24, 9, 1) };
        let raw = Style { interval: 524_288, unbias: false, accum: true };
        assert_eq!(
            text(raw, &pair),
            "heap_v2/524288\n  t*: 5: 120 [9: 216]\n  t0: 5: 120 [9: 216] a b:c?d?\n@ 0x55d0 0x7fff00001234\n  \
             t*: 5: 120 [9: 216]\n  t0: 5: 120 [9: 216]\n\nMAPPED_LIBRARIES:\n# jeprobe 1\n# process 12\n# build-id \
             ab01 /bin/x y\n# loss no-stack 3\n# end\n"
        );
        let no_accum = text(Style { accum: false, ..raw }, &pair);
        assert!(no_accum.starts_with("heap_v2/524288\n  t*: 5: 120 [0: 0]\n"), "{no_accum}");
    }

    #[test]
    fn unbiased_numbers_are_those_that_the_reader_scales_back() {
        let interval = 16_384;
        let pair = Pair { current: counts(4096, 100, interval), cumulative: Counts::default() };
        let style = Style { interval, unbias: true, accum: false };
        let text = text(style, &pair);
        let numbers = text.lines().nth(1).and_then(|line| line.strip_prefix("  t*: ")).expect("totals");
        let (objects, rest) = numbers.split_once(": ").expect("objects");
        let bytes = rest.split(' ').next().expect("bytes");
        let written =
            unbias::Written { objects: objects.parse().expect("number"), bytes: bytes.parse().expect("number") };
        let (_, estimate) = unbias::estimate(written, interval);
        let want = pair.current.weight_bytes as f64;
        // Half an object and half a byte are lost to rounding.
        assert!((estimate / want - 1.0).abs() < 0.5 / 100.0 + 0.5 / 409_600.0, "{estimate} {want}");
    }
}
