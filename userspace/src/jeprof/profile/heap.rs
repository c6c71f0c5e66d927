//! Heap and growth profiles: one record per line (gperftools), or stacks followed by lines per thread (jemalloc).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use regex::bytes::Regex;

use crate::input::blocks::{self, Block};
use crate::progress::Working;

use super::super::lines::Place;
use super::super::stacks::{PcId, Pcs, Stacks};
use super::super::stop::{Result, Stop, reason};
use super::super::streams::say;
use super::super::values::Kind;
use super::kept::{Found, Keeping, Key};
use super::records::{Bad, Last, Parsed, Rules, Skipped, Worker, addresses, decimal, leading_digits};
use super::scale::Scale;
use super::{Context, Profile, Source, bad, rest_of, up_to};

/// 128 KiB: mean sampling distance of servers whose profiles do not name it.
const OLD_RATE: f64 = 131_072.0;

/// `heap profile: ...`: lines `objects: bytes [objects: bytes] @ addresses`.
pub fn read_classic(source: Source<'_>, context: &mut Context<'_>, header: &[u8], kind: Kind) -> Result<Profile> {
    let profile = Profile { kind, ..Profile::default() };
    let rules = Rules {
        threaded: false,
        scale: classic_scale(header),
        column: context.options.heap_column(),
        per_thread: false,
        width: context.width,
    };
    Ok(records(source, context, rules, profile)?.0)
}

fn classic_scale(header: &[u8]) -> Scale {
    let shape = Regex::new(r"^heap profile:\s*(\d+):\s+(\d+)\s+\[\s*(\d+):\s+(\d+)\](?:\s*@\s*([^/]*)(?:/(\d+))?)?")
        .expect("a fixed pattern");
    let Some(found) = shape.captures(header) else { return Scale::None };
    let number = |group: usize| found.get(group).map_or(0.0, |text| decimal(text.as_bytes()));
    let kind = found.get(5).map_or(&b""[..], |kind| kind.as_bytes());
    let has = |word: &[u8]| kind.windows(word.len()).any(|part| part == word);
    let named = number(6);
    let (poisson, rate) = if kind.is_empty() {
        // Servers that old print the same pair twice; anything else was counted, not sampled.
        if number(1) - number(3) != 0.0 || number(2) - number(4) != 0.0 {
            return Scale::None;
        }
        (false, 0.0)
    } else if kind == b"heapprofile" || !has(b"heap") {
        return Scale::None;
    } else if has(b"_v2") {
        (true, named)
    } else {
        (false, named / 2.0)
    };
    let rate = if rate == 0.0 {
        say(format_args!("Adjusting heap profiles for 1-in-128KB sampling rate\n"));
        OLD_RATE
    } else {
        say(format_args!("Adjusting heap profiles for 1-in-{} sampling rate\n", rate as u64));
        rate
    };
    if poisson {
        say(format_args!("Heap version 2\n"));
        Scale::Poisson(rate)
    } else {
        Scale::Uniform(rate)
    }
}

/// `heap_v2/R`: a line `@ addresses`, then `t*: objects: bytes [objects: bytes]` for all threads and one line for each.
pub fn read_threaded(source: Source<'_>, context: &mut Context<'_>, header: &[u8]) -> Result<Profile> {
    let digits = header.strip_prefix(b"heap_v2/").map_or(&b""[..], |rest| leading_digits(rest));
    if digits.is_empty() {
        return Err(Stop::die("Threaded heap profiles require v2 sampling with a sample rate\n"));
    }
    let profile = Profile { kind: Kind::Heap, ..Profile::default() };
    let rules = Rules {
        threaded: true,
        scale: Scale::Poisson(decimal(digits)),
        column: context.options.heap_column(),
        per_thread: context.options.thread.is_some(),
        width: context.width,
    };
    let (mut profile, threads) = records(source, context, rules, profile)?;
    profile.threads = Some(threads);
    Ok(profile)
}

/// Reads all records, and the memory map behind them; or takes what a former run left of them.
fn records(
    mut source: Source<'_>,
    context: &mut Context<'_>,
    rules: Rules,
    mut profile: Profile,
) -> Result<(Profile, BTreeMap<u64, Stacks>)> {
    let name = source.name;
    let place = (source.lines.next_byte(), source.lines.place().line);
    let keeping = Keeping::of(context.cache, (source.file.take(), source.size), place, rules);
    if let Some(found) = keeping.as_ref().and_then(Keeping::find) {
        found.skipped.report(name);
        report_cut(name, found.cut);
        profile.stacks = Stacks::of_distinct(found.stacks);
        profile.max_pc = found.max_pc;
        profile.map = found.map;
        number_for_the_run(&mut profile.stacks, &found.addresses, context.pcs);
        return Ok((profile, BTreeMap::new()));
    }
    let line = source.lines.place().line;
    let size = source.size;
    let working = Working::on(format!("jeprof: reading {}", name.display()), size);
    // What is kept has numbers of its own.
    let mut own = Pcs::default();
    let mut taking = Taking {
        name,
        profile,
        threads: BTreeMap::new(),
        pcs: if keeping.is_some() { &mut own } else { context.pcs },
        rules,
        key: keeping.as_ref().map(Keeping::key),
        numbered: Vec::new(),
        current: Current::None,
        ids: Vec::new(),
        line,
        in_map: false,
        skipped: Skipped::default(),
    };
    taking.read(rest_of(source), up_to(blocks::BLOCK, size), |byte| working.done(byte))?;
    drop(working);
    let cut = taking.cut();
    taking.skipped.report(name);
    report_cut(name, cut);
    let Taking { mut profile, threads, skipped, key, .. } = taking;
    if let (Some(keeping), Some(key)) = (keeping, key) {
        let Profile { stacks, map, max_pc, .. } = &profile;
        keeping.keep(&key, &Found { stacks, addresses: own.all(), map, max_pc: *max_pc, skipped, cut });
        if context.pcs.is_empty() {
            *context.pcs = own;
        } else {
            number_for_the_run(&mut profile.stacks, own.all(), context.pcs);
        }
    }
    Ok((profile, threads))
}

/// Gives frames, which are places in `addresses`, the numbers that these have in the run.
fn number_for_the_run(stacks: &mut Stacks, addresses: &[u64], pcs: &mut Pcs) {
    let is_first = pcs.is_empty();
    pcs.reserve(addresses.len());
    let ids: Vec<PcId> = addresses.iter().map(|&address| pcs.id(address)).collect();
    if !(is_first && pcs.len() == addresses.len()) {
        stacks.renumber(|at| ids[at as usize]);
    }
}

/// Says when the file ends where numbers of a stack must stand.
fn report_cut(name: &Path, cut: Option<Place>) {
    if let Some(place) = cut {
        say(format_args!(
            "{}:{}: byte {}: the file ends behind this stack and has no numbers of it: it was cut short\n",
            name.display(),
            place.line,
            place.byte
        ));
    }
}

/// The stack that lines belong to, beyond the block that it stands in.
enum Current {
    None,
    Unread { text: Vec<u8>, place: Place, column: usize },
    Read(Vec<PcId>),
}

/// Puts blocks together, one after the other.
struct Taking<'a> {
    name: &'a Path,
    profile: Profile,
    threads: BTreeMap<u64, Stacks>,
    pcs: &'a mut Pcs,
    rules: Rules,
    /// Gets every block, when what is read will be kept.
    key: Option<Key>,
    /// By worker, by its number of an address.
    numbered: Vec<Vec<PcId>>,
    current: Current,
    ids: Vec<PcId>,
    /// Lines before the next block.
    line: u64,
    in_map: bool,
    skipped: Skipped,
}

impl Taking<'_> {
    /// Reads the rest of a file, whose first byte is `byte` bytes into it, in blocks of `size` bytes.
    fn read(&mut self, (input, byte): (impl Read, u64), size: usize, at: impl Fn(u64)) -> Result<()> {
        let (name, rules, hashes) = (self.name, self.rules, self.key.is_some());
        blocks::in_order(
            (input, byte),
            size,
            |number| Worker::new(number, rules, hashes),
            Worker::parse,
            |error| Stop::error(format!("{}: {}\n", name.display(), reason(&error))),
            |block, parsed| {
                at(block.byte);
                self.take(block, parsed)
            },
        )
    }

    fn take(&mut self, block: &Block, mut parsed: Parsed) -> Result<()> {
        if let (Some(key), Some(digest)) = (&mut self.key, &parsed.digest) {
            key.add(digest);
        }
        if self.in_map {
            self.map(&block.bytes);
            return Ok(());
        }
        self.head(&parsed)?;
        if let Some(bad) = &parsed.error {
            return Err(self.bad(bad));
        }
        self.skip(parsed.skipped);
        self.profile.max_pc = self.profile.max_pc.max(parsed.max_pc);
        if self.numbered.len() <= parsed.worker {
            self.numbered.resize_with(parsed.worker + 1, Vec::new);
        }
        let numbered = &mut self.numbered[parsed.worker];
        numbered.reserve(parsed.new.len());
        if self.pcs.is_empty() {
            self.pcs.reserve(parsed.new.len());
        }
        for &address in &parsed.new {
            numbered.push(self.pcs.id(address));
        }
        let last = parsed.last.take();
        let number = |ids: &mut Vec<PcId>, stack: u32| {
            ids.clear();
            ids.extend(parsed.stack(stack).iter().map(|&frame| numbered[frame as usize]));
        };
        for &(stack, value) in &parsed.values {
            number(&mut self.ids, stack);
            self.profile.stacks.add(&self.ids, value);
        }
        for &(stack, thread, value) in &parsed.shares {
            number(&mut self.ids, stack);
            self.threads.entry(thread).or_default().add(&self.ids, value);
        }
        match last {
            None => {}
            Some(Last::Read(stack)) => {
                number(&mut self.ids, stack);
                self.current = Current::Read(self.ids.clone());
            }
            Some(Last::Unread { text, mut place, column }) => {
                place.line += self.line;
                self.current = Current::Unread { text, place, column };
            }
        }
        self.line += parsed.lines;
        if let Some(start) = parsed.map {
            self.in_map = true;
            self.map(&block.bytes[start..]);
        }
        Ok(())
    }

    /// What belongs to the last stack of the block before.
    fn head(&mut self, parsed: &Parsed) -> Result<()> {
        if let Current::None = self.current {
            return Ok(());
        }
        self.skip(parsed.head_skipped);
        if parsed.head_values.is_empty() && parsed.head_shares.is_empty() && !parsed.head_touched {
            return Ok(());
        }
        if let Current::Unread { text, place, column } = &self.current {
            let mut ids = Vec::new();
            let width = self.rules.width;
            addresses(text, |address| {
                let address = if ids.is_empty() { address } else { width.sub(address, 1) };
                self.profile.max_pc = self.profile.max_pc.max(address);
                ids.push(self.pcs.id(address));
            })
            .map_err(|(at, what)| bad(self.name, *place, column + at, &what))?;
            self.current = Current::Read(ids);
        }
        let Current::Read(ids) = &self.current else { return Ok(()) };
        for &value in &parsed.head_values {
            self.profile.stacks.add(ids, value);
        }
        for &(thread, value) in &parsed.head_shares {
            self.threads.entry(thread).or_default().add(ids, value);
        }
        Ok(())
    }

    /// The stack at which the file ends where numbers of it must stand.
    fn cut(&self) -> Option<Place> {
        match &self.current {
            Current::Unread { place, .. } if !self.in_map => Some(*place),
            _ => None,
        }
    }

    fn skip(&mut self, skipped: Skipped) {
        if self.skipped.count == 0 {
            self.skipped.first = Place { line: self.line + skipped.first.line, ..skipped.first };
        }
        self.skipped.count += skipped.count;
    }

    fn bad(&self, found: &Bad) -> Stop {
        let place = Place { line: self.line + found.place.line, ..found.place };
        bad(self.name, place, found.column, &found.what)
    }

    /// Takes whole lines of the memory map.
    fn map(&mut self, text: &[u8]) {
        let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|&byte| byte == b'\n');
        let clean = |line: &[u8]| line.iter().copied().filter(|&byte| byte != b'\r').collect();
        self.profile.map.extend(lines.filter(|_| !text.is_empty()).map(clean));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::address::Width;
    use super::*;

    const TEXT: &str = "  t*: 9: 9 [9: 9]
nothing yet
@ 0x10 0x21 0x31
  t*: 1: 64 [1: 64]
  t0: 1: 64 [1: 64]
@ not read, as it has no values
@ 0x10 0x41
  t1: 2: 128 [2: 128]
  t*: 2: 128 [2: 128]\r
no record

@\t0x10 0x21 0x31
  t*: 4: 512 [4: 512]
@ 0xffff
MAPPED_LIBRARIES:
10-20 r-xp 0 0:0 1 /a\r

@ 0x77
last";

    /// Everything that reading gives.
    fn read(text: &str, size: usize, per_thread: bool) -> std::result::Result<String, Stop> {
        let mut pcs = Pcs::default();
        let rules = Rules { threaded: true, scale: Scale::None, column: 1, per_thread, width: Width::W16 };
        let mut taking = Taking {
            name: Path::new("x"),
            profile: Profile::default(),
            threads: BTreeMap::new(),
            pcs: &mut pcs,
            rules,
            key: None,
            numbered: Vec::new(),
            current: Current::None,
            ids: Vec::new(),
            line: 1,
            in_map: false,
            skipped: Skipped::default(),
        };
        taking.read((text.as_bytes(), 100), size, |_| ())?;
        let Taking { profile, threads, skipped, .. } = taking;
        let show = |stacks: &Stacks| {
            let stack = |stack: &[PcId]| stack.iter().map(|&id| pcs.address(id)).collect::<Vec<_>>();
            format!("{:x?}", stacks.iter().map(|(ids, value)| (stack(ids), value)).collect::<Vec<_>>())
        };
        let threads: Vec<String> =
            threads.iter().map(|(thread, stacks)| format!("{thread} {}", show(stacks))).collect();
        let map: Vec<_> = profile.map.iter().map(|line| String::from_utf8_lossy(line)).collect();
        Ok(format!("{} {threads:?} {map:?} {:x} {skipped:?} {}", show(&profile.stacks), profile.max_pc, pcs.len()))
    }

    #[test]
    fn cuts_between_lines_change_nothing() {
        let whole = read(TEXT, 1 << 20, true).expect("whole");
        let expected = "[([10, 20, 30], 576.0), ([10, 40], 128.0)] [\"0 [([10, 20, 30], 64.0)]\", \"1 [([10, 40], 128.0)]\"] \
                        [\"10-20 r-xp 0 0:0 1 /a\", \"\", \"@ 0x77\", \"last\"] 40 \
                        Skipped { count: 1, first: Place { line: 11, byte: 276 } } 4";
        assert_eq!(whole, expected);
        for size in 1..TEXT.len() {
            for per_thread in [false, true] {
                assert_eq!(read(TEXT, size, per_thread), read(TEXT, 1 << 20, per_thread), "{size}");
            }
        }
    }

    #[test]
    fn errors_name_line_and_byte_wherever_the_cuts_are() {
        let text = TEXT.replace("  t*: 4:", "  t*: 1: 1 [1: 1]\n@ 0x5 zz\n\n\n  t*: 4:");
        let expected = Err(Stop::error("x:15: byte 328: 'zz' is no address\n"));
        for size in 1..text.len() {
            assert_eq!(read(&text, size, false), expected, "{size}");
        }
    }
}
