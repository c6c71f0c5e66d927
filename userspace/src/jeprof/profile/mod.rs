//! Profiles in: which kind a file is, and what the readers of all kinds share.
//!
//! ```text
//! [%warn and other % lines] [--- symbol ... ---] [--- heap|growth] header line, records, memory map
//! ```
//!
//! A reader adds stacks to its table while it reads; nothing but distinct stacks, addresses and the memory map stays.
//! What cannot be a record where one must stand is an error that names file, line and byte.
#![forbid(unsafe_code)]

pub mod contention;
pub mod cpu;
pub mod heap;
mod kept;
pub mod records;
pub mod scale;
pub mod symbolized;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::image::Cache;

use super::address::Width;
use super::lines::{Lines, Place};
use super::options::Options;
use super::stacks::{PcId, Pcs, Stacks};
use super::stop::{Result, Stop, reason};
use super::streams::say;
use super::values::Kind;

/// Read at a time: 256 KiB, and where only the first line is looked at, 4 KiB.
const READ_BYTES: usize = 256 * 1024;
const FIRST_BYTES: usize = 4096;
/// Of a line that is shown in an error.
const SHOWN_BYTES: usize = 60;

/// What one file holds.
#[derive(Debug, Default)]
pub struct Profile {
    pub kind: Kind,
    pub stacks: Stacks,
    /// Per thread; `None` for kinds that have no threads. Filled only when threads are asked for.
    pub threads: Option<BTreeMap<u64, Stacks>>,
    /// The largest address in a record of this file.
    pub max_pc: u64,
    /// Lines of the memory map.
    pub map: Vec<Vec<u8>>,
    /// Names by address, of a symbolized file.
    pub symbols: Option<FxHashMap<u64, String>>,
}

/// What readers need to know of the run.
pub struct Context<'a> {
    pub options: &'a Options,
    pub pcs: &'a mut Pcs,
    /// Symbolized files are allowed.
    pub symbolized: bool,
    /// The program; a symbolized file changes it.
    pub program: &'a mut String,
    pub width: Width,
    /// Where stacks of large profiles are kept for runs that follow.
    pub cache: Option<&'a Cache>,
}

/// The file that is read, as errors name it.
pub struct Source<'a> {
    pub name: &'a Path,
    /// Of a regular file, otherwise 0.
    pub size: u64,
    /// The same file once more, when it is a large one.
    pub file: Option<File>,
    pub lines: Lines<BufReader<Box<dyn Read>>>,
}

impl Source<'_> {
    /// The next line; failures of reading name the file.
    pub fn read(&mut self) -> Result<Option<&[u8]>> {
        let name = self.name;
        let place = self.lines.place();
        self.lines
            .read()
            .map_err(|error| Stop::error(format!("{}:{}: {}\n", name.display(), place.line + 1, reason(&error))))
    }

    /// An error at `column` bytes into the line at `place`.
    pub fn bad(&self, place: Place, column: usize, what: &str) -> Stop {
        bad(self.name, place, column, what)
    }
}

/// An error that names file, line and byte.
pub fn bad(name: &Path, place: Place, column: usize, what: &str) -> Stop {
    let byte = place.byte + column as u64;
    Stop::error(format!("{}:{}: byte {byte}: {what}\n", name.display(), place.line))
}

/// Whether the file begins with symbols. Files that cannot be read do not.
pub fn is_symbolized(path: &Path) -> bool {
    let Ok(mut source) = open(path, FIRST_BYTES) else { return false };
    matches!(header(&mut source), Ok(Some(line)) if is_marker(&line, &["symbol"]))
}

fn open(path: &Path, read_bytes: usize) -> std::result::Result<Source<'_>, Stop> {
    let file = File::open(path).map_err(|error| Stop::error(format!("{}: {}\n", path.display(), reason(&error))))?;
    let size = file.metadata().map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 });
    let again = if size >= kept::LEAST { file.try_clone().ok() } else { None };
    let reader: Box<dyn Read> = Box::new(file);
    let lines = Lines::new(BufReader::with_capacity(up_to(read_bytes, size), reader));
    Ok(Source { name: path, size, file: again, lines })
}

/// Room for a file of `size` bytes and its end, `most` bytes at most; that, when the size is not known.
fn up_to(most: usize, size: u64) -> usize {
    if size == 0 { most } else { usize::try_from(size).map_or(most, |size| most.min(size.saturating_add(1))) }
}

/// Reads a profile of any kind.
pub fn read(path: &Path, context: &mut Context<'_>) -> Result<Profile> {
    let mut source = open(path, READ_BYTES)?;
    let Some(mut line) = header(&mut source)? else {
        return Err(Stop::error("Profile is empty.\n"));
    };
    let mut symbols = None;
    if is_marker(&line, &["symbol"]) {
        if !context.symbolized {
            return Err(Stop::error(format!(
                "FATAL ERROR: Symbolized profile\n   {}\ncannot be used with a binary arg. Try again without passing\n   {}\n",
                path.display(),
                context.program
            )));
        }
        symbols = Some(symbolized::read(&mut source, context.program)?);
        line = header(&mut source)?.unwrap_or_default();
    }
    if is_marker(&line, &["heap", "growth"]) {
        line = header(&mut source)?.unwrap_or_default();
    }
    let mut profile = if line.starts_with(b"heap profile:") {
        let growth = line.windows(6).any(|word| word == b"growth");
        heap::read_classic(source, context, &line, if growth { Kind::Growth } else { Kind::Heap })?
    } else if line.starts_with(b"heap") {
        heap::read_threaded(source, context, &line)?
    } else if is_marker(&line, &["contention"]) {
        contention::read(&mut source, context)?
    } else if is_marker(&line, &["Stacks:"]) {
        say(format_args!(
            "Old format contention profile: mistakenly reports condition variable signals as lock contentions.\n"
        ));
        contention::read(&mut source, context)?
    } else if is_marker(&line, &["profile"]) {
        cpu::read(source, context)?
    } else if symbols.is_none() {
        cpu::read(source, context).map_err(|stop| of_no_kind(stop, path, &line))?
    } else {
        return Err(Stop::error(format!("{}: Cannot recognize profile section after symbols.\n", path.display())));
    };
    profile.symbols = symbols;
    Ok(profile)
}

/// Says of a file that was read as a CPU profile, for want of a word that names another kind, what it is instead.
fn of_no_kind(stop: Stop, path: &Path, line: &[u8]) -> Stop {
    let message = match stop {
        Stop::NoProfile(message) => message,
        Stop::Error(message) if !line.is_empty() => message,
        other => return other,
    };
    let is_empty = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
    let what = match () {
        () if is_empty => "the file is empty".to_owned(),
        () if line.is_empty() => "not a heap, growth, contention or CPU profile".to_owned(),
        () => format!(
            "not a heap, growth, contention or CPU profile; it begins with {:?}",
            String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)])
        ),
    };
    Stop::Error(format!("{message}{}:1: byte 0: {what}\n", path.display()))
}

/// The first line that is no command. Empty when the file does not begin with text (its bytes are then still there);
/// `None` at its end.
fn header(source: &mut Source<'_>) -> Result<Option<Vec<u8>>> {
    let name = source.name;
    let first =
        source.lines.peek().map_err(|error| Stop::error(format!("{}: {}\n", name.display(), reason(&error))))?;
    if !first.is_some_and(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(Some(Vec::new()));
    }
    while let Some(line) = source.read()? {
        if let Some(text) = line.strip_prefix(b"%warn").filter(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
        {
            say(format_args!("WARNING: {}\n", String::from_utf8_lossy(text.trim_ascii_start())));
        } else if line.starts_with(b"%") {
            say(format_args!("Ignoring unknown command from profile header: {}\n", String::from_utf8_lossy(line)));
        } else {
            return Ok(Some(line.to_vec()));
        }
    }
    Ok(None)
}

/// `--- NAME`, blanks optional.
fn is_marker(line: &[u8], names: &[&str]) -> bool {
    let Some(rest) = line.strip_prefix(b"---") else { return false };
    let blanks = rest.iter().take_while(|&&byte| byte == b' ').count();
    names.iter().any(|name| rest[blanks..].starts_with(name.as_bytes()))
}

/// Reads the addresses of a stack, youngest first, as ids; all but the first are return addresses and get one less, so
/// that they lie in the call. `column`: where `text` begins in its line.
pub fn stack(
    text: &[u8],
    (name, place, column): (&Path, Place, usize),
    context: &mut Context<'_>,
    max_pc: &mut u64,
    ids: &mut Vec<PcId>,
) -> Result<()> {
    ids.clear();
    let Context { pcs, width, .. } = context;
    records::addresses(text, |address| {
        let address = if ids.is_empty() { address } else { width.sub(address, 1) };
        *max_pc = (*max_pc).max(address);
        ids.push(pcs.id(address));
    })
    .map_err(|(at, what)| bad(name, place, column + at, &what))
}

/// The bytes behind the lines that were read.
pub(super) fn rest_of(source: Source<'_>) -> (impl BufRead, u64) {
    source.lines.into_rest()
}
