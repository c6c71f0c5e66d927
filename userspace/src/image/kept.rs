//! One file of answers: what it holds, and how.
//!
//! ```text
//! DIR/BUILD-ID-DIGEST.names
//!   "jeprobe\0" | version | CRC-32 of all that follows
//!   identity                which program answered, and of what
//!   evidence                outside files that answers depend on: path, and device, inode, size, time, or that there is none
//!   traits                  answers about the image as a whole
//!   strings                 offset × (n + 1), bytes
//!   shown                   (as binutils shows it, cut by jeprof, in full) × n: numbers of strings, for those that are linker
//!                           names
//!   entries                 (svma, offset) × m ascending, records
//! ```
//!
//! Kept is what the tables say ([`Place`]) by linker name; which name is chosen is decided anew in every run, so no answer
//! differs from one that was computed. How a linker name is shown depends on nothing else, and stands beside it.
//!
//! A file is mapped, and checked as a whole before any of it is used.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::bytes::Bytes;
use super::dwarf::{Found, Line, Link};
use super::frames::Place;
use super::routines::{Linked, Placed};
use super::shown::{Forms, FunctionName, Shown};
use super::symtab::FunctionSymbol;
use super::text::Text;
use super::witness::Stamp;

const MAGIC: &[u8; 8] = b"jeprobe\0";
/// Of the layout and of what is put into it; another one is not read.
const VERSION: u32 = 3;
/// Bytes of an entry of the table of shown names.
const FORMS_BYTES: usize = 12;

/// What is known of one address, before names are chosen. Each part is there when it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known<S = Arc<str>> {
    pub(super) place: Option<Place<S>>,
    pub(super) routine: Option<Placed<S>>,
}

impl<S> Default for Known<S> {
    fn default() -> Known<S> {
        Known { place: None, routine: None }
    }
}

/// Answers about an image as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trait {
    /// Functions have names: [`super::Image::has_names`].
    HasNames,
    /// Inlined calls are shown: [`super::Image::has_separator`].
    HasSeparator,
}

/// By trait.
pub(super) type Traits = [Option<bool>; 2];

/// A file that does not hold what it should.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// A file that was read and checked.
#[derive(Debug)]
pub(super) struct Kept {
    bytes: Arc<Bytes>,
    pub(super) evidence: Vec<(PathBuf, Stamp)>,
    pub(super) traits: Traits,
    shown: Arc<Shown>,
    /// Places in `bytes`.
    string_offsets: usize,
    strings: usize,
    string_count: u32,
    forms: usize,
    index: usize,
    count: usize,
    records: usize,
    /// Strings that were asked for, each once, by number from 1.
    texts: Mutex<Vec<Option<Arc<str>>>>,
}

impl Kept {
    /// `Ok(None)`: of another version, or of another image with the same digest. `shown` gets to know how the names are shown
    /// that are asked for.
    pub(super) fn new(bytes: Bytes, identity: &[u8], shown: &Arc<Shown>) -> Result<Option<Kept>, Damaged> {
        let bytes = Arc::new(bytes);
        let mut from = Decoder { bytes: &bytes, at: 0 };
        if from.take(MAGIC.len()).ok_or(Damaged)? != MAGIC {
            return Err(Damaged);
        }
        if from.u32().ok_or(Damaged)? != VERSION {
            return Ok(None);
        }
        let sum = from.u32().ok_or(Damaged)?;
        if crc32fast::hash(&bytes[from.at..]) != sum {
            return Err(Damaged);
        }
        let mut body = || {
            if from.text()? != identity {
                return Some(None);
            }
            let mut evidence = Vec::new();
            for _ in 0..from.u32()? {
                let path = PathBuf::from(OsStr::from_bytes(from.text()?));
                let stamp = match from.u8()? {
                    0 => None,
                    _ => Some([from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?]),
                };
                evidence.push((path, stamp));
            }
            let mut traits = Traits::default();
            for has in &mut traits {
                *has = [None, Some(false), Some(true)].get(usize::from(from.u8()?)).copied()?;
            }
            let string_count = from.u32()?;
            let string_offsets = from.at;
            from.take((string_count as usize + 1).checked_mul(4)?)?;
            let size = from.u32()?;
            let strings = from.at;
            from.take(size as usize)?;
            let forms = from.at;
            from.take((string_count as usize).checked_mul(FORMS_BYTES)?)?;
            let count = from.u32()? as usize;
            let index = from.at;
            from.take(count.checked_mul(12)?)?;
            let records = from.at;
            Some(Some(Kept {
                bytes: bytes.clone(),
                evidence,
                traits,
                shown: shown.clone(),
                string_offsets,
                strings,
                string_count,
                forms,
                index,
                count,
                records,
                texts: Mutex::default(),
            }))
        };
        body().ok_or(Damaged)
    }

    fn svma(&self, at: usize) -> Option<u64> {
        Decoder { bytes: &self.bytes, at: self.index + at * 12 }.u64()
    }

    pub(super) fn get(&self, svma: u64) -> Option<Known> {
        self.entry(self.find(svma)?, &|number| self.linker(number))
    }

    /// The same with numbers of strings; see [`Kept::name`] and [`Kept::text`].
    pub(super) fn numbers(&self, svma: u64) -> Option<Known<u32>> {
        self.entry(self.find(svma)?, &|number| Ok(Some(number).filter(|&number| number > 0)))
    }

    fn find(&self, svma: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.svma(middle)?.cmp(&svma) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    pub(super) fn all(&self) -> BTreeMap<u64, Known> {
        (0..self.count)
            .filter_map(|at| Some((self.svma(at)?, self.entry(at, &|number| self.linker(number))?)))
            .collect()
    }

    /// `text` gives what stands for a string.
    fn entry<S>(&self, at: usize, text: &impl Fn(u32) -> Result<Option<S>, Damaged>) -> Option<Known<S>> {
        let offset = Decoder { bytes: &self.bytes, at: self.index + at * 12 + 8 }.u32()?;
        let mut from = Decoder { bytes: &self.bytes, at: self.records.checked_add(offset as usize)? };
        let string = |from: &mut Decoder<'_>| text(from.u32()?).ok();
        let place = if from.u8()? == 0 {
            None
        } else {
            let line = match from.u8()? {
                0 => None,
                _ => Some(Line { file: string(&mut from)?, number: from.u32()?, discriminator: from.u32()? }),
            };
            let mut chain = Vec::new();
            for _ in 0..from.u32()? {
                chain.push(Link {
                    key: from.u64()?,
                    name: string(&mut from)?,
                    is_linkage: from.u8()? != 0,
                    is_inlined: from.u8()? != 0,
                    low: from.u64()?,
                    call_file: string(&mut from)?,
                    call_line: from.u32()?,
                });
            }
            let symbol = match from.u8()? {
                0 => None,
                _ => Some(FunctionSymbol { address: from.u64()?, name: string(&mut from)??, file: string(&mut from)? }),
            };
            Some(Place { found: Found { line, chain }, symbol })
        };
        let routine = match from.u8()? {
            0 => None,
            1 => Some(Placed::Nothing),
            2 => Some(Placed::Behind),
            kind => Some(Placed::In(Linked {
                linker: string(&mut from)??,
                is_bare: kind == 4,
                start: from.u64()?,
                end: from.u64()?,
            })),
        };
        Some(Known { place, routine })
    }

    /// Where in `bytes` a string stands, by its number from 1.
    fn range(&self, number: u32) -> Option<Range<usize>> {
        let at = number.checked_sub(1).filter(|at| *at < self.string_count)?;
        let mut from = Decoder { bytes: &self.bytes, at: self.string_offsets + at as usize * 4 };
        let (start, end) = (from.u32()? as usize, from.u32()? as usize);
        Some(self.strings + start..self.strings + end)
    }

    /// String 0 is none.
    fn string(&self, number: u32) -> Result<Option<&str>, Damaged> {
        if number == 0 {
            return Ok(None);
        }
        let text = || std::str::from_utf8(self.bytes.get(self.range(number)?)?).ok();
        text().map(Some).ok_or(Damaged)
    }

    /// A string, made once.
    pub(super) fn text(&self, number: u32) -> Option<Arc<str>> {
        let text = || Some(self.string(number).ok()??.into());
        once(&self.texts, number, text)
    }

    /// A linker name as a function's name, which stays in the file; `None` when it is empty.
    pub(super) fn name(&self, number: u32) -> Option<FunctionName> {
        if self.range(number)?.is_empty() {
            return None;
        }
        let text = |number: Option<u32>| Text::kept(&self.bytes, self.range(number?)?);
        let [full, short, _] = self.form_numbers(number);
        match (text(full), text(short)) {
            (Some(full), Some(short)) => Some(FunctionName { full, short }),
            _ => Some(self.shown.of_binutils(&self.string(number).ok()??.into())),
        }
    }

    /// A string that may be a linker name; how that is shown is known from here on.
    pub(super) fn linker(&self, number: u32) -> Result<Option<Arc<str>>, Damaged> {
        if self.string(number)?.is_none() {
            return Ok(None);
        }
        let made = || {
            let linker: Arc<str> = self.string(number).ok()??.into();
            self.shown.recall(&linker, || self.forms(number));
            Some(linker)
        };
        once(&self.texts, number, made).map(Some).ok_or(Damaged)
    }

    /// Numbers of the strings that show a linker name.
    fn form_numbers(&self, number: u32) -> Forms<u32> {
        let Some(at) = number.checked_sub(1).filter(|at| *at < self.string_count) else { return Forms::default() };
        let mut from = Decoder { bytes: &self.bytes, at: self.forms + at as usize * FORMS_BYTES };
        [0; 3].map(|_: u8| from.u32().filter(|&number| number > 0))
    }

    /// How a linker name is shown.
    fn forms(&self, number: u32) -> Forms {
        let numbers = self.form_numbers(number);
        let text = |number: Option<u32>| Some(Arc::<str>::from(self.string(number?).ok()??));
        let full = text(numbers[0]);
        let short = if numbers[1] == numbers[0] { full.clone() } else { text(numbers[1]) };
        [full, short, text(numbers[2])]
    }
}

/// The entry of a number from 1, made when it is first asked for.
fn once<T: Clone>(made: &Mutex<Vec<Option<T>>>, number: u32, new: impl FnOnce() -> Option<T>) -> Option<T> {
    let at = number.checked_sub(1)? as usize;
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Some(known)) = made.get(at) {
        return Some(known.clone());
    }
    let entry = new()?;
    if made.len() <= at {
        made.resize(at + 1, None);
    }
    made[at] = Some(entry.clone());
    Some(entry)
}

/// Reads numbers from bytes; `None` where they end.
struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }
}

/// Strings of a file, each once, by number from 1.
#[derive(Default)]
struct Strings<'a> {
    known: HashMap<&'a str, u32>,
    list: Vec<&'a str>,
    /// Numbers of those that are linker names.
    linkers: Vec<u32>,
}

impl<'a> Strings<'a> {
    fn number(&mut self, text: &'a str) -> u32 {
        *self.known.entry(text).or_insert_with(|| {
            self.list.push(text);
            self.list.len() as u32
        })
    }

    fn put(&mut self, into: &mut Vec<u8>, text: Option<&'a str>) {
        let number = text.map_or(0, |text| self.number(text));
        into.extend_from_slice(&number.to_le_bytes());
    }

    fn put_linker(&mut self, into: &mut Vec<u8>, text: Option<&'a str>) {
        self.put(into, text);
        if let Some(text) = text {
            let number = self.number(text);
            self.linkers.push(number);
        }
    }
}

/// The file's bytes.
pub(super) fn encode(
    identity: &[u8],
    evidence: &BTreeMap<PathBuf, Stamp>,
    traits: Traits,
    entries: &BTreeMap<u64, &Known>,
    shown: &Shown,
) -> Vec<u8> {
    let (mut strings, mut index, mut records) = (Strings::default(), Vec::new(), Vec::new());
    for (svma, known) in entries {
        index.extend_from_slice(&svma.to_le_bytes());
        index.extend_from_slice(&(records.len() as u32).to_le_bytes());
        put_known(&mut records, &mut strings, known);
    }
    let mut linkers = std::mem::take(&mut strings.linkers);
    linkers.sort_unstable();
    linkers.dedup();
    let forms: Vec<(u32, Forms)> =
        linkers.into_iter().map(|number| (number, shown.forms(strings.list[number as usize - 1]))).collect();
    let mut numbers = Vec::with_capacity(forms.len());
    for (linker, forms) in &forms {
        let number = |form: usize| forms[form].as_deref().map_or(0, |text| strings.number(text));
        numbers.push((*linker, [0, 1, 2].map(number)));
    }
    let mut body = Vec::new();
    put_text(&mut body, identity);
    body.extend_from_slice(&(evidence.len() as u32).to_le_bytes());
    for (path, stamp) in evidence {
        put_text(&mut body, path.as_os_str().as_bytes());
        body.push(u8::from(stamp.is_some()));
        stamp.iter().flatten().for_each(|part| body.extend_from_slice(&part.to_le_bytes()));
    }
    body.extend(traits.map(|has| has.map_or(0, |has| 1 + u8::from(has))));
    body.extend_from_slice(&(strings.list.len() as u32).to_le_bytes());
    let mut end = 0_u32;
    body.extend_from_slice(&end.to_le_bytes());
    for text in &strings.list {
        end = end.saturating_add(text.len() as u32);
        body.extend_from_slice(&end.to_le_bytes());
    }
    put_text(&mut body, strings.list.concat().as_bytes());
    let start = body.len();
    body.resize(start + strings.list.len() * FORMS_BYTES, 0);
    for (linker, forms) in numbers {
        let at = start + (linker as usize - 1) * FORMS_BYTES;
        let bytes = forms.into_iter().flat_map(u32::to_le_bytes);
        body[at..at + FORMS_BYTES].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    }
    body.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    body.extend_from_slice(&index);
    body.extend_from_slice(&records);
    let sum = crc32fast::hash(&body);
    [MAGIC.as_slice(), &VERSION.to_le_bytes(), &sum.to_le_bytes(), &body].concat()
}

fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    into.extend_from_slice(&(text.len() as u32).to_le_bytes());
    into.extend_from_slice(text);
}

fn put_known<'a>(into: &mut Vec<u8>, strings: &mut Strings<'a>, known: &'a Known) {
    into.push(u8::from(known.place.is_some()));
    if let Some(Place { found: Found { line, chain }, symbol }) = &known.place {
        into.push(u8::from(line.is_some()));
        if let Some(line) = line {
            strings.put(into, line.file.as_deref());
            into.extend_from_slice(&line.number.to_le_bytes());
            into.extend_from_slice(&line.discriminator.to_le_bytes());
        }
        into.extend_from_slice(&(chain.len() as u32).to_le_bytes());
        for link in chain {
            into.extend_from_slice(&link.key.to_le_bytes());
            strings.put_linker(into, link.name.as_deref());
            into.push(u8::from(link.is_linkage));
            into.push(u8::from(link.is_inlined));
            into.extend_from_slice(&link.low.to_le_bytes());
            strings.put(into, link.call_file.as_deref());
            into.extend_from_slice(&link.call_line.to_le_bytes());
        }
        into.push(u8::from(symbol.is_some()));
        if let Some(symbol) = symbol {
            into.extend_from_slice(&symbol.address.to_le_bytes());
            strings.put_linker(into, Some(&symbol.name));
            strings.put(into, symbol.file.as_deref());
        }
    }
    match &known.routine {
        None => into.push(0),
        Some(Placed::Nothing) => into.push(1),
        Some(Placed::Behind) => into.push(2),
        Some(Placed::In(linked)) => {
            into.push(3 + u8::from(linked.is_bare));
            strings.put_linker(into, Some(&linked.linker));
            into.extend_from_slice(&linked.start.to_le_bytes());
            into.extend_from_slice(&linked.end.to_le_bytes());
        }
    }
}
